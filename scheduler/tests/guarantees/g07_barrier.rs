use crate::harness::{self, Case, Started};
use crate::{engine, model};
use proptest::prelude::*;
use proptest::sample::Index;
use scheduler::Barrier;
use scheduler::testing::{Call, Script};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A case without faults, and which waiting part is completed next, step by step.
pub fn stepped_cases() -> impl Strategy<Value = (Case, Vec<Index>)> {
    let choices = proptest::collection::vec(any::<Index>(), 1..20);
    (harness::cases(&[]), choices)
}

/// Counts its wake-ups.
#[derive(Default)]
pub struct Waiter {
    n_wakes: AtomicUsize,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.n_wakes.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future of a barrier that was polled once and found pending, or not.
pub struct Polled {
    pub barrier: Barrier,
    waiter: Arc<Waiter>,
    was_pending: bool,
}

impl Polled {
    pub fn new(barrier: Barrier) -> Polled {
        let mut polled = Polled {
            barrier,
            waiter: Arc::default(),
            was_pending: false,
        };
        polled.was_pending = polled.poll().is_pending();
        polled
    }

    /// Whether it has an outcome now, and was told so if it had not at first.
    pub fn is_served(&mut self) -> bool {
        let is_told = !self.was_pending || self.waiter.n_wakes.load(Ordering::SeqCst) > 0;
        is_told && matches!(self.poll(), Poll::Ready(Ok(_)))
    }

    fn poll(&mut self) -> Poll<<Barrier as Future>::Output> {
        let waker = Waker::from(Arc::clone(&self.waiter));
        Pin::new(&mut self.barrier).poll(&mut Context::from_waker(&waker))
    }
}

/// Completes everything, one part at a time in the order the choices say; `step` looks on before each.
pub fn step_through(
    case: &Case,
    choices: &[Index],
    mut step: impl FnMut(&Started, &[Call]) -> engine::Property,
) -> Result<Started, TestCaseError> {
    let started = harness::start(case, Script::stepped());
    let mut told: Vec<Call> = Vec::new();
    let n_parts = model::parts(&case.spec).len();
    for at in 0..n_parts {
        let waiting = loop {
            let waiting = started.script.waiting();
            if !waiting.is_empty() {
                break waiting;
            }
            harness::thread::yield_now();
        };
        step(&started, &told)?;
        let next = *choices[at % choices.len()].get(&waiting);
        told.push(next);
        started.script.complete(next);
    }
    Ok(started)
}

#[test]
fn g7_a_barrier_resolves_after_all_it_covers_for_every_waiter() {
    engine::check(stepped_cases(), |(case, choices)| {
        let mut waiters: Vec<Polled> = Vec::new();
        let started = step_through(case, choices, |started, told| {
            for (covers, &id) in case.spec.barriers.iter().zip(&started.barriers) {
                // Nodes finish only after the test told them to.
                if started.run.barrier(id).is_settled() {
                    let is_told = |node: &usize| told.contains(&(*node, scheduler::Phase::Device));
                    prop_assert!(covers.iter().all(is_told), "settled after {:?}", told);
                }
                waiters.push(Polled::new(started.run.barrier(id)));
            }
            prop_assert!(!started.run.ready().is_settled());
            waiters.push(Polled::new(started.run.ready()));
            Ok(())
        })?;
        prop_assert!(started.run.ready().wait().is_ok());
        for &id in &started.barriers {
            prop_assert!(started.run.barrier(id).wait().is_ok());
            waiters.push(Polled::new(started.run.barrier(id)));
        }
        // Blocks until all threads of the run are through, so that no wake-up is still on its way.
        let trace = started.run.trace();
        prop_assert!(waiters.iter_mut().all(Polled::is_served));
        scheduler::testing::check_guarantees(&trace)
            .map_err(|violations| TestCaseError::fail(violations.to_string()))
    });
}

/// Waiters that block in threads of their own, from before the first node on.
#[test]
fn g7_threads_that_wait_are_all_woken() {
    engine::check(stepped_cases(), |(case, choices)| {
        let mut threads = Vec::new();
        let started = step_through(case, choices, |started, told| {
            if told.len() < 2 {
                for barrier in started
                    .barriers
                    .iter()
                    .map(|&id| started.run.barrier(id))
                    .chain([started.run.ready()])
                {
                    threads.push(harness::thread::spawn(move || barrier.wait().is_ok()));
                }
            }
            Ok(())
        })?;
        for thread in threads {
            prop_assert!(thread.join().expect("a waiter does not panic"));
        }
        drop(started);
        Ok(())
    });
}
