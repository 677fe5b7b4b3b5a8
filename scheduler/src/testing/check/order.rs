//! G1 to G5 and G12: who runs, when, after whom, and on which thread.

use super::{Check, Guarantee, is_end, node_of};
use crate::event::{EventKind, LaneOrder, NodeId, Phase};
use crate::trace::Outcome;
use std::collections::HashMap;

impl Check<'_> {
    pub(super) fn order(&mut self) {
        self.sequence_numbers();
        self.exactly_once();
        self.dependencies();
        self.lanes();
        self.pinning();
    }

    /// The oracle itself: without distinct, rising numbers no other check means anything.
    fn sequence_numbers(&mut self) {
        for pair in self.trace.events().windows(2) {
            if pair[0].seq >= pair[1].seq {
                let nodes: Vec<NodeId> = pair.iter().filter_map(|event| node_of(event.kind)).collect();
                self.report(
                    Guarantee::G2,
                    &nodes,
                    "events are not in the order of their sequence numbers",
                );
                return;
            }
        }
    }

    fn exactly_once(&mut self) {
        let mut n_starts = vec![0_u32; self.trace.nodes().len()];
        let mut n_ends = vec![0_u32; self.trace.nodes().len()];
        for event in self.trace.events() {
            let Some(node) = node_of(event.kind) else { continue };
            n_starts[node.index()] += u32::from(matches!(event.kind, EventKind::NodeStarted(_)));
            n_ends[node.index()] +=
                u32::from(is_end(event.kind) || matches!(event.kind, EventKind::NodeSkipped(_)));
        }
        let has_succeeded = self.has_succeeded();
        for node in self.trace.nodes() {
            let (n_starts, n_ends) = (n_starts[node.id.index()], n_ends[node.id.index()]);
            let has_run_once = n_starts == 1 && self.trace.outcome(node.id) == Outcome::Finished;
            if n_starts > 1 || n_ends > 1 || (has_succeeded && !has_run_once) {
                let what = format!(
                    "{} started {n_starts} times and ended {n_ends} times",
                    self.name(node.id)
                );
                self.report(Guarantee::G1, &[node.id], what);
            }
        }
    }

    fn dependencies(&mut self) {
        for node in self.trace.nodes() {
            for &dep in &node.deps {
                if dep >= node.id {
                    let what = format!(
                        "{} depends on {}, added later",
                        self.name(node.id),
                        self.name(dep)
                    );
                    self.report(Guarantee::G12, &[dep, node.id], what);
                    continue;
                }
                let has_started = self.trace.span(node.id).start_seq.is_some();
                let has_dep = self.trace.outcome(dep) == Outcome::Finished && self.trace.before(dep, node.id);
                if has_started && !has_dep {
                    let what = format!(
                        "{} started before {} had finished",
                        self.name(node.id),
                        self.name(dep)
                    );
                    self.report(Guarantee::G2, &[dep, node.id], what);
                }
            }
        }
    }

    fn lanes(&mut self) {
        let mut queue: HashMap<NodeId, u64> = HashMap::new();
        for event in self.trace.events() {
            if let EventKind::NodeReady(node) = event.kind {
                queue.insert(node, event.seq);
            }
        }
        for lane in self.trace.lanes() {
            for pair in self.trace.order(lane.id).windows(2) {
                let (first, second) = (pair[0], pair[1]);
                if !self.trace.before(first, second) {
                    let what = format!(
                        "{} and {} ran at once on lane {}",
                        self.name(first),
                        self.name(second),
                        self.lane_name(lane.id)
                    );
                    self.report(Guarantee::G3, &[first, second], what);
                }
                let in_order = match lane.order {
                    LaneOrder::Fifo => first < second,
                    LaneOrder::Ready => queue.get(&first) < queue.get(&second),
                };
                if !in_order {
                    let what = format!(
                        "{} started before {} on lane {}, whose order is {:?}",
                        self.name(first),
                        self.name(second),
                        self.lane_name(lane.id),
                        lane.order
                    );
                    self.report(Guarantee::G4, &[second, first], what);
                }
            }
        }
    }

    fn pinning(&mut self) {
        let mut lane_thread: Vec<Option<u64>> = vec![None; self.trace.lanes().len()];
        let mut host_thread: Option<u64> = None;
        let mut run_thread: Option<u64> = None;
        let has_one_thread = !self.trace.mode().has_lane_threads();
        for event in self.trace.events() {
            let Some(node) = node_of(event.kind) else { continue };
            // A skip may be noticed by another thread than the node's.
            if matches!(event.kind, EventKind::NodeSkipped(_)) {
                continue;
            }
            let info = self.trace.node(node);
            let mut is_pinned = event.lane == info.lane;
            is_pinned &= *lane_thread[info.lane.index()].get_or_insert(event.thread) == event.thread;
            if info.phase == Phase::Host {
                is_pinned &= *host_thread.get_or_insert(event.thread) == event.thread;
            }
            if has_one_thread {
                is_pinned &= *run_thread.get_or_insert(event.thread) == event.thread;
            }
            if !is_pinned {
                let what = format!(
                    "{} was on thread {} of {:?}",
                    self.name(node),
                    event.thread,
                    self.lane_name(event.lane)
                );
                self.report(Guarantee::G5, &[node], what);
            }
        }
    }
}
