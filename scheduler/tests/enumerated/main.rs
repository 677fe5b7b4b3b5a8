//! Small spaces, enumerated instead of sampled: every node of a six-node graph on three lanes, every fault, every mode,
//! every barrier, both failure policies. And threads counted around every single run.
//!
//! This target has one test on purpose: other tests in the process would start threads of their own.

mod threads;

use scheduler::testing::{
    Built, Call, EdgeSpec, Fault, FaultPlan, GraphSpec, LaneSpec, NodeKind, NodeSpec, Script,
    check_guarantees,
};
use scheduler::{FailurePolicy, InitMode, LaneOrder, NodeId, Outcome, Phase, RunOptions};
use std::sync::Arc;

/// Three operators on two lanes besides the host lane: six nodes.
///
/// ```text
/// host    h0 ------ h1 ------ h2
///          \         \         \
/// A         d0 -------\-------- d2       d2 also waits for d1
///                      \       /
/// B                     d1 ---
/// ```
fn graph() -> GraphSpec {
    let lane = LaneSpec {
        n_stripes: 1,
        order: LaneOrder::Fifo,
    };
    let operator = |lane: usize, after: &[usize]| NodeSpec {
        kind: NodeKind::Operator,
        lane,
        bytes: 10,
        n_awaits: 0,
        after: after
            .iter()
            .map(|&earlier| EdgeSpec {
                earlier,
                waits: Phase::Device,
            })
            .collect(),
    };
    let nodes = vec![operator(0, &[]), operator(1, &[]), operator(0, &[1])];
    GraphSpec {
        lanes: vec![lane, lane],
        nodes,
        barriers: Vec::new(),
        budget_bytes: None,
    }
}

/// The six nodes, in submission order.
const PARTS: [Call; 6] = [
    (0, Phase::Host),
    (0, Phase::Device),
    (1, Phase::Host),
    (1, Phase::Device),
    (2, Phase::Host),
    (2, Phase::Device),
];

/// What can never finish once the node at `place` does not.
fn hit_by(place: usize) -> &'static [usize] {
    match place {
        0 => &[0, 1],
        1 => &[1],
        2 => &[2, 3, 5],
        3 => &[3, 5],
        4 => &[4, 5],
        5 => &[5],
        _ => unreachable!("there are six nodes"),
    }
}

#[test]
fn every_node_fault_mode_barrier_and_policy() {
    silence_planned_panics();
    let mut n_runs = 0;
    for place in 0..PARTS.len() {
        for fault in Fault::ALL {
            for mode in InitMode::ALL {
                for covers in 1..1_u32 << PARTS.len() {
                    for policy in [FailurePolicy::FailFast, FailurePolicy::CollectAll] {
                        check(place, fault, mode, covers, policy);
                        n_runs += 1;
                    }
                }
            }
        }
    }
    assert_eq!(n_runs, 6 * 4 * 4 * 63 * 2);
}

fn check(place: usize, fault: Fault, mode: InitMode, covers: u32, policy: FailurePolicy) {
    let n_threads_before = threads::count();
    let what = format!(
        "{:?} {fault:?} {mode} barrier {covers:06b} {policy:?}",
        PARTS[place]
    );
    let (node, phase) = PARTS[place];
    let script = Script::new(FaultPlan::at(node, phase, fault));
    let Built { mut graph, nodes, .. } = graph().build_fake(&script);
    let ids: Vec<NodeId> = PARTS
        .iter()
        .map(|&(node, phase)| nodes[node].part(phase).expect("an operator"))
        .collect();
    let is_covered = |place: usize| covers & (1 << place) != 0;
    let barrier = graph.barrier(
        "some",
        (0..6).filter(|&place| is_covered(place)).map(|place| ids[place]),
    );
    let run = graph
        .start_with(mode, RunOptions::new().record().failure_policy(policy))
        .expect("the graph is sound");
    let run = Arc::new(run);
    let weak = Arc::downgrade(&run);
    script.on_cancel(move || weak.upgrade().expect("the run is waited for").cancel());

    if fault == Fault::Stall {
        script.wait_for(PARTS[place]);
        run.cancel();
        // A cancelled run settles while the node is still stuck.
        assert!(run.ready().wait().is_err(), "{what}");
        // A read blocks its thread and must be let go; a setup awaits, and the cancel drops it there.
        if phase == Phase::Host {
            script.release();
        }
    }
    let outcome = run.ready().wait().map(drop);
    let partial = run.barrier(barrier).wait().map(drop);
    let trace = run.trace();
    drop(run);

    check_guarantees(&trace)
        .unwrap_or_else(|violations| panic!("{what}\n{violations}\n{}", trace.timeline(80)));
    let is_hit = hit_by(place).iter().any(|&place| is_covered(place));
    match fault {
        Fault::Fail | Fault::Panic => {
            let error = outcome.expect_err(&what);
            assert_eq!(
                (error.node(), error.phase()),
                (Some(&*GraphSpec::name(node)), Some(phase)),
                "{what}"
            );
            assert_eq!(error.is_panic(), fault == Fault::Panic, "{what}");
            assert_eq!(error.skipped().len(), hit_by(place).len() - 1, "{what}");
            // Under fail-fast a barrier beside the failure may settle either way.
            assert!(partial.is_err() || !is_hit, "{what}");
            assert!(
                partial.is_ok() || is_hit || policy == FailurePolicy::FailFast,
                "{what}"
            );
            if policy == FailurePolicy::CollectAll {
                for (other, &id) in ids.iter().enumerate() {
                    let has_finished = trace.outcome(id) == Outcome::Finished;
                    assert_eq!(
                        has_finished,
                        !hit_by(place).contains(&other),
                        "{what}: {:?}",
                        PARTS[other]
                    );
                }
            }
        }
        Fault::Stall => {
            assert!(outcome.expect_err(&what).is_cancelled(), "{what}");
            let expected = if phase == Phase::Host {
                Outcome::Finished
            } else {
                Outcome::Cancelled
            };
            assert_eq!(trace.outcome(ids[place]), expected, "{what}");
            // A read cannot be stopped: once released it ends, but after the cancel that does not help any barrier.
            assert!(partial.is_err() || !is_covered(place), "{what}");
        }
        Fault::Cancel => {
            assert!(outcome.expect_err(&what).is_cancelled(), "{what}");
            // The node that cancels goes on; what comes after it does not start, unless it had on another lane.
            assert!(
                partial.is_err() || !hit_by(place)[1..].iter().any(|&place| is_covered(place)),
                "{what}"
            );
        }
    }
    threads::assert_back_to(n_threads_before, &what);
}

fn silence_planned_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic
            .payload_as_str()
            .is_some_and(|text| text.starts_with("planned panic"))
        {
            print(panic);
        }
    }));
}
