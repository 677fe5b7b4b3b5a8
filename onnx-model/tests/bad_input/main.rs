//! Bad input: each kind is a clear error that says file, node and tensor as far as they are known.

#[path = "../support/mod.rs"]
mod support;

mod files;
mod graphs;
mod shapes;
mod shrinking;
