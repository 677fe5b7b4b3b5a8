//! An async task-graph scheduler for initialising operators on heterogeneous devices: a host lane, one serialized lane per operator type, one-shot barriers.

mod event;
mod export;
mod mode;
mod trace;
mod what_if;

#[cfg(feature = "testing")]
pub mod testing;

pub use event::{
    BarrierId, BarrierInfo, Event, EventKind, LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase,
    RunRecord, Settled,
};
pub use export::graph_dot;
pub use mode::{FailurePolicy, InitMode, OnOff, ParseChoiceError};
pub use trace::{
    Attribution, AttributionRow, Breakdown, CriticalPath, LaneUsage, Outcome, Span, Step, Trace, TypeUsage,
    Via,
};
pub use what_if::Layout;
