//! One lane on one thread of its own: TwoPhase and Overlapped.

use super::context::Cx;
use super::ready_lane::run_queue;
use super::{LaneTask, RunningLane, quietly};
use crate::lane::{BoundLane, UnboundLane};
use crate::mode::InitMode;
use crate::ready::Step;
use crate::sync::Arc;

use super::shared::Shared;

/// Runs a device lane from beginning to end. The calling thread is the lane's.
pub(crate) fn run_device_lane(shared: Arc<Shared>, task: LaneTask, lane: Box<dyn UnboundLane>) {
    let mut cx = Cx::new(shared);
    let mut lane = RunningLane::new(task, lane.bind());
    cx.reserve_notes(lane.task.plan.len());
    lane.enter(&mut cx);
    let waits_for_reads = cx.shared.rules.mode == InitMode::TwoPhase && cx.shared.starts_reading();
    if !waits_for_reads || cx.wait_for(0, 1) {
        lane.open(&mut cx);
        if cx.shared.lanes[lane.task.lane as usize].ready.is_some() {
            run_queue(&mut lane, &mut cx);
        } else {
            run_list(&mut lane, &mut cx);
        }
    }
    end(lane, cx);
}

/// Runs the host lane from beginning to end. The calling thread is the host lane's.
pub(crate) fn run_host_lane<'a>(shared: Arc<Shared>, task: LaneTask, lane: Box<dyn BoundLane + 'a>) {
    let mut cx = Cx::new(shared);
    let mut lane = RunningLane::new(task, lane);
    cx.reserve_notes(lane.task.plan.len());
    lane.enter(&mut cx);
    if cx.shared.rules.mode == InitMode::TwoPhase {
        cx.hold_until_phase_end();
    }
    run_list(&mut lane, &mut cx);
    cx.end_phase();
    end(lane, cx);
}

fn run_list(lane: &mut RunningLane<'_>, cx: &mut Cx) {
    loop {
        let step = lane.task.cursor.next(&lane.task.plan, cx);
        let go_on = match step {
            Step::Done => return,
            Step::RunUntil(to) => {
                cx.look_for_subscriber();
                lane.run_until(to, cx) || wait_for_budget(lane, cx)
            }
            Step::WaitForHost(need) => wait(lane, cx, |cx| cx.wait_for(0, need)),
            Step::WaitFor { lane: other, on } => wait(lane, cx, |cx| cx.wait_for_node(other, on)),
        };
        if !go_on {
            return;
        }
    }
}

/// Waits, with everything published that others may wait for.
fn wait(lane: &RunningLane<'_>, cx: &mut Cx, wait: impl FnOnce(&mut Cx) -> bool) -> bool {
    cx.rest(lane.task.cursor.pos());
    cx.end_phase();
    wait(cx)
}

fn wait_for_budget(lane: &RunningLane<'_>, cx: &mut Cx) -> bool {
    let pos = lane.task.cursor.pos();
    wait(lane, cx, |cx| cx.wait_for_budget(pos))
}

/// What every thread of a run does last: wait for the outcome, roll back, close, report.
fn end(mut lane: RunningLane<'_>, mut cx: Cx) {
    cx.rest(lane.task.cursor.pos());
    cx.conclude();
    lane.close(&mut cx);
    lane.leave(&mut cx);
    quietly(|| drop(lane));
    cx.close();
}
