//! The trait that makes a family of operators a lane.

use std::error::Error;
use std::future::Future;

/// Any error of user code, kept whole as the source of an [`InitError`](crate::InitError).
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// A family of operators that share a lane: what they read, how they are set up, what the lane holds.
///
/// The two phases are two methods, and only [`read`](OperatorType::read) is given the source. The model is out of
/// reach for [`setup`](OperatorType::setup):
///
/// ```compile_fail,E0061
/// # use scheduler::{BoxError, OperatorType};
/// # struct Model;
/// struct Cheat;
///
/// impl OperatorType for Cheat {
///     type Source = Model;
///     type Host = ();
///     type Device = ();
///     type Lane = ();
///     fn name(&self) -> &str { "Cheat" }
///     fn open(&self) -> Result<(), BoxError> { Ok(()) }
///     fn read(&self, _: &Model) -> Result<(), BoxError> { Ok(()) }
///     async fn setup(&self, _: &mut (), _: ()) -> Result<(), BoxError> {
///         self.read() // there is no model here to read from
///     }
/// }
/// ```
///
/// An operator type lives in one lane's thread and the host lane's at once, so it is `Sync` and holds no model.
///
/// # Example
///
/// ```
/// use scheduler::{BoxError, InitGraph, InitMode, OperatorType};
///
/// struct Scale { factor: f32 }
///
/// impl OperatorType for Scale {
///     type Source = Vec<f32>;         // what the host lane reads from
///     type Host = Vec<f32>;           // phase 1's result: owned, Send
///     type Device = Box<[f32]>;       // phase 2's result
///     type Lane = Vec<f32>;           // lane state: a scratch buffer that never leaves the lane's thread
///
///     fn name(&self) -> &str { "Scale" }
///     fn open(&self) -> Result<Vec<f32>, BoxError> { Ok(Vec::new()) }
///     fn read(&self, weights: &Vec<f32>) -> Result<Vec<f32>, BoxError> { Ok(weights.clone()) }
///     async fn setup(&self, scratch: &mut Vec<f32>, weights: Vec<f32>) -> Result<Box<[f32]>, BoxError> {
///         scratch.clear();
///         scratch.extend(weights.iter().map(|w| w * self.factor));
///         Ok(scratch.as_slice().into())
///     }
/// }
///
/// let mut graph = InitGraph::new();
/// let lane = graph.lane(Scale { factor: 2.0 });
/// let op = graph.operator(&lane, "layers.0.scale", vec![1.0, 2.0]);
/// let run = graph.start(InitMode::Overlapped)?;
/// let mut ready = run.ready().wait()?;
/// assert_eq!(*ready.take(op), [2.0, 4.0]);
/// # Ok::<(), scheduler::InitError>(())
/// ```
pub trait OperatorType: Send + Sync + 'static {
    /// What the host lane reads an operator from. It may be unsized or not `Send` where the host lane is the
    /// calling thread ([`InitGraph::on_this_thread`](crate::InitGraph::on_this_thread), [`Intake`](crate::Intake)).
    type Source: ?Sized;
    /// What [`read`](OperatorType::read) captures: owned data that may go to the lane's thread.
    type Host: Send + 'static;
    /// What [`setup`](OperatorType::setup) makes: the kernel, with its device memory.
    type Device: Send + 'static;
    /// What the lane holds for all its operators: a queue, a context, a scratch buffer. Opened, used and dropped on
    /// the lane's thread, so it need not be `Send`.
    type Lane: 'static;

    /// The operator type's name, as errors, traces and spans show it.
    fn name(&self) -> &str;

    /// How many bytes [`read`](OperatorType::read) will hold until the operator is set up: what the staging budget
    /// charges, and what progress counts. Called once, when the operator is added.
    fn host_bytes(&self, source: &Self::Source) -> u64 {
        let _ = source;
        0
    }

    /// Opens the lane's state, on the lane's thread, before its first node.
    ///
    /// # Errors
    /// Whatever keeps the lane from working. The run fails with [`Phase::Open`](crate::Phase::Open).
    fn open(&self) -> Result<Self::Lane, BoxError>;

    /// Phase 1, on the host lane: captures what the operator needs from the model, as owned data.
    ///
    /// # Errors
    /// Whatever keeps the operator from being read. A panic counts as an error.
    fn read(&self, source: &Self::Source) -> Result<Self::Host, BoxError>;

    /// Phase 2, on the lane's thread: creates the kernel. The lane does nothing else while this awaits.
    ///
    /// The future is polled in place and never moved to another thread, so it need not be `Send`.
    ///
    /// # Errors
    /// Whatever keeps the operator from being set up. A panic counts as an error.
    ///
    /// # Cancel safety
    /// When the run is cancelled, or another node fails under [`FailurePolicy::FailFast`](crate::FailurePolicy), the
    /// future is dropped at its await point, on the lane's thread.
    fn setup(
        &self,
        lane: &mut Self::Lane,
        host: Self::Host,
    ) -> impl Future<Output = Result<Self::Device, BoxError>>;
}
