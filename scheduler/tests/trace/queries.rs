use crate::record::{Node, record, sample, trace};
use expect_test::expect;
use scheduler::{EventKind, InitMode, NodeId, Outcome, Phase, Trace, Via};
use std::fmt::Debug;
use std::time::Duration;

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn n(index: usize) -> NodeId {
    NodeId::from_index(index)
}

#[track_caller]
fn check(actual: impl Debug, expected: expect_test::Expect) {
    expected.assert_eq(&format!("{actual:?}"));
}

#[test]
fn before_and_overlaps_follow_sequence_numbers() {
    let trace = sample();
    assert!(
        trace.before(n(0), n(1)),
        "a dependency that ends as its dependent starts is before it"
    );
    assert!(!trace.before(n(1), n(0)));
    assert!(trace.overlaps(n(1), n(2)) && trace.overlaps(n(2), n(1)));
    assert!(!trace.overlaps(n(1), n(5)));
    assert!(trace.overlaps(n(3), n(3)));
}

#[test]
fn a_node_that_never_started_is_neither_before_nor_beside_others() {
    let mut record = record(&[Node("q", 0, &[], 0..10), Node("q", 1, &[0], 10..20)]);
    record
        .events
        .retain(|event| !matches!(event.kind, EventKind::NodeStarted(_) | EventKind::NodeFinished(_)));
    let trace = Trace::new(record);
    assert!(!trace.before(n(0), n(1)) && !trace.overlaps(n(0), n(1)) && !trace.overlaps(n(0), n(0)));
    assert_eq!(trace.outcome(n(0)), Outcome::Pending);
    assert_eq!((trace.wall(), trace.critical_path().share()), (us(0), 0.0));
}

#[test]
fn a_node_still_running_counts_up_to_the_last_event() {
    let mut record = record(&[Node("q", 0, &[], 0..10), Node("n", 0, &[], 10..40)]);
    record
        .events
        .retain(|event| event.kind != EventKind::NodeFinished(n(1)));
    let trace = Trace::new(record);
    assert_eq!(trace.outcome(n(1)), Outcome::Running);
    assert_eq!(trace.span(n(1)).duration(), us(30));
    assert!(trace.before(n(0), n(1)) && !trace.before(n(1), n(0)));
}

#[test]
fn lanes_know_their_busy_and_queue_time() {
    check(
        sample()
            .lane_usage()
            .iter()
            .map(|lane| (lane.n_nodes, lane.busy, lane.queue))
            .collect::<Vec<_>>(),
        expect!["[(3, 30µs, 40µs), (2, 40µs, 0ns), (1, 10µs, 0ns)]"],
    );
    let utilization: Vec<f64> = sample()
        .lane_usage()
        .iter()
        .map(|lane| lane.utilization)
        .collect();
    assert_eq!(utilization, [30.0 / 60.0, 40.0 / 60.0, 10.0 / 60.0]);
}

#[test]
fn operator_types_know_host_device_and_queue_time() {
    check(
        sample()
            .type_usage()
            .into_iter()
            .map(|usage| {
                (
                    usage.operator_type,
                    usage.n_nodes,
                    usage.host,
                    usage.device,
                    usage.queue,
                    usage.host_bytes,
                )
            })
            .collect::<Vec<_>>(),
        expect![[r#"[("MatMul", 4, 20µs, 40µs, 30µs, 200), ("Norm", 2, 10µs, 10µs, 10µs, 100)]"#]],
    );
}

#[test]
fn the_critical_path_follows_dependencies_and_threads() {
    let path = sample().critical_path();
    check(
        path.steps
            .iter()
            .map(|step| (step.node, step.via))
            .collect::<Vec<_>>(),
        expect!["[(n0, Start), (n2, Thread), (n4, Thread), (n5, Dependency)]"],
    );
    assert_eq!((path.busy, path.wall), (us(50), us(60)));
    assert_eq!(path.share(), 50.0 / 60.0);
}

#[test]
fn on_one_thread_the_critical_path_is_everything() {
    let mut record = record(&[
        Node("q", 0, &[], 0..10),
        Node("q", 1, &[0], 10..30),
        Node("n", 0, &[], 30..35),
    ]);
    for event in &mut record.events {
        event.thread = 7;
    }
    let path = Trace::new(record).critical_path();
    assert_eq!(path.share(), 1.0);
    assert_eq!(path.steps.last().map(|step| step.via), Some(Via::Thread));
}

#[test]
fn nodes_are_found_by_name_and_phase() {
    let trace = sample();
    assert_eq!(trace.find("k", Phase::Device), Some(n(5)));
    assert_eq!(trace.find("k", Phase::Open), None);
    let matmul = trace.find_lane("MatMul").expect("the sample has it");
    assert_eq!(trace.order(matmul), [n(1), n(5)]);
}

#[test]
fn wall_time_is_work_less_overlap_plus_idle() {
    let trace = trace(&[
        Node("q", 0, &[], 5..10),
        Node("q", 1, &[0], 12..30),
        Node("n", 0, &[], 10..20),
    ]);
    let parts = trace.breakdown();
    assert_eq!(
        (parts.wall, parts.work, parts.overlap, parts.idle),
        (us(30), us(33), us(8), us(5))
    );
    assert_eq!(parts.wall + parts.overlap, parts.work + parts.idle);
}

#[test]
fn attribution_names_the_modes_and_what_changed() {
    let mut first = record(&[
        Node("q", 0, &[], 0..20),
        Node("q", 1, &[0], 20..60),
        Node("n", 0, &[], 60..70),
    ]);
    first.mode = InitMode::Serial;
    let second = trace(&[
        Node("q", 0, &[], 0..10),
        Node("q", 1, &[0], 10..40),
        Node("n", 0, &[], 10..20),
    ]);
    let attribution = Trace::new(first).attribution(&second);
    assert_eq!(attribution.speedup(), 70.0 / 40.0);
    expect![[r#"
        ms                                       serial   overlapped       change
        wall                                      0.070        0.040       -0.030
          work (+)                                0.070        0.050       -0.020
          overlap (-)                             0.000        0.010       +0.010
          idle (+)                                0.000        0.000       +0.000
        MatMul host                               0.020        0.010       -0.010
        MatMul device                             0.040        0.030       -0.010
        Norm host                                 0.010        0.010       +0.000
        Norm device                               0.000        0.000       +0.000
    "#]]
    .assert_eq(&attribution.to_string());
}
