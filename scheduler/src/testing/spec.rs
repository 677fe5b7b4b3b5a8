//! Random graphs as plain data, and the proptest strategies that draw and shrink them.

use crate::event::{LaneOrder, Phase};
use crate::mode::InitMode;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::ops::Range;

/// A graph as plain data: what a test builds a real graph from, and what proptest prints and shrinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphSpec {
    /// Lanes for operators, without the host lane; at least one.
    pub lanes: Vec<LaneSpec>,
    /// Operators and plain nodes, in submission order.
    pub nodes: Vec<NodeSpec>,
    /// Barriers, each over some of `nodes` by index. The barrier over everything is not among them.
    pub barriers: Vec<Vec<usize>>,
    /// Staging budget in bytes, if any.
    pub budget_bytes: Option<u64>,
}

/// A lane as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// On how many stripes its nodes are dealt out; at least one.
    pub n_stripes: usize,
    /// The order in which it starts its nodes. A striped lane is in FIFO order.
    pub order: LaneOrder,
}

/// An operator or a plain node as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// What it is.
    pub kind: NodeKind,
    /// Index of its lane.
    pub lane: usize,
    /// Staging bytes of its host read; plain nodes have none.
    pub bytes: u64,
    /// How many times its device part awaits before it finishes.
    pub n_awaits: u8,
    /// Earlier nodes it waits for. Invariant: each index is smaller than the node's own.
    pub after: Vec<EdgeSpec>,
}

/// What a node of a [`GraphSpec`] is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An operator: a host node and a device node.
    Operator,
    /// A plain node on the operator's lane, which takes the values of the plain nodes it waits for.
    Plain,
}

/// An edge to an earlier node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeSpec {
    /// Index of the earlier node; its device part is what is waited for.
    pub earlier: usize,
    /// Which part of the later node waits. A plain node has only a device part.
    pub waits: Phase,
}

impl GraphSpec {
    /// Name of the node at `index`, in graphs built from this.
    pub fn name(index: usize) -> String {
        format!("op{index}")
    }
}

/// How large the graphs of [`graphs`] are.
#[derive(Clone, Debug)]
pub struct Size {
    /// Lanes besides the host lane.
    pub n_lanes: Range<usize>,
    /// Operators and plain nodes together.
    pub n_nodes: Range<usize>,
    /// Barriers besides the one over everything.
    pub n_barriers: Range<usize>,
}

impl Default for Size {
    /// Small enough to read when it shrinks, large enough to have every kind of conflict.
    fn default() -> Size {
        Size {
            n_lanes: 1..5,
            n_nodes: 0..24,
            n_barriers: 0..3,
        }
    }
}

/// Random graphs: edges go from a node to an earlier one, so each is valid; smaller ones are found when a test fails.
pub fn graphs(size: Size) -> impl Strategy<Value = GraphSpec> {
    let lane = prop_oneof![
        4 => Just(LaneSpec { n_stripes: 1, order: LaneOrder::Fifo }),
        1 => Just(LaneSpec { n_stripes: 1, order: LaneOrder::Ready }),
        1 => (2_usize..4).prop_map(|n_stripes| LaneSpec { n_stripes, order: LaneOrder::Fifo }),
    ];
    let edge = (
        any::<Index>(),
        prop_oneof![5 => Just(Phase::Device), 1 => Just(Phase::Host)],
    );
    let kind = prop_oneof![4 => Just(NodeKind::Operator), 1 => Just(NodeKind::Plain)];
    let node = (
        kind,
        any::<Index>(),
        0_u64..100,
        prop_oneof![3 => Just(0), 1 => 1_u8..3],
        vec(edge, 0..3),
    );
    let barriers = vec(vec(any::<Index>(), 1..5), size.n_barriers);
    let budget_bytes = proptest::option::weighted(0.3, 0_u64..300);
    (
        vec(lane, size.n_lanes),
        vec(node, size.n_nodes),
        barriers,
        budget_bytes,
    )
        .prop_map(|(lanes, drafts, barriers, budget_bytes)| {
            let n_nodes = drafts.len();
            let nodes: Vec<NodeSpec> = drafts
                .into_iter()
                .enumerate()
                .map(|(own, (kind, lane, bytes, n_awaits, edges))| NodeSpec {
                    kind,
                    lane: lane.index(lanes.len()),
                    bytes: if kind == NodeKind::Operator { bytes } else { 0 },
                    n_awaits,
                    after: edges
                        .into_iter()
                        .filter(|_| own > 0)
                        .map(|(earlier, waits)| EdgeSpec {
                            earlier: earlier.index(own),
                            waits: if kind == NodeKind::Operator {
                                waits
                            } else {
                                Phase::Device
                            },
                        })
                        .collect(),
                })
                .collect();
            let barriers = barriers
                .into_iter()
                .filter(|_| n_nodes > 0)
                .map(|covers| covers.into_iter().map(|index| index.index(n_nodes)).collect())
                .collect();
            GraphSpec {
                lanes,
                nodes,
                barriers,
                budget_bytes,
            }
        })
}

/// Any of the four modes; shrinks towards the reference, Inline.
pub fn modes() -> impl Strategy<Value = InitMode> {
    proptest::sample::select(InitMode::ALL.to_vec())
}
