//! The device half of an intake: lanes that take what constructors submit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::core::{Core, Node};
use crate::clock::Clock;
use crate::error::Fault;
use crate::executor::log::{Ending, Log, Moment};
use crate::executor::quietly;
use crate::executor::waiting::drive;
use crate::lane::plain::flatten;
use crate::operator::OperatorType;
use crate::signal::Signal;
use crate::slot::Slot;
use crate::sync::{Arc, Mutex, lock};

/// An operator that was read and is to be set up.
pub(super) struct Item<T: OperatorType> {
    pub(super) node: Node,
    pub(super) host: T::Host,
    pub(super) made: Arc<Slot<T::Device>>,
}

/// What constructors and the lane's thread share.
pub(super) struct LaneHalf<T: OperatorType> {
    pub(super) operator_type: T,
    items: Mutex<VecDeque<Item<T>>>,
}

impl<T: OperatorType> LaneHalf<T> {
    pub(super) fn new(operator_type: T) -> Self {
        LaneHalf {
            operator_type,
            items: Mutex::default(),
        }
    }

    pub(super) fn push(&self, item: Item<T>) {
        lock(&self.items).push_back(item);
    }
}

/// What a lane has yet to set up, whatever its type.
pub(super) trait Pending: Send + Sync {
    fn drain(&self) -> Vec<(Node, Box<dyn Send>)>;
}

impl<T: OperatorType> Pending for LaneHalf<T> {
    fn drain(&self) -> Vec<(Node, Box<dyn Send>)> {
        let erase = |item: Item<T>| (item.node, Box::new(item.host) as Box<dyn Send>);
        lock(&self.items).drain(..).map(erase).collect()
    }
}

/// A lane on its way to the thread that will run it.
pub(super) trait UnboundHalf: Send {
    fn bind(self: Box<Self>) -> Box<dyn BoundHalf>;
}

impl<T: OperatorType> UnboundHalf for Arc<LaneHalf<T>> {
    fn bind(self: Box<Self>) -> Box<dyn BoundHalf> {
        Box::new(RunningHalf {
            half: *self,
            state: None,
            made: Vec::new(),
        })
    }
}

/// A lane on its thread.
pub(super) trait BoundHalf {
    /// Sets up the oldest item.
    fn run_next(&mut self, thread: &mut WorkerThread);
    /// Drops every value that was made, the newest first.
    fn roll_back(&mut self, thread: &mut WorkerThread);
    /// Drops the state. True if there was one.
    fn close(&mut self) -> bool;
}

struct RunningHalf<T: OperatorType> {
    half: Arc<LaneHalf<T>>,
    state: Option<T::Lane>,
    /// What was made, in that order.
    made: Vec<(Node, Arc<Slot<T::Device>>)>,
}

impl<T: OperatorType> BoundHalf for RunningHalf<T> {
    fn run_next(&mut self, thread: &mut WorkerThread) {
        // Nothing if a rollback was faster.
        let Some(item) = lock(&self.half.items).pop_front() else {
            return;
        };
        let node = item.node;
        if self.state.is_none() {
            match catch_unwind(AssertUnwindSafe(|| self.half.operator_type.open())) {
                Ok(Ok(state)) => self.state = Some(state),
                Ok(Err(error)) => return thread.fail_open(node, Fault::Error(error)),
                Err(payload) => return thread.fail_open(node, Fault::from_panic(payload)),
            }
            thread.note(node.lane, Moment::Opened);
        }
        let state = self.state.as_mut().expect("opened above");
        let start = thread.begin();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let setup = self.half.operator_type.setup(state, item.host);
            drive(setup, &thread.waker, &thread.signal, || {
                thread.core.barrier.is_settled()
            })
        }));
        match flatten(outcome) {
            Ok(value) => {
                let _ = item.made.put(value);
                self.made.push((node, item.made));
                thread.finish(node, start);
            }
            Err(fault) => thread.fail(node, start, fault),
        }
    }

    fn roll_back(&mut self, thread: &mut WorkerThread) {
        for (node, slot) in std::mem::take(&mut self.made).into_iter().rev() {
            quietly(|| drop(slot.take()));
            thread.note(node.lane, Moment::Dropped(node.pos));
        }
    }

    fn close(&mut self) -> bool {
        let state = self.state.take();
        let was_open = state.is_some();
        quietly(|| drop(state));
        was_open
    }
}

/// What a thread's lanes have to do, in submission order, and how to wake that thread.
pub(super) struct WorkQueue {
    pub(super) signal: Arc<Signal>,
    lanes: Mutex<VecDeque<u32>>,
}

impl WorkQueue {
    pub(super) fn new() -> Self {
        WorkQueue {
            signal: Signal::new(),
            lanes: Mutex::default(),
        }
    }

