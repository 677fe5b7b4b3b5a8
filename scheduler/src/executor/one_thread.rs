//! All lanes on one thread: Inline, the reference, and Serial.

use super::context::Cx;
use super::shared::Shared;
use super::{RunningLane, quietly};
use crate::budget::Patience;
use crate::mode::InitMode;
use crate::ready::Step;
use crate::sync::Arc;

/// Runs every lane from beginning to end on the calling thread. The host lane comes first.
pub(crate) fn run_all(shared: Arc<Shared>, mut lanes: Vec<RunningLane<'_>>) {
    let mut cx = Cx::new(shared);
    cx.reserve_notes(cx.shared.topology.nodes.len() as u32);
    cx.look_for_subscriber();
    match cx.shared.rules.mode {
        InitMode::Serial => run_serial(&mut lanes, &mut cx),
        _ => run_inline(&mut lanes, &mut cx),
    }
    cx.conclude();
    // The host lane's values go first; then the lanes, the newest first.
    let (host, devices) = lanes.split_first_mut().expect("a graph has a host lane");
    for lane in std::iter::once(host).chain(devices.iter_mut().rev()) {
        lane.enter(&mut cx);
        lane.close(&mut cx);
        lane.leave(&mut cx);
    }
    for lane in lanes {
        quietly(|| drop(lane));
    }
    cx.close();
}

/// Submission order, host and device alternating.
fn run_inline(lanes: &mut [RunningLane<'_>], cx: &mut Cx) {
    let shared = cx.shared.clone();
    for entry in &shared.topology.nodes {
        if !run_one(&mut lanes[entry.lane() as usize], cx) {
            return;
        }
    }
}

/// Runs the next node of a lane, which submission order says may start. False if the run was stopped.
fn run_one(lane: &mut RunningLane<'_>, cx: &mut Cx) -> bool {
    lane.enter(cx);
    lane.open(cx);
    let pos = lane.task.cursor.pos();
    let goes_on = lane.run_until(pos + 1, cx);
    lane.leave(cx);
    goes_on
}

/// Reads as far as it goes, sets up as far as it goes, and again until all is done: twice, unless the staging budget
/// or a host node that waits for a device node ends a reading phase early.
fn run_serial(lanes: &mut [RunningLane<'_>], cx: &mut Cx) {
    let shared = cx.shared.clone();
    let mut devices = shared
        .topology
        .nodes
        .iter()
        .filter(|entry| entry.lane() != 0)
        .peekable();
    loop {
        let read = read_phase(&mut lanes[0], cx);
        let mut set_up = 0;
        while let Some(entry) = devices.peek() {
            let lane = &mut lanes[entry.lane() as usize];
            if !matches!(lane.task.cursor.next(&lane.task.plan, cx), Step::RunUntil(_)) {
                break;
            }
            if !run_one(lane, cx) {
                return;
            }
            devices.next();
            set_up += 1;
        }
        if cx.shared.is_stopped()
            || (lanes[0].task.cursor.pos() == lanes[0].task.plan.len() && devices.peek().is_none())
        {
            return;
        }
        // A value that later operators share can hold its bytes until something is read that does not fit.
        cx.set_patience(if read + set_up > 0 {
            Patience::UntilItFits
        } else {
            Patience::None
        });
    }
}

/// Reads until the list ends, the budget is full or a node must wait. Returns how many nodes that were.
fn read_phase(host: &mut RunningLane<'_>, cx: &mut Cx) -> u32 {
    let from = host.task.cursor.pos();
    host.enter(cx);
    while let Step::RunUntil(to) = host.task.cursor.next(&host.task.plan, cx) {
        if !host.run_until(to, cx) {
            break;
        }
    }
    let n = host.task.cursor.pos() - from;
    if n > 0 {
        cx.note(super::log::Moment::HostPhaseEnded);
    }
    host.leave(cx);
    n
}
