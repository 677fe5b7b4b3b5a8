//! What fake nodes do, decided by a plan or step by step by the test, and what became of their values.

use super::fault::{Fault, FaultPlan};
use crate::event::Phase;
use crate::operator::BoxError;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, thread};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

/// How long [`Script::wait_for`] waits before it calls a node that does not start a hang.
const HANG: Duration = Duration::from_secs(60);

/// A part of a node that was entered: the node's index and the phase.
pub type Call = (usize, Phase);

/// What the fake nodes of one run do. Clones share everything.
///
/// A script runs free, with a [`FaultPlan`], or is [stepped](Script::stepped): then every part of a node waits, once entered, until
/// the test completes it, so that the test chooses the order in which work ends.
#[derive(Clone)]
pub struct Script {
    shared: Arc<Shared>,
}

struct Shared {
    plan: FaultPlan,
    is_stepped: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Entered and not told how to go on.
    waiting: Vec<(Call, Option<Waker>)>,
    /// Told how to go on, and not yet gone on.
    told: Vec<(Call, Verdict)>,
    /// Every part entered, in order.
    entered: Vec<Call>,
    is_released: bool,
    on_cancel: Option<Arc<dyn Fn() + Send + Sync>>,
    n_opened: usize,
    log: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Finish,
    Fault(Fault),
}

/// What happened to a value or a lane's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub what: What,
    /// On which thread.
    pub thread: thread::ThreadId,
}

/// A moment in the life of a fake value or lane state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A value was made by a part of a node, or cloned.
    Made(Call),
    /// A value, or a clone of it, was dropped.
    Dropped(Call),
    /// A lane state was opened. The number counts lane states in the order they were opened, so each stripe has its own.
    Opened(usize),
    /// A lane state was used by a part of a node, which began or came to its end.
    Used(usize, Call),
    /// A lane state was dropped.
    Closed(usize),
}

impl Script {
    /// Every node finishes by itself, except where the plan says otherwise.
    pub fn new(plan: FaultPlan) -> Script {
        Script::with(plan, false)
    }

    /// Every part of a node waits, once entered, until the test completes it.
    pub fn stepped() -> Script {
        Script::with(FaultPlan::none(), true)
    }

    fn with(plan: FaultPlan, is_stepped: bool) -> Script {
        let shared = Shared {
            plan,
            is_stepped,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        };
        Script {
            shared: Arc::new(shared),
        }
    }

    /// What goes wrong.
    pub fn plan(&self) -> &FaultPlan {
        &self.shared.plan
    }

    /// What [`Fault::Cancel`] does: a call of the run's cancel, usually. A node that is to cancel waits until this is set.
    pub fn on_cancel(&self, cancel: impl Fn() + Send + Sync + 'static) {
        self.state().on_cancel = Some(Arc::new(cancel));
        self.shared.changed.notify_all();
    }

    /// The parts that wait to be completed, in the order they were entered.
    pub fn waiting(&self) -> Vec<Call> {
        self.state().waiting.iter().map(|(call, _)| *call).collect()
    }

    /// Every part entered so far, in order.
    pub fn entered(&self) -> Vec<Call> {
        self.state().entered.clone()
    }

    /// Blocks until a part has been entered and waits.
    ///
    /// # Panics
    ///
    /// If that does not happen within a minute: the run hangs.
    pub fn wait_for(&self, call: Call) {
        self.wait_until(|waiting| waiting.contains(&call), call);
    }

    /// Blocks until exactly these parts wait, in any order.
    ///
    /// # Panics
    ///
    /// If that does not happen within a minute: the run hangs, or started what it must not.
    pub fn wait_for_all(&self, calls: &[Call]) {
        let is_it = |waiting: &[Call]| {
            waiting.len() == calls.len() && calls.iter().all(|call| waiting.contains(call))
        };
        self.wait_until(is_it, calls);
    }

    fn wait_until(&self, is_it: impl Fn(&[Call]) -> bool, what: impl std::fmt::Debug) {
        let mut state = self.state();
        loop {
            let waiting: Vec<Call> = state.waiting.iter().map(|(call, _)| *call).collect();
            if is_it(&waiting) {
                return;
            }
            let (next, timeout) = self
                .shared
                .changed
                .wait_timeout(state, HANG)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            state = next;
            assert!(
                !timeout.timed_out(),
                "waited for {what:?}, but these wait: {waiting:?}"
            );
        }
    }

    /// Lets a part finish, now or when it is entered.
    pub fn complete(&self, call: Call) {
        self.tell(call, Verdict::Finish);
    }

    /// Lets a part go wrong, now or when it is entered.
    pub fn fault(&self, call: Call, fault: Fault) {
        self.tell(call, Verdict::Fault(fault));
    }