    /// One more item for a lane: first queued, then the thread is woken, so that it cannot miss it.
    pub(super) fn push(&self, lane: u32) {
        lock(&self.lanes).push_back(lane);
        self.signal.wake();
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.lanes).is_empty()
    }

    pub(super) fn pop(&self) -> Option<u32> {
        lock(&self.lanes).pop_front()
    }
}

/// The thread of a worker, as its lanes see it.
pub(super) struct WorkerThread {
    core: Arc<Core>,
    signal: Arc<Signal>,
    waker: Waker,
    clock: Clock,
    log: Option<Log>,
}

impl WorkerThread {
    fn begin(&mut self) -> u64 {
        self.clock.observe(self.core.stamp());
        self.clock.now()
    }

    fn note(&mut self, lane: u32, what: Moment) {
        if let Some(log) = &mut self.log {
            log.moment(lane, self.clock.now(), what);
        }
    }

    fn end(&mut self, node: Node, start: u64, ending: Ending) {
        let end = self.clock.now();
        if let Some(log) = &mut self.log {
            log.node(node.lane, node.pos, start, end, ending);
        }
    }

    fn finish(&mut self, node: Node, start: u64) {
        self.end(node, start, Ending::Finished);
        self.core.node_finished(&mut self.clock, self.log.as_mut());
    }

    fn fail(&mut self, node: Node, start: u64, fault: Fault) {
        self.end(node, start, crate::executor::shared::ending_of(&fault));
        self.core.fail(
            node,
            super::phase_of(false),
            fault,
            &mut self.clock,
            self.log.as_mut(),
        );
    }

    fn fail_open(&mut self, node: Node, fault: Fault) {
        self.note(node.lane, Moment::Skipped(node.pos));
        self.core.fail(
            node,
            crate::event::Phase::Open,
            fault,
            &mut self.clock,
            self.log.as_mut(),
        );
    }
}

/// Lanes and the thread that runs them. Dropped on that thread: then the lanes close, after a rollback if the intake has failed.
pub(super) struct Worker {
    thread: WorkerThread,
    queue: Option<Arc<WorkQueue>>,
    lanes: Vec<(u32, Box<dyn BoundHalf>)>,
}

impl Worker {
    /// A worker of the calling thread that does only what it is told.
    pub(super) fn new(core: Arc<Core>) -> Self {
        let signal = Signal::of_current_thread();
        core.thread_started(signal.clone());
        Worker {
            thread: WorkerThread::new(core, signal),
            queue: None,
            lanes: Vec::new(),
        }
    }

    /// A worker of the calling thread that takes its work from a queue.
    pub(super) fn on_queue(core: Arc<Core>, queue: Arc<WorkQueue>) -> Self {
        queue.signal.bind_current_thread();
        let thread = WorkerThread::new(core, queue.signal.clone());
        Worker {
            thread,
            queue: Some(queue),
            lanes: Vec::new(),
        }
    }

    pub(super) fn has_lane(&self, index: u32) -> bool {
        self.lanes.iter().any(|(lane, _)| *lane == index)
    }

    pub(super) fn add_lane(&mut self, index: u32, lane: Box<dyn BoundHalf>) {
        self.lanes.push((index, lane));
    }

    /// Sets up the oldest item of a lane.
    pub(super) fn run_one(&mut self, index: u32) {
        if let Some((_, lane)) = self.lanes.iter_mut().find(|(lane, _)| *lane == index) {
            lane.run_next(&mut self.thread);
        }
    }

    /// Sets up what comes until the intake has settled.
    pub(super) fn run(mut self) {
        let queue = self.queue.clone().expect("a worker with a queue");
        while !self.thread.core.barrier.is_settled() {
            match queue.pop() {
                Some(lane) => self.run_one(lane),
                None => self.thread.signal.park(),
            }
        }
    }
}

impl WorkerThread {
    fn new(core: Arc<Core>, signal: Arc<Signal>) -> Self {
        WorkerThread {
            waker: Waker::from(signal.clone()),
            clock: Clock::new(core.epoch),
            log: core.new_log(),
            signal,
            core,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let thread = &mut self.thread;
        // An inline worker whose thread ends before its intake was sealed: nobody can finish the intake any more.
        if !thread.core.barrier.is_settled() {
            thread.core.cancel();
        }
        thread.clock.observe(thread.core.stamp());
        let failed = matches!(thread.core.barrier.outcome(), Some(Err(_)));
        for (index, lane) in self.lanes.iter_mut().rev() {
            if failed {
                lane.roll_back(thread);
            }
            if lane.close() {
                thread.note(*index + 1, Moment::Closed);
            }
        }
        quietly(|| self.lanes.clear());
        let log = self.thread.log.take();
        self.thread.core.thread_ended(log);
    }
}
