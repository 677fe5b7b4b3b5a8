use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::testing::Guarantee;

#[test]
fn g1_every_node_of_a_run_that_succeeds_runs_exactly_once() {
    engine::check(harness::cases(&[]), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G1)?;
        prop_assert!(finished.outcome.is_ok());
        let mut entered = finished.script.entered();
        let mut parts = model::parts(&case.spec);
        entered.sort_unstable();
        parts.sort_unstable();
        prop_assert_eq!(entered, parts);
        Ok(())
    });
}

#[test]
fn g1_no_node_of_a_run_that_fails_runs_twice() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G1)?;
        let mut entered = finished.script.entered();
        entered.sort_unstable();
        prop_assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", entered);
        Ok(())
    });
}
