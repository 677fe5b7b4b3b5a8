//! Every check can fail: a sound record, one thing broken, and the guarantee that must be named.

use crate::record::{Node, record, sample};
use scheduler::testing::{Guarantee, check_guarantees};
use scheduler::{BarrierId, Event, EventKind, InitMode, LaneOrder, NodeId, RunRecord, Settled, Trace};

fn n(index: usize) -> NodeId {
    NodeId::from_index(index)
}

/// Breaks the sample's record and expects the guarantee, with these nodes.
#[track_caller]
fn check(guarantee: Guarantee, nodes: &[usize], break_it: impl FnOnce(&mut RunRecord)) {
    let mut record = sample().record().clone();
    break_it(&mut record);
    for (seq, event) in record.events.iter_mut().enumerate() {
        event.seq = seq as u64;
    }
    let violations = check_guarantees(&Trace::new(record)).expect_err("the record is broken");
    let nodes: Vec<NodeId> = nodes.iter().map(|&index| n(index)).collect();
    let is_named = violations
        .list()
        .iter()
        .any(|found| found.guarantee == guarantee && found.nodes == nodes);
    assert!(is_named, "{violations}");
}

fn place(record: &RunRecord, kind: EventKind) -> usize {
    record
        .events
        .iter()
        .position(|event| event.kind == kind)
        .expect("the sample has it")
}

/// Moves an event in front of another.
fn move_before(record: &mut RunRecord, kind: EventKind, other: EventKind) {
    let event = record.events.remove(place(record, kind));
    let at = place(record, other);
    record.events.insert(at, event);
}

fn set(record: &mut RunRecord, kind: EventKind, new: EventKind) {
    let at = place(record, kind);
    record.events[at].kind = new;
}

fn push_like(record: &mut RunRecord, like: EventKind, kind: EventKind) {
    let event = record.events[place(record, like)];
    record.events.push(Event { kind, ..event });
}

use EventKind::{
    BarrierSettled, BytesReleased, BytesStaged, LaneClosed, LaneOpened, NodeFailed, NodeFinished, NodeReady,
    NodeSkipped, NodeStarted, RunCancelled, ValueDropped,
};

const READY: EventKind = BarrierSettled(BarrierId::ALL, Settled::Ready);
const FAILED: EventKind = BarrierSettled(BarrierId::ALL, Settled::Failed);

#[test]
fn a_sound_run_has_no_violation() {
    check_guarantees(&sample()).expect("the sample is sound");
}

#[test]
fn g1_a_node_that_starts_twice() {
    check(Guarantee::G1, &[3], |record| {
        push_like(record, NodeStarted(n(3)), NodeStarted(n(3)))
    });
}

#[test]
fn g1_a_node_that_a_successful_run_left_out() {
    check(Guarantee::G1, &[5], |record| {
        record
            .events
            .retain(|event| ![NodeStarted(n(5)), NodeFinished(n(5))].contains(&event.kind));
    });
}

#[test]
fn g2_a_node_that_starts_before_its_dependency_ends() {
    check(Guarantee::G2, &[0, 1], |record| {
        move_before(record, NodeStarted(n(1)), NodeFinished(n(0)))
    });
}

#[test]
fn g2_a_node_that_starts_after_its_dependency_failed() {
    check(Guarantee::G2, &[0, 1], |record| {
        set(record, NodeFinished(n(0)), NodeFailed(n(0)))
    });
}

#[test]
fn g3_two_nodes_of_a_lane_at_once() {
    check(Guarantee::G3, &[1, 5], |record| {
        record.nodes[5].deps.clear();
        move_before(record, NodeStarted(n(5)), NodeFinished(n(1)));
    });
}

#[test]
fn g4_a_fifo_lane_out_of_order() {
    check(Guarantee::G4, &[0, 2], |record| {
        move_before(record, NodeStarted(n(2)), NodeStarted(n(0)));
        move_before(record, NodeFinished(n(2)), NodeStarted(n(0)));
    });
}

#[test]
fn g4_a_ready_lane_out_of_the_order_of_readiness() {
    check(Guarantee::G4, &[5, 1], |record| {
        record.lanes[1].order = LaneOrder::Ready;
        let event = record.events[0];
        record.events.insert(
            0,
            Event {
                kind: NodeReady(n(1)),
                ..event
            },
        );
        record.events.insert(
            0,
            Event {
                kind: NodeReady(n(5)),
                ..event
            },
        );
    });
}

#[test]
fn g5_a_lane_on_two_threads() {
    check(Guarantee::G5, &[5], |record| {
        let at = place(record, NodeFinished(n(5)));
        record.events[at].thread = 9;
    });
}

#[test]
fn g5_a_serial_run_on_two_threads() {
    check(Guarantee::G5, &[1], |record| record.mode = InitMode::Serial);
}

#[test]
fn g6_a_node_before_its_lane_opened() {
    check(Guarantee::G6, &[1], |record| {
        let at = record
            .events
            .iter()
            .position(|event| event.kind == LaneOpened && event.lane.index() == 1);
        let event = record.events.remove(at.expect("lane 1 opens"));
        let at = place(record, NodeFinished(n(1)));
        record.events.insert(at, event);
    });
}

#[test]
fn g6_a_node_after_its_lane_closed() {
    check(Guarantee::G6, &[3], |record| {
        let at = record
            .events
            .iter()
            .position(|event| event.kind == LaneClosed && event.lane.index() == 2);
        let event = record.events.remove(at.expect("lane 2 closes"));
        let at = place(record, NodeFinished(n(3)));
        record.events.insert(at, event);
    });
}

