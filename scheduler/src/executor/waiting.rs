//! How a lane's thread waits: for other lanes, for the staging budget, for an async node, for the end of the run.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::context::Cx;
use super::log::{Log, Moment};
use crate::budget::{Admission, Patience};
use crate::clock::Clock;
use crate::error::Fault;
use crate::ready::{LaneIndex, Pos, View};
use crate::signal::Signal;
use crate::sync::{Ordering, thread};

/// How often a lane that has nothing to do yields before it parks. One yield is 0.3 to 1 us: where waits are short, a busy host lane
/// has time to read a batch. Where they are long, yielding only hands the core over and back. A lane's waits are much alike, so the
/// last one tells.
pub(super) struct Yields(Cell<u32>);

#[cfg(not(shuttle))]
const MOST: u32 = 64;
#[cfg(shuttle)]
const MOST: u32 = 1;

/// A wait whose end that many yields might have seen.
const SHORT: Duration = Duration::from_micros(50);

impl Yields {
    pub(super) fn new() -> Self {
        Self(Cell::new(MOST))
    }

    pub(super) fn get(&self) -> u32 {
        self.0.get()
    }

    fn learn(&self, parked: Duration) {
        self.0.set(if parked < SHORT { MOST } else { 1 });
    }
}

impl Cx {
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
    pub(super) fn release_bytes(&mut self, pos: Pos) {
        let budget = self.shared.budget.as_ref().expect("patience comes with a budget");
        let (lane, stamp) = (self.lane, self.clock.now());
        budget.release(lane, pos, stamp, |host_pos, bytes| {
            if let Some(log) = &mut self.log {
                log.moment(lane, stamp, Moment::Released(host_pos, bytes));
            }
        });
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

    /// Sleeps until woken, after the yields.
    pub(super) fn park(&self) {
        let parked = Instant::now();
        self.signal.park();
        self.yields.learn(parked.elapsed());
    }

    fn wait_for_tide(&self, lane: LaneIndex, need: u32) -> bool {
        let tide = &self.shared.lanes[lane as usize].tide;
        for _ in 0..self.shared.spins {
            if tide.reached() >= need {
                return true;
            }
            std::hint::spin_loop();
        }
        for _ in 0..self.yields.get() {
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
            self.park();
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_ends_the_yielding_and_a_short_one_brings_it_back() {
        let yields = Yields::new();
        assert_eq!(yields.get(), MOST);
        yields.learn(SHORT);
        assert_eq!(yields.get(), 1);
        yields.learn(SHORT - Duration::from_nanos(1));
        assert_eq!(yields.get(), MOST);
    }
}
