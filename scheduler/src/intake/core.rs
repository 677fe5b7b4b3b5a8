//! The state of an intake that constructors, lanes and handles share.

use std::thread::ThreadId;

use super::worker::Pending;
use crate::barrier::BarrierCore;
use crate::clock::{Clock, Epoch};
use crate::error::{Fault, InitError, Site};
use crate::event::{LaneOrder, Phase, RunRecord, Settled};
use crate::executor::log::{Ending, Log, Moment, merge};
use crate::executor::quietly;
use crate::graph::topology::{BarrierNames, LaneNames, Name, NodeEntry, Topology};
use crate::mode::InitMode;
use crate::signal::Signal;
use crate::sync::{Arc, AtomicU64, Condvar, Mutex, OnceLock, Ordering, lock};

/// An operator of an intake: its place on the host lane and on its own.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) host_pos: u32,
    pub(super) lane: u32,
    pub(super) pos: u32,
}

pub(super) struct Core {
    pub(super) id: u64,
    pub(super) mode: InitMode,
    pub(super) epoch: Epoch,
    pub(super) barrier: BarrierCore,
    is_recording: bool,
    /// The thread of the first constructor: the host lane.
    host_thread: OnceLock<ThreadId>,
    state: Mutex<State>,
    closed: Condvar,
    /// A stamp not before anything that was submitted or decided.
    stamp: AtomicU64,
}

struct State {
    is_sealed: bool,
    n_submitted: usize,
    n_finished: usize,
    /// In submission order: lane, name, staging bytes.
    operators: Vec<(u32, Name, u64)>,
    /// Lane 0 is the host lane.
    lanes: Vec<(Name, u32)>,
    /// What is left to set up, by device lane.
    pending: Vec<Arc<dyn Pending>>,
    signals: Vec<Arc<Signal>>,
    n_threads: usize,
    logs: Vec<Log>,
    /// Of the constructors' thread.
    host: (Clock, Option<Log>, u64),
}

