//! The guarantees of a graph hold for operators that come one by one, from constructors that somebody else calls.

use crate::engine;
use crate::harness::{self, Case};
use proptest::prelude::*;
use scheduler::testing::{Call, FakeSource, FakeType, Fault, GraphSpec, Script, What, check_guarantees};
use scheduler::{InitError, InitMode, Intake, Trace};
use std::collections::HashMap;

/// Cases with faults, and maybe a constructor before which the intake is cancelled.
fn intake_cases() -> impl Strategy<Value = (Case, Option<usize>)> {
    let kinds: &[Fault] = if cfg!(shuttle) {
        &[Fault::Fail]
    } else {
        &[Fault::Fail, Fault::Panic]
    };
    (harness::cases(kinds), proptest::option::weighted(0.2, 0_usize..6))
}

struct Taken {
    contents: Result<Vec<u64>, InitError>,
    trace: Trace,
    script: Script,
}

/// Takes every node of the spec as an operator, seals, waits, and drops everything.
fn take(case: &Case, mode: InitMode, cancel_before: Option<usize>) -> Taken {
    harness::silence_planned_panics();
    let script = Script::new(case.plan.clone());
    let intake = Intake::recording(mode);
    let lane = |lane| intake.lane(FakeType::new(format!("Type{lane}"), &script));
    let lanes: Vec<_> = (0..case.spec.lanes.len()).map(lane).collect();
    let mut handles = Vec::new();
    let mut outcome = Ok(());
    for (node, spec) in case.spec.nodes.iter().enumerate() {
        if cancel_before == Some(node) {
            intake.cancel();
        }
        // Lives for the call only, as what a real constructor is given.
        let source = FakeSource {
            node,
            bytes: spec.bytes,
            n_awaits: spec.n_awaits,
        };
        match intake.operator(&lanes[spec.lane], GraphSpec::name(node), &source) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    let outcome = outcome.and_then(|()| intake.seal()?.wait());
    let contents = outcome.and_then(|()| handles.iter().map(|handle| Ok(handle.get()?.content)).collect());
    let trace = Trace::new(intake.record());
    drop((handles, lanes, intake));
    Taken {
        contents,
        trace,
        script,
    }
}

#[test]
fn intake_upholds_the_guarantees_whatever_goes_wrong() {
    engine::check(intake_cases(), |(case, cancel_before)| {
        let taken = take(case, case.mode, *cancel_before);
        check_guarantees(&taken.trace)?;

        let mut entered = taken.script.entered();
        entered.sort_unstable();
        prop_assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", entered);

        let mut n_alive: HashMap<Call, i32> = HashMap::new();
        for entry in taken.script.log() {
            match entry.what {
                What::Made(call) => *n_alive.entry(call).or_default() += 1,
                What::Dropped(call) => *n_alive.entry(call).or_default() -= 1,
                _ => {}
            }
        }
        n_alive.retain(|_, n| *n != 0);
        prop_assert!(n_alive.is_empty(), "never dropped, or twice: {:?}", n_alive);

        let has_cause = !case.plan.points().is_empty() || cancel_before.is_some();
        prop_assert!(taken.contents.is_ok() || has_cause);
        if taken.contents.is_ok() {
            prop_assert_eq!(entered.len(), 2 * case.spec.nodes.len());
        }
        Ok(())
    });
}

#[test]
fn intake_gives_the_values_of_inline_in_every_mode() {
    engine::check(harness::cases(&[]), |case| {
        let values = |mode| take(case, mode, None).contents.expect("nothing goes wrong");
        let reference = values(InitMode::Inline);
        for mode in InitMode::ALL {
            prop_assert_eq!(&values(mode), &reference, "{}", mode);
        }
        Ok(())
    });
}
