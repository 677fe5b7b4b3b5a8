//! A cell that is written once and emptied once, from whichever threads.
//!
//! This is the one file of the crate with `unsafe` code. The need: a graph hands over two values per
//! operator between threads, and the safe cells cost more than everything else a node does: a `Mutex<Option<V>>` 16 to
//! 25 ns per access and 8 bytes more, a box behind an atomic pointer 17 ns for the allocation. A slot costs one
//! compare-and-swap per access and one byte.
//!
//! ```text
//! EMPTY --put--> BUSY --> FULL --take--> TAKEN
//!                         FULL --get--> BUSY --> FULL      (a clone is made while BUSY)
//! ```
//!
//! Whoever moves the state to `BUSY`, or from `FULL` to `TAKEN`, has the value to itself until it stores the next state.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::sync::{AtomicU8, Ordering, thread};

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const FULL: u8 = 2;
const TAKEN: u8 = 3;

pub(crate) struct Slot<V> {
    /// Invariant: `FULL` only while `value` is initialised.
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<V>>,
}

// SAFETY: `value` is only touched by the one thread that won the state change to `BUSY` or `TAKEN`, with
// acquire and release around it, so a slot hands a `V` from thread to thread and never shares one. That needs `V: Send` only.
unsafe impl<V: Send> Sync for Slot<V> {}

impl<V> Slot<V> {
    pub(crate) fn new() -> Self {
        Slot {
            state: AtomicU8::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    pub(crate) fn full(value: V) -> Self {
        Slot {
            state: AtomicU8::new(FULL),
            value: UnsafeCell::new(MaybeUninit::new(value)),
        }
    }

    /// Puts the value in; gives it back if something was put here before.
    pub(crate) fn put(&self, value: V) -> Result<(), V> {
        if self
            .state
            .compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return Err(value);
        }
        // SAFETY: the exchange from EMPTY to BUSY succeeds for one caller only, and nobody else touches a BUSY slot.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(FULL, Ordering::Release);
        Ok(())
    }

    /// Takes the value out, if it is there.
    pub(crate) fn take(&self) -> Option<V> {
        loop {
            match self
                .state
                .compare_exchange(FULL, TAKEN, Ordering::AcqRel, Ordering::Acquire)
            {
                // SAFETY: the value was initialised (FULL) and this caller alone moved the slot to TAKEN, which is final.
                Ok(_) => return Some(unsafe { (*self.value.get()).assume_init_read() }),
                Err(BUSY) => thread::yield_now(),
                Err(_) => return None,
            }
        }
    }

    /// A clone of the value, if it is there.
    pub(crate) fn get(&self) -> Option<V>
    where
        V: Clone,
    {
        /// Makes the slot FULL again, also when cloning panics.
        struct Refill<'a>(&'a AtomicU8);
        impl Drop for Refill<'_> {
            fn drop(&mut self) {
                self.0.store(FULL, Ordering::Release);
            }
        }
        loop {
            match self
                .state
                .compare_exchange(FULL, BUSY, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    let _refill = Refill(&self.state);
                    // SAFETY: the value was initialised (FULL), and this caller alone has it while the slot is BUSY.
                    return Some(unsafe { (*self.value.get()).assume_init_ref() }.clone());
                }
                Err(BUSY) => thread::yield_now(),
                Err(_) => return None,
            }
        }
    }

    /// Whether a value is there now.
    pub(crate) fn is_full(&self) -> bool {
        self.state.load(Ordering::Acquire) == FULL
    }
}

impl<V> Drop for Slot<V> {
    fn drop(&mut self) {
        if self.is_full() {
            // SAFETY: FULL means initialised, and `&mut self` means nobody else is here.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

/// `n` empty slots. Fresh zeroed pages are left untouched until a value arrives.
#[cfg(not(shuttle))]
pub(crate) fn empty_slots<V>(n: usize) -> Box<[Slot<V>]> {
    const { assert!(EMPTY == 0) };
    let zeroed = Box::<[Slot<V>]>::new_zeroed_slice(n);
    // SAFETY: an all-zero slot is valid: the atomic byte is EMPTY and the value is MaybeUninit.
    unsafe { zeroed.assume_init() }
}

#[cfg(shuttle)]
pub(crate) fn empty_slots<V>(n: usize) -> Box<[Slot<V>]> {
    (0..n).map(|_| Slot::new()).collect()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_goes_in_once_and_out_once() {
        let slot = Slot::new();
        assert_eq!(slot.take(), None);
        assert_eq!(slot.put(1), Ok(()));
        assert_eq!(slot.put(2), Err(2));
        assert_eq!(slot.get(), Some(1));
        assert_eq!(slot.take(), Some(1));
        assert_eq!(slot.take(), None);
        assert_eq!(slot.get(), None);
        assert_eq!(slot.put(3), Err(3));
    }

    #[test]
    fn dropping_a_slot_drops_what_is_inside_and_nothing_else() {
        let value = Arc::new(());
        let slots = empty_slots::<Arc<()>>(3);
        assert!(slots[0].put(value.clone()).is_ok());
        assert!(slots[2].put(value.clone()).is_ok());
        assert_eq!(Arc::strong_count(&value), 3);
        drop(slots[2].take());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(slots);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn one_of_many_takers_gets_the_value() {
        let slot = Slot::full(Box::new(7));
        let got: Vec<_> = std::thread::scope(|s| {
            let takers: Vec<_> = (0..4).map(|_| s.spawn(|| slot.take())).collect();
            takers.into_iter().filter_map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(got, [Box::new(7)]);
    }

    #[test]
    fn a_panicking_clone_leaves_the_value_inside() {
        struct Bad(Arc<()>);
        impl Clone for Bad {
            fn clone(&self) -> Self {
                panic!("no copy")
            }
        }
        let inside = Arc::new(());
        let slot = Slot::full(Bad(inside.clone()));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slot.get())).is_err());
        assert!(Arc::ptr_eq(&slot.take().unwrap().0, &inside));
    }
}
