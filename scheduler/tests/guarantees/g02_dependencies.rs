use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::testing::Guarantee;

#[test]
fn g2_a_node_starts_after_what_it_depends_on() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G2)?;
        for (later, earlier) in model::edges(&case.spec) {
            let (later, earlier) = (
                model::id(&finished.nodes, later),
                model::id(&finished.nodes, earlier),
            );
            if finished.trace.span(later).start_seq.is_some() {
                prop_assert!(
                    finished.trace.before(earlier, later),
                    "{:?} ran without {:?}",
                    later,
                    earlier
                );
            }
        }
        Ok(())
    });
}

/// The fake values are hashes of what they were made from, so a node that saw a wrong or missing value shows in its own.
#[test]
fn g2_a_node_sees_what_its_dependencies_made() {
    use scheduler::Phase;
    use scheduler::testing::{NodeKind, content};

    engine::check(harness::cases(&[]), |case| {
        let mut case = case.clone();
        // Independent of the order on the lane, so that the expected values are plain functions of the graph.
        case.spec.lanes.iter_mut().for_each(|lane| lane.n_stripes = 2);
        let finished = harness::run(&case);
        let actual = finished.outcome.as_ref().expect("nothing goes wrong");
        for (index, node) in case.spec.nodes.iter().enumerate() {
            let input = match node.kind {
                NodeKind::Operator => content(&index),
                NodeKind::Plain => {
                    let plain = node
                        .after
                        .iter()
                        .filter(|edge| case.spec.nodes[edge.earlier].kind == NodeKind::Plain);
                    content(&plain.map(|edge| actual[edge.earlier]).collect::<Vec<u64>>())
                }
            };
            prop_assert_eq!(
                actual[index],
                content(&(index, input, 0_u64)),
                "{:?}",
                (index, Phase::Device)
            );
        }
        Ok(())
    });
}
