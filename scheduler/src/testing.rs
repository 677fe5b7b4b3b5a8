//! Tools to property-test ordering guarantees, on fake operator types or on your own.

mod build;
mod check;
mod fake;
mod fault;
mod script;
mod spec;

pub use build::{Built, FakeNode};
pub use check::{Guarantee, Violation, Violations, check_guarantees};
pub use fake::{FakeLane, FakeSource, FakeType, FakeValue, content};
pub use fault::{Fault, FaultPlan, FaultPoint, faults};
pub use script::{Call, Entry, Script, What};
pub use spec::{EdgeSpec, GraphSpec, LaneSpec, NodeKind, NodeSpec, Size, graphs, modes};
