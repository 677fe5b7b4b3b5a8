//! The one-shot barrier: what waits, and what settles.
//!
//! A barrier is pending, then settled for ever: ready, or failed with an error. Settling happens under the lock of the
//! waiters, so it happens once, and whoever registered before is woken and whoever comes later sees the
//! settled state. A waiter owns its place in the list and takes it along when it is dropped; no waiter's wake-up
//! depends on another waiter.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::InitError;
use crate::event::BarrierId;
use crate::executor::shared::Shared;
use crate::sync::{Arc, AtomicU8, AtomicU32, AtomicU64, Condvar, Mutex, OnceLock, Ordering, lock};

const PENDING: u8 = 0;
const READY: u8 = 1;
const FAILED: u8 = 2;

/// The state of a barrier that its waiters share.
pub(crate) struct BarrierCore {
    state: AtomicU8,
    /// Set before the state is `FAILED`.
    error: OnceLock<InitError>,
    /// How many lanes have yet to pass the last node the barrier covers on them.
    lanes_left: AtomicU32,
    /// The latest stamp of a lane that has passed.
    stamp: AtomicU64,
    waiters: Mutex<Waiters>,
    settled: Condvar,
}

/// A waiter's place in the list, if it has one.
#[derive(Default)]
pub(crate) struct Registration(Option<u64>);

#[derive(Default)]
struct Waiters {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Waiters {
    /// Puts a waker in its waiter's place, or in a new one, and gives back the one that was there.
    fn put(&mut self, registration: &mut Registration, waker: Waker) -> Option<Waker> {
        let key = *registration.0.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.wakers.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                self.wakers.push((key, waker));
                None
            }
        }
    }
}

impl BarrierCore {
    pub(crate) fn new(n_lanes: u32) -> Self {
        BarrierCore {
            state: AtomicU8::new(PENDING),
            error: OnceLock::new(),
            lanes_left: AtomicU32::new(n_lanes),
            stamp: AtomicU64::new(0),
            waiters: Mutex::default(),
            settled: Condvar::new(),
        }
    }

    /// Notes that a lane has passed its last covered node; true for the last lane.
    pub(crate) fn lane_passed(&self, stamp: u64) -> bool {
        self.stamp.fetch_max(stamp, Ordering::AcqRel);
        self.lanes_left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// How many lanes have yet to pass.
    pub(crate) fn lanes_left(&self) -> u32 {
        self.lanes_left.load(Ordering::Relaxed)
    }

    /// The latest stamp of a lane that has passed.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// Settles the barrier, unless it is settled. True if this call did it.
    pub(crate) fn settle(&self, outcome: Result<(), InitError>) -> bool {
        let wakers = {
            let mut waiters = lock(&self.waiters);
            if self.is_settled() {
                return false;
            }
            let state = match outcome {
                Ok(()) => READY,
                Err(error) => {
                    let _ = self.error.set(error);
                    FAILED
                }
            };
            self.state.store(state, Ordering::Release);
            std::mem::take(&mut waiters.wakers)
        };
        self.settled.notify_all();
        for (_, waker) in wakers {
            waker.wake();
        }
        true
    }

    /// One atomic load.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.load(Ordering::Acquire) != PENDING
    }

    /// The outcome, once settled. One atomic load on the way to success.
    pub(crate) fn outcome(&self) -> Option<Result<(), InitError>> {
        match self.state.load(Ordering::Acquire) {
            PENDING => None,
            READY => Some(Ok(())),
            _ => Some(Err(self.error.get().expect("set before the state").clone())),
        }
    }

