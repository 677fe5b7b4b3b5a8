//! The chain of nodes that nothing but cheaper nodes or another layout can shorten.

use super::{Trace, ratio};
use crate::event::NodeId;
use std::collections::HashMap;
use std::time::Duration;

/// Why a step of a critical path could not start earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// Nothing held it: the first step.
    Start,
    /// It depends on the step before it.
    Dependency,
    /// The step before it came first on the same lane's thread.
    Thread,
}

/// One node of a critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node.
    pub node: NodeId,
    /// What ties it to the step before it.
    pub via: Via,
}

/// The longest chain of nodes, by the time they ran, in which each depends on the one before it or followed it on its thread.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// From the first node to the last.
    pub steps: Vec<Step>,
    /// Sum of the times its nodes ran.
    pub busy: Duration,
    /// Wall time of the run.
    pub wall: Duration,
}

impl CriticalPath {
    /// Share of the wall time that the path's nodes ran, from 0 to 1. What is missing to 1 is time in which every chain
    /// waited: starting threads, opening lanes, scheduling, a full staging budget.
    pub fn share(&self) -> f64 {
        ratio(self.busy, self.wall)
    }
}

impl Trace {
    /// The critical path through dependencies and through the order of nodes on each thread.
    pub fn critical_path(&self) -> CriticalPath {
        let mut started: Vec<(u64, NodeId)> = self
            .nodes()
            .iter()
            .filter_map(|node| Some((self.span(node.id).start_seq?, node.id)))
            .collect();
        started.sort_unstable();

        let mut best_ns = vec![0_u64; self.nodes().len()];
        let mut came_from: Vec<Option<Step>> = vec![None; self.nodes().len()];
        let mut last_on_thread: HashMap<u64, NodeId> = HashMap::new();
        let mut end: Option<NodeId> = None;
        for &(_, node) in &started {
            let on_thread = self
                .span(node)
                .thread
                .and_then(|thread| last_on_thread.insert(thread, node));
            let deps = self.node(node).deps.iter().map(|&dep| Step {
                node: dep,
                via: Via::Dependency,
            });
            let before = deps.chain(on_thread.map(|node| Step {
                node,
                via: Via::Thread,
            }));
            // The first of equals, so that a dependency is named rather than the thread.
            let mut longest: Option<Step> = None;
            for step in before.filter(|step| self.before(step.node, node)) {
                if longest.is_none_or(|so_far| best_ns[step.node.index()] > best_ns[so_far.node.index()]) {
                    longest = Some(step);
                }
            }
            let until_start = longest.map_or(0, |step| best_ns[step.node.index()]);
            best_ns[node.index()] = until_start + self.span(node).duration_ns();
            came_from[node.index()] = longest;
            if end.is_none_or(|so_far| best_ns[node.index()] >= best_ns[so_far.index()]) {
                end = Some(node);
            }
        }

        let mut steps = Vec::new();
        let mut at = end;
        while let Some(node) = at {
            let before = came_from[node.index()];
            steps.push(Step {
                node,
                via: before.map_or(Via::Start, |step| step.via),
            });
            at = before.map(|step| step.node);
        }
        steps.reverse();
        let busy = Duration::from_nanos(end.map_or(0, |node| best_ns[node.index()]));
        CriticalPath {
            steps,
            busy,
            wall: self.wall(),
        }
    }
}
