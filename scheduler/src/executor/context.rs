//! What a thread carries along while it runs nodes.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::log::{Ending, Log, Moment};
use super::shared::{Shared, ending_of};
use crate::budget::{Admission, Patience};
use crate::clock::Clock;
use crate::error::Fault;
use crate::event::{Phase, Settled};
use crate::graph::deps::Tap;
use crate::mode::InitMode;
use crate::ready::{LaneIndex, Pos, View};
use crate::signal::Signal;
use crate::sync::{Arc, Ordering, thread};

/// How often a lane that has nothing to do yields before it parks. One yield is 0.3 to 1 us: long enough for a busy
/// host lane to read a batch, short enough to stay invisible when nodes take milliseconds.
#[cfg(not(shuttle))]
pub(super) const YIELDS: u32 = 64;
#[cfg(shuttle)]
pub(super) const YIELDS: u32 = 1;

/// What a lane does when a certain node of it is through, besides going on.
pub(crate) enum Action {
    /// Copy the node's value to a dependent.
    Tap(Tap),
    /// The last node that a barrier covers on this lane; on a ready-order lane, each that it covers.
    Mark(u32),
    /// A node of a ready-order lane that waits for this one.
    Feed { lane: LaneIndex, pos: Pos },
}

/// A lane's actions, by place. Invariant: sorted.
#[derive(Default)]
pub(crate) struct Actions {
    list: Vec<(Pos, Action)>,
    next: usize,
}

impl Actions {
    pub(crate) fn push(&mut self, pos: Pos, action: Action) {
        self.list.push((pos, action));
    }

    pub(crate) fn seal(&mut self) {
        self.list.sort_by_key(|(pos, _)| *pos);
    }

    /// Goes to the actions of the node at `pos`, which need not come in order.
    fn seek(&mut self, pos: Pos) {
        self.next = self.list.partition_point(|(at, _)| *at < pos);
    }

    /// The next action, if it is one of the node at `pos`.
    fn pop_at(&mut self, pos: Pos) -> Option<&Action> {
        let (at, action) = self.list.get(self.next)?;
        if *at != pos {
            return None;
        }
        self.next += 1;
        Some(action)
    }