impl Core {
    pub(super) fn new(mode: InitMode, is_recording: bool) -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let epoch = Epoch::now();
        Core {
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            mode,
            epoch,
            barrier: BarrierCore::new(1),
            is_recording,
            host_thread: OnceLock::new(),
            state: Mutex::new(State {
                is_sealed: false,
                n_submitted: 0,
                n_finished: 0,
                operators: Vec::new(),
                lanes: vec![(Name::Borrowed("host"), 0)],
                pending: Vec::new(),
                signals: Vec::new(),
                n_threads: 0,
                logs: Vec::new(),
                host: (Clock::new(epoch), None, 0),
            }),
            closed: Condvar::new(),
            stamp: AtomicU64::new(0),
        }
    }

    /// Adds a lane; gives its index among the device lanes.
    pub(super) fn add_lane(&self, operator_type: &str, pending: Arc<dyn Pending>) -> u32 {
        let mut state = lock(&self.state);
        state.lanes.push((Name::Owned(operator_type.to_owned()), 0));
        state.pending.push(pending);
        state.lanes.len() as u32 - 2
    }

    pub(super) fn lane_name(&self, index: u32) -> String {
        lane_names(&lock(&self.state).lanes).swap_remove(index as usize + 1)
    }

    /// Whether a constructor may come, on this thread.
    pub(super) fn check_open(&self, name: &str) -> Result<(), InitError> {
        self.check_thread(&format!("{name}: its constructor is called"))?;
        if let Some(Err(error)) = self.barrier.outcome() {
            return Err(error);
        }
        if lock(&self.state).is_sealed {
            return Err(InitError::misuse(format!(
                "{name}: its constructor came after the intake was sealed"
            )));
        }
        Ok(())
    }

    /// Whether this is the thread of the first constructor.
    pub(super) fn check_thread(&self, what: &str) -> Result<(), InitError> {
        let me = std::thread::current().id();
        let host = *self.host_thread.get_or_init(|| me);
        if host == me {
            return Ok(());
        }
        Err(InitError::misuse(format!(
            "{what} on thread {me:?}, but the host lane of this intake is thread {host:?}: call all constructors on one thread"
        )))
    }

    /// A read starts.
    pub(super) fn begin_read(&self, lane: u32, name: Name, bytes: u64) -> Node {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let host_pos = state.operators.len() as u32;
        state.operators.push((lane + 1, name, bytes));
        let n_on_lane = &mut state.lanes[lane as usize + 1].1;
        let node = Node {
            host_pos,
            lane: lane + 1,
            pos: *n_on_lane,
        };
        *n_on_lane += 1;
        if self.is_recording {
            let (clock, log, start) = &mut state.host;
            log.get_or_insert_with(|| Log::new(crate::sync::thread_number()));
            clock.observe(self.stamp());
            *start = clock.now();
        }
        node
    }

    /// A read has ended: its value goes to its lane through `push`. If the read failed, so does the intake.
    pub(super) fn end_read<V>(
        &self,
        node: Node,
        host: Result<V, Fault>,
        push: impl FnOnce(V),
    ) -> Result<(), InitError> {
        let failed = {
            let mut state = lock(&self.state);
            let state = &mut *state;
            let (clock, log, start) = &mut state.host;
            clock.observe(self.stamp());
            let end = clock.now();
            let (ending, failed) = match host {
                Ok(value) => {
                    // Under the lock, so that a rollback takes the value along or comes before it was made.
                    push(value);
                    state.n_submitted += 1;
                    (Ending::Finished, None)
                }
                Err(fault) => (crate::executor::shared::ending_of(&fault), Some(fault)),
            };
            if let Some(log) = log {
                log.node(0, node.host_pos, *start, end, ending);
                if failed.is_some() {
                    log.moment(node.lane, clock.next(), Moment::Skipped(node.pos));
                }
            }
            self.stamp.fetch_max(clock.last(), Ordering::AcqRel);
            failed
        };
        if failed.is_none() && !self.barrier.is_settled() {
            return Ok(());
        }
        let mut clock = Clock::new(self.epoch);
        clock.observe(self.stamp());
        let mut log = self.new_log();
        let outcome = match failed {
            Some(fault) => Err(self.fail(node, super::phase_of(true), fault, &mut clock, log.as_mut())),
            None => {
                self.drop_pending(&mut clock, log.as_mut());
                self.barrier.outcome().unwrap_or(Ok(()))
            }
        };
        lock(&self.state).logs.extend(log);
        outcome
    }

    /// Drops what was read and will never be set up, the newest first.
    fn drop_pending(&self, clock: &mut Clock, mut log: Option<&mut Log>) {
        let mut left = Vec::new();
        {
            let state = lock(&self.state);
            for pending in &state.pending {
                left.append(&mut pending.drain());
            }
            left.sort_by_key(|(node, _)| std::cmp::Reverse(node.host_pos));
            clock.observe(self.stamp());
            for (node, _) in &left {
                if let Some(log) = &mut log {
                    log.moment(node.lane, clock.next(), Moment::Skipped(node.pos));
                    log.moment(0, clock.next(), Moment::Dropped(node.host_pos));
                }
            }
            self.stamp.fetch_max(clock.last(), Ordering::AcqRel);
        }
        for (_, value) in left {
            quietly(|| drop(value));
        }
    }

    pub(super) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    pub(super) fn new_log(&self) -> Option<Log> {
        self.is_recording.then(|| Log::new(crate::sync::thread_number()))
    }

    /// True the first time.
    pub(super) fn seal(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).is_sealed, true)
    }

    pub(super) fn settle_if_done(&self) {
        let mut clock = Clock::new(self.epoch);
        clock.observe(self.stamp());
        let mut log = self.new_log();
        self.settle_ready(&mut clock, log.as_mut());
        lock(&self.state).logs.extend(log);
    }

    pub(super) fn node_finished(&self, clock: &mut Clock, log: Option<&mut Log>) {
        self.stamp.fetch_max(clock.last(), Ordering::AcqRel);
        lock(&self.state).n_finished += 1;
        clock.observe(self.stamp());
        self.settle_ready(clock, log);
    }

    /// Settles the barrier if everything that will ever come is done.
    fn settle_ready(&self, clock: &mut Clock, log: Option<&mut Log>) {
        let is_done = {
            let state = lock(&self.state);
            state.is_sealed && state.n_finished == state.n_submitted
        };
        // Whoever counted an item had noted its stamp before.
        clock.observe(self.stamp());
        if is_done && self.barrier.settle(Ok(())) {
            self.after_settling(Settled::Ready, clock, log);
        }
    }

    pub(super) fn fail(
        &self,
        node: Node,
        phase: Phase,
        fault: Fault,
        clock: &mut Clock,
        log: Option<&mut Log>,
    ) -> InitError {
        if matches!(fault, Fault::Stopped)
            && let Some(Err(error)) = self.barrier.outcome()
        {
            return error;
        }
        let (at, skipped) = {
            let state = lock(&self.state);
            let (_, name, _) = &state.operators[node.host_pos as usize];
            let lane = if phase == Phase::Host { 0 } else { node.lane };
            let at = Site {
                node: name.clone(),
                lane: lane_names(&state.lanes).swap_remove(lane as usize),
                operator_type: state.lanes[node.lane as usize].0.clone(),
                phase,
            };
            let skipped = if phase == Phase::Device {
                Vec::new()
            } else {
                vec![name.to_string()]
            };
            (at, skipped)
        };
        let error = InitError::node_failed(at, fault, skipped);
        if self.barrier.settle(Err(error.clone())) {
            self.after_settling(Settled::Failed, clock, log);
        }
        error
    }

    fn after_settling(&self, how: Settled, clock: &mut Clock, mut log: Option<&mut Log>) {
        let at = clock.next();
        self.stamp.fetch_max(at, Ordering::AcqRel);
        if let Some(log) = &mut log {
            log.moment(0, at, Moment::Settled(0, how));
        }
        if how == Settled::Failed {
            self.drop_pending(clock, log);
        }
        let signals = lock(&self.state).signals.clone();
        for signal in signals {
            signal.wake();
        }
    }

    /// Ends the intake with an error that is no node's.
    pub(super) fn stop(&self, error: InitError) {
        // The rollback happens here: the intake has not closed before this thread is through with it.
        lock(&self.state).n_threads += 1;
        let mut clock = Clock::new(self.epoch);
        clock.observe(self.stamp());
        clock.now();
        let mut log = self.new_log();
        if self.barrier.settle(Err(error)) {
            if let Some(log) = &mut log {
                log.moment(0, clock.last(), Moment::Cancelled);
            }
            self.after_settling(Settled::Failed, &mut clock, log.as_mut());
        }
        self.thread_ended(log);
    }

    pub(super) fn cancel(&self) {
        if !self.barrier.is_settled() {
            self.stop(InitError::cancelled(None, Vec::new()));
        }
    }

    pub(super) fn thread_started(&self, signal: Arc<Signal>) {
        let mut state = lock(&self.state);
        state.signals.push(signal);
        state.n_threads += 1;
    }

    pub(super) fn thread_ended(&self, log: Option<Log>) {
        let mut state = lock(&self.state);
        state.n_threads -= 1;
        state.logs.extend(log);
        drop(state);
        self.closed.notify_all();
    }

    pub(super) fn record(&self) -> RunRecord {
        let mut state = lock(&self.state);
        while state.n_threads > 0 {
            state = self
                .closed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        let host_log = state.host.1.take();
        state.logs.extend(host_log);
        let topology = topology_of(&state);
        RunRecord {
            mode: self.mode,
            lanes: topology.lane_infos(),
            nodes: topology.node_infos(),
            barriers: topology.barrier_infos(),
            events: merge(&state.logs, &topology),
            staging_budget_bytes: None,
        }
    }
}

