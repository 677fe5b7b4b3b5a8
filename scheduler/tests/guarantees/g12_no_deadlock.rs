use crate::{engine, harness, model};
use proptest::prelude::*;
use proptest::sample::Index;
use scheduler::testing::{Call, GraphSpec, Script};
use scheduler::{InitMode, LaneOrder, Phase};
use std::collections::HashSet;

/// At every moment exactly the parts wait that may run: none too many, and none too few, which is what a deadlock would be.
#[test]
fn g12_whatever_may_run_does_run() {
    let choices = proptest::collection::vec(any::<Index>(), 1..20);
    engine::check((harness::cases(&[]), choices), |(case, choices)| {
        let mut case = case.clone();
        simplify(&mut case.spec);
        let started = harness::start(&case, Script::stepped());
        let mut finished: HashSet<Call> = HashSet::new();
        let n_parts = model::parts(&case.spec).len();
        for at in 0..n_parts {
            let expected = may_run(&case.spec, case.mode, &finished);
            started.script.wait_for_all(&expected);
            let next = *choices[at % choices.len()].get(&expected);
            finished.insert(next);
            started.script.complete(next);
        }
        prop_assert!(started.run.ready().wait().is_ok());
        Ok(())
    });
}

/// Only what this model of the modes covers: FIFO lanes, no budget, host reads that wait for nothing.
fn simplify(spec: &mut GraphSpec) {
    spec.budget_bytes = None;
    spec.lanes
        .iter_mut()
        .for_each(|lane| lane.order = LaneOrder::Fifo);
    for node in &mut spec.nodes {
        node.after.retain(|edge| edge.waits == Phase::Device);
    }
}

fn may_run(spec: &GraphSpec, mode: InitMode, finished: &HashSet<Call>) -> Vec<Call> {
    let parts = model::parts(spec);
    let edges = model::edges(spec);
    let open: Vec<Call> = parts
        .into_iter()
        .filter(|part| !finished.contains(part))
        .collect();
    let hosts: Vec<Call> = open
        .iter()
        .copied()
        .filter(|part| part.1 == Phase::Host)
        .collect();
    match mode {
        InitMode::Inline => open.into_iter().take(1).collect(),
        InitMode::Serial => hosts.into_iter().chain(open).take(1).collect(),
        InitMode::TwoPhase if !hosts.is_empty() => hosts.into_iter().take(1).collect(),
        InitMode::TwoPhase | InitMode::Overlapped => {
            let mut seen_lanes = HashSet::new();
            let heads = open
                .into_iter()
                .filter(|&part| seen_lanes.insert(model::lane(spec, part)));
            let is_met = |part: &Call| {
                edges
                    .iter()
                    .all(|(later, on)| later != part || finished.contains(on))
            };
            heads.filter(is_met).collect()
        }
    }
}

/// Edges from outside, drawn in any direction: an order that keeps them all, or a cycle shown from end to end.
#[cfg(not(shuttle))]
#[test]
fn g12_an_imported_cycle_is_an_error_that_shows_the_whole_path() {
    let imported = (1_usize..12).prop_flat_map(|n| (Just(n), proptest::collection::vec((0..n, 0..n), 0..20)));
    engine::check(imported, |(n, edges)| {
        let names: Vec<String> = (0..*n).map(|index| format!("n{index}")).collect();
        match scheduler::order_for(&names, edges) {
            Ok(order) => {
                let place = |index: usize| {
                    order
                        .iter()
                        .position(|&at| at == index)
                        .expect("everything is placed")
                };
                prop_assert_eq!(order.len(), *n);
                prop_assert!(edges.iter().all(|&(waits, on)| place(on) < place(waits)));
            }
            Err(error) => {
                let text = error.to_string();
                let path = text
                    .strip_prefix("the graph has a cycle: ")
                    .expect("the error shows a cycle");
                let path: Vec<usize> = path
                    .split(" -> ")
                    .map(|name| names.iter().position(|other| other == name).expect("a name"))
                    .collect();
                prop_assert!(path.len() > 1 && path.first() == path.last(), "{:?}", path);
                let is_edge = |pair: &[usize]| {
                    edges.contains(&(pair[0], pair[1])) || edges.contains(&(pair[1], pair[0]))
                };
                prop_assert!(path.windows(2).all(is_edge), "{:?}", path);
                let is_forward = path.windows(2).all(|pair| edges.contains(&(pair[0], pair[1])));
                let is_backward = path.windows(2).all(|pair| edges.contains(&(pair[1], pair[0])));
                prop_assert!(is_forward || is_backward, "{:?}", path);
            }
        }
        Ok(())
    });
}

// No threads: nothing for shuttle to schedule.
#[cfg(not(shuttle))]
#[test]
fn g12_an_edge_that_closes_a_cycle_is_refused_at_the_start() {
    let mut graph = scheduler::InitGraph::new();
    let a = graph.read("a", (), |()| Ok(1));
    let b = graph.read("b", a, Ok);
    graph.after(a, b);
    let error = graph
        .start(InitMode::Overlapped)
        .expect_err("a waits for b waits for a");
    assert_eq!(error.to_string(), "the graph has a cycle: a -> b -> a");
}
