//! The threads of a run: who runs which lanes, in which order.
//!
//! ```text
//! Inline      one thread   h0 d0 h1 d1 h2 d2                submission order
//! Serial      one thread   h0 h1 h2 d0 d1 d2                all reads, then all setup
//! TwoPhase    host lane    h0 h1 h2|
//!             lane A               |d0 d2                   lanes start when the last read has ended
//!             lane B               |d1
//! Overlapped  host lane    h0 h1 h2
//!             lane A         d0    d2                       a node starts as soon as it is ready
//!             lane B            d1
//! ```

pub(crate) mod actions;
pub(crate) mod context;
pub(crate) mod lanes;
pub(crate) mod log;
pub(crate) mod one_thread;
pub(crate) mod ready_lane;
pub(crate) mod shared;
pub(crate) mod waiting;

use actions::Actions;
use context::Cx;

use crate::lane::BoundLane;
use crate::ready::{Cursor, LaneIndex, LanePlan, Pos};

/// A lane's list and how far it has come.
pub(crate) struct LaneTask {
    pub(crate) lane: LaneIndex,
    pub(crate) plan: LanePlan,
    pub(crate) actions: Actions,
    pub(crate) cursor: Cursor,
}

/// A lane on its thread.
pub(crate) struct RunningLane<'a> {
    pub(crate) task: LaneTask,
    body: Box<dyn BoundLane + 'a>,
    is_open: bool,
    /// What a ready-order lane has run, in that order.
    ran: Vec<Pos>,
}

impl<'a> RunningLane<'a> {
    pub(crate) fn new(task: LaneTask, body: Box<dyn BoundLane + 'a>) -> Self {
        RunningLane {
            task,
            body,
            is_open: false,
            ran: Vec::new(),
        }
    }

    fn enter(&mut self, cx: &mut Cx) {
        cx.enter(self.task.lane, &mut self.task.actions);
    }

    fn leave(&mut self, cx: &mut Cx) {
        cx.rest(self.task.cursor.pos());
        cx.leave(&mut self.task.actions);
    }

    /// Opens the lane's state, unless it is open or the lane has no nodes. The host lane has none to open.
    fn open(&mut self, cx: &mut Cx) {
        if self.is_open || self.task.plan.len() == 0 {
            return;
        }
        self.is_open = true;
        match self.body.open() {
            Ok(()) => cx.note(log::Moment::Opened),
            Err(fault) => cx.fail_open(0, fault),
        }
    }

    /// Runs the nodes up to `to`, which may all start now. False if the run was stopped or the staging budget is full.
    fn run_until(&mut self, to: Pos, cx: &mut Cx) -> bool {
        while self.task.cursor.pos() < to {
            if cx.shared.is_stopped() {
                return false;
            }
            let pos = self.task.cursor.pos();
            let next = if cx.shared.has_failures() {
                self.run_or_skip(pos, cx)
            } else {
                self.body.run(pos, to, cx)
            };
            self.task.cursor.advance_to(next);
            if next == pos {
                return false;
            }
        }
        true
    }

    /// Runs the node at `pos`, wherever that is in the lane. False if the run was stopped.
    fn run_at(&mut self, pos: Pos, cx: &mut Cx) -> bool {
        !cx.shared.is_stopped() && self.run_or_skip(pos, cx) > pos
    }

    /// Runs one node, unless it depends on one that failed.
    fn run_or_skip(&mut self, pos: Pos, cx: &mut Cx) -> Pos {
        if cx.shared.has_failures() && cx.shared.is_doomed(self.task.lane, pos) {
            self.body.skip(pos);
            cx.skip(pos);
            return pos + 1;
        }
        self.body.run(pos, pos + 1, cx)
    }

    /// The nodes that never started and never will. A FIFO lane runs its list from the front.
    fn not_started(&self) -> Vec<Pos> {
        let mut ran = vec![false; self.task.plan.len() as usize];
        for pos in (0..self.task.cursor.pos()).chain(self.ran.iter().copied()) {
            ran[pos as usize] = true;
        }
        (0..self.task.plan.len())
            .filter(|pos| !ran[*pos as usize])
            .collect()
    }

    /// Drops what nobody took, the newest first, and then the lane's state.
    fn close(&mut self, cx: &mut Cx) {
        if cx.must_roll_back() {
            for pos in self.not_started() {
                cx.note(log::Moment::Skipped(pos));
            }
            let ran = std::mem::take(&mut self.ran);
            for pos in ran.into_iter().rev().chain((0..self.task.plan.len()).rev()) {
                if quietly(|| self.body.discard(pos)) == Some(true) {
                    cx.note(log::Moment::Dropped(pos));
                }
            }
        }
        if self.is_open {
            quietly(|| self.body.close());
            cx.note(log::Moment::Closed);
        }
    }
}

/// Runs drops of user values; one that panics must not keep the others from being dropped.
pub(crate) fn quietly<R>(drops: impl FnOnce() -> R) -> Option<R> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(drops)).ok()
}
