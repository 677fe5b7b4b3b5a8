use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::testing::{Guarantee, What};
use std::collections::HashMap;

#[test]
fn g5_every_node_of_a_lane_runs_on_the_lanes_one_thread() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G5)?;
        let mut threads = HashMap::new();
        for entry in &finished.log {
            // Plain nodes hand clones of values on; those are made by the thread that made the value.
            if let What::Made(call) | What::Used(_, call) = entry.what {
                let thread = threads
                    .entry(model::lane(&case.spec, call))
                    .or_insert(entry.thread);
                prop_assert_eq!(*thread, entry.thread, "{:?}", call);
            }
        }
        let mut distinct: Vec<_> = threads.values().map(|thread| format!("{thread:?}")).collect();
        distinct.sort();
        distinct.dedup();
        let n_expected = if case.mode.has_lane_threads() {
            threads.len()
        } else {
            threads.len().min(1)
        };
        prop_assert_eq!(distinct.len(), n_expected);
        Ok(())
    });
}
