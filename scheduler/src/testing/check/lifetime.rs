//! G6 and G10: lane state outlives its nodes, and a failed run takes back what it made.

use std::collections::HashMap;

use super::{Check, Guarantee, is_end, node_of};
use crate::event::{Event, EventKind, LaneId, NodeId};
use crate::trace::Outcome;

impl Check<'_> {
    pub(super) fn lifetime(&mut self) {
        for lane in self.trace.lanes() {
            self.lane_state(lane.id);
            self.rollback(lane.id);
        }
    }

    fn lane_state(&mut self, lane: LaneId) {
        let events: Vec<Event> = self
            .trace
            .events()
            .iter()
            .filter(|event| event.lane == lane)
            .copied()
            .collect();
        let seqs = |kind: EventKind| {
            let of_kind = events.iter().filter(move |event| event.kind == kind);
            of_kind.map(|event| (event.seq, event.thread)).collect::<Vec<_>>()
        };
        let (opened, closed) = (seqs(EventKind::LaneOpened), seqs(EventKind::LaneClosed));
        let lane_name = self.lane_name(lane).to_owned();
        if opened.len() > 1 || closed.len() > 1 || closed.len() > opened.len() {
            let what = format!(
                "lane {lane_name} was opened {} times, closed {} times",
                opened.len(),
                closed.len()
            );
            self.report(Guarantee::G6, &[], what);
        }
        for event in &events {
            // The host lane has no state: its operator types read without any.
            let is_start = matches!(event.kind, EventKind::NodeStarted(_)) && lane != LaneId::HOST;
            let is_use = is_start || is_end(event.kind) || matches!(event.kind, EventKind::ValueDropped(_));
            if !is_use {
                continue;
            }
            let nodes: Vec<NodeId> = node_of(event.kind).into_iter().collect();
            if is_start && opened.first().is_none_or(|&(seq, _)| seq > event.seq) {
                let what = format!("{:?} came before lane {lane_name} was opened", event.kind);
                self.report(Guarantee::G6, &nodes, what);
            }
            if closed.first().is_some_and(|&(seq, _)| seq < event.seq) {
                let what = format!("{:?} came after lane {lane_name} was closed", event.kind);
                self.report(Guarantee::G6, &nodes, what);
            }
        }
        if let (Some(&(_, open_thread)), Some(&(_, close_thread))) = (opened.first(), closed.first())
            && open_thread != close_thread
        {
            self.report(
                Guarantee::G6,
                &[],
                format!("lane {lane_name} was opened and closed on different threads"),
            );
        }
    }

    fn rollback(&mut self, lane: LaneId) {
        let mut dropped: Vec<NodeId> = Vec::new();
        let mut dropped_at: Vec<u64> = Vec::new();
        let mut made_at: HashMap<NodeId, u64> = HashMap::new();
        for event in self.trace.events() {
            match event.kind {
                EventKind::NodeFinished(node) => {
                    made_at.insert(node, event.seq);
                }
                EventKind::ValueDropped(node) if self.trace.node(node).lane == lane => {
                    dropped.push(node);
                    dropped_at.push(event.seq);
                }
                _ => {}
            }
        }
        for (index, &node) in dropped.iter().enumerate() {
            if dropped[..index].contains(&node) {
                self.report(
                    Guarantee::G10,
                    &[node],
                    format!("the value of {} was dropped twice", self.name(node)),
                );
            }
            if self.trace.outcome(node) != Outcome::Finished {
                self.report(
                    Guarantee::G10,
                    &[node],
                    format!("{} had no value to drop", self.name(node)),
                );
            }
        }
        for (pair, first_dropped_at) in dropped.windows(2).zip(&dropped_at) {
            // Reverse order of creation: what was made later is dropped first, if it was made by then.
            let was_there = made_at.get(&pair[1]).is_some_and(|made| made < first_dropped_at);
            if was_there && !self.trace.before(pair[1], pair[0]) {
                let what = format!(
                    "the value of {} was dropped before that of {}, which was made later",
                    self.name(pair[0]),
                    self.name(pair[1])
                );
                self.report(Guarantee::G10, pair, what);
            }
        }
        if !dropped.is_empty() && self.has_succeeded() {
            self.report(
                Guarantee::G10,
                &dropped,
                "a run that succeeded rolled values back",
            );
        }
    }
}
