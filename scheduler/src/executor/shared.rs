//! What the threads of one run share, and what happens to all of them at once: failure, cancel, the end.

use crossbeam_utils::CachePadded;

use super::log::{Ending, Log, Moment};
use super::ready_lane::ReadyLane;
use crate::barrier::BarrierCore;
use crate::budget::Budget;
use crate::clock::{Clock, Epoch};
use crate::error::{Fault, InitError, Site};
use crate::event::{Event, Phase, Settled};
use crate::graph::topology::Topology;
use crate::lane::plain::PlainStore;
use crate::lane::typed::DeviceStore;
use crate::mode::{FailurePolicy, InitMode};
use crate::progress::{LaneProgress, Progress, Watchers};
use crate::ready::Pos;
use crate::signal::Signal;
use crate::sync::{Arc, AtomicU32, AtomicU64, Condvar, Mutex, OnceLock, Ordering, ThreadId, lock};
use crate::tide::Tide;

/// The run is over: start nothing more.
const STOP: u32 = 1;
/// Something failed and the rest goes on: look before you start a node.
const FAILED: u32 = 2;
/// Somebody waits for news of progress.
const WATCHED: u32 = 4;

/// One lane as the other threads see it.
pub(crate) struct LaneShared {
    pub(crate) tide: Tide,
    /// Twice the place of the node that is next or running, plus one if it is running.
    pub(crate) pulse: CachePadded<AtomicU64>,
    /// Whether any other lane's node waits for one of this lane's.
    pub(crate) has_dependents: bool,
    /// Nothing for a FIFO lane.
    pub(crate) ready: Option<ReadyLane>,
}

impl LaneShared {
    pub(crate) fn new(has_dependents: bool, ready: Option<ReadyLane>) -> Self {
        LaneShared {
            ready,
            tide: Tide::new(),
            pulse: CachePadded::new(AtomicU64::new(0)),
            has_dependents,
        }
    }

    /// How many of the lane's nodes are through.
    fn n_done(&self) -> u64 {
        match &self.ready {
            Some(_) => u64::from(self.tide.reached()),
            None => self.pulse.load(Ordering::Relaxed) / 2,
        }
    }
}

/// Where a lane's values wait to be taken.
pub(crate) struct LaneStore {
    pub(crate) devices: Option<Arc<dyn DeviceStore>>,
    pub(crate) plains: Arc<dyn PlainStore>,
}

/// How a run is to go, apart from its graph.
pub(crate) struct Rules {
    pub(crate) mode: InitMode,
    pub(crate) policy: FailurePolicy,
    pub(crate) record: bool,
    pub(crate) staging_budget_bytes: Option<u64>,
}

pub(crate) struct Shared {
    pub(crate) topology: Topology,
    pub(crate) rules: Rules,
    pub(crate) lanes: Box<[LaneShared]>,
    pub(crate) stores: Box<[LaneStore]>,
    /// The first one covers everything; its lanes are the run's threads.
    pub(crate) barriers: Box<[BarrierCore]>,
    pub(crate) epoch: Epoch,
    pub(crate) budget: Option<Budget>,
    pub(crate) watchers: Watchers,
    by_name: OnceLock<std::collections::HashMap<String, u32>>,
    /// How often a lane looks again before it yields.
    pub(crate) spins: u32,
    starts_reading: bool,
    attention: CachePadded<AtomicU32>,
    failures: Mutex<Failures>,
    /// A lane that sees the run stopped comes after this.
    stop_stamp: AtomicU64,
    /// The run's threads, and how to wake each.
    threads: Mutex<Vec<(ThreadId, Arc<Signal>)>>,
    closing: Mutex<Closing>,
    closed: Condvar,
}

#[derive(Default)]
struct Failures {
    stopped: bool,
    roots: Vec<(u32, InitError)>,
    /// The nodes that failed.
    failed: Vec<u32>,
    /// By node: will never run.
    doomed: Vec<bool>,
}

struct Closing {
    threads_left: u32,
    logs: Vec<Log>,
}

