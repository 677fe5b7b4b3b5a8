//! What is compared: the same graph, built and run by each peer in this process.

mod counted;
mod dagrs_peer;
mod dagx_peer;
mod hand_lanes;
mod hostlane;
mod one_thread;
mod rayon_peer;
mod tokio_lanes;

use crate::shape::Shape;
use std::time::Duration;

/// What one build and run of a graph took.
#[derive(Clone, Copy, Default)]
pub struct Round {
    pub build: Duration,
    /// Starting threads or a runtime, before the run: apart, since a warm process pays it once.
    pub start: Duration,
    pub run: Duration,
}

/// One way to run a graph.
pub struct Peer {
    pub name: &'static str,
    /// At most one node of a lane runs at a time.
    pub has_lanes: bool,
    /// Every node of a lane runs on the lane's one thread.
    pub is_pinned: bool,
    /// Graphs over this size would take minutes; they are reported as left out.
    pub max_nodes: usize,
    pub round: fn(&Shape) -> Round,
}

const UNLIMITED: usize = usize::MAX;

pub const PEERS: &[Peer] = &[
    Peer {
        name: "hostlane",
        has_lanes: true,
        is_pinned: true,
        max_nodes: UNLIMITED,
        round: hostlane::overlapped,
    },
    Peer {
        name: "hostlane-warm",
        has_lanes: true,
        is_pinned: true,
        max_nodes: UNLIMITED,
        round: hostlane::warm,
    },
    Peer {
        name: "hostlane-recorded",
        has_lanes: true,
        is_pinned: true,
        max_nodes: UNLIMITED,
        round: hostlane::recorded,
    },
    Peer {
        name: "hostlane-inline",
        has_lanes: true,
        is_pinned: true,
        max_nodes: UNLIMITED,
        round: hostlane::inline,
    },
    Peer {
        name: "hand-one-thread",
        has_lanes: true,
        is_pinned: true,
        max_nodes: UNLIMITED,
        round: one_thread::round,
    },
    Peer {
        name: "hand-lanes",
        has_lanes: true,
        is_pinned: true,
        max_nodes: UNLIMITED,
        round: hand_lanes::round,
    },
    Peer {
        name: "tokio-lanes",
        has_lanes: true,
        is_pinned: false,
        max_nodes: UNLIMITED,
        round: tokio_lanes::round,
    },
    Peer {
        name: "rayon",
        has_lanes: false,
        is_pinned: false,
        max_nodes: UNLIMITED,
        round: rayon_peer::round,
    },
    Peer {
        name: "dagx",
        has_lanes: false,
        is_pinned: false,
        max_nodes: 10_000,
        round: dagx_peer::round,
    },
    Peer {
        name: "dagrs",
        has_lanes: false,
        is_pinned: false,
        max_nodes: 10_000,
        round: dagrs_peer::round,
    },
];
