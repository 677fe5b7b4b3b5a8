use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::Phase;
use scheduler::testing::{Call, Guarantee, What};
use std::collections::HashMap;

#[test]
fn g10_every_value_is_dropped_exactly_once() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        let mut n_alive: HashMap<Call, i32> = HashMap::new();
        for entry in &finished.log {
            match entry.what {
                What::Made(call) => *n_alive.entry(call).or_default() += 1,
                What::Dropped(call) => {
                    let n = n_alive.entry(call).or_default();
                    *n -= 1;
                    prop_assert!(*n >= 0, "a value of {:?} was dropped twice", call);
                }
                _ => {}
            }
        }
        n_alive.retain(|_, n| *n != 0);
        prop_assert!(n_alive.is_empty(), "never dropped: {:?}", n_alive);
        Ok(())
    });
}

#[test]
fn g10_a_failed_run_drops_device_values_in_reverse_before_the_lanes_state() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G10)?;
        if finished.outcome.is_ok() {
            return Ok(());
        }
        // Per lane: its thread, the device values it holds in the order they were made, and its state.
        let mut made: HashMap<usize, Vec<Call>> = HashMap::new();
        let mut state_of: HashMap<usize, usize> = HashMap::new();
        let mut closed: Vec<usize> = Vec::new();
        let mut roll_back: HashMap<usize, Vec<Call>> = HashMap::new();
        for entry in &finished.log {
            match entry.what {
                What::Used(state, call) => drop(state_of.insert(model::lane(&case.spec, call), state)),
                What::Closed(state) => closed.push(state),
                What::Made(call) if call.1 == Phase::Device => {
                    let on_lane = made.entry(model::lane(&case.spec, call)).or_default();
                    if !on_lane.contains(&call) {
                        on_lane.push(call);
                    }
                }
                // Values that went to other nodes as clones are dropped by those; the original is dropped last.
                What::Dropped(call) if call.1 == Phase::Device => {
                    let dropped = roll_back.entry(model::lane(&case.spec, call)).or_default();
                    dropped.retain(|&other| other != call);
                    dropped.push(call);
                    let state = state_of[&model::lane(&case.spec, call)];
                    let is_plain = case.spec.nodes[call.0].kind == scheduler::testing::NodeKind::Plain;
                    prop_assert!(
                        is_plain || !closed.contains(&state),
                        "{:?} outlived its lane's state",
                        call
                    );
                }
                _ => {}
            }
        }
        for (lane, mut made) in made {
            let is_operator =
                |call: &Call| case.spec.nodes[call.0].kind == scheduler::testing::NodeKind::Operator;
            made.retain(is_operator);
            made.reverse();
            let dropped: Vec<Call> = roll_back
                .remove(&lane)
                .unwrap_or_default()
                .into_iter()
                .filter(is_operator)
                .collect();
            prop_assert_eq!(dropped, made, "lane {}", lane);
        }
        Ok(())
    });
}
