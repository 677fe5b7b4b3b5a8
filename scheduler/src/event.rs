//! What happened in a run, as plain data.
//!
//! A run that records hands over a [`RunRecord`]: what the graph looked like ([`NodeInfo`],
//! [`LaneInfo`], [`BarrierInfo`]) and every [`Event`], in an order that agrees with cause and effect.
//!
//! # Order and time
//!
//! Lanes share no counter while they run. Each keeps a hybrid logical clock: an event is stamped
//! with the nanoseconds since the run started, but never with less than one more than any event
//! that caused it (the one before it on its lane, the last one of a lane it waited for).
//! [`Event::seq`] is the rank by that stamp, so if one event happened before another, its `seq` is smaller.
//!
//! ```text
//! host lane   |--read a--|--read b--|              seq: 0 1   2 3
//! lane npu               |--setup a--|--setup b--|        2'   4 5 ...
//! ```

use std::borrow::Cow;
use std::fmt;

use crate::mode::InitMode;

/// A node of one graph, numbered in the order of submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The node's place in submission order, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of the node at `index` in submission order, for traces made by hand (tests, tools).
    pub fn from_index(index: usize) -> Self {
        NodeId(u32::try_from(index).expect("a graph has fewer than 2^32 nodes"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// A lane of one graph. Lane 0 is the host lane; each stripe of a striped lane has an id of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub(crate) u32);

impl LaneId {
    /// The host lane.
    pub const HOST: LaneId = LaneId(0);

    /// The lane's place among the graph's lanes; the host lane is 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of the lane at `index`, for traces made by hand (tests, tools).
    pub fn from_index(index: usize) -> Self {
        LaneId(u32::try_from(index).expect("a graph has fewer than 2^32 lanes"))
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane{}", self.0)
    }
}

/// A barrier of one graph, as [`InitGraph::barrier`](crate::InitGraph::barrier) returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(pub(crate) u32);

impl BarrierId {
    /// The barrier over every node of the graph, which every run has.
    pub const ALL: BarrierId = BarrierId(0);

    /// The barrier's place among the graph's barriers; the one over everything is 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of the barrier at `index`, for traces made by hand (tests, tools).
    pub fn from_index(index: usize) -> Self {
        BarrierId(u32::try_from(index).expect("a graph has fewer than 2^32 barriers"))
    }
}

/// What part of an operator's initialisation a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Reading from the model, on the host lane.
    Host,
    /// Opening a lane's state. No node has this phase; an error may.
    Open,
    /// Setting up on a device, on the operator type's lane.
    Device,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Host => "host",
            Phase::Open => "open",
            Phase::Device => "device",
        })
    }
}

/// The order in which a lane starts its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LaneOrder {
    /// In the order they were added.
    #[default]
    Fifo,
    /// In the order they became ready. Inline and Serial runs take turns in submission order, so
    /// there every lane is [`Fifo`](LaneOrder::Fifo), and [`LaneInfo::order`] says so.
    Ready,
}

/// One thing that happened in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Rank among the run's events; smaller if it happened before.
    pub seq: u64,
    /// Nanoseconds since the run started.
    pub at_ns: u64,
    /// The lane it happened on. Run-wide events carry the lane whose thread noticed them.
    pub lane: LaneId,
    /// The thread it happened on: a number of this process, not the operating system's.
    pub thread: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What an [`Event`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The lane's state was opened, before its first node.
    LaneOpened,
    /// The lane's state was dropped, after its last node and after every value it rolled back.
    LaneClosed,
    /// A node of a [`LaneOrder::Ready`] lane became ready and took its place in the lane's queue.
    NodeReady(NodeId),
    /// A node started.
    NodeStarted(NodeId),
    /// A node finished and its value may be used.
    NodeFinished(NodeId),
    /// A node returned an error.
    NodeFailed(NodeId),
    /// A node panicked; the panic was caught.
    NodePanicked(NodeId),
    /// A node had started and was stopped at an await point by a cancel or another node's failure.
    NodeCancelled(NodeId),
    /// A node will never start: something it depends on failed, or the run was stopped.
    NodeSkipped(NodeId),
    /// A host value was admitted under the staging budget; the bytes are charged from here on.
    BytesStaged(NodeId, u64),
    /// The last user of a host value has finished; its bytes are free again.
    BytesReleased(NodeId, u64),
    /// A value that nobody took was dropped in the rollback of a failed or cancelled run.
    ValueDropped(NodeId),
    /// A barrier settled: with success, or with an error.
    BarrierSettled(BarrierId, Settled),
    /// The host lane ended a reading phase (Serial, TwoPhase): device setup may go on.
    HostPhaseEnded,
    /// Someone cancelled the run.
    RunCancelled,
}

/// How a barrier settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Every node it covers has finished.
    Ready,
    /// It can no longer succeed.
    Failed,
}

/// What a node is, as the graph knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its id; ids count up in submission order.
    pub id: NodeId,
    /// Its name. An operator's two nodes share one name; [`phase`](NodeInfo::phase) tells them apart.
    pub name: Cow<'static, str>,
    /// Host or device.
    pub phase: Phase,
    /// The lane that runs it.
    pub lane: LaneId,
    /// The type of its operator: what the operator type calls itself.
    pub operator_type: Cow<'static, str>,
    /// What it waits for besides its lane's order: its host node, typed dependencies, extra edges.
    pub deps: Vec<NodeId>,
    /// Staging bytes of a host node; 0 for others.
    pub bytes: u64,
}

/// What a lane is, as the graph knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneInfo {
    /// Its id.
    pub id: LaneId,
    /// Its name: `host`, or the operator type's name, with `#2` for the third stripe or a second lane of that name.
    pub name: String,
    /// The operator type it serves; `host` for the host lane.
    pub operator_type: Cow<'static, str>,
    /// The order in which it started its nodes in this run.
    pub order: LaneOrder,
    /// Which stripe of how many, for a striped lane.
    pub stripe: Option<(u32, u32)>,
}

/// What a barrier is, as the graph knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierInfo {
    /// Its id.
    pub id: BarrierId,
    /// Its name; `all` for the one over everything.
    pub name: Cow<'static, str>,
    /// The nodes it covers, in submission order.
    pub covers: Vec<NodeId>,
}

/// Everything a recorded run leaves behind: the input of [`Trace`](crate::Trace).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The mode it ran in.
    pub mode: InitMode,
    /// Its lanes, by id.
    pub lanes: Vec<LaneInfo>,
    /// Its nodes, by id, that is in submission order.
    pub nodes: Vec<NodeInfo>,
    /// Its barriers, by id.
    pub barriers: Vec<BarrierInfo>,
    /// Its events, by [`Event::seq`].
    pub events: Vec<Event>,
    /// The staging budget it ran under, if any.
    pub staging_budget_bytes: Option<u64>,
}