    /// Lets everything that waits, stalls or will be entered finish by itself.
    pub fn release(&self) {
        let wakers: Vec<Waker> = {
            let mut state = self.state();
            state.is_released = true;
            std::mem::take(&mut state.waiting)
                .into_iter()
                .filter_map(|(_, waker)| waker)
                .collect()
        };
        self.shared.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What happened to values and lane states, in order.
    pub fn log(&self) -> Vec<Entry> {
        self.state().log.clone()
    }

    /// Adds to the log, as the calling thread.
    pub(super) fn note(&self, what: What) {
        let thread = thread::current().id();
        self.state().log.push(Entry { what, thread });
    }

    /// Notes that a lane state was opened and gives its number.
    pub(super) fn note_opened(&self) -> usize {
        let thread = thread::current().id();
        let mut state = self.state();
        let number = state.n_opened;
        state.n_opened += 1;
        state.log.push(Entry {
            what: What::Opened(number),
            thread,
        });
        number
    }

    fn tell(&self, call: Call, verdict: Verdict) {
        let waker = {
            let mut state = self.state();
            state.told.push((call, verdict));
            let place = state.waiting.iter().position(|(waiting, _)| *waiting == call);
            place.and_then(|place| state.waiting.remove(place).1)
        };
        self.shared.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A host read: blocks where it is told to wait.
    pub(super) fn enter_blocking(&self, call: Call) -> Result<(), BoxError> {
        let mut verdict = self.enter(call);
        loop {
            match verdict {
                Some(Verdict::Finish) => return Ok(()),
                Some(Verdict::Fault(fault)) if fault != Fault::Stall => return self.strike(call, fault),
                Some(Verdict::Fault(_)) | None => {}
            }
            let mut state = self.state();
            if state.told.iter().all(|(told, _)| *told != call) && !state.is_released {
                state = self
                    .shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            verdict = take_verdict(&mut state, call);
        }
    }

    /// A device part: awaits where it is told to wait.
    pub(super) async fn enter_awaiting(&self, call: Call) -> Result<(), BoxError> {
        let mut first = Some(self.enter(call));
        let _leave = Leave { script: self, call };
        let verdict = poll_fn(|task| {
            let mut state = self.state();
            let verdict = first.take().flatten().or_else(|| take_verdict(&mut state, call));
            match verdict {
                Some(verdict) if verdict != Verdict::Fault(Fault::Stall) => Poll::Ready(verdict),
                _ => {
                    if let Some((_, waker)) = state.waiting.iter_mut().find(|(waiting, _)| *waiting == call) {
                        *waker = Some(task.waker().clone());
                    }
                    Poll::Pending
                }
            }
        });
        match verdict.await {
            Verdict::Finish => Ok(()),
            Verdict::Fault(fault) => self.strike(call, fault),
        }
    }

    fn enter(&self, call: Call) -> Option<Verdict> {
        let mut state = self.state();
        state.entered.push(call);
        let planned = self.shared.plan.fault(call.0, call.1);
        let verdict = match planned {
            Some(fault) => Some(Verdict::Fault(fault)),
            None if !self.shared.is_stepped => Some(Verdict::Finish),
            None => take_verdict(&mut state, call),
        };
        if (verdict.is_none() || verdict == Some(Verdict::Fault(Fault::Stall))) && !state.is_released {
            state.waiting.push((call, None));
        }
        drop(state);
        self.shared.changed.notify_all();
        verdict
    }

    fn strike(&self, call: Call, fault: Fault) -> Result<(), BoxError> {
        match fault {
            Fault::Fail => Err(format!("planned failure of node {} ({})", call.0, call.1).into()),
            Fault::Panic => panic!("planned panic of node {} ({})", call.0, call.1),
            Fault::Stall => Ok(()),
            Fault::Cancel => {
                self.cancel()();
                Ok(())
            }
        }
    }

    /// What cancels the run. The run may be ahead of the test that is about to say so: then this waits for it.
    fn cancel(&self) -> Arc<dyn Fn() + Send + Sync> {
        let mut state = self.state();
        loop {
            if let Some(cancel) = &state.on_cancel {
                return cancel.clone();
            }
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

/// A part that is dropped where it waits, as a cancel does it, waits no longer.
struct Leave<'a> {
    script: &'a Script,
    call: Call,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.script.state().waiting.retain(|(call, _)| *call != self.call);
        self.script.shared.changed.notify_all();
    }
}

/// What a waiting part was told; everything finishes once the script is released.
fn take_verdict(state: &mut State, call: Call) -> Option<Verdict> {
    if let Some(place) = state.told.iter().position(|(told, _)| *told == call) {
        return Some(state.told.remove(place).1);
    }
    state.is_released.then_some(Verdict::Finish)
}
