use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::testing::{Guarantee, What};
use std::collections::HashMap;

#[test]
fn g3_nodes_of_one_lane_do_not_overlap_across_awaits() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G3)?;
        let parts = model::parts(&case.spec);
        for (index, &a) in parts.iter().enumerate() {
            for &b in &parts[index + 1..] {
                if model::lane(&case.spec, a) == model::lane(&case.spec, b) {
                    let (a, b) = (model::id(&finished.nodes, a), model::id(&finished.nodes, b));
                    prop_assert!(!finished.trace.overlaps(a, b), "{:?} and {:?} ran at once", a, b);
                }
            }
        }
        Ok(())
    });
}

/// The lane state is used at the beginning and at the end of each setup, with awaits in between: nobody else's use comes there.
#[test]
fn g3_a_lane_state_serves_one_node_at_a_time() {
    engine::check(harness::cases(&[]), |case| {
        let finished = harness::run(case);
        let mut in_use = HashMap::new();
        for entry in &finished.log {
            if let What::Used(state, call) = entry.what {
                match in_use.remove(&state) {
                    None => drop(in_use.insert(state, call)),
                    Some(user) => prop_assert_eq!(user, call),
                }
            }
        }
        prop_assert!(in_use.is_empty());
        Ok(())
    });
}