    /// The place of the next node that has an action; a place no lane has if there is none.
    fn next_pos(&self) -> Pos {
        self.list.get(self.next).map_or(Pos::MAX, |(pos, _)| *pos)
    }
}

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
    waker: Waker,
    lane: LaneIndex,
    publishing: Publishing,
    /// Nodes finished and not yet published.
    held: u32,
    /// Nodes of ready-order lanes to feed when the phase ends.
    held_feeds: Vec<(LaneIndex, Pos)>,
    is_ready_order: bool,
    /// Nothing without a staging budget.
    patience: Option<Patience>,
    host_seen: u32,
    /// Place of the next node with an action: the one comparison a plain node pays for them.
    special: Pos,
    actions: Actions,
    clock: Clock,
    log: Option<Log>,
    node_start: u64,
    traced: bool,
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

    /// Whether the host node at `pos` may be read now. If so, its bytes are charged.
    #[inline]
    pub(crate) fn admit(&mut self, pos: Pos) -> bool {
        match self.patience {
            None => true,
            Some(patience) => self.ask_budget(pos, patience),
        }
    }

    #[cold]
    fn ask_budget(&mut self, pos: Pos, patience: Patience) -> bool {
        let budget = self.shared.budget.as_ref().expect("patience comes with a budget");
        let mut stamp = 0;
        match budget.admit(pos, patience, &mut stamp) {
            Admission::Full => false,
            Admission::Read { charged_bytes } => {
                if charged_bytes > 0 {
                    self.clock.observe(stamp);
                    self.note(Moment::Staged(pos, charged_bytes));
                }
                true
            }
        }
    }

    /// Waits until the budget may have room for the host node at `pos`. False if the run was stopped.
    pub(crate) fn wait_for_budget(&mut self, pos: Pos) -> bool {
        let shared = self.shared.clone();
        let (Some(budget), Some(patience)) = (&shared.budget, self.patience) else {
            return !shared.is_stopped();
        };
        while !shared.is_stopped() && budget.wait(pos, patience, &self.signal) {
            self.signal.park();
        }
        self.touch();
        !shared.is_stopped()
    }

    /// From now on the budget is asked like this, if there is one.
    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = self.patience.map(|_| patience);
    }

    #[cold]
    fn release_bytes(&mut self, pos: Pos) {
        let budget = self.shared.budget.as_ref().expect("patience comes with a budget");
        let (lane, stamp) = (self.lane, self.clock.now());
        budget.release(lane, pos, stamp, |host_pos, bytes| {
            if let Some(log) = &mut self.log {
                log.moment(lane, stamp, Moment::Released(host_pos, bytes));
            }
        });
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
            self.shared.lanes[self.lane as usize]
                .ready
                .as_ref()
                .expect("so it is")
                .set_done(pos);
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
        drive(future, &self.waker, &self.signal, || self.shared.is_stopped())
    }

    /// Notes that the lane waits in front of the node at `pos`.
    pub(crate) fn rest(&self, pos: Pos) {
        let pulse = &self.shared.lanes[self.lane as usize].pulse;
        pulse.store(u64::from(pos) * 2, Ordering::Relaxed);
    }

    /// Waits until a lane has come to `need`. False if the run was stopped.
    pub(crate) fn wait_for(&mut self, lane: LaneIndex, need: u32) -> bool {
        let reached = self.wait_for_tide(lane, need);
        self.observe_tide(lane);
        self.touch();
        reached
    }

    /// Waits until a lane is through with its node at `on`. False if the run was stopped.
    pub(crate) fn wait_for_node(&mut self, lane: LaneIndex, on: Pos) -> bool {
        let shared = self.shared.clone();
        let other = &shared.lanes[lane as usize];
        let Some(ready) = &other.ready else {
            return self.wait_for(lane, on + 1);
        };
        loop {
            // In this order: a node that is done after the second look is counted after the first.
            let reached = other.tide.reached();
            if ready.is_done(on) {
                return true;
            }
            if !self.wait_for(lane, reached + 1) {
                return false;
            }
        }
    }

    fn observe_tide(&mut self, lane: LaneIndex) {
        let stamp = self.shared.lanes[lane as usize].tide.stamp();
        self.clock.observe(stamp);
    }

    /// The lane did something else than run nodes: the next node starts now, not when the last one ended.
    pub(crate) fn touch(&mut self) {
        if self.log.is_some() {
            self.clock.now();
        }
    }

    pub(crate) fn with_log<R>(
        &mut self,
        with: impl FnOnce(&mut Clock, &mut Option<Log>, LaneIndex) -> R,
    ) -> R {
        with(&mut self.clock, &mut self.log, self.lane)
    }

    fn wait_for_tide(&self, lane: LaneIndex, need: u32) -> bool {
        let tide = &self.shared.lanes[lane as usize].tide;
        for _ in 0..self.shared.spins {
            if tide.reached() >= need {
                return true;
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if tide.reached() >= need {
                return true;
            }
            if self.shared.is_stopped() {
                return false;
            }
            thread::yield_now();
        }
        if !tide.wait_for(need, &self.signal) {
            return true;
        }
        loop {
            if tide.reached() >= need {
                return true;
            }
            if self.shared.is_stopped() {
                tide.forget(&self.signal);
                return false;
            }
            self.signal.park();
        }
    }

    /// This thread has run all its nodes. Waits until the run's outcome is decided, by the last thread that comes here or by a failure.
    pub(crate) fn conclude(&mut self) {
        let all = &self.shared.barriers[0];
        if all.lane_passed(self.clock.last()) && !self.shared.is_stopped() {
            self.clock.observe(all.stamp());
            let at = self.clock.next();
            let how = self.shared.decide();
            if let Some(log) = &mut self.log {
                log.moment(0, at, Moment::Settled(0, how));
            }
        }
        while !self.shared.barriers[0].is_settled() {
            self.signal.park();
        }
        let stop_stamp = self.shared.stop_stamp();
        self.clock.observe(stop_stamp);
        self.touch();
    }

    /// Whether values must be rolled back. Known once [`conclude`](Cx::conclude) has returned.
    pub(crate) fn must_roll_back(&self) -> bool {
        matches!(self.shared.barriers[0].outcome(), Some(Err(_)))
    }

    /// This thread is through.
    pub(crate) fn close(&mut self) {
        let log = self.log.take();
        self.shared.thread_closed(log);
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

/// Runs a future to its end on the calling thread, in place; `signal` is the thread's and `waker` wakes it. Stops at an await
/// point once `is_stopped` says so.
#[inline]
pub(crate) fn drive<F: Future>(
    future: F,
    waker: &Waker,
    signal: &Signal,
    is_stopped: impl Fn() -> bool,
) -> Result<F::Output, Fault> {
    let mut future = pin!(future);
    let mut task = Context::from_waker(waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut task) {
            return Ok(value);
        }
        if is_stopped() {
            return Err(Fault::Stopped);
        }
        signal.park();
        if is_stopped() {
            return Err(Fault::Stopped);
        }
    }
}

impl View for Cx {
    fn host_seen(&self) -> u32 {
        self.host_seen
    }

    fn look_at_host(&mut self) -> u32 {
        self.host_seen = self.shared.lanes[0].tide.reached();
        self.observe_tide(0);
        self.host_seen
    }

    fn has_finished(&mut self, lane: LaneIndex, on: Pos) -> bool {
        let other = &self.shared.lanes[lane as usize];
        let finished = match &other.ready {
            None => other.tide.reached() > on,
            Some(ready) => ready.is_done(on),
        };
        self.observe_tide(lane);
        finished
    }
}
