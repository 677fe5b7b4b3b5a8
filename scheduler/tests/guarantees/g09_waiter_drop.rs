use crate::g07_barrier::{Polled, step_through, stepped_cases};
use crate::{engine, model};
use proptest::prelude::*;

#[test]
fn g9_dropping_waiters_never_stops_strands_or_repeats_the_work() {
    let drops = proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 1..20);
    engine::check((stepped_cases(), drops), |((case, choices), drops)| {
        let mut waiters: Vec<Polled> = Vec::new();
        let mut at = 0;
        let started = step_through(case, choices, |started, _| {
            for &id in &started.barriers {
                waiters.push(Polled::new(started.run.barrier(id)));
                waiters.push(Polled::new(started.run.ready()));
            }
            let (is_drop, which) = &drops[at % drops.len()];
            at += 1;
            if *is_drop && !waiters.is_empty() {
                waiters.swap_remove(which.index(waiters.len()));
            }
            Ok(())
        })?;
        prop_assert!(started.run.ready().wait().is_ok());
        drop(started.run.trace());
        prop_assert!(
            waiters.iter_mut().all(Polled::is_served),
            "those that stayed are served"
        );
        prop_assert_eq!(started.script.entered().len(), model::parts(&case.spec).len());
        Ok(())
    });
}

#[test]
fn g9_a_run_nobody_waits_for_finishes() {
    engine::check(stepped_cases(), |(case, choices)| {
        let started = step_through(case, choices, |started, _| {
            drop(Polled::new(started.run.ready()));
            Ok(())
        })?;
        // Blocks until every lane has closed, and waits at no barrier.
        let trace = started.run.trace();
        prop_assert!(
            trace
                .nodes()
                .iter()
                .all(|node| trace.outcome(node.id) == scheduler::Outcome::Finished)
        );
        Ok(())
    });
}
