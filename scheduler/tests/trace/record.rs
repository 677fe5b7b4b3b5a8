//! Records written as a list of nodes with their times.

use scheduler::{
    BarrierId, BarrierInfo, Event, EventKind, InitMode, LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase,
    RunRecord, Settled, Trace,
};
use std::ops::Range;

/// Lanes of every record here.
pub const LANES: [&str; 3] = ["host", "MatMul", "Norm"];

/// One node: its operator's name, lane, dependencies by index, and when it ran in microseconds.
pub struct Node(pub &'static str, pub usize, pub &'static [usize], pub Range<u64>);

/// Two operators, each read on the host lane and set up on its own lane, and a second MatMul read late:
///
/// ```text
/// us      0    10   20   30   40   50
/// host    |q---|n---|    |k---|
/// MatMul       |q--------|    |k-------| (to 60)
/// Norm              |n---|
/// ```
pub fn sample() -> Trace {
    trace(&[
        Node("q", 0, &[], 0..10),
        Node("q", 1, &[0], 10..30),
        Node("n", 0, &[], 10..20),
        Node("n", 2, &[2], 20..30),
        Node("k", 0, &[], 30..40),
        Node("k", 1, &[4], 40..60),
    ])
}

pub fn trace(nodes: &[Node]) -> Trace {
    Trace::new(record(nodes))
}

pub fn record(nodes: &[Node]) -> RunRecord {
    let lanes = LANES.iter().enumerate().map(|(index, &name)| LaneInfo {
        id: LaneId::from_index(index),
        name: name.to_owned(),
        operator_type: name.into(),
        order: LaneOrder::Fifo,
        stripe: None,
    });
    let infos = nodes
        .iter()
        .enumerate()
        .map(|(index, &Node(name, lane, deps, _))| NodeInfo {
            id: NodeId::from_index(index),
            name: name.into(),
            phase: if lane == 0 { Phase::Host } else { Phase::Device },
            lane: LaneId::from_index(lane),
            operator_type: if name == "n" {
                "Norm".into()
            } else {
                "MatMul".into()
            },
            deps: deps.iter().map(|&dep| NodeId::from_index(dep)).collect(),
            bytes: if lane == 0 { 100 } else { 0 },
        });
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (index, Node(_, _, _, range)) in nodes.iter().enumerate() {
        moments.push((range.start, true, index));
        moments.push((range.end, false, index));
    }
    // At equal times what ends comes first: it may be what let the other start.
    moments.sort_unstable();
    let mut events: Vec<Event> = Vec::new();
    for lane in 1..LANES.len() {
        push(&mut events, 0, lane, EventKind::LaneOpened);
    }
    for (at_us, is_start, index) in moments {
        let (node, lane) = (NodeId::from_index(index), nodes[index].1);
        let kind = if is_start {
            EventKind::NodeStarted(node)
        } else {
            EventKind::NodeFinished(node)
        };
        push(&mut events, at_us, lane, kind);
    }
    let end_us = nodes.iter().map(|node| node.3.end).max().unwrap_or(0);
    push(
        &mut events,
        end_us,
        0,
        EventKind::BarrierSettled(BarrierId::ALL, Settled::Ready),
    );
    for lane in 1..LANES.len() {
        push(&mut events, end_us, lane, EventKind::LaneClosed);
    }
    RunRecord {
        mode: InitMode::Overlapped,
        lanes: lanes.collect(),
        nodes: infos.collect(),
        barriers: vec![BarrierInfo {
            id: BarrierId::ALL,
            name: "all".into(),
            covers: (0..nodes.len()).map(NodeId::from_index).collect(),
        }],
        events,
        staging_budget_bytes: None,
    }
}

fn push(events: &mut Vec<Event>, at_us: u64, lane: usize, kind: EventKind) {
    let seq = events.len() as u64;
    events.push(Event {
        seq,
        at_ns: at_us * 1000,
        lane: LaneId::from_index(lane),
        thread: lane as u64,
        kind,
    });
}
