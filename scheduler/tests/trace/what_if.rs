use crate::record::{Node, sample, trace};
use scheduler::{InitMode, LaneId, Layout, Trace};
use std::time::Duration;

#[track_caller]
fn check(trace: &Trace, change: impl Fn(Layout) -> Layout, makespan_us: u64) {
    let simulated = trace.what_if(&change(Layout::of(trace)));
    assert_eq!(
        simulated.wall(),
        Duration::from_micros(makespan_us),
        "\n{}",
        simulated.timeline(80)
    );
}

const MATMUL: usize = 1;
const NORM: usize = 2;

fn lane(index: usize) -> LaneId {
    LaneId::from_index(index)
}

/// `n` operators whose read takes 1 us and whose setup takes `setup_us`, all on the MatMul lane.
fn operators(n: usize, setup_us: u64) -> Trace {
    let mut nodes = Vec::new();
    for index in 0..n {
        let host: &'static [usize] = Box::leak(Box::new([2 * index]));
        nodes.push(Node("q", 0, &[], 0..1));
        nodes.push(Node("q", MATMUL, host, 0..setup_us));
    }
    trace(&nodes)
}

#[test]
fn modes() {
    // Costs: reads 10 each, setups 20, 10, 20.
    check(&sample(), |layout| layout.mode(InitMode::Inline), 80);
    check(&sample(), |layout| layout.mode(InitMode::Serial), 80);
    check(&sample(), |layout| layout.mode(InitMode::TwoPhase), 70);
    check(&sample(), |layout| layout, 50);
}

#[test]
fn inline_and_serial_run_in_their_own_orders() {
    let order = |mode| {
        let simulated = sample().what_if(&Layout::of(&sample()).mode(mode));
        let mut nodes: Vec<_> = simulated.nodes().iter().map(|node| node.id).collect();
        nodes.sort_by_key(|&node| simulated.span(node).start());
        nodes.iter().map(|node| node.index()).collect::<Vec<_>>()
    };
    assert_eq!(order(InitMode::Inline), [0, 1, 2, 3, 4, 5]);
    assert_eq!(order(InitMode::Serial), [0, 2, 4, 1, 3, 5]);
}

#[test]
fn cores_are_shared_evenly() {
    check(&sample(), |layout| layout.cores(1), 80);
    check(&sample(), |layout| layout.cores(64), 50);
    // From 10 us on three lanes share two cores.
    let trace = trace(&[
        Node("q", 0, &[], 0..30),
        Node("q", MATMUL, &[], 0..30),
        Node("n", NORM, &[], 0..30),
    ]);
    check(&trace, |layout| layout.cores(2), 45);
    check(&trace, |layout| layout.cores(0), 90);
}

#[test]
fn stripes_deal_nodes_out_in_order() {
    check(&operators(8, 10), |layout| layout, 81);
    check(&operators(8, 10), |layout| layout.stripes(lane(MATMUL), 2), 42);
    check(&operators(8, 10), |layout| layout.stripes(lane(MATMUL), 4), 24);
    let simulated = operators(3, 10).what_if(&Layout::of(&operators(3, 10)).stripes(lane(MATMUL), 2));
    let names: Vec<&str> = simulated.lanes().iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!(names, ["host", "MatMul", "MatMul#1", "Norm"]);
}

#[test]
fn stripes_of_a_simulated_run_can_be_taken_back() {
    let trace = operators(8, 10);
    let striped = trace.what_if(&Layout::of(&trace).stripes(lane(MATMUL), 4));
    check(&striped, |layout| layout.stripes(lane(MATMUL + 2), 1), 81);
}

#[test]
fn merged_lanes_take_turns() {
    let trace = trace(&[
        Node("q", MATMUL, &[], 0..30),
        Node("n", NORM, &[], 0..30),
        Node("q", MATMUL, &[1], 0..30),
    ]);
    check(&trace, |layout| layout, 60);
    check(&trace, |layout| layout.merge(lane(MATMUL), lane(NORM)), 90);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let layout = Layout::of(&sample()).cores(2).stripes(lane(MATMUL), 2);
    assert_eq!(sample().what_if(&layout), sample().what_if(&layout));
}
