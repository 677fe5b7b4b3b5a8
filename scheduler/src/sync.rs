//! The one file that names locks, atomics and threads, so that `--cfg shuttle` can replace them.
//!
//! Reference counts ([`Arc`]) stay the standard library's in both builds: no protocol here depends on the
//! order of their operations, and a [`std::task::Waker`] can only be made from the standard one.

pub(crate) use std::sync::{Arc, OnceLock, Weak};

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{self, Thread, ThreadId};
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, Thread, ThreadId};
}

pub(crate) use imp::*;

/// Locks, also after a panic elsewhere: every critical section of this crate leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A number for the calling thread, for events: the standard thread id does not show its own.
#[cfg(not(shuttle))]
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

#[cfg(shuttle)]
pub(crate) fn thread_number() -> u64 {
    let id: usize = thread::current().id().into();
    id as u64
}
