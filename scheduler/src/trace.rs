//! What a recorded run says: who ran when, who waited for whom, and where the time went.
//!
//! Ordering questions ([`Trace::before`], [`Trace::overlaps`]) are answered by sequence numbers, never by comparing times.
//! Times answer the other kind: how long, on which lane, on the critical path or beside it.

mod attribution;
mod critical_path;
mod span;
mod usage;

pub use attribution::{Attribution, AttributionRow, Breakdown};
pub use critical_path::{CriticalPath, Step, Via};
pub use span::{Outcome, Span};
pub use usage::{LaneUsage, TypeUsage};

use crate::event::{BarrierInfo, Event, LaneId, LaneInfo, NodeId, NodeInfo, Phase, RunRecord};
use crate::mode::InitMode;
use std::time::Duration;

/// A recorded run, ready for questions.
///
/// # Examples
///
/// ```
/// use scheduler::{NodeId, RunRecord, Trace};
///
/// fn report(record: RunRecord) -> String {
///     let trace = Trace::new(record);
///     for lane in trace.lane_usage() {
///         println!("{}: busy {:?}", trace.lane(lane.lane).name, lane.busy);
///     }
///     println!("critical path: {:.0}% of {:?}", 100.0 * trace.critical_path().share(), trace.wall());
///     trace.timeline(100)
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    record: RunRecord,
    /// Invariant: one per node of the record, by id; made from its events in [`Trace::new`].
    spans: Vec<Span>,
}

impl Trace {
    /// Takes a record apart into one [`Span`] per node. Events that name a node the record does not list are passed over.
    pub fn new(record: RunRecord) -> Trace {
        let spans = span::spans(&record);
        Trace { record, spans }
    }

    /// The record this trace was made from.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// The mode the run was started in.
    pub fn mode(&self) -> InitMode {
        self.record.mode
    }

    /// Every event, by sequence number.
    pub fn events(&self) -> &[Event] {
        &self.record.events
    }

    /// Every node, in submission order.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.record.nodes
    }

    /// Every lane; the host lane is the first.
    pub fn lanes(&self) -> &[LaneInfo] {
        &self.record.lanes
    }

    /// Every barrier; the one over the whole graph is the first.
    pub fn barriers(&self) -> &[BarrierInfo] {
        &self.record.barriers
    }

    /// What a node is.
    ///
    /// # Panics
    ///
    /// If `node` is not of this run.
    pub fn node(&self, node: NodeId) -> &NodeInfo {
        &self.record.nodes[node.index()]
    }

    /// What a lane is.
    ///
    /// # Panics
    ///
    /// If `lane` is not of this run.
    pub fn lane(&self, lane: LaneId) -> &LaneInfo {
        &self.record.lanes[lane.index()]
    }

    /// The first node of that name and phase.
    pub fn find(&self, name: &str, phase: Phase) -> Option<NodeId> {
        let found = self
            .record
            .nodes
            .iter()
            .find(|node| node.name == name && node.phase == phase);
        found.map(|node| node.id)
    }

    /// The lane of that name.
    pub fn find_lane(&self, name: &str) -> Option<LaneId> {
        self.record
            .lanes
            .iter()
            .find(|lane| lane.name == name)
            .map(|lane| lane.id)
    }

    /// When a node ran, on which thread, and how it ended.
    ///
    /// # Panics
    ///
    /// If `node` is not of this run.
    pub fn span(&self, node: NodeId) -> &Span {
        &self.spans[node.index()]
    }

    /// How a node ended.
    ///
    /// # Panics
    ///
    /// If `node` is not of this run.
    pub fn outcome(&self, node: NodeId) -> Outcome {
        self.spans[node.index()].outcome
    }

    /// Whether `earlier` had ended before `later` started. False unless both started.
    ///
    /// # Panics
    ///
    /// If a node is not of this run.
    pub fn before(&self, earlier: NodeId, later: NodeId) -> bool {
        match (self.span(earlier).end_seq, self.span(later).start_seq) {
            (Some(end), Some(start)) => end < start,
            _ => false,
        }
    }

    /// Whether two nodes were running at the same time. False unless both started; a node overlaps itself.
    ///
    /// # Panics
    ///
    /// If a node is not of this run.
    pub fn overlaps(&self, a: NodeId, b: NodeId) -> bool {
        let have_started = self.span(a).start_seq.is_some() && self.span(b).start_seq.is_some();
        have_started && !self.before(a, b) && !self.before(b, a)
    }

    /// The nodes of a lane that started, in the order in which they did.
    pub fn order(&self, lane: LaneId) -> Vec<NodeId> {
        let on_lane = self.record.nodes.iter().filter(|node| node.lane == lane);
        let mut started: Vec<(u64, NodeId)> = on_lane
            .filter_map(|node| Some((self.span(node.id).start_seq?, node.id)))
            .collect();
        started.sort_unstable();
        started.into_iter().map(|(_, node)| node).collect()
    }

    /// From the start of the run to the end of its last node. A node that never ended counts up to the last event.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall_ns())
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.spans
            .iter()
            .filter_map(Span::range_ns)
            .map(|range| range.end)
            .max()
            .unwrap_or(0)
    }

    /// When the last node that `node` depends on had ended: from then on it only waited for its turn.
    /// `None` if one of them did not finish.
    pub(crate) fn ready_ns(&self, node: NodeId) -> Option<u64> {
        let deps = &self.node(node).deps;
        deps.iter().try_fold(0, |latest, &dep| {
            let span = self.span(dep);
            let end = span.range_ns().filter(|_| span.outcome == Outcome::Finished)?.end;
            Some(end.max(latest))
        })
    }
}

/// `part / whole` of two times, exact where the quotient is; 0 of an empty whole.
fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        0.0
    } else {
        part.as_nanos() as f64 / whole.as_nanos() as f64
    }
}
