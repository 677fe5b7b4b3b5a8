//! Streaming submission: operators whose constructors somebody else calls, one by one.

mod core;
mod handle;
mod worker;

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use self::core::Core;
pub use self::handle::Handle;
use self::worker::{Item, LaneHalf, UnboundHalf, WorkQueue, Worker};
use crate::barrier::Registration;
use crate::error::InitError;
use crate::event::{Phase, RunRecord};
use crate::graph::host::guarded;
use crate::graph::topology::Name;
use crate::mode::InitMode;
use crate::operator::OperatorType;
use crate::slot::Slot;
use crate::sync::{Arc, Mutex, lock, thread};

/// Takes operators from constructors that somebody else calls one by one (ONNX Runtime creating custom-operator kernels), reads
/// each on the spot, and leaves the device half to the lanes.
///
/// The thread that calls the constructors is the host lane. A source is only borrowed for the call, so it may be
/// unsized, not `Send` and short-lived. What a constructor keeps is a [`Handle`], which is usable once the sealed intake is ready.
///
/// | mode | device setup happens |
/// | --- | --- |
/// | Inline | in the constructor, before it returns |
/// | Serial | in [`seal`](Intake::seal), in submission order, on the same thread |
/// | TwoPhase | after [`seal`](Intake::seal), each lane on its thread |
/// | Overlapped | as soon as it is submitted, each lane on its thread |
///
/// ```
/// # use scheduler::{BoxError, InitMode, Intake, OperatorType};
/// # struct MatMul;
/// # impl OperatorType for MatMul {
/// #     type Source = str; type Host = String; type Device = String; type Lane = ();
/// #     fn name(&self) -> &str { "MatMul" }
/// #     fn open(&self) -> Result<(), BoxError> { Ok(()) }
/// #     fn read(&self, s: &str) -> Result<String, BoxError> { Ok(s.to_owned()) }
/// #     async fn setup(&self, _: &mut (), h: String) -> Result<String, BoxError> { Ok(h + " kernel") }
/// # }
/// let intake = Intake::new(InitMode::Overlapped);
/// let matmul = intake.lane(MatMul);
///
/// // In the constructor that is called for each node:
/// let kernel = intake.operator(&matmul, "q_proj", "weights")?;
///
/// // When all constructors have returned:
/// intake.seal()?.wait()?;
///
/// // In the kernel's compute function; one atomic load:
/// assert_eq!(kernel.get()?, "weights kernel");
/// # Ok::<(), scheduler::InitError>(())
/// ```
///
/// Cloning gives another handle to the same intake. Dropping the last one cancels what has not finished and waits for
/// the lanes' threads.
#[derive(Clone)]
pub struct Intake(Arc<Owner>);

struct Owner {
    core: Arc<Core>,
    lanes: Mutex<Vec<Option<Box<dyn UnboundHalf>>>>,
    /// Where work goes, by lane; all the same where one thread does it.
    queues: Mutex<Vec<Arc<WorkQueue>>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

thread_local! {
    /// The workers of inline intakes whose host lane this thread is. Lane states stay on the thread.
    static INLINE: RefCell<Vec<(u64, Worker)>> = const { RefCell::new(Vec::new()) };
}

/// A lane of an [`Intake`]: cheap to clone, `Send` and `Sync`, to be kept where constructors find it.
pub struct IntakeLane<T: OperatorType> {
    intake: u64,
    index: u32,
    half: Arc<LaneHalf<T>>,
}

impl<T: OperatorType> Clone for IntakeLane<T> {
    fn clone(&self) -> Self {
        IntakeLane {
            intake: self.intake,
            index: self.index,
            half: self.half.clone(),
        }
    }
}

impl<T: OperatorType> fmt::Debug for IntakeLane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IntakeLane({})", self.half.operator_type.name())
    }
}

impl Intake {
    /// An open intake.
    pub fn new(mode: InitMode) -> Self {
        Self::with_recording(mode, false)
    }

    /// An open intake that records events; see [`record`](Intake::record).
    pub fn recording(mode: InitMode) -> Self {
        Self::with_recording(mode, true)
    }

    fn with_recording(mode: InitMode, record: bool) -> Self {
        Intake(Arc::new(Owner {
            core: Arc::new(Core::new(mode, record)),
            lanes: Mutex::default(),
            queues: Mutex::default(),
            threads: Mutex::default(),
        }))
    }

