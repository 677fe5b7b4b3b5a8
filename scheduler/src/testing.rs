//! Tools to property-test ordering guarantees, on fake operator types or on your own. Feature `testing`.
//!
//! | tool | what for |
//! | --- | --- |
//! | [`graphs`], [`modes`], [`faults`] | proptest strategies: random graphs as plain data, modes, and what goes wrong; all shrink |
//! | [`GraphSpec::build`] | a real graph of your operator type from that data |
//! | [`GraphSpec::build_fake`], [`FakeType`], [`Script`] | fake operators that fail, panic, stall or cancel where a [`FaultPlan`] says, or wait until the test completes them |
//! | [`check_guarantees`] | which guarantee a recorded run broke, with the nodes at fault |
//!
//! A property of your own operator type:
//!
//! ```
//! use proptest::prelude::*;
//! use scheduler::testing::{Size, check_guarantees, graphs, modes};
//! use scheduler::{BoxError, OperatorType, RunOptions};
//!
//! struct Doubler;
//!
//! impl OperatorType for Doubler {
//!     type Source = u32;
//!     type Host = u32;
//!     type Device = u32;
//!     type Lane = ();
//!     fn name(&self) -> &str { "Doubler" }
//!     fn open(&self) -> Result<(), BoxError> { Ok(()) }
//!     fn read(&self, source: &u32) -> Result<u32, BoxError> { Ok(*source) }
//!     async fn setup(&self, _: &mut (), host: u32) -> Result<u32, BoxError> { Ok(2 * host) }
//! }
//!
//! # let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
//! proptest!(config, |(spec in graphs(Size::default()), mode in modes())| {
//!     let built = spec.build(|_lane| Doubler, |operator| operator as u32);
//!     let run = built.graph.start_with(mode, RunOptions::new().record())?;
//!     let mut ready = run.ready().wait()?;
//!     for (index, operator) in built.nodes.into_iter().enumerate() {
//!         prop_assert_eq!(ready.take(operator), 2 * index as u32);
//!     }
//!     check_guarantees(&run.trace())?;
//! });
//! ```
//!
//! A test that chooses the order in which work ends:
//!
//! ```
//! use scheduler::testing::{FakeSource, FakeType, Script};
//! use scheduler::{InitGraph, InitMode, Phase};
//!
//! let script = Script::stepped();
//! let mut graph = InitGraph::new();
//! let lanes = ["A", "B"].map(|name| graph.lane(FakeType::new(name, &script)));
//! for (node, lane) in lanes.iter().enumerate() {
//!     graph.operator(lane, format!("op{node}"), FakeSource { node, bytes: 0, n_awaits: 0 });
//! }
//! let run = graph.start(InitMode::Overlapped)?;
//!
//! script.complete((0, Phase::Host));
//! script.complete((1, Phase::Host));
//! // Both lanes have started; the second may finish first.
//! script.wait_for_all(&[(0, Phase::Device), (1, Phase::Device)]);
//! script.complete((1, Phase::Device));
//! assert!(!run.ready().is_settled());
//! script.complete((0, Phase::Device));
//! assert!(run.ready().wait().is_ok());
//! # Ok::<(), scheduler::InitError>(())
//! ```

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
