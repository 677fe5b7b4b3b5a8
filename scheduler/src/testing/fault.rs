//! What is to go wrong, and where.

use super::spec::{GraphSpec, NodeKind};
use crate::event::Phase;
use proptest::prelude::*;
use proptest::sample::Index;

/// One thing that goes wrong in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The node returns an error.
    Fail,
    /// The node panics.
    Panic,
    /// The node never returns of itself: a device part awaits forever, a host read blocks until [`Script::release`](super::Script::release).
    Stall,
    /// The run is cancelled while the node runs; the node itself goes on and finishes.
    Cancel,
}

impl Fault {
    /// Every kind of fault.
    pub const ALL: [Fault; 4] = [Fault::Fail, Fault::Panic, Fault::Stall, Fault::Cancel];
}

/// Where a fault strikes: a node of a [`GraphSpec`] by index, in one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultPoint {
    /// Index of the node.
    pub node: usize,
    /// Which part of it.
    pub phase: Phase,
    /// What happens there.
    pub fault: Fault,
}

/// The faults of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    points: Vec<FaultPoint>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// One thing goes wrong.
    pub fn at(node: usize, phase: Phase, fault: Fault) -> FaultPlan {
        FaultPlan {
            points: vec![FaultPoint { node, phase, fault }],
        }
    }

    /// One more thing goes wrong.
    pub fn and(mut self, node: usize, phase: Phase, fault: Fault) -> FaultPlan {
        self.points.push(FaultPoint { node, phase, fault });
        self
    }

    /// Everything that is to go wrong.
    pub fn points(&self) -> &[FaultPoint] {
        &self.points
    }

    /// What goes wrong in a part of a node; the first that was planned.
    pub fn fault(&self, node: usize, phase: Phase) -> Option<Fault> {
        let point = self
            .points
            .iter()
            .find(|point| (point.node, point.phase) == (node, phase));
        point.map(|point| point.fault)
    }
}

/// Up to `max_faults` faults of the given kinds in a graph; shrinks towards none.
pub fn faults(spec: &GraphSpec, kinds: &[Fault], max_faults: usize) -> BoxedStrategy<FaultPlan> {
    let nodes = spec.nodes.clone();
    if nodes.is_empty() || kinds.is_empty() {
        return Just(FaultPlan::none()).boxed();
    }
    let point = (
        any::<Index>(),
        any::<bool>(),
        proptest::sample::select(kinds.to_vec()),
    );
    proptest::collection::vec(point, 0..=max_faults)
        .prop_map(move |drafts| {
            let points = drafts.into_iter().map(|(node, is_device, fault)| {
                let node = node.index(nodes.len());
                let has_host = nodes[node].kind == NodeKind::Operator;
                let phase = if is_device || !has_host {
                    Phase::Device
                } else {
                    Phase::Host
                };
                FaultPoint { node, phase, fault }
            });
            FaultPlan {
                points: points.collect(),
            }
        })
        .boxed()
}
