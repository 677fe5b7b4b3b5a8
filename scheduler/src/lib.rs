//! An async task-graph scheduler for initialising operators on heterogeneous devices: a host lane, one serialized lane per operator type, one-shot barriers.
//!
//! Before a local model can answer, its runtime initialises hundreds of operators: it reads each one's attributes and
//! weights (host work), then creates its kernel, allocates device memory and transfers the weights (device work). Done one
//! by one on one thread, nothing overlaps. Here the same work is a graph: host nodes on one lane, device nodes on one lane
//! per operator type, and barriers that say when an engine may serve.
//!
//! ```text
//! one by one   |h0|--d0--|h1|--d1--|h2|--d2--|                ready
//!
//! host lane    |h0|h1|h2|
//! lane MatMul     |--d0--|--d2--|                  ready
//! lane Norm          |--d1--|                        '- the barrier
//! ```
//!
//! It is a scheduler for work that is known up front, runs once, and is tied to threads: drivers that want one thread per
//! context, states that are not `Send`. It is not a thread pool (no work is stolen: a lane's nodes stay on the lane's
//! thread), not an async runtime (nodes may be async, and tokio's timers and I/O work in them if there is a
//! runtime around, but none is needed), and knows nothing of models or devices.
//!
//! # The smallest program
//!
//! ```
//! use scheduler::{BoxError, InitGraph, InitMode, OperatorType};
//!
//! struct MatMul;
//!
//! impl OperatorType for MatMul {
//!     type Source = &'static [f32];   // what the host lane reads from
//!     type Host = Vec<f32>;           // phase 1's result: owned, Send
//!     type Device = f32;              // phase 2's result: the kernel
//!     type Lane = String;             // lane state: stays on the lane's thread, need not be Send
//!
//!     fn name(&self) -> &str { "MatMul" }
//!     fn open(&self) -> Result<String, BoxError> { Ok("queue 0".into()) }
//!     fn read(&self, source: &&'static [f32]) -> Result<Vec<f32>, BoxError> { Ok(source.to_vec()) }
//!     async fn setup(&self, _queue: &mut String, weights: Vec<f32>) -> Result<f32, BoxError> {
//!         Ok(weights.iter().sum())
//!     }
//! }
//!
//! let mut graph = InitGraph::new();
//! let matmul = graph.lane(MatMul);
//! let q_proj = graph.operator(&matmul, "layers.0.q_proj", &[1.0, 2.0]);   // host node + device node + edge
//! let prefill = graph.barrier("prefill", [q_proj]);                       // optional: a barrier over part of the graph
//!
//! let run = graph.start(InitMode::Overlapped)?;
//! run.barrier(prefill).wait()?;                                           // or .await: engine one may serve
//! let mut ready = run.ready().wait()?;                                    // everything
//! assert_eq!(ready.take(q_proj), 3.0);                                    // typed
//! # Ok::<(), scheduler::InitError>(())
//! ```
//!
//! # Terms
//!
//! | term | meaning |
//! | --- | --- |
//! | operator | one unit of the model that has its own kernel; a host node and a device node ([`Operator`]) |
//! | operator type | a family of operators that share a lane ([`OperatorType`]) |
//! | lane | a serialized executor with its own thread and its own state ([`Lane`]); a striped lane is n of them |
//! | host lane | the one lane that runs every host node: a thread of its own, or the thread that starts the run ([`InitGraph::on_this_thread`]) |
//! | barrier | a one-shot future over a set of nodes ([`Barrier`]) |
//! | run | a graph that has been started ([`Run`]) |
//! | init mode | how the same graph is scheduled ([`InitMode`]): inline, serial, two-phase, overlapped |
//! | intake | the same for operators whose constructors somebody else calls one by one ([`Intake`]) |
//!
//! # What is guaranteed
//!
//! Each has a property test that names it.
//!
//! - **G1 Exactly once.** Every node of a run that succeeds runs exactly once.
//! - **G2 Dependencies.** A node starts after each node it depends on has finished, and sees everything those wrote.
//! - **G3 Serialized lanes.** No two nodes of one lane overlap, also across an await inside a node.
//! - **G4 Order.** Nodes of a lane start in the order they were added; of a ready-order lane, in the order they became ready.
//! - **G5 Pinning.** Every node of a lane runs on that lane's one thread; all host nodes run on one thread.
//! - **G6 Lane state.** A lane's state is opened, used and dropped on the lane's thread only, and outlives every node of its lane.
//! - **G7 Barrier.** A barrier resolves only after all nodes it covers, exactly once, for every waiter, whenever it
//!   began to wait; what those nodes wrote is visible to the waiter.
//! - **G8 It always settles.** A failing, panicking or cancelled node settles the barrier with an error that names the root node,
//!   its lane, operator type and phase, and the nodes skipped because of it.
//! - **G9 Waiter-drop safety.** Dropping one waiter, or all, never stops, strands or repeats the work; cancelling is its own call.
//! - **G10 Rollback.** When a run fails or is cancelled, every value already produced and not taken is dropped exactly once, a
//!   device value before its lane's state, in reverse order of creation within a lane.
//! - **G11 Same result.** Every init mode gives the same values. Inline is the reference: submission order, one thread.
//! - **G12 No deadlock by construction.** A node depends only on nodes added before it, so submission order is a valid
//!   schedule. Edges taken from outside are checked, and a cycle is an error that shows the whole path ([`order_for`]).
//! - **G13 Bounded staging.** With a byte budget, host values waiting for device setup never exceed it, except that one value is
//!   always admitted, and that a value which operators share is not waited for where its other user sits behind the next
//!   read; reading pauses, never fails, and never deadlocks.
//!
//! Not guaranteed: when things happen, other than before and after; fairness between lanes; that a node which blocks its
//! thread without awaiting can be stopped (it is waited for; the stall notice names it); that a value cloned for a dependent is dropped
//! in any order. A node that waits for another one without an edge between them can deadlock: lanes are serialized.
//!
//! # How to write a lane, and test it
//!
//! 1. Implement [`OperatorType`]. Whatever `read` returns is all that `setup` will have: capture it whole.
//! 2. Put what must stay on one thread (queues, contexts) into `Lane`, what outlives the run into `Device`.
//! 3. Report sizes in `host_bytes`, and give runs a budget ([`RunOptions::staging_budget_bytes`]).
//! 4. If a driver allows n of something, share a [`Quota`] between the lanes that use it.
//! 5. Record a run ([`RunOptions::record`]) and ask its [`Trace`] who waited for whom.
//! 6. Property-test it with the `testing` feature: random graphs, faults, and `check_guarantees`.
//!
//! # Inside tokio and without
//!
//! [`InitGraph::start`] never blocks on async work: await the barrier, and every mode works in a current-thread runtime, a
//! multi-thread runtime, and none. A thread that blocks ([`Barrier::wait`], dropping a [`Run`]) blocks its runtime like any
//! other blocking call: in a current-thread runtime, nodes that await that runtime's timers wait for it to be free again.
//!
//! # Features
//!
//! `testing`: graph strategies for proptest, a fake lane whose completions the test chooses, fault plans, `check_guarantees`.
//!
//! The crate reads no environment, prints nothing, and starts only the threads of runs. `tracing`: target `scheduler`, a span
//! `init_node` per node at debug level. Minimum supported Rust version: 1.92.

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
mod status;
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
pub use progress::{LaneProgress, Progress, ProgressStream};
pub use quota::{Acquire, Permit, Quota, QuotaError};
pub use run::{Ready, Run};
pub use stall::Stall;
pub use status::Status;
pub use threads::LaneThreads;
pub use trace::{
    Attribution, AttributionRow, Breakdown, CriticalPath, LaneUsage, Outcome, Span, Step, Trace, TypeUsage,
    Via,
};
pub use what_if::Layout;