#[test]
fn g7_a_barrier_before_its_last_node() {
    check(Guarantee::G7, &[5], |record| {
        move_before(record, READY, NodeFinished(n(5)))
    });
}

#[test]
fn g7_a_barrier_that_settles_twice() {
    check(Guarantee::G7, &[], |record| push_like(record, READY, READY));
}

#[test]
fn g8_a_barrier_that_fails_without_a_cause() {
    check(Guarantee::G8, &[], |record| set(record, READY, FAILED));
}

#[test]
fn g8_a_node_that_is_still_running_after_the_end() {
    check(Guarantee::G8, &[5], |record| {
        set(record, NodeFinished(n(5)), RunCancelled);
        set(record, READY, FAILED);
    });
}

/// A run whose last node failed and whose values were rolled back in reverse order.
fn failed() -> RunRecord {
    let mut record = record(&[
        Node("q", 0, &[], 0..10),
        Node("q", 1, &[0], 10..20),
        Node("k", 1, &[], 20..30),
    ]);
    record.nodes.push(scheduler::NodeInfo {
        id: n(3),
        deps: vec![n(2)],
        ..record.nodes[2].clone()
    });
    let cause = place(&record, READY);
    record.events[cause].kind = FAILED;
    let event = Event {
        lane: record.nodes[3].lane,
        thread: 1,
        ..record.events[cause]
    };
    record.events.insert(
        cause,
        Event {
            kind: NodeFailed(n(3)),
            ..event
        },
    );
    record.events.insert(
        cause,
        Event {
            kind: NodeStarted(n(3)),
            ..event
        },
    );
    let close = place(&record, LaneClosed);
    for (offset, kind) in [ValueDropped(n(2)), ValueDropped(n(1))].into_iter().enumerate() {
        record.events.insert(close + offset, Event { kind, ..event });
    }
    record
}

#[track_caller]
fn check_failed(guarantee: Guarantee, nodes: &[usize], break_it: impl FnOnce(&mut RunRecord)) {
    check(guarantee, nodes, |record| {
        *record = failed();
        break_it(record);
    });
}

#[test]
fn a_failed_run_that_rolls_back_has_no_violation() {
    let mut record = failed();
    for (seq, event) in record.events.iter_mut().enumerate() {
        event.seq = seq as u64;
    }
    check_guarantees(&Trace::new(record)).expect("the failed run is sound");
}

#[test]
fn g8_a_node_that_nobody_skipped() {
    check_failed(Guarantee::G8, &[3], |record| {
        record.events.retain(|event| event.kind != NodeStarted(n(3)));
        set(record, NodeFailed(n(3)), RunCancelled);
    });
}

#[test]
fn g10_values_dropped_in_the_order_they_were_made() {
    check_failed(Guarantee::G10, &[1, 2], |record| {
        move_before(record, ValueDropped(n(1)), ValueDropped(n(2)))
    });
}

#[test]
fn g10_a_value_dropped_twice() {
    check_failed(Guarantee::G10, &[2], |record| {
        let at = place(record, ValueDropped(n(2)));
        record.events.insert(at, record.events[at]);
    });
}

#[test]
fn g10_a_value_that_was_never_made() {
    check_failed(Guarantee::G10, &[3], |record| {
        set(record, ValueDropped(n(2)), ValueDropped(n(3)))
    });
}

#[test]
fn g10_a_device_value_that_outlives_its_lanes_state() {
    check_failed(Guarantee::G6, &[], |record| {
        let at = record
            .events
            .iter()
            .position(|event| event.kind == LaneClosed && event.lane.index() == 1);
        let close = record.events.remove(at.expect("lane 1 closes"));
        let at = place(record, ValueDropped(n(1)));
        record.events.insert(at, close);
    });
}

#[test]
fn g12_a_node_that_depends_on_a_later_one() {
    check(Guarantee::G12, &[4, 1], |record| record.nodes[1].deps.push(n(4)));
}

fn with_budget(record: &mut RunRecord, first: EventKind, second: EventKind) {
    record.staging_budget_bytes = Some(150);
    push_like(record, NodeStarted(n(0)), first);
    push_like(record, NodeStarted(n(2)), second);
    push_like(record, NodeStarted(n(2)), BytesReleased(n(2), 100));
}

#[test]
fn g13_more_staged_than_the_budget() {
    check(Guarantee::G13, &[0, 2], |record| {
        with_budget(record, BytesStaged(n(0), 100), BytesStaged(n(2), 100));
        push_like(record, NodeStarted(n(0)), BytesReleased(n(0), 100));
    });
}

#[test]
fn g13_bytes_that_are_never_released() {
    check(Guarantee::G13, &[0], |record| {
        with_budget(record, BytesStaged(n(2), 50), BytesStaged(n(0), 50))
    });
}

#[test]
fn g13_bytes_released_twice() {
    check(Guarantee::G13, &[2], |record| {
        with_budget(record, BytesStaged(n(2), 100), NodeSkipped(n(0)));
        push_like(record, NodeStarted(n(2)), BytesReleased(n(2), 100));
    });
}

#[test]
fn g13_one_value_over_the_budget_is_admitted_alone() {
    let mut record = sample().record().clone();
    record.staging_budget_bytes = Some(10);
    for (index, event) in [BytesStaged(n(0), 100), BytesReleased(n(0), 100)]
        .into_iter()
        .enumerate()
    {
        let like = record.events[0];
        record.events.insert(index, Event { kind: event, ..like });
    }
    for (seq, event) in record.events.iter_mut().enumerate() {
        event.seq = seq as u64;
    }
    check_guarantees(&Trace::new(record)).expect("one value is always admitted");
}
