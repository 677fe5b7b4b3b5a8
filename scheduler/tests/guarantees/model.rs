//! What should happen, worked out from the plain data and from nothing else: the trace's own idea of the graph is not asked.

use scheduler::testing::{Call, FakeNode, GraphSpec, NodeKind};
use scheduler::{NodeId, Phase};

/// Every part of every node, in submission order.
pub fn parts(spec: &GraphSpec) -> Vec<Call> {
    let mut parts = Vec::new();
    for (index, node) in spec.nodes.iter().enumerate() {
        if node.kind == NodeKind::Operator {
            parts.push((index, Phase::Host));
        }
        parts.push((index, Phase::Device));
    }
    parts
}

/// Every edge as (later, earlier).
pub fn edges(spec: &GraphSpec) -> Vec<(Call, Call)> {
    let mut edges = Vec::new();
    for (index, node) in spec.nodes.iter().enumerate() {
        if node.kind == NodeKind::Operator {
            edges.push(((index, Phase::Device), (index, Phase::Host)));
        }
        for edge in &node.after {
            edges.push(((index, edge.waits), (edge.earlier, Phase::Device)));
        }
    }
    edges
}

/// The parts that can never run once `failed` have not finished: whatever waits for them, directly or not.
pub fn doomed(spec: &GraphSpec, failed: &[Call]) -> Vec<Call> {
    let edges = edges(spec);
    let mut doomed: Vec<Call> = Vec::new();
    for part in parts(spec) {
        let is_gone = |call: &Call| failed.contains(call) || doomed.contains(call);
        if edges
            .iter()
            .any(|(later, earlier)| *later == part && is_gone(earlier))
        {
            doomed.push(part);
        }
    }
    doomed
}

/// The lane of a part, each stripe a lane of its own; the host lane is the first.
pub fn lane(spec: &GraphSpec, (node, phase): Call) -> usize {
    if phase == Phase::Host {
        return 0;
    }
    let lane = spec.nodes[node].lane;
    let n_before = spec.nodes[..node]
        .iter()
        .filter(|other| other.lane == lane)
        .count();
    let first: usize = spec.lanes[..lane].iter().map(|lane| lane.n_stripes).sum();
    1 + first + n_before % spec.lanes[lane].n_stripes
}

pub fn id(nodes: &[FakeNode], (node, phase): Call) -> NodeId {
    nodes[node]
        .part(phase)
        .expect("the model knows which parts there are")
}
