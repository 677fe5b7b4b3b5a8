//! An async task-graph scheduler for initialising operators on heterogeneous devices: a host lane, one serialized lane per operator type, one-shot barriers.

mod barrier;
mod budget;
mod clock;
mod error;
mod event;
mod executor;
mod export;
mod graph;
mod intake;
mod lane;
mod mode;
mod operator;
mod options;
mod progress;
mod quota;
mod ready;
mod run;
mod signal;
mod slot;
mod stall;
mod sync;
mod threads;
mod tide;
mod trace;
mod what_if;

#[cfg(feature = "testing")]
pub mod testing;

pub use barrier::Barrier;
pub use error::InitError;
pub use event::{
    BarrierId, BarrierInfo, Event, EventKind, LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase,
    RunRecord, Settled,
};
pub use export::graph_dot;
pub use graph::InitGraph;
pub use graph::check::order_for;
pub use graph::deps::Deps;
pub use graph::host::{HostLane, OwnThread, ThisThread};
pub use graph::refs::{HasValue, Lane, NodeRef, Operator};
pub use intake::{Handle, Intake, IntakeLane, SealedIntake};
pub use mode::{FailurePolicy, InitMode, OnOff, ParseChoiceError};
pub use operator::{BoxError, OperatorType};
pub use options::RunOptions;
pub use progress::{Progress, ProgressStream};
pub use quota::{Acquire, Permit, Quota, QuotaError};
pub use run::{Ready, Run};
pub use stall::Stall;
pub use threads::LaneThreads;
pub use trace::{
    Attribution, AttributionRow, Breakdown, CriticalPath, LaneUsage, Outcome, Span, Step, Trace, TypeUsage,
    Via,
};
pub use what_if::Layout;
