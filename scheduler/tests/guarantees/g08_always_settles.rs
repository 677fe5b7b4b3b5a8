use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::testing::{Call, Fault, Guarantee};
use scheduler::{FailurePolicy, InitError, Outcome, Phase};

/// The run and every barrier settle, whatever goes wrong: `harness::run` waits for all of them and would hang else.
#[test]
fn g8_every_barrier_settles_with_the_root_cause() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G8)?;
        finished.upholds(Guarantee::G7)?;

        let parts = model::parts(&case.spec);
        let outcome = |call: Call| finished.trace.outcome(model::id(&finished.nodes, call));
        let is_root = |call: &Call| matches!(outcome(*call), Outcome::Failed | Outcome::Panicked);
        let roots: Vec<Call> = parts.iter().copied().filter(is_root).collect();
        let has_finished = |call: &Call| outcome(*call) == Outcome::Finished;
        let have_all_finished = parts.iter().all(has_finished);
        prop_assert!(have_all_finished || finished.outcome.is_err());
        // A cancel that comes while the last node runs lets it finish and fails the run.
        let is_cancelled = finished.outcome.as_ref().is_err_and(InitError::is_cancelled);
        prop_assert!(finished.outcome.is_ok() || is_cancelled || !have_all_finished);

        for result in finished.barriers.iter().chain([&finished
            .outcome
            .as_ref()
            .map(drop)
            .map_err(Clone::clone)])
        {
            let Err(error) = result else { continue };
            if error.is_cancelled() {
                let is_cause = |fault| matches!(fault, Fault::Cancel | Fault::Stall);
                prop_assert!(
                    case.plan.points().iter().any(|point| is_cause(point.fault)),
                    "{error}"
                );
            } else {
                check_root(case, error, &roots)?;
            }
        }
        Ok(())
    });
}

/// The error names a node that really failed, its lane, operator type and phase, and the nodes that depend on it.
fn check_root(case: &harness::Case, error: &InitError, roots: &[Call]) -> engine::Property {
    let name = |node: usize| scheduler::testing::GraphSpec::name(node);
    let root = roots
        .iter()
        .find(|&&(node, phase)| error.node() == Some(&name(node)) && error.phase() == Some(phase));
    let Some(&root) = root else {
        return Err(TestCaseError::fail(format!("{error} names none of {roots:?}")));
    };
    let operator_type = format!("Type{}", case.spec.nodes[root.0].lane);
    prop_assert_eq!(error.operator_type(), Some(operator_type.as_str()));
    let lane = error.lane().unwrap_or_default();
    let is_lane = if root.1 == Phase::Host {
        lane == "host"
    } else {
        lane.starts_with(&operator_type)
    };
    prop_assert!(is_lane, "{} is not the lane of {:?}", lane, root);
    let planned = case.plan.fault(root.0, root.1);
    prop_assert_eq!(error.is_panic(), planned == Some(Fault::Panic));

    let mut skipped: Vec<&str> = error.skipped().iter().map(AsRef::as_ref).collect();
    let expected: Vec<String> = model::doomed(&case.spec, &[root])
        .into_iter()
        .map(|(node, _)| name(node))
        .collect();
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    skipped.sort_unstable();
    expected.sort_unstable();
    prop_assert_eq!(skipped, expected, "skipped because of {:?}", root);
    Ok(())
}

#[test]
fn g8_collect_all_runs_whatever_does_not_depend_on_a_failure() {
    let kinds: &[Fault] = if cfg!(shuttle) {
        &[Fault::Fail]
    } else {
        &[Fault::Fail, Fault::Panic]
    };
    engine::check(harness::cases(kinds), |case| {
        let mut case = case.clone();
        case.policy = FailurePolicy::CollectAll;
        let finished = harness::run(&case);
        let planned: Vec<Call> = case
            .plan
            .points()
            .iter()
            .map(|point| (point.node, point.phase))
            .collect();
        let doomed = model::doomed(&case.spec, &planned);
        for part in model::parts(&case.spec) {
            let outcome = finished.trace.outcome(model::id(&finished.nodes, part));
            let expected = match case.plan.fault(part.0, part.1) {
                _ if doomed.contains(&part) => Outcome::Skipped,
                Some(Fault::Fail) => Outcome::Failed,
                Some(_) => Outcome::Panicked,
                None => Outcome::Finished,
            };
            prop_assert_eq!(outcome, expected, "{:?}", part);
        }
        for (covers, result) in case.spec.barriers.iter().zip(&finished.barriers) {
            let is_gone = |call: Call| doomed.contains(&call) || planned.contains(&call);
            let is_hit = covers.iter().any(|&node| is_gone((node, Phase::Device)));
            prop_assert_eq!(result.is_err(), is_hit, "barrier over {:?}", covers);
        }
        Ok(())
    });
}
