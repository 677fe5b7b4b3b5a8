//! Where a run's threads come from.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::InitError;
use crate::executor::shared::Shared;
use crate::options::{Pinning, ThreadOptions};
use crate::run::Run;
use crate::signal::Signal;
use crate::stall::StallNotice;
use crate::sync::{Arc, Mutex, ThreadId, Weak, lock, thread};

type Job = Box<dyn FnOnce() + Send>;

/// Lane threads that outlive a run: parked between runs, so that the next one does not pay for starting threads.
///
/// Cloning gives another handle to the same threads. When the last handle is dropped the parked threads end.
///
/// ```
/// use scheduler::{InitGraph, InitMode, LaneThreads, RunOptions};
///
/// let threads = LaneThreads::new();
/// for _ in 0..2 {
///     let mut graph = InitGraph::new();
///     graph.read("config", (), |()| Ok(()));
///     let run = graph.start_with(InitMode::Overlapped, RunOptions::new().threads(&threads))?;
///     run.ready().wait()?;
///     run.join();
/// }
/// assert!(threads.n_parked() <= 1, "the second run used the first one's thread");
/// # Ok::<(), scheduler::InitError>(())
/// ```
#[derive(Clone, Default)]
pub struct LaneThreads(Arc<Pool>);

#[derive(Default)]
struct Pool {
    /// The last one parked is the first to be used again: its stack is warm.
    parked: Mutex<Vec<Arc<Mailbox>>>,
    handles: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// One parked thread.
struct Mailbox {
    thread: ThreadId,
    signal: Arc<Signal>,
    next: Mutex<Next>,
}

enum Next {
    Nothing,
    Job(Job),
    End,
}

impl LaneThreads {
    /// No threads yet; runs start what they need.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many threads are parked, or about to be: ready for a run.
    pub fn n_parked(&self) -> usize {
        lock(&self.0.parked).len()
    }

    fn run(&self, name: String, job: Job) -> std::io::Result<()> {
        let parked = lock(&self.0.parked).pop();
        if let Some(mailbox) = parked {
            *lock(&mailbox.next) = Next::Job(job);
            mailbox.signal.wake();
            return Ok(());
        }
        let pool = Arc::downgrade(&self.0);
        let handle = thread::Builder::new().name(name).spawn(move || {
            let mailbox = Arc::new(Mailbox::of_current_thread());
            let mut job = job;
            loop {
                PLACE.set(Some((pool.clone(), mailbox.clone())));
                job();
                return_to_pool();
                match mailbox.wait() {
                    Some(next) => job = next,
                    None => return,
                }
            }
        })?;
        lock(&self.0.handles).push(handle);
        Ok(())
    }
}

thread_local! {
    /// Where the calling thread, which runs a job, is to be put when the job ends.
    static PLACE: Cell<Option<(Weak<Pool>, Arc<Mailbox>)>> = const { Cell::new(None) };
}

/// Makes the calling thread available to the next run, if it is one that is kept. It may still have a few steps to go: a job that
/// comes early waits in its mailbox. Called before a run is seen to have closed, so that the next one finds its threads.
pub(crate) fn return_to_pool() {
    let Some((pool, mailbox)) = PLACE.take() else {
        return;
    };
    match pool.upgrade() {
        Some(pool) => lock(&pool.parked).push(mailbox),
        None => *lock(&mailbox.next) = Next::End,
    }
}

impl Mailbox {
    fn of_current_thread() -> Self {
        Mailbox {
            thread: thread::current().id(),
            signal: Signal::of_current_thread(),
            next: Mutex::new(Next::Nothing),
        }
    }

    /// Waits for a job; nothing if the threads are to end.
    fn wait(&self) -> Option<Job> {
        loop {
            match std::mem::replace(&mut *lock(&self.next), Next::Nothing) {
                Next::Nothing => {}
                Next::Job(job) => return Some(job),
                Next::End => return None,
            }
            self.signal.park();
        }
    }
}

impl Drop for Pool {
    /// Ends the parked threads and waits for them. A thread that still runs a job ends when that does.
    fn drop(&mut self) {
        let parked = std::mem::take(&mut *lock(&self.parked));
        for mailbox in &parked {
            *lock(&mailbox.next) = Next::End;
            mailbox.signal.wake();
        }
        for handle in lock(&self.handles).drain(..) {
            let id = handle.thread().id();
            // The last handle may be dropped by one of the threads itself.
            if id != thread::current().id() && parked.iter().any(|mailbox| mailbox.thread == id) {
                let _ = handle.join();
            }
        }
    }
}

impl fmt::Debug for LaneThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneThreads")
            .field("n_parked", &self.n_parked())
            .finish()
    }
}

