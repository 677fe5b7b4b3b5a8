//! A trace for other eyes: Chrome trace JSON for Perfetto, DOT for Graphviz, lanes as text for a terminal.

mod chrome;
mod dot;
mod timeline;

pub use dot::graph_dot;
