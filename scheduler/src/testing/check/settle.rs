//! G7, G8 and G13: barriers settle once and truthfully, and staged bytes keep to the budget.

use super::{Check, Guarantee};
use crate::event::{BarrierId, EventKind, LaneId, NodeId, Settled};
use crate::trace::Outcome;
use std::collections::HashMap;

impl Check<'_> {
    pub(super) fn settle(&mut self) {
        for barrier in 0..self.trace.barriers().len() {
            self.barrier(BarrierId::from_index(barrier));
        }
        self.skips();
        self.staging();
    }

    /// Whether the barrier over everything settled well.
    pub(super) fn has_succeeded(&self) -> bool {
        self.event(|kind| kind == EventKind::BarrierSettled(BarrierId::ALL, Settled::Ready))
            .is_some()
    }

    /// Whether every lane that was opened has closed: nothing more will happen.
    fn is_over(&self) -> bool {
        let n = |wanted: EventKind| {
            self.trace
                .events()
                .iter()
                .filter(|event| event.kind == wanted)
                .count()
        };
        let has_settled = self
            .event(|kind| matches!(kind, EventKind::BarrierSettled(BarrierId::ALL, _)))
            .is_some();
        has_settled && n(EventKind::LaneOpened) == n(EventKind::LaneClosed)
    }

    fn barrier(&mut self, barrier: BarrierId) {
        let info = &self.trace.barriers()[barrier.index()];
        let name = info.name.clone();
        let covers = info.covers.clone();
        let settled: Vec<(u64, Settled)> = (self.trace.events().iter())
            .filter_map(|event| match event.kind {
                EventKind::BarrierSettled(id, how) if id == barrier => Some((event.seq, how)),
                _ => None,
            })
            .collect();
        if settled.len() > 1 {
            self.report(
                Guarantee::G7,
                &[],
                format!("barrier {name} settled {} times", settled.len()),
            );
        }
        if settled.is_empty() && self.is_over() {
            self.report(Guarantee::G8, &[], format!("barrier {name} never settled"));
        }
        let Some(&(seq, how)) = settled.first() else {
            return;
        };
        if how == Settled::Ready {
            for node in covers {
                let has_finished = self.trace.outcome(node) == Outcome::Finished
                    && self.trace.span(node).end_seq.is_some_and(|end| end < seq);
                if !has_finished {
                    let what = format!("barrier {name} was ready before {} had finished", self.name(node));
                    self.report(Guarantee::G7, &[node], what);
                }
            }
        } else if !self.has_cause(seq) {
            self.report(
                Guarantee::G8,
                &[],
                format!("barrier {name} failed and nothing had gone wrong"),
            );
        }
    }

    /// Whether anything before `seq` explains a failure: a node's, a lane's that could not open, or a cancel.
    fn has_cause(&self, seq: u64) -> bool {
        let is_cause = |kind: EventKind| {
            matches!(
                kind,
                EventKind::NodeFailed(_) | EventKind::NodePanicked(_) | EventKind::RunCancelled
            )
        };
        let has_lane_without_state = self.trace.lanes().iter().any(|lane| {
            let has_opened = self
                .trace
                .events()
                .iter()
                .any(|event| event.lane == lane.id && event.kind == EventKind::LaneOpened);
            lane.id != LaneId::HOST && !has_opened
        });
        has_lane_without_state
            || self
                .trace
                .events()
                .iter()
                .any(|event| event.seq < seq && is_cause(event.kind))
    }

    /// What never ran was said to be skipped once the run is over, and had a reason.
    fn skips(&mut self) {
        if !self.is_over() {
            return;
        }
        for node in self.trace.nodes() {
            if matches!(self.trace.outcome(node.id), Outcome::Pending | Outcome::Running) {
                let what = format!(
                    "{} is {} after the end",
                    self.name(node.id),
                    self.trace.outcome(node.id).name()
                );
                self.report(Guarantee::G8, &[node.id], what);
            }
        }
    }

    fn staging(&mut self) {
        let budget = self.trace.record().staging_budget_bytes.unwrap_or(u64::MAX);
        let mut staged: HashMap<NodeId, u64> = HashMap::new();
        for event in self.trace.events() {
            match event.kind {
                EventKind::BytesStaged(node, bytes) => {
                    if staged.insert(node, bytes).is_some() {
                        self.report(
                            Guarantee::G13,
                            &[node],
                            format!("{} was staged twice", self.name(node)),
                        );
                    }
                    let total: u64 = staged.values().sum();
                    if total > budget && staged.len() > 1 {
                        let mut nodes: Vec<NodeId> = staged.keys().copied().collect();
                        nodes.sort_unstable();
                        self.report(
                            Guarantee::G13,
                            &nodes,
                            format!("{total} bytes staged, the budget is {budget}"),
                        );
                    }
                }
                EventKind::BytesReleased(node, bytes) if staged.remove(&node) != Some(bytes) => {
                    let what = format!("{bytes} bytes of {} were released, not staged", self.name(node));
                    self.report(Guarantee::G13, &[node], what);
                }
                _ => {}
            }
        }
        // A run that failed stops counting: its values are dropped, and nothing more is read.
        if self.has_succeeded() && self.is_over() && !staged.is_empty() {
            let mut nodes: Vec<NodeId> = staged.keys().copied().collect();
            nodes.sort_unstable();
            self.report(Guarantee::G13, &nodes, "bytes are still staged after the end");
        }
    }
}