    /// The mode device setup happens in.
    pub fn mode(&self) -> InitMode {
        self.0.core.mode
    }

    /// Adds a lane for an operator type.
    pub fn lane<T: OperatorType>(&self, operator_type: T) -> IntakeLane<T> {
        let half = Arc::new(LaneHalf::new(operator_type));
        let index = self.0.core.add_lane(half.operator_type.name(), half.clone());
        lock(&self.0.lanes).push(Some(Box::new(half.clone())));
        let mut queues = lock(&self.0.queues);
        let queue = match queues.first() {
            Some(queue) if !self.mode().has_lane_threads() => queue.clone(),
            _ => Arc::new(WorkQueue::new()),
        };
        queues.push(queue);
        IntakeLane {
            intake: self.0.core.id,
            index,
            half,
        }
    }

    /// Takes an operator: reads it here and now, and submits its device setup, or does that too if the mode is Inline.
    ///
    /// # Errors
    /// If the read fails or panics; in Inline mode, if the setup does. The whole intake fails with it. If the intake has failed
    /// before, has been sealed, or was called by another thread first.
    ///
    /// # Panics
    /// If the lane is of another intake.
    pub fn operator<T: OperatorType>(
        &self,
        lane: &IntakeLane<T>,
        name: impl Into<Name>,
        source: &T::Source,
    ) -> Result<Handle<T::Device>, InitError> {
        let core = &self.0.core;
        assert_eq!(lane.intake, core.id, "the lane must be of the same intake");
        let name = name.into();
        core.check_open(&name)?;
        let host_bytes = lane.half.operator_type.host_bytes(source);
        let node = core.begin_read(lane.index, name.clone(), host_bytes);
        let host = guarded(|| lane.half.operator_type.read(source));
        let made = Arc::new(Slot::new());
        let push = |host| {
            lane.half.push(Item {
                node,
                host,
                made: made.clone(),
            })
        };
        core.end_read(node, host, push)
            .inspect_err(|_| drop(take_inline(core.id)))?;
        self.submit(lane.index)?;
        Ok(Handle::new(core.clone(), name, made))
    }

    /// Lets the lane at `index` know of one more item.
    fn submit(&self, index: u32) -> Result<(), InitError> {
        if self.mode() == InitMode::Inline {
            return self.run_inline(index);
        }
        let queue = lock(&self.0.queues)[index as usize].clone();
        if self.mode() == InitMode::Overlapped {
            self.start_worker(&queue, index)?;
        }
        queue.push(index);
        Ok(())
    }

    fn run_inline(&self, index: u32) -> Result<(), InitError> {
        let core = &self.0.core;
        // The worker is out of the cell while it runs user code, which may use another intake.
        let mut worker = take_inline(core.id).unwrap_or_else(|| Worker::new(core.clone()));
        if !worker.has_lane(index)
            && let Some(lane) = lock(&self.0.lanes)[index as usize].take()
        {
            worker.add_lane(index, lane.bind());
        }
        worker.run_one(index);
        if let Some(outcome) = core.barrier.outcome() {
            drop(worker);
            return outcome;
        }
        INLINE.with_borrow_mut(|workers| workers.push((core.id, worker)));
        Ok(())
    }

    /// Sets up everything that was submitted, on this thread.
    fn run_serial(&self) {
        let Some(queue) = lock(&self.0.queues).first().cloned() else {
            return;
        };
        let mut worker = Worker::new(self.0.core.clone());
        let lanes = std::mem::take(&mut *lock(&self.0.lanes));
        for (index, lane) in lanes.into_iter().enumerate() {
            worker.add_lane(
                index as u32,
                lane.expect("no other thread takes lanes in this mode").bind(),
            );
        }
        while let Some(lane) = queue.pop()
            && !self.0.core.barrier.is_settled()
        {
            worker.run_one(lane);
        }
        // The barrier settles before the lanes close.
        self.0.core.settle_if_done();
    }

    fn start_all(&self) -> Result<(), InitError> {
        let queues = lock(&self.0.queues).clone();
        let busy = queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        for (index, queue) in busy {
            self.start_worker(queue, index as u32)?;
        }
        Ok(())
    }

