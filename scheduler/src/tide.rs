//! How far a lane has come, as other lanes see it.
//!
//! A FIFO lane's order is known up front, so one number says which of its nodes are done; no edge needs a
//! counter of its own. The number and the question "is anybody asleep because of it" share one word:
//!
//! ```text
//! bit 63 .......................... 1 | 0
//!     nodes finished, in lane order   | somebody waits
//! ```
//!
//! The lane's thread adds 2 for each finished node and learns from the same operation whether somebody
//! waits; only then does it look at the list of waiters. See executor/README.md for why no wake-up is lost.

use crossbeam_utils::CachePadded;

use crate::signal::Signal;
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, lock};

const WAITED_FOR: u64 = 1;
const ONE_NODE: u64 = 2;

pub(crate) struct Tide {
    word: CachePadded<AtomicU64>,
    /// The clock stamp of the last counted node, for traces. Written before the word.
    stamp: AtomicU64,
    /// The smallest count anybody waits for. Written under the lock, before `WAITED_FOR` is set.
    wake_at: AtomicU32,
    waiters: Mutex<Vec<Waiter>>,
}

struct Waiter {
    need: u32,
    signal: Arc<Signal>,
}

impl Tide {
    pub(crate) fn new() -> Self {
        Tide {
            word: CachePadded::new(AtomicU64::new(0)),
            stamp: AtomicU64::new(0),
            wake_at: AtomicU32::new(u32::MAX),
            waiters: Mutex::new(Vec::new()),
        }
    }

    /// How many nodes of the lane have finished. What they wrote is visible to the caller.
    pub(crate) fn reached(&self) -> u32 {
        count_of(self.word.load(Ordering::Acquire))
    }

    /// The stamp of the last finished node, or a later one. Read it after [`reached`](Tide::reached).
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// Notes the stamp of a node that is about to be counted.
    pub(crate) fn set_stamp(&self, stamp: u64) {
        self.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Counts `n` more finished nodes. Only the lane's own thread calls this.
    #[inline]
    pub(crate) fn advance(&self, n: u32) {
        let before = self.word.fetch_add(ONE_NODE * u64::from(n), Ordering::AcqRel);
        if before & WAITED_FOR != 0 && count_of(before) + n >= self.wake_at.load(Ordering::Relaxed) {
            self.wake_satisfied();
        }
    }

    /// Asks for a wake-up once the count reaches `need`. False if it has: then no wake-up will come.
    pub(crate) fn wait_for(&self, need: u32, signal: &Arc<Signal>) -> bool {
        let mut waiters = lock(&self.waiters);
        let wake_at = waiters.iter().map(|w| w.need).min().unwrap_or(u32::MAX);
        self.wake_at.store(wake_at.min(need), Ordering::Relaxed);
        let before = self.word.fetch_or(WAITED_FOR, Ordering::AcqRel);
        if count_of(before) >= need {
            self.settle_waiters(&waiters);
            return false;
        }
        waiters.push(Waiter {
            need,
            signal: signal.clone(),
        });
        true
    }

    /// Forgets what `signal` waited for here.
    pub(crate) fn forget(&self, signal: &Arc<Signal>) {
        let mut waiters = lock(&self.waiters);
        waiters.retain(|waiter| !Arc::ptr_eq(&waiter.signal, signal));
        self.settle_waiters(&waiters);
    }

    #[cold]
    fn wake_satisfied(&self) {
        let woken: Vec<Waiter> = {
            let mut waiters = lock(&self.waiters);
            let reached = self.reached();
            let woken = waiters.extract_if(.., |waiter| waiter.need <= reached).collect();
            self.settle_waiters(&waiters);
            woken
        };
        for waiter in woken {
            waiter.signal.wake();
        }
    }

    /// Makes `wake_at` and `WAITED_FOR` agree with the list, whose lock the caller holds.
    fn settle_waiters(&self, waiters: &[Waiter]) {
        let wake_at = waiters.iter().map(|w| w.need).min().unwrap_or(u32::MAX);
        self.wake_at.store(wake_at, Ordering::Relaxed);
        if waiters.is_empty() {
            self.word.fetch_and(!WAITED_FOR, Ordering::AcqRel);
        }
    }
}

fn count_of(word: u64) -> u32 {
    (word / ONE_NODE) as u32
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_comes_late_is_told_so() {
        let tide = Tide::new();
        tide.advance(3);
        assert!(!tide.wait_for(3, &Signal::of_current_thread()));
        assert_eq!(tide.reached(), 3);
    }

    #[test]
    fn each_waiter_is_woken_at_its_own_count() {
        let tide = Tide::new();
        let threads: Vec<_> = std::thread::scope(|s| {
            let joins: Vec<_> = [1, 2, 3]
                .map(|need| {
                    let tide = &tide;
                    s.spawn(move || {
                        let signal = Signal::of_current_thread();
                        while tide.wait_for(need, &signal) {
                            signal.park();
                        }
                        tide.reached() >= need
                    })
                })
                .into_iter()
                .collect();
            for _ in 0..3 {
                std::thread::yield_now();
                tide.advance(1);
            }
            joins.into_iter().map(|join| join.join().unwrap()).collect()
        });
        assert_eq!(threads, [true; 3]);
    }
}
