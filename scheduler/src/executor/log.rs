//! What one thread notes down while it runs nodes: compact, unshared, turned into events when the run is over.

use crate::event::{BarrierId, Event, EventKind, LaneId, NodeId, Settled};
use crate::graph::topology::Topology;
use crate::ready::Pos;

/// How a node that started came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Finished,
    Failed,
    Panicked,
    Stopped,
}

/// Something that happened at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Opened,
    Closed,
    Ready(Pos),
    Skipped(Pos),
    Dropped(Pos),
    Staged(Pos, u64),
    Released(Pos, u64),
    Settled(u32, Settled),
    HostPhaseEnded,
    Cancelled,
}

enum Entry {
    Node {
        lane: u32,
        pos: Pos,
        start: u64,
        end: u64,
        ending: Ending,
    },
    Moment {
        lane: u32,
        at: u64,
        what: Moment,
    },
}

/// One thread's notes.
pub(crate) struct Log {
    thread: u64,
    entries: Vec<Entry>,
}

impl Log {
    pub(crate) fn new(thread: u64) -> Self {
        Log {
            thread,
            entries: Vec::new(),
        }
    }

    /// Makes room for so many more nodes.
    pub(crate) fn reserve(&mut self, n_nodes: usize) {
        self.entries.reserve(n_nodes);
    }

    #[inline]
    pub(crate) fn node(&mut self, lane: u32, pos: Pos, start: u64, end: u64, ending: Ending) {
        self.entries.push(Entry::Node {
            lane,
            pos,
            start,
            end,
            ending,
        });
    }

    pub(crate) fn moment(&mut self, lane: u32, at: u64, what: Moment) {
        self.entries.push(Entry::Moment { lane, at, what });
    }
}

/// Merges the notes of all threads into events, ranked by stamp.
pub(crate) fn merge(logs: &[Log], topology: &Topology) -> Vec<Event> {
    let mut events = Vec::new();
    for log in logs {
        let mut push = |lane: u32, at_ns, kind| {
            events.push(Event {
                seq: 0,
                at_ns,
                lane: LaneId(lane),
                thread: log.thread,
                kind,
            });
        };
        for entry in &log.entries {
            match *entry {
                Entry::Node {
                    lane,
                    pos,
                    start,
                    end,
                    ending,
                } => {
                    let node = NodeId(topology.node_at(lane, pos));
                    push(lane, start, EventKind::NodeStarted(node));
                    let kind = match ending {
                        Ending::Finished => EventKind::NodeFinished(node),
                        Ending::Failed => EventKind::NodeFailed(node),
                        Ending::Panicked => EventKind::NodePanicked(node),
                        Ending::Stopped => EventKind::NodeCancelled(node),
                    };
                    push(lane, end, kind);
                }
                Entry::Moment { lane, at, what } => push(lane, at, kind_of(what, lane, topology)),
            }
        }
    }
    // Stable: a thread's own entries are in order already, and equal stamps never depend on each other.
    events.sort_by_key(|event| event.at_ns);
    for (seq, event) in events.iter_mut().enumerate() {
        event.seq = seq as u64;
    }
    events
}

fn kind_of(what: Moment, lane: u32, topology: &Topology) -> EventKind {
    let node = |pos| NodeId(topology.node_at(lane, pos));
    let host_node = |pos| NodeId(topology.node_at(0, pos));
    match what {
        Moment::Opened => EventKind::LaneOpened,
        Moment::Closed => EventKind::LaneClosed,
        Moment::Ready(pos) => EventKind::NodeReady(node(pos)),
        Moment::Skipped(pos) => EventKind::NodeSkipped(node(pos)),
        Moment::Dropped(pos) => EventKind::ValueDropped(node(pos)),
        Moment::Staged(pos, bytes) => EventKind::BytesStaged(host_node(pos), bytes),
        Moment::Released(pos, bytes) => EventKind::BytesReleased(host_node(pos), bytes),
        Moment::Settled(barrier, how) => EventKind::BarrierSettled(BarrierId(barrier), how),
        Moment::HostPhaseEnded => EventKind::HostPhaseEnded,
        Moment::Cancelled => EventKind::RunCancelled,
    }
}
