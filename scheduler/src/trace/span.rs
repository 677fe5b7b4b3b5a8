//! One span per node, collected from the events in one pass.

use crate::event::{EventKind, NodeId, RunRecord};
use std::ops::Range;
use std::time::Duration;

/// How a node ended, or how far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It has not started, and nothing was said about it: the run was still going when the trace was taken.
    Pending,
    /// It started and had not ended when the trace was taken.
    Running,
    /// It finished, and its value could be used.
    Finished,
    /// It returned an error.
    Failed,
    /// It panicked.
    Panicked,
    /// It was stopped at an await point.
    Cancelled,
    /// It never started, since something it depends on failed or the run was stopped.
    Skipped,
}

impl Outcome {
    /// The outcome as one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Pending => "pending",
            Outcome::Running => "running",
            Outcome::Finished => "finished",
            Outcome::Failed => "failed",
            Outcome::Panicked => "panicked",
            Outcome::Cancelled => "cancelled",
            Outcome::Skipped => "skipped",
        }
    }
}

/// When a node ran and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// How it ended.
    pub outcome: Outcome,
    /// Sequence number of its start.
    pub start_seq: Option<u64>,
    /// Sequence number of its end.
    pub end_seq: Option<u64>,
    /// The thread it started on.
    pub thread: Option<u64>,
    start_ns: u64,
    /// Invariant: at least `start_ns`; of a running node, the time of the last event of the trace.
    end_ns: u64,
}

impl Span {
    /// Since the run started; `None` if the node did not start.
    pub fn start(&self) -> Option<Duration> {
        self.range_ns().map(|range| Duration::from_nanos(range.start))
    }

    /// Since the run started; `None` if the node did not start. Of a node still running, when the trace was taken.
    pub fn end(&self) -> Option<Duration> {
        self.range_ns().map(|range| Duration::from_nanos(range.end))
    }

    /// How long it ran; zero if it did not start.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns())
    }

    pub(crate) fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    pub(crate) fn range_ns(&self) -> Option<Range<u64>> {
        self.start_seq.map(|_| self.start_ns..self.end_ns)
    }
}

const NOTHING: Span = Span {
    outcome: Outcome::Pending,
    start_seq: None,
    end_seq: None,
    thread: None,
    start_ns: 0,
    end_ns: 0,
};

pub(super) fn spans(record: &RunRecord) -> Vec<Span> {
    let last_ns = record.events.iter().map(|event| event.at_ns).max().unwrap_or(0);
    let mut spans = vec![NOTHING; record.nodes.len()];
    for event in &record.events {
        let Some((node, outcome)) = change(event.kind) else {
            continue;
        };
        let Some(span) = spans.get_mut(node.index()) else {
            continue;
        };
        span.outcome = outcome;
        match outcome {
            Outcome::Running => {
                span.start_seq = Some(event.seq);
                span.thread = Some(event.thread);
                span.start_ns = event.at_ns;
                span.end_ns = last_ns;
            }
            Outcome::Skipped | Outcome::Pending => {}
            _ => {
                span.end_seq = Some(event.seq);
                span.end_ns = event.at_ns.max(span.start_ns);
            }
        }
    }
    spans
}

fn change(kind: EventKind) -> Option<(NodeId, Outcome)> {
    match kind {
        EventKind::NodeStarted(node) => Some((node, Outcome::Running)),
        EventKind::NodeFinished(node) => Some((node, Outcome::Finished)),
        EventKind::NodeFailed(node) => Some((node, Outcome::Failed)),
        EventKind::NodePanicked(node) => Some((node, Outcome::Panicked)),
        EventKind::NodeCancelled(node) => Some((node, Outcome::Cancelled)),
        EventKind::NodeSkipped(node) => Some((node, Outcome::Skipped)),
        _ => None,
    }
}