    /// Starts a thread for a lane, unless it has one.
    fn start_worker(&self, queue: &Arc<WorkQueue>, index: u32) -> Result<(), InitError> {
        let Some(lane) = lock(&self.0.lanes)[index as usize].take() else {
            return Ok(());
        };
        let name = format!("init-{}", self.0.core.lane_name(index));
        let (core, queue) = (self.0.core.clone(), queue.clone());
        core.thread_started(queue.signal.clone());
        let tokio = crate::threads::ambient_tokio();
        let started = thread::Builder::new().name(name).spawn(move || {
            let _inside = tokio.as_ref().map(|tokio| tokio.enter());
            let mut worker = Worker::on_queue(core, queue);
            worker.add_lane(index, lane.bind());
            worker.run();
        });
        match started {
            Ok(handle) => {
                lock(&self.0.threads).push(handle);
                Ok(())
            }
            Err(error) => {
                self.0.core.thread_ended(None);
                let error = InitError::graph(format!("no thread for a lane: {error}"));
                self.0.core.stop(error.clone());
                Err(error)
            }
        }
    }

    /// Says that no more operators come, and gives the barrier over all that came. Calling it again gives the barrier again.
    ///
    /// # Errors
    /// If a thread cannot be started; in Inline and Serial mode, if called on another thread than the constructors were.
    pub fn seal(&self) -> Result<SealedIntake, InitError> {
        let core = &self.0.core;
        if !self.mode().has_lane_threads() {
            core.check_thread("the intake is sealed")?;
        }
        if core.seal() && !core.barrier.is_settled() {
            match self.mode() {
                InitMode::Serial => self.run_serial(),
                InitMode::TwoPhase => self.start_all()?,
                InitMode::Inline | InitMode::Overlapped => {}
            }
        }
        core.settle_if_done();
        drop(take_inline(core.id));
        Ok(SealedIntake {
            core: core.clone(),
            registration: Registration::default(),
        })
    }

    /// Cancels what has not finished; the barrier settles with an error, and values are rolled back.
    pub fn cancel(&self) {
        self.0.core.cancel();
    }

    /// What happened, for an intake that records. Blocks until every lane has closed, so seal or cancel first.
    pub fn record(&self) -> RunRecord {
        // An inline intake that was cancelled has its worker on this thread until a constructor comes or it is sealed.
        if self.0.core.barrier.is_settled() {
            drop(take_inline(self.0.core.id));
        }
        self.0.core.record()
    }
}

fn take_inline(id: u64) -> Option<Worker> {
    INLINE.with_borrow_mut(|workers| {
        let at = workers.iter().position(|(of, _)| *of == id)?;
        Some(workers.swap_remove(at).1)
    })
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.core.cancel();
        drop(take_inline(self.core.id));
        let me = thread::current().id();
        for handle in lock(&self.threads).drain(..) {
            // A node that drops its own intake must not wait for itself.
            if handle.thread().id() != me {
                let _ = handle.join();
            }
        }
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake")
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}

/// The barrier over everything an [`Intake`] took: a future, and a blocking wait.
///
/// # Cancel safety
/// As for [`Barrier`](crate::Barrier): dropping it stops nothing.
#[must_use = "a barrier does nothing until it is awaited or waited for"]
pub struct SealedIntake {
    core: Arc<Core>,
    registration: Registration,
}

impl SealedIntake {
    /// Whether it has settled. One atomic load.
    pub fn is_settled(&self) -> bool {
        self.core.barrier.is_settled()
    }

    /// Blocks the calling thread until every operator is set up.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn wait(&self) -> Result<(), InitError> {
        self.core.barrier.wait()
    }

    /// Blocks the calling thread until every operator is set up, but not longer than `timeout`: then `None`.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<(), InitError>> {
        self.core.barrier.wait_timeout(timeout)
    }
}

impl Clone for SealedIntake {
    fn clone(&self) -> Self {
        SealedIntake {
            core: self.core.clone(),
            registration: Registration::default(),
        }
    }
}

impl Future for SealedIntake {
    type Output = Result<(), InitError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.core.barrier.poll_settled(&mut this.registration, task)
    }
}

impl Drop for SealedIntake {
    fn drop(&mut self) {
        self.core.barrier.forget(&mut self.registration);
    }
}

impl fmt::Debug for SealedIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedIntake")
            .field("settled", &self.is_settled())
            .finish()
    }
}

/// The phase of an operator's node, by whether it is the host half.
fn phase_of(is_host: bool) -> Phase {
    if is_host { Phase::Host } else { Phase::Device }
}
