//! The graph as DOT for Graphviz, through petgraph: one colour and one column per lane, dependencies as edges.

use crate::event::{LaneInfo, NodeId, NodeInfo};
use crate::trace::Trace;
use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::HashSet;

/// Enough hues to tell neighbouring lanes apart; lanes beyond it start over.
const N_HUES: usize = 12;

impl Trace {
    /// The graph as DOT: nodes carry their times, the critical path is drawn bold.
    pub fn to_dot(&self) -> String {
        let path = self.critical_path();
        let on_path: HashSet<NodeId> = path.steps.iter().map(|step| step.node).collect();
        let note = |node: &NodeInfo| match self.span(node.id).range_ns() {
            Some(_) => format!("{:.3} ms", self.span(node.id).duration().as_secs_f64() * 1e3),
            None => self.outcome(node.id).name().to_owned(),
        };
        render(self.lanes(), self.nodes(), &note, &on_path)
    }
}

/// A graph that has not run, as DOT.
pub fn graph_dot(lanes: &[LaneInfo], nodes: &[NodeInfo]) -> String {
    render(lanes, nodes, &|node| node.phase.to_string(), &HashSet::new())
}

fn render(
    lanes: &[LaneInfo],
    nodes: &[NodeInfo],
    note: &dyn Fn(&NodeInfo) -> String,
    on_path: &HashSet<NodeId>,
) -> String {
    let mut graph: DiGraph<NodeId, ()> = DiGraph::with_capacity(nodes.len(), nodes.len());
    for node in nodes {
        graph.add_node(node.id);
    }
    for node in nodes {
        for dep in &node.deps {
            graph.add_edge(NodeIndex::new(dep.index()), NodeIndex::new(node.id.index()), ());
        }
    }
    let edge_attributes = |graph: &DiGraph<NodeId, ()>, edge: petgraph::graph::EdgeReference<'_, ()>| {
        use petgraph::visit::EdgeRef;
        let is_on_path = [edge.source(), edge.target()]
            .iter()
            .all(|&end| on_path.contains(&graph[end]));
        if is_on_path {
            "penwidth = 3".to_owned()
        } else {
            String::new()
        }
    };
    let node_attributes = |_: &DiGraph<NodeId, ()>, (index, _): (NodeIndex, &NodeId)| {
        let node = &nodes[index.index()];
        let lane = &lanes[node.lane.index()];
        let label = format!("{}\n{} · {}", node.name, lane.name, note(node));
        // Nodes of one group are laid out in one column where the edges allow it.
        format!(
            "label = \"{}\" group = \"lane{}\" fillcolor = \"{:.3} 0.25 0.95\" penwidth = {}",
            label
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n"),
            lane.id.index(),
            (lane.id.index() % N_HUES) as f64 / N_HUES as f64,
            if on_path.contains(&node.id) { 3 } else { 1 },
        )
    };
    let config = [Config::EdgeNoLabel, Config::NodeNoLabel, Config::GraphContentOnly];
    let body = Dot::with_attr_getters(&graph, &config, &edge_attributes, &node_attributes);
    format!("digraph init {{\n    node [shape = box style = filled]\n{body:?}}}\n")
}
