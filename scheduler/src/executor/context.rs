//! What a thread carries along while it runs nodes.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::actions::{Action, Actions};
use super::log::{Ending, Log, Moment};
use super::shared::{Shared, ending_of};
use super::waiting::Yields;
use crate::budget::Patience;
use crate::clock::Clock;
use crate::error::Fault;
use crate::event::{Phase, Settled};
use crate::mode::InitMode;
use crate::ready::{LaneIndex, Pos};
use crate::signal::Signal;
use crate::sync::{Arc, Ordering, thread};

/// How a lane's progress is made known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Publishing {
    /// Nobody waits for this lane's nodes.
    Never,
    /// After each node.
    Each,
    /// When the phase ends.
    AtPhaseEnd,
}

pub struct Cx {
    pub(crate) shared: Arc<Shared>,
    pub(crate) signal: Arc<Signal>,
    pub(super) waker: Waker,
    pub(super) lane: LaneIndex,
    publishing: Publishing,
    /// Nodes finished and not yet published.
    pub(super) held: u32,
    /// Nodes of ready-order lanes to feed when the phase ends.
    pub(super) held_feeds: Vec<(LaneIndex, Pos)>,
    pub(super) is_ready_order: bool,
    /// Nothing without a staging budget.
    pub(super) patience: Option<Patience>,
    pub(super) host_seen: u32,
    pub(super) yields: Yields,
    /// Place of the next node with an action: the one comparison a plain node pays for them.
    pub(super) special: Pos,
    pub(super) actions: Actions,
    pub(super) clock: Clock,
    pub(super) log: Option<Log>,
    pub(super) node_start: u64,
    pub(super) traced: bool,
}