impl Shared {
    pub(crate) fn new(
        topology: Topology,
        rules: Rules,
        lanes: Box<[LaneShared]>,
        stores: Box<[LaneStore]>,
        barriers: Box<[BarrierCore]>,
        budget: Option<Budget>,
        starts_reading: bool,
    ) -> Self {
        let n_threads = barriers[0].lanes_left();
        Shared {
            budget,
            watchers: Watchers::default(),
            by_name: OnceLock::new(),
            spins: spins_for(n_threads),
            starts_reading,
            topology,
            rules,
            lanes,
            stores,
            barriers,
            epoch: Epoch::now(),
            attention: CachePadded::new(AtomicU32::new(0)),
            failures: Mutex::default(),
            stop_stamp: AtomicU64::new(0),
            threads: Mutex::default(),
            closing: Mutex::new(Closing {
                threads_left: n_threads,
                logs: Vec::new(),
            }),
            closed: Condvar::new(),
        }
    }

    /// Whether something has happened that a lane must look at before its next node.
    #[inline]
    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & (STOP | FAILED) != 0
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// From now on until the next wake-up, news is to be told.
    pub(crate) fn set_watched(&self) {
        self.attention.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Wakes whoever waits for news.
    #[cold]
    pub(crate) fn tell_watchers(&self) {
        self.attention.fetch_and(!WATCHED, Ordering::AcqRel);
        self.watchers.wake();
    }

    /// Where the operator or node of this name is. The first question builds an index.
    pub(crate) fn status(&self, name: &str) -> Option<crate::status::Status> {
        let by_name = self.by_name.get_or_init(|| crate::status::index_names(self));
        by_name
            .get(name)
            .map(|node| crate::status::status_of(self, *node))
    }

    pub(crate) fn progress(&self) -> Progress {
        let host_done = self.lanes[0].n_done() as Pos;
        Progress {
            nodes_done: self.lanes.iter().map(LaneShared::n_done).sum(),
            nodes_total: self.topology.nodes.len() as u64,
            bytes_read: self.topology.bytes_before(host_done),
            bytes_total: self.topology.bytes_before(Pos::MAX),
        }
    }

    /// The same, lane by lane. Bytes are those of the host values that a lane reads or sets up.
    pub(crate) fn lane_progress(&self) -> Vec<LaneProgress> {
        let topology = &self.topology;
        let mut lanes: Vec<LaneProgress> = topology
            .lanes
            .iter()
            .zip(&self.lanes)
            .map(|(names, lane)| LaneProgress {
                name: names.name.clone(),
                progress: Progress {
                    nodes_done: lane.n_done(),
                    ..Progress::default()
                },
            })
            .collect();
        for (id, node) in topology.nodes.iter().enumerate() {
            let bytes = match node.lane() {
                0 => topology.bytes_at(node.pos),
                _ => {
                    let reads = topology.deps(id as u32).map(|dep| topology.nodes[dep as usize]);
                    let reads = reads.filter(|dep| dep.lane() == 0);
                    reads.map(|dep| topology.bytes_at(dep.pos)).sum()
                }
            };
            let progress = &mut lanes[node.lane() as usize].progress;
            progress.nodes_total += 1;
            progress.bytes_total += bytes;
            if u64::from(node.pos) < progress.nodes_done {
                progress.bytes_read += bytes;
            }
        }
        lanes
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.attention.load(Ordering::Acquire) & STOP != 0
    }

    pub(crate) fn has_failures(&self) -> bool {
        self.attention.load(Ordering::Acquire) & FAILED != 0
    }

    pub(crate) fn stop_stamp(&self) -> u64 {
        self.stop_stamp.load(Ordering::Acquire)
    }

    /// Whether this is a node that failed.
    pub(crate) fn is_root(&self, node: u32) -> bool {
        lock(&self.failures).failed.contains(&node)
    }

    pub(crate) fn is_doomed(&self, lane: u32, pos: Pos) -> bool {
        let node = self.topology.node_at(lane, pos) as usize;
        lock(&self.failures).doomed.get(node).copied().unwrap_or(false)
    }

    /// Makes a thread of the run known, so that a stop wakes it.
    pub(crate) fn add_thread(&self, thread: ThreadId, signal: Arc<Signal>) {
        lock(&self.threads).push((thread, signal));
    }

    /// Whether a thread runs nodes of this run.
    pub(crate) fn has_thread(&self, thread: ThreadId) -> bool {
        lock(&self.threads).iter().any(|(known, _)| *known == thread)
    }

    fn wake_all(&self) {
        let threads = lock(&self.threads).clone();
        for (_, signal) in threads {
            signal.wake();
        }
    }

    /// A node has failed. Under fail-fast the run stops here; else whatever depends on the node is doomed.
    pub(crate) fn fail(
        &self,
        node: u32,
        phase: Phase,
        fault: Fault,
        clock: &mut Clock,
        log: Option<&mut Log>,
    ) {
        let mut doomed = vec![false; self.topology.nodes.len()];
        doomed[node as usize] = true;
        if phase == Phase::Open {
            let lane = self.topology.nodes[node as usize].lane();
            for (id, entry) in self.topology.nodes.iter().enumerate() {
                doomed[id] |= entry.lane() == lane;
            }
        }
        let first = if phase == Phase::Open { 0 } else { node };
        self.topology.mark_dependents(first, &mut doomed);
        let skipped = self.names_of(|id| doomed[id] && (id != node as usize || phase == Phase::Open));
        let error = InitError::node_failed(self.topology.site(node, phase), fault, skipped);
        lock(&self.failures).failed.push(node);
        match self.rules.policy {
            FailurePolicy::FailFast => self.stop(error, clock, log),
            FailurePolicy::CollectAll => self.doom(node, doomed, error, clock, log),
        }
    }

    fn doom(&self, node: u32, doomed: Vec<bool>, error: InitError, clock: &mut Clock, log: Option<&mut Log>) {
        {
            let mut failures = lock(&self.failures);
            failures.roots.push((node, error.clone()));
            if failures.doomed.is_empty() {
                failures.doomed = doomed.clone();
            } else {
                for (known, new) in failures.doomed.iter_mut().zip(&doomed) {
                    *known |= new;
                }
            }
        }
        self.attention.fetch_or(FAILED, Ordering::Release);
        let covers_doomed = |id: usize| {
            let covers = self.topology.barriers[id].covers.as_deref();
            covers.is_some_and(|covers| covers.iter().any(|node| doomed[*node as usize]))
        };
        self.settle_failed(covers_doomed, &error, clock, log);
    }

    /// Ends the run with an error, unless it has ended. True if this call did.
    fn stop(&self, error: InitError, clock: &mut Clock, log: Option<&mut Log>) {
        {
            let mut failures = lock(&self.failures);
            if failures.stopped || self.barriers[0].is_settled() {
                return;
            }
            failures.stopped = true;
        }
        self.stop_stamp.fetch_max(clock.last(), Ordering::AcqRel);
        self.attention.fetch_or(STOP, Ordering::Release);
        self.settle_failed(|_| true, &error, clock, log);
        self.wake_all();
        self.tell_watchers();
    }

    fn settle_failed(
        &self,
        which: impl Fn(usize) -> bool,
        error: &InitError,
        clock: &mut Clock,
        mut log: Option<&mut Log>,
    ) {
        for (id, barrier) in self.barriers.iter().enumerate().rev() {
            if which(id)
                && barrier.settle(Err(error.clone()))
                && let Some(log) = &mut log
            {
                log.moment(0, clock.next(), Moment::Settled(id as u32, Settled::Failed));
            }
        }
    }

    /// Whether the first reading phase reads anything. It does not if there is nothing to read, or if the first host node
    /// waits for a device node: then lanes that waited for the phase's end would wait for ever.
    pub(crate) fn starts_reading(&self) -> bool {
        self.starts_reading
    }

    /// Cancels the run from any thread, unless it has ended.
    pub(crate) fn cancel(&self) {
        if self.barriers[0].is_settled() {
            return;
        }
        let running = self.running_nodes().next().map(|node| self.site_of(node));
        let skipped = self.names_of(|id| !self.has_finished(id));
        let mut clock = Clock::new(self.epoch);
        clock.now();
        let mut log = self.rules.record.then(|| Log::new(crate::sync::thread_number()));
        if let Some(log) = &mut log {
            log.moment(0, clock.last(), Moment::Cancelled);
        }
        self.stop(InitError::cancelled(running, skipped), &mut clock, log.as_mut());
        if let Some(log) = log {
            lock(&self.closing).logs.push(log);
        }
    }

    /// A lane's place and whether it runs, as one number that changes when either does.
    #[cfg(not(shuttle))]
    pub(crate) fn pulse(&self, lane: usize) -> u64 {
        self.lanes[lane].pulse.load(Ordering::Relaxed)
    }

    /// The node that a pulse of `lane` says is running.
    #[cfg(not(shuttle))]
    pub(crate) fn site_running(&self, lane: usize, pulse: u64) -> Option<Site> {
        (pulse & 1 == 1).then(|| self.site_of(self.topology.node_at(lane as u32, (pulse / 2) as Pos)))
    }

    fn site_of(&self, node: u32) -> Site {
        self.topology.site(node, self.topology.phase(node))
    }

    /// The nodes that are running now, as far as can be seen from here.
    pub(crate) fn running_nodes(&self) -> impl Iterator<Item = u32> {
        self.lanes.iter().enumerate().filter_map(|(lane, shared)| {
            let pulse = shared.pulse.load(Ordering::Relaxed);
            (pulse & 1 == 1).then(|| self.topology.node_at(lane as u32, (pulse / 2) as Pos))
        })
    }

    fn has_finished(&self, node: usize) -> bool {
        let entry = self.topology.nodes[node];
        if let Some(ready) = &self.lanes[entry.lane() as usize].ready {
            return ready.is_done(entry.pos);
        }
        let pulse = self.lanes[entry.lane() as usize].pulse.load(Ordering::Relaxed);
        u64::from(entry.pos) < pulse / 2
    }

    fn names_of(&self, which: impl Fn(usize) -> bool) -> Vec<String> {
        let ids = (0..self.topology.nodes.len()).filter(|id| which(*id));
        ids.map(|id| self.topology.name(id as u32).to_string()).collect()
    }

    /// The last thread of a run has run all its nodes: decides the outcome.
    pub(crate) fn decide(&self) -> Settled {
        let mut roots = std::mem::take(&mut lock(&self.failures).roots);
        roots.sort_by_key(|(node, _)| *node);
        let mut errors = roots.into_iter().map(|(_, error)| error);
        let (outcome, how) = match errors.next() {
            None => (Ok(()), Settled::Ready),
            Some(first) => (Err(first.with_others(errors.collect())), Settled::Failed),
        };
        self.barriers[0].settle(outcome);
        self.tell_watchers();
        self.wake_all();
        how
    }

    /// A thread of the run is through with everything, its lanes closed.
    pub(crate) fn thread_closed(&self, log: Option<Log>) {
        crate::threads::return_to_pool();
        let me = crate::sync::thread::current().id();
        lock(&self.threads).retain(|(thread, _)| *thread != me);
        let mut closing = lock(&self.closing);
        closing.threads_left = closing.threads_left.saturating_sub(1);
        closing.logs.extend(log);
        let last = closing.threads_left == 0;
        drop(closing);
        if last {
            self.closed.notify_all();
        }
    }

    /// Some threads of the run could not be started: nobody is to wait for them.
    pub(crate) fn abandon(&self) {
        lock(&self.closing).threads_left = 0;
        self.closed.notify_all();
    }

    /// Whether every thread of the run is through.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.closing).threads_left == 0
    }