/// The threads of one run while it is being started.
pub(crate) struct Starter {
    shared: Arc<Shared>,
    prefix: String,
    pool: Option<LaneThreads>,
    /// Empty if threads are not pinned.
    cores: Vec<core_affinity::CoreId>,
    handles: Vec<thread::JoinHandle<()>>,
    n_started: usize,
    /// The thread that watches for stalls.
    watch: Option<thread::JoinHandle<()>>,
}

impl Starter {
    pub(crate) fn new(shared: Arc<Shared>, options: ThreadOptions) -> Self {
        let cores = match options.pinning {
            Pinning::Free => None,
            Pinning::OneCoreEach => core_affinity::get_core_ids(),
        };
        let prefix = options.prefix.unwrap_or_else(|| "init".to_owned());
        let watched = shared.clone();
        Starter {
            shared,
            pool: options.pool,
            cores: cores.unwrap_or_default(),
            handles: Vec::new(),
            n_started: 0,
            watch: options
                .stall
                .and_then(|notice| watch_for_stalls(watched, &prefix, notice)),
            prefix,
        }
    }

    /// Runs `lane` on a thread of its own.
    pub(crate) fn start(&mut self, lane: &str, run: impl FnOnce() + Send + 'static) -> Result<(), InitError> {
        let core = self.cores.get(self.n_started % self.cores.len().max(1)).copied();
        self.n_started += 1;
        let tokio = ambient_tokio();
        let shared = self.shared.clone();
        let job = move || {
            if let Some(core) = core {
                // Pinning is a wish: a container may forbid it.
                core_affinity::set_for_current(core);
            }
            let _inside = tokio.as_ref().map(|tokio| tokio.enter());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                // User code's panics are caught where they happen: this is a bug of this crate. It must not become a hang.
                shared.cancel();
                shared.thread_closed(None);
                resume_unwind(panic);
            }
        };
        let name = format!("{}-{lane}", self.prefix);
        let started = match &self.pool {
            Some(pool) => pool.run(name, Box::new(job)),
            None => thread::Builder::new()
                .name(name)
                .spawn(job)
                .map(|handle| self.handles.push(handle)),
        };
        started.map_err(|error| {
            // The threads that were started wait for ones that will never come.
            self.shared.cancel();
            for handle in self.handles.drain(..) {
                let _ = handle.join();
            }
            self.shared.abandon();
            InitError::graph(format!("no thread for lane {lane}: {error}"))
        })
    }

    /// Everything is started.
    pub(crate) fn into_run(mut self) -> Run {
        self.handles.extend(self.watch.take());
        Run::new(self.shared, self.handles)
    }
}

/// A run without its watch is better than none: a system that has no thread left for it is not an error.
#[cfg(not(shuttle))]
fn watch_for_stalls(
    shared: Arc<Shared>,
    prefix: &str,
    notice: StallNotice,
) -> Option<thread::JoinHandle<()>> {
    let watch = move || crate::stall::watch(&shared, &notice);
    thread::Builder::new()
        .name(format!("{prefix}-watch"))
        .spawn(watch)
        .ok()
}

#[cfg(shuttle)]
fn watch_for_stalls(_: Arc<Shared>, _: &str, _: StallNotice) -> Option<thread::JoinHandle<()>> {
    None
}

/// The tokio runtime of the calling thread, so that timers and I/O work inside nodes.
#[cfg(not(shuttle))]
pub(crate) fn ambient_tokio() -> Option<tokio::runtime::Handle> {
    tokio::runtime::Handle::try_current().ok()
}

#[cfg(shuttle)]
pub(crate) fn ambient_tokio() -> Option<tokio::runtime::Handle> {
    None
}
