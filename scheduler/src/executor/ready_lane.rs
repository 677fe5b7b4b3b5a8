//! A lane that starts its nodes in the order they become ready.
//!
//! Such a lane cannot be described by one number, so it pays for a counter and a flag per node, and whoever finishes
//! the last thing a node waits for puts it into the lane's queue. The queue's order is the definition of "became
//! ready": it is decided, and stamped, under the queue's lock.
//!
//! The wake-up is not lost: the queue is filled before the lane is woken, and the lane looks into it again after
//! every time it sleeps ([`Signal`] keeps a wake-up that comes early).

use std::collections::VecDeque;

use super::RunningLane;
use super::context::Cx;
use super::log::Moment;
use crate::clock::Clock;
use crate::ready::Pos;
use crate::signal::Signal;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, lock, thread};

pub(crate) struct ReadyLane {
    /// By place: how many things the node still waits for.
    waits_for: Box<[AtomicU32]>,
    /// By place: the latest stamp of what the node waited for and is through. Who finishes last need not have the latest
    /// stamp: it may have taken it and then been overtaken.
    fed_at: Box<[AtomicU64]>,
    /// By place: whether the node is through.
    done: Box<[AtomicBool]>,
    queue: Mutex<Queue>,
    /// The lane's own thread, once it has one.
    signal: OnceLock<Arc<Signal>>,
}

#[derive(Default)]
struct Queue {
    nodes: VecDeque<Pos>,
    /// The stamp of the newest entry.
    stamp: u64,
}

impl ReadyLane {
    pub(crate) fn new(waits_for: Vec<u32>) -> Self {
        ReadyLane {
            done: waits_for.iter().map(|_| AtomicBool::new(false)).collect(),
            fed_at: waits_for.iter().map(|_| AtomicU64::new(0)).collect(),
            waits_for: waits_for.into_iter().map(AtomicU32::new).collect(),
            queue: Mutex::default(),
            signal: OnceLock::new(),
        }
    }

    pub(crate) fn is_done(&self, pos: Pos) -> bool {
        self.done[pos as usize].load(Ordering::Acquire)
    }

    pub(crate) fn set_done(&self, pos: Pos) {
        self.done[pos as usize].store(true, Ordering::Release);
    }

    /// One of the things that the node at `pos` waits for is through. Calls `note` with the stamp if it was the last.
    pub(crate) fn feed(&self, pos: Pos, clock: &mut Clock, note: impl FnOnce(u64)) {
        let fed_at = &self.fed_at[pos as usize];
        fed_at.fetch_max(clock.last(), Ordering::AcqRel);
        if self.waits_for[pos as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            clock.observe(fed_at.load(Ordering::Acquire));
            self.enqueue(pos, clock, note);
            if let Some(signal) = self.signal.get() {
                signal.wake();
            }
        }
    }

    fn enqueue(&self, pos: Pos, clock: &mut Clock, note: impl FnOnce(u64)) {
        let mut queue = lock(&self.queue);
        clock.observe(queue.stamp);
        queue.stamp = clock.next();
        queue.nodes.push_back(pos);
        note(queue.stamp);
    }

    fn pop(&self, clock: &mut Clock) -> Option<Pos> {
        let mut queue = lock(&self.queue);
        clock.observe(queue.stamp);
        queue.nodes.pop_front()
    }

    /// Queues the nodes that wait for nothing, and tells the others whom to wake.
    fn begin(&self, signal: &Arc<Signal>, clock: &mut Clock, mut note: impl FnMut(Pos, u64)) {
        // Set before the queue is first looked at, so that what is queued later wakes the lane or is seen.
        let _ = self.signal.set(signal.clone());
        for (pos, waits_for) in self.waits_for.iter().enumerate() {
            // A count that has fallen to 0 since was queued by whoever made it fall: only a node that never waited is queued
            // here, and such a count never changes.
            if waits_for.load(Ordering::Relaxed) == NEVER_WAITED {
                self.enqueue(pos as Pos, clock, |stamp| note(pos as Pos, stamp));
            }
        }
    }
}

/// The count of a node that waits for nothing; no node waits for that many things.
pub(crate) const NEVER_WAITED: u32 = u32::MAX;

/// Runs all nodes of a ready-order lane. Returns early if the run was stopped.
pub(super) fn run_queue(lane: &mut RunningLane<'_>, cx: &mut Cx) {
    let shared = cx.shared.clone();
    let ready = shared.lanes[lane.task.lane as usize]
        .ready
        .as_ref()
        .expect("a ready-order lane");
    let signal = cx.signal.clone();
    cx.with_log(|clock, log, lane| {
        ready.begin(&signal, clock, |pos, stamp| {
            if let Some(log) = log {
                log.moment(lane, stamp, Moment::Ready(pos));
            }
        });
    });
    for n_done in 0..lane.task.plan.len() {
        let Some(pos) = next(ready, cx, n_done) else {
            return;
        };
        cx.look_for_subscriber();
        cx.seek(pos);
        if !lane.run_at(pos, cx) {
            return;
        }
        lane.ran.push(pos);
    }
}

/// Waits for the next ready node. Nothing if the run was stopped.
fn next(ready: &ReadyLane, cx: &mut Cx, n_done: u32) -> Option<Pos> {
    let mut yields = 0;
    loop {
        if cx.shared.is_stopped() {
            return None;
        }
        if let Some(pos) = cx.with_log(|clock, _, _| ready.pop(clock)) {
            return Some(pos);
        }
        cx.rest(n_done);
        if yields < cx.yields.get() {
            yields += 1;
            thread::yield_now();
        } else {
            cx.park();
        }
        cx.touch();
    }
}
