//! An async task-graph scheduler for initialising operators on heterogeneous devices: a host lane, one serialized lane per operator type, one-shot barriers.

mod event;
mod mode;

pub use event::{
    BarrierId, BarrierInfo, Event, EventKind, LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase,
    RunRecord, Settled,
};
pub use mode::{FailurePolicy, InitMode, OnOff, ParseChoiceError};
