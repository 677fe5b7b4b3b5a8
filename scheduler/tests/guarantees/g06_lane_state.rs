use crate::{engine, harness};
use proptest::prelude::*;
use scheduler::testing::{Guarantee, What};

/// The type system keeps a state that is not `Send` on its thread; this shows when it is opened and dropped there.
#[test]
fn g6_a_lane_state_is_opened_used_and_dropped_on_one_thread() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G6)?;
        let n_states = finished
            .log
            .iter()
            .filter(|entry| matches!(entry.what, What::Opened(_)))
            .count();
        for state in 0..n_states {
            let of_state = finished.log.iter().filter(|entry| {
                matches!(entry.what, What::Opened(number) | What::Used(number, _) | What::Closed(number) if number == state)
            });
            let of_state: Vec<_> = of_state.collect();
            let last = of_state.len() - 1;
            prop_assert_eq!(of_state[0].what, What::Opened(state));
            prop_assert_eq!(of_state[last].what, What::Closed(state));
            prop_assert!(
                last > 0
                    && of_state[1..last]
                        .iter()
                        .all(|entry| matches!(entry.what, What::Used(..)))
            );
            prop_assert!(of_state.iter().all(|entry| entry.thread == of_state[0].thread));
        }
        Ok(())
    });
}
