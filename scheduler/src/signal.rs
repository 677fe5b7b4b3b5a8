//! How one thread sleeps and others wake it.
//!
//! A [`Signal`] belongs to one thread. Its state says whether a wake-up is needed at all, so that waking a
//! thread that is awake costs one swap and no system call.
//!
//! | state | meaning | leaves by |
//! | --- | --- | --- |
//! | `AWAKE` | running, no wake-up pending | owner parks: `PARKED`; anyone wakes: `NOTIFIED` |
//! | `PARKED` | asleep, or about to be | anyone wakes: `NOTIFIED`, and unparks |
//! | `NOTIFIED` | a wake-up is pending | owner's `park` takes it: `AWAKE` |
//!
//! No wake-up is lost: whoever wakes changes the state first. If that comes before the owner's step from
//! `AWAKE` to `PARKED`, the step fails and the owner does not sleep; if it comes after, the swap has seen
//! `PARKED` and unparks, and the token that [`Thread::unpark`] leaves makes a late sleeper return. A wake-up meant for an
//! earlier wait may end a later one, so every caller of [`Signal::park`] checks its condition again.

use std::task::Wake;

use crate::sync::{Arc, AtomicU32, OnceLock, Ordering, Thread, thread};

const AWAKE: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

pub(crate) struct Signal {
    state: AtomicU32,
    /// Invariant: set before the state is ever `PARKED`, by the thread that parks.
    owner: OnceLock<Thread>,
}

impl Signal {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Signal {
            state: AtomicU32::new(AWAKE),
            owner: OnceLock::new(),
        })
    }

    /// A signal of the calling thread.
    pub(crate) fn of_current_thread() -> Arc<Self> {
        let signal = Signal::new();
        signal.bind_current_thread();
        signal
    }

    /// Makes the calling thread the owner.
    pub(crate) fn bind_current_thread(&self) {
        // A second call by the same thread changes nothing.
        let _ = self.owner.set(thread::current());
    }

    /// Sleeps until woken; returns at once if a wake-up is pending. Only the owner may call this.
    pub(crate) fn park(&self) {
        if self
            .state
            .compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            while self.state.load(Ordering::Acquire) == PARKED {
                thread::park();
            }
        }
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Wakes the owner, or makes its next [`park`](Signal::park) return at once.
    pub(crate) fn wake(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
            self.owner.get().expect("only a bound thread parks").unpark();
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        Signal::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Signal::wake(self);
    }
}