impl Cx {
    /// A context for the calling thread, which is about to run lanes of this run.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let signal = Signal::of_current_thread();
        shared.add_thread(thread::current().id(), signal.clone());
        let log = shared
            .rules
            .record
            .then(|| Log::new(crate::sync::thread_number()));
        Cx {
            waker: Waker::from(signal.clone()),
            clock: Clock::new(shared.epoch),
            signal,
            lane: 0,
            publishing: Publishing::Never,
            held: 0,
            held_feeds: Vec::new(),
            is_ready_order: false,
            patience: shared.budget.as_ref().map(|_| match shared.rules.mode {
                InitMode::Inline => Patience::None,
                InitMode::Serial | InitMode::Overlapped => Patience::UntilItFits,
                InitMode::TwoPhase => Patience::UntilDrained,
            }),
            host_seen: 0,
            yields: Yields::new(),
            special: Pos::MAX,
            actions: Actions::default(),
            log,
            node_start: 0,
            traced: false,
            shared,
        }
    }

    /// Makes room for the notes on so many nodes, so that noting them down never copies.
    pub(crate) fn reserve_notes(&mut self, n_nodes: u32) {
        if let Some(log) = &mut self.log {
            log.reserve(n_nodes as usize + 16);
        }
    }

    /// Turns to a lane. Its actions come along until [`leave`](Cx::leave).
    pub(crate) fn enter(&mut self, lane: LaneIndex, actions: &mut Actions) {
        std::mem::swap(&mut self.actions, actions);
        self.lane = lane;
        self.special = self.actions.next_pos();
        let shared = &self.shared.lanes[lane as usize];
        self.is_ready_order = shared.ready.is_some();
        self.publishing = if shared.has_dependents {
            Publishing::Each
        } else {
            Publishing::Never
        };
    }

    /// Turns away from a lane and gives its actions back.
    pub(crate) fn leave(&mut self, actions: &mut Actions) {
        std::mem::swap(&mut self.actions, actions);
        self.special = Pos::MAX;
    }

    /// From now on the current lane's progress is published when [`end_phase`](Cx::end_phase) is called.
    pub(crate) fn hold_until_phase_end(&mut self) {
        self.publishing = Publishing::AtPhaseEnd;
    }

    /// Publishes what was held back.
    pub(crate) fn end_phase(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            self.note(Moment::HostPhaseEnded);
            let tide = &self.shared.lanes[self.lane as usize].tide;
            tide.set_stamp(self.clock.last());
            tide.advance(held);
        }
        for (lane, pos) in std::mem::take(&mut self.held_feeds) {
            self.feed(lane, pos);
        }
    }

    fn feed(&mut self, lane: LaneIndex, pos: Pos) {
        let ready = self.shared.lanes[lane as usize]
            .ready
            .as_ref()
            .expect("only ready-order lanes are fed");
        ready.feed(pos, &mut self.clock, |stamp| {
            if let Some(log) = &mut self.log {
                log.moment(lane, stamp, Moment::Ready(pos));
            }
        });
    }

    /// Goes to the actions of the node at `pos`, on a lane whose nodes do not come in order.
    pub(crate) fn seek(&mut self, pos: Pos) {
        self.actions.seek(pos);
        self.special = self.actions.next_pos();
    }

    /// Looks whether spans are wanted; once per batch, since the question costs as much as a node.
    pub(crate) fn look_for_subscriber(&mut self) {
        self.traced = tracing::enabled!(target: "scheduler", tracing::Level::DEBUG);
    }

    /// The span of a node, if anybody listens.
    #[inline]
    pub(crate) fn span(&self, pos: Pos) -> Option<tracing::span::EnteredSpan> {
        if self.traced {
            Some(self.enter_span(pos))
        } else {
            None
        }
    }

    #[cold]
    fn enter_span(&self, pos: Pos) -> tracing::span::EnteredSpan {
        let topology = &self.shared.topology;
        let node = topology.node_at(self.lane, pos);
        let site = topology.site(node, topology.phase(node));
        tracing::debug_span!(
            target: "scheduler",
            "init_node",
            operator = &*site.node,
            operator_type = &*site.operator_type,
            lane = &*site.lane,
            phase = %site.phase,
        )
        .entered()
    }

    /// Whether the batch must end after the node at hand.
    #[inline]
    pub(crate) fn wants_attention(&self) -> bool {
        self.shared.wants_attention()
    }

    /// A node starts.
    #[inline]
    pub(crate) fn begin(&mut self, pos: Pos) {
        let pulse = &self.shared.lanes[self.lane as usize].pulse;
        pulse.store(u64::from(pos) * 2 + 1, Ordering::Relaxed);
        if self.log.is_some() {
            self.node_start = self.clock.next();
        }
    }

    /// A node has finished, its value is in place.
    #[inline]
    pub(crate) fn finish(&mut self, pos: Pos) {
        if self.log.is_some() {
            self.note_end(pos, Ending::Finished);
        }
        self.pass(pos);
    }

    /// A node has failed, panicked or was stopped.
    #[cold]
    pub(crate) fn fail(&mut self, pos: Pos, fault: Fault) {
        self.note_end(pos, ending_of(&fault));
        self.fail_node(pos, fault, None);
        // In a stopped run the node must not count as through: a barrier could take it for a success.
        if !self.shared.is_stopped() {
            self.pass(pos);
        }
    }

    /// The lane's state could not be opened; `pos` is the first node that needed it.
    #[cold]
    pub(crate) fn fail_open(&mut self, pos: Pos, fault: Fault) {
        self.fail_node(pos, fault, Some(Phase::Open));
    }

    fn fail_node(&mut self, pos: Pos, fault: Fault, phase: Option<Phase>) {
        if matches!(fault, Fault::Stopped) {
            return;
        }
        let node = self.shared.topology.node_at(self.lane, pos);
        let phase = phase.unwrap_or_else(|| self.shared.topology.phase(node));
        self.shared
            .fail(node, phase, fault, &mut self.clock, self.log.as_mut());
    }

    /// A node will never run.
    pub(crate) fn skip(&mut self, pos: Pos) {
        self.note(Moment::Skipped(pos));
        self.pass(pos);
    }

    /// A node is through: makes it known.
    #[inline]
    fn pass(&mut self, pos: Pos) {
        if self.patience.is_some() {
            self.release_bytes(pos);
        }
        if self.is_ready_order {
            let lane = &self.shared.lanes[self.lane as usize];
            // Whoever sees the node done sees its stamp, too.
            if self.log.is_some() {
                lane.tide.set_stamp(self.clock.last());
            }
            lane.ready.as_ref().expect("so it is").set_done(pos);
        }
        match self.publishing {
            Publishing::Never => {}
            Publishing::Each => {
                let tide = &self.shared.lanes[self.lane as usize].tide;
                if self.log.is_some() {
                    tide.set_stamp(self.clock.last());
                }
                tide.advance(1);
            }
            Publishing::AtPhaseEnd => self.held += 1,
        }
        if pos == self.special {
            self.act(pos);
        }
        if self.shared.is_watched() {
            self.rest(pos + 1);
            self.shared.tell_watchers();
        }
    }

    #[cold]
    fn act(&mut self, pos: Pos) {
        while let Some(action) = self.actions.pop_at(pos) {
            match *action {
                Action::Tap(_) => {}
                Action::Mark(barrier) => self.pass_mark(barrier),
                Action::Feed { lane, pos } if self.publishing == Publishing::AtPhaseEnd => {
                    self.held_feeds.push((lane, pos));
                }
                Action::Feed { lane, pos } => self.feed(lane, pos),
            }
        }
        self.special = self.actions.next_pos();
    }

    fn pass_mark(&mut self, id: u32) {
        let barrier = &self.shared.barriers[id as usize];
        if barrier.lane_passed(self.clock.last()) {
            self.clock.observe(barrier.stamp());
            // With a doomed node among those it covers the barrier was settled when that node was doomed.
            if barrier.settle(Ok(())) {
                self.note(Moment::Settled(id, Settled::Ready));
            }
        }
    }

    /// Copies the value of the node at `pos` to whoever depends on it.
    #[inline]
    pub(crate) fn tap(&mut self, pos: Pos, value: &dyn Any) -> Result<(), Fault> {
        if pos == self.special {
            self.tap_all(pos, value)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn tap_all(&self, pos: Pos, value: &dyn Any) -> Result<(), Fault> {
        for (at, action) in &self.actions.list[self.actions.next..] {
            if *at != pos {
                break;
            }
            if let Action::Tap(tap) = action {
                catch_unwind(AssertUnwindSafe(|| tap(value))).map_err(Fault::from_panic)?;
            }
        }
        Ok(())
    }

    /// Runs a future to its end on this thread, in place. Stops at an await point when the run is stopped.
    #[inline]
    pub(crate) fn drive<F: Future>(&self, future: F) -> Result<F::Output, Fault> {
        super::waiting::drive(future, &self.waker, &self.signal, || self.shared.is_stopped())
    }

    /// Notes something of the current lane, now.
    #[inline]
    pub(crate) fn note(&mut self, what: Moment) {
        if let Some(log) = &mut self.log {
            log.moment(self.lane, self.clock.now(), what);
        }
    }

    fn note_end(&mut self, pos: Pos, ending: Ending) {
        if let Some(log) = &mut self.log {
            log.node(self.lane, pos, self.node_start, self.clock.now(), ending);
        }
    }
}
