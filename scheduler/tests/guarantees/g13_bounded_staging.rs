use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::Phase;
use scheduler::testing::{Fault, Guarantee, NodeKind, What};
use std::collections::HashMap;

fn check_bytes(kinds: &'static [Fault]) {
    engine::check((harness::cases(kinds), 0_u64..250), |(case, budget)| {
        let mut case = case.clone();
        case.spec.budget_bytes = Some(*budget);
        let finished = harness::run(&case);
        finished.upholds(Guarantee::G13)?;

        // The host values that are alive, by what happened to them and not by what the run says it counted.
        let mut alive: HashMap<usize, u64> = HashMap::new();
        for entry in &finished.log {
            match entry.what {
                What::Made((node, Phase::Host)) => drop(alive.insert(node, case.spec.nodes[node].bytes)),
                What::Dropped((node, Phase::Host)) => drop(alive.remove(&node)),
                _ => {}
            }
            let total: u64 = alive.values().sum();
            let n_staged = alive.values().filter(|&&bytes| bytes > 0).count();
            prop_assert!(
                total <= *budget || n_staged <= 1,
                "{} bytes alive under a budget of {}",
                total,
                budget
            );
        }
        Ok(())
    });
}

#[test]
fn g13_staged_bytes_keep_to_the_budget_and_reading_goes_on() {
    check_bytes(&[]);
}

#[test]
fn g13_staged_bytes_keep_to_the_budget_when_things_go_wrong() {
    check_bytes(harness::every_fault());
}

/// A budget of nothing admits one value at a time, in every mode, and never deadlocks.
#[test]
fn g13_without_any_budget_values_go_one_by_one() {
    engine::check(harness::cases(&[]), |case| {
        let mut case = case.clone();
        case.spec.budget_bytes = Some(0);
        for node in &mut case.spec.nodes {
            node.bytes = if node.kind == NodeKind::Operator { 1 } else { 0 };
        }
        let finished = harness::run(&case);
        finished.upholds(Guarantee::G13)?;
        prop_assert!(finished.outcome.is_ok());
        let hosts = model::parts(&case.spec)
            .into_iter()
            .filter(|part| part.1 == Phase::Host);
        let hosts: Vec<usize> = hosts.map(|(node, _)| node).collect();
        for pair in hosts.windows(2) {
            let (device, next) = ((pair[0], Phase::Device), (pair[1], Phase::Host));
            let (device, next) = (
                model::id(&finished.nodes, device),
                model::id(&finished.nodes, next),
            );
            prop_assert!(
                finished.trace.before(device, next),
                "{:?} was read before {:?} was set up",
                next,
                device
            );
        }
        Ok(())
    });
}