    /// Polls for the outcome; keeps the task's waker in `registration` until then.
    pub(crate) fn poll_settled(
        &self,
        registration: &mut Registration,
        task: &mut Context<'_>,
    ) -> Poll<Result<(), InitError>> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        // Wakers are other people's code: cloned and dropped outside the lock.
        let waker = task.waker().clone();
        let replaced = {
            let mut waiters = lock(&self.waiters);
            if let Some(outcome) = self.outcome() {
                return Poll::Ready(outcome);
            }
            waiters.put(registration, waker)
        };
        drop(replaced);
        Poll::Pending
    }

    /// Takes a waiter off the list.
    pub(crate) fn forget(&self, registration: &mut Registration) {
        let Some(key) = registration.0.take() else { return };
        let mut waiters = lock(&self.waiters);
        let found = waiters.wakers.iter().position(|(k, _)| *k == key);
        let waker = found.map(|i| waiters.wakers.swap_remove(i));
        drop(waiters);
        drop(waker);
    }

    pub(crate) fn wait(&self) -> Result<(), InitError> {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        let mut waiters = lock(&self.waiters);
        loop {
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            waiters = self
                .settled
                .wait(waiters)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    pub(crate) fn wait_timeout(&self, timeout: Duration) -> Option<Result<(), InitError>> {
        let deadline = std::time::Instant::now().checked_add(timeout);
        let mut waiters = lock(&self.waiters);
        loop {
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            let left = match deadline {
                Some(deadline) => deadline.checked_duration_since(std::time::Instant::now())?,
                None => Duration::from_secs(3600),
            };
            let woken = self.settled.wait_timeout(waiters, left);
            waiters = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

/// A one-shot barrier over nodes of a run: a future that resolves when all of them have finished.
///
/// It settles exactly once, with [`Ready`](crate::Ready) or with the reason it cannot succeed, for every clone and whenever
/// that began to wait. What the covered nodes wrote is visible to whoever it resolves for.
///
/// # Cancel safety
/// Dropping a barrier, or all of them, at any moment, neither stops the run nor keeps another waiter from being
/// woken. Cancelling is a call of its own: [`Run::cancel`](crate::Run::cancel).
#[must_use = "a barrier does nothing until it is awaited or waited for"]
pub struct Barrier {
    shared: Arc<Shared>,
    id: u32,
    registration: Registration,
}

impl Barrier {
    pub(crate) fn new(shared: Arc<Shared>, id: u32) -> Self {
        Barrier {
            shared,
            id,
            registration: Registration::default(),
        }
    }

    fn core(&self) -> &BarrierCore {
        &self.shared.barriers[self.id as usize]
    }

    /// Which barrier of the graph this is.
    pub fn id(&self) -> BarrierId {
        BarrierId(self.id)
    }

    /// Whether it has settled. One atomic load.
    pub fn is_settled(&self) -> bool {
        self.core().is_settled()
    }

    /// The outcome, if it has settled.
    pub fn outcome(&self) -> Option<Result<crate::Ready, InitError>> {
        self.core().outcome().map(|outcome| self.ready_or(outcome))
    }

    /// Blocks the calling thread until the barrier settles.
    ///
    /// Inside a tokio runtime use `.await`: a thread that blocks here polls no timers for the run's nodes.
    ///
    /// # Errors
    /// Why the barrier cannot succeed. If a node of the run waits for the whole run.
    pub fn wait(&self) -> Result<crate::Ready, InitError> {
        self.check_waiter()?;
        let outcome = self.core().wait();
        self.ready_or(outcome)
    }

    /// Blocks the calling thread until the barrier settles, but not longer than `timeout`: then `None`, and the run goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<crate::Ready, InitError>> {
        if let Err(error) = self.check_waiter() {
            return Some(Err(error));
        }
        self.core()
            .wait_timeout(timeout)
            .map(|outcome| self.ready_or(outcome))
    }

    /// A node that blocks until its own run is through blocks for ever: an error instead.
    fn check_waiter(&self) -> Result<(), InitError> {
        let me = crate::sync::thread::current().id();
        if self.id == 0 && !self.is_settled() && self.shared.has_thread(me) {
            return Err(InitError::misuse(
                "a node of the run waits for the whole run, and so for itself",
            ));
        }
        Ok(())
    }

    fn ready_or(&self, outcome: Result<(), InitError>) -> Result<crate::Ready, InitError> {
        outcome.map(|()| crate::Ready::new(self.shared.clone(), self.id))
    }
}

impl Clone for Barrier {
    fn clone(&self) -> Self {
        Barrier::new(self.shared.clone(), self.id)
    }
}

impl Future for Barrier {
    type Output = Result<crate::Ready, InitError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let core = &this.shared.barriers[this.id as usize];
        core.poll_settled(&mut this.registration, task)
            .map(|outcome| this.ready_or(outcome))
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.shared.barriers[self.id as usize].forget(&mut self.registration);
    }
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.shared.topology.barriers[self.id as usize].name;
        f.debug_struct("Barrier")
            .field("name", name)
            .field("settled", &self.is_settled())
            .finish()
    }
}
