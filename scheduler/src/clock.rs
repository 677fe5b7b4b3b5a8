//! Stamps that agree with cause and effect.
//!
//! A hybrid logical clock: nanoseconds since the run's start, pushed forward by one where two events in a chain
//! of causes would otherwise tie. Under shuttle there is no time, so the same code is a plain Lamport clock.
//!
//! A lane reads the time once per node, at its end; a node that starts right after another starts at
//! that one's end, or at the stamp of the last thing it saw on another lane if that is later.

use std::time::Instant;

/// The start of a run.
#[derive(Clone, Copy)]
pub(crate) struct Epoch(#[cfg_attr(shuttle, allow(dead_code))] Instant);

impl Epoch {
    pub(crate) fn now() -> Self {
        Epoch(Instant::now())
    }

    /// Nanoseconds since the start.
    #[cfg(not(shuttle))]
    pub(crate) fn elapsed_ns(self) -> u64 {
        // Not as_nanos: 128-bit arithmetic costs as much as a node.
        let elapsed = self.0.elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }

    #[cfg(shuttle)]
    pub(crate) fn elapsed_ns(self) -> u64 {
        0
    }
}

/// One thread's clock.
pub(crate) struct Clock {
    epoch: Epoch,
    last: u64,
}

impl Clock {
    pub(crate) fn new(epoch: Epoch) -> Self {
        Clock { epoch, last: 0 }
    }

    /// The last stamp given out or observed.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// A stamp for something that happens now.
    pub(crate) fn now(&mut self) -> u64 {
        self.last = self.epoch.elapsed_ns().max(self.last + 1);
        self.last
    }

    /// A stamp right after the last one, without asking for the time.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes note of a stamp seen elsewhere: everything here comes after it from now on.
    pub(crate) fn observe(&mut self, stamp: u64) {
        self.last = self.last.max(stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_grow_and_follow_what_was_observed() {
        let mut clock = Clock::new(Epoch::now());
        let first = clock.now();
        let far = first + 1_000_000_000_000;
        clock.observe(far);
        clock.observe(1);
        assert_eq!(clock.next(), far + 1);
        assert_eq!(clock.now(), far + 2);
    }
}