    /// Blocks until every thread of the run is through, and gives what they noted down.
    pub(crate) fn wait_closed<R>(&self, with: impl FnOnce(&[Log]) -> R) -> R {
        let mut closing = lock(&self.closing);
        while closing.threads_left > 0 {
            closing = self
                .closed
                .wait(closing)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        with(&closing.logs)
    }

    /// Blocks until every thread of the run is through, but not longer than `timeout`. True if they are.
    #[cfg(not(shuttle))]
    pub(crate) fn wait_closed_for(&self, timeout: std::time::Duration) -> bool {
        let closing = lock(&self.closing);
        if closing.threads_left == 0 {
            return true;
        }
        let woken = self.closed.wait_timeout(closing, timeout);
        woken
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .0
            .threads_left
            == 0
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.wait_closed(|logs| super::log::merge(logs, &self.topology))
    }
}

/// With a core for every thread, spinning for less than a microsecond saves the 4 to 6 us of a wake-up, and 100 ns of a yield;
/// with fewer it keeps a core from whoever is waited for.
#[cfg(not(shuttle))]
fn spins_for(n_threads: u32) -> u32 {
    static N_CORES: OnceLock<usize> = OnceLock::new();
    let ask = || std::thread::available_parallelism().map_or(1, usize::from);
    if n_threads as usize <= *N_CORES.get_or_init(ask) {
        32
    } else {
        0
    }
}

#[cfg(shuttle)]
fn spins_for(_: u32) -> u32 {
    0
}

/// How a node that failed is noted down.
pub(crate) fn ending_of(fault: &Fault) -> Ending {
    match fault {
        Fault::Error(_) => Ending::Failed,
        Fault::Panic(_) => Ending::Panicked,
        Fault::Stopped => Ending::Stopped,
    }
}