/// An intake's operators as a graph: a host node and a device node each, in submission order.
fn topology_of(state: &State) -> Topology {
    let mut names: Vec<LaneNames> = lane_names(&state.lanes)
        .into_iter()
        .zip(&state.lanes)
        .map(|(name, (operator_type, _))| LaneNames {
            name,
            operator_type: operator_type.clone(),
            order: LaneOrder::Fifo,
            stripe: None,
            nodes: Vec::new(),
        })
        .collect();
    let mut nodes = Vec::new();
    let mut bytes = Vec::new();
    for (host_pos, (lane, name, host_bytes)) in state.operators.iter().enumerate() {
        let on_lane = &mut names[*lane as usize].nodes;
        nodes.push(NodeEntry::new(0, host_pos as u32));
        nodes.push(NodeEntry::device_of_previous(*lane, on_lane.len() as u32));
        on_lane.push(name.clone());
        if *host_bytes > 0 {
            bytes.push((host_pos as u32, *host_bytes));
        }
    }
    let all = BarrierNames {
        name: Name::Borrowed("all"),
        covers: None,
    };
    Topology::new(0, nodes, Vec::new(), names, Vec::new(), bytes, vec![all])
}

/// Lane names, told apart where lanes are of one type.
fn lane_names(lanes: &[(Name, u32)]) -> Vec<String> {
    let same_before = |i: usize| lanes[..i].iter().filter(|(name, _)| *name == lanes[i].0).count();
    let name = |i: usize| match same_before(i) {
        0 => lanes[i].0.to_string(),
        n => format!("{}#{n}", lanes[i].0),
    };
    (0..lanes.len()).map(name).collect()
}
