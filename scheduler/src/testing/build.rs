//! Real graphs from plain data, with your operator type or with the fake one.

use super::fake::{FakeSource, FakeType, FakeValue, content};
use super::script::Script;
use super::spec::{GraphSpec, LaneSpec, NodeKind, NodeSpec};
use crate::event::{BarrierId, LaneOrder, NodeId, Phase};
use crate::graph::InitGraph;
use crate::graph::refs::{Lane, NodeRef, Operator};
use crate::operator::OperatorType;

/// A graph built from a [`GraphSpec`], with what is needed to ask its run for values.
pub struct Built<N> {
    /// The graph, ready to start.
    pub graph: InitGraph,
    /// The nodes of the spec, in its order.
    pub nodes: Vec<N>,
    /// The barriers of the spec, in its order.
    pub barriers: Vec<BarrierId>,
}

/// A node of a graph with fake operators.
#[derive(Clone, Copy, Debug)]
pub enum FakeNode {
    /// An operator.
    Operator(Operator<FakeType>),
    /// A plain node.
    Plain(NodeRef<FakeValue>),
}

impl FakeNode {
    /// The part that runs on the device lane, and gives the node's value.
    pub fn device(self) -> NodeRef<FakeValue> {
        match self {
            FakeNode::Operator(operator) => operator.device(),
            FakeNode::Plain(node) => node,
        }
    }

    /// The part that runs on the host lane; a plain node has none.
    pub fn host(self) -> Option<NodeRef<FakeValue>> {
        match self {
            FakeNode::Operator(operator) => Some(operator.host()),
            FakeNode::Plain(_) => None,
        }
    }

    /// A part by phase.
    pub fn part(self, phase: Phase) -> Option<NodeId> {
        match phase {
            Phase::Host => self.host().map(NodeRef::id),
            Phase::Device | Phase::Open => Some(self.device().id()),
        }
    }
}

impl GraphSpec {
    /// The graph with operators of your type: `make_type` gives the type for a lane, `make_source` what the operator at an index
    /// is read from. Every node of the spec becomes an operator; edges become order edges.
    pub fn build<T: OperatorType>(
        &self,
        make_type: impl Fn(usize) -> T,
        make_source: impl Fn(usize) -> T::Source,
    ) -> Built<Operator<T>>
    where
        T::Source: Sized + Send + 'static,
    {
        let mut graph = InitGraph::new();
        let lanes = self.add_lanes(&mut graph, make_type);
        let mut operators: Vec<Operator<T>> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let operator = graph.operator(&lanes[node.lane], GraphSpec::name(index), make_source(index));
            for edge in &node.after {
                let waits = if edge.waits == Phase::Host {
                    operator.host().id()
                } else {
                    operator.device().id()
                };
                graph.after(waits, operators[edge.earlier]);
            }
            operators.push(operator);
        }
        let barriers = self.add_barriers(&mut graph, |index| operators[index].device().id());
        Built {
            graph,
            nodes: operators,
            barriers,
        }
    }

    /// The graph with fake operators and plain nodes that do what `script` says.
    pub fn build_fake(&self, script: &Script) -> Built<FakeNode> {
        let mut graph = InitGraph::new();
        let lanes = self.add_lanes(&mut graph, |lane| {
            let fake = FakeType::new(format!("Type{lane}"), script);
            if self.lanes[lane].is_ordered() {
                fake
            } else {
                fake.order_insensitive()
            }
        });
        let mut nodes: Vec<FakeNode> = Vec::new();
        for (index, spec) in self.nodes.iter().enumerate() {
            let made = match spec.kind {
                NodeKind::Operator => {
                    let source = FakeSource {
                        node: index,
                        bytes: spec.bytes,
                        n_awaits: spec.n_awaits,
                    };
                    FakeNode::Operator(graph.operator(&lanes[spec.lane], GraphSpec::name(index), source))
                }
                NodeKind::Plain => {
                    let lane = &lanes[spec.lane];
                    FakeNode::Plain(add_plain(
                        &mut graph,
                        lane,
                        index,
                        spec,
                        self.lanes[spec.lane].is_ordered(),
                        &nodes,
                    ))
                }
            };
            for edge in &spec.after {
                let earlier = nodes[edge.earlier];
                // A plain node has its edges to plain nodes already: it takes their values.
                let is_typed = matches!((made, earlier), (FakeNode::Plain(_), FakeNode::Plain(_)));
                if let Some(waits) = made.part(edge.waits).filter(|_| !is_typed) {
                    graph.after(waits, earlier.device());
                }
            }
            nodes.push(made);
        }
        let barriers = self.add_barriers(&mut graph, |index| nodes[index].device().id());
        Built {
            graph,
            nodes,
            barriers,
        }
    }

    fn add_lanes<T: OperatorType>(
        &self,
        graph: &mut InitGraph,
        make_type: impl Fn(usize) -> T,
    ) -> Vec<Lane<T>> {
        let add = |(index, lane): (usize, &LaneSpec)| match (lane.n_stripes, lane.order) {
            (0 | 1, LaneOrder::Fifo) => graph.lane(make_type(index)),
            (0 | 1, LaneOrder::Ready) => graph.ready_order_lane(make_type(index)),
            (n_stripes, _) => graph.striped_lane(make_type(index), n_stripes),
        };
        self.lanes.iter().enumerate().map(add).collect()
    }

    fn add_barriers(&self, graph: &mut InitGraph, device: impl Fn(usize) -> NodeId) -> Vec<BarrierId> {
        let add = |(index, covers): (usize, &Vec<usize>)| {
            graph.barrier(format!("barrier{index}"), covers.iter().map(|&node| device(node)))
        };
        self.barriers.iter().enumerate().map(add).collect()
    }
}

impl LaneSpec {
    /// Whether the lane sets its nodes up in submission order, one after the other, in every mode.
    pub fn is_ordered(self) -> bool {
        self.order == LaneOrder::Fifo && self.n_stripes <= 1
    }
}

fn add_plain(
    graph: &mut InitGraph,
    lane: &Lane<FakeType>,
    index: usize,
    spec: &NodeSpec,
    is_order_sensitive: bool,
    earlier: &[FakeNode],
) -> NodeRef<FakeValue> {
    let deps: Vec<NodeRef<FakeValue>> = (spec.after.iter())
        .filter_map(|edge| match earlier[edge.earlier] {
            FakeNode::Plain(node) => Some(node),
            FakeNode::Operator(_) => None,
        })
        .collect();
    let n_awaits = spec.n_awaits;
    graph.node(
        lane,
        GraphSpec::name(index),
        deps,
        async move |lane, values: Vec<FakeValue>| {
            let contents: Vec<u64> = values.iter().map(|value| value.content).collect();
            lane.run(index, n_awaits, content(&contents), is_order_sensitive)
                .await
        },
    )
}
