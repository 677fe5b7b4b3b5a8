//! From a graph to a run.

use super::host::{HostHalf, HostLane, ThisThread};
use super::topology::{BarrierNames, LaneNames, Topology};
use super::{InitGraph, LaneDraft};
use crate::barrier::BarrierCore;
use crate::budget::Budget;
use crate::error::InitError;
use crate::event::LaneOrder;
use crate::executor::actions::{Action, Actions};
use crate::executor::lanes::{run_device_lane, run_host_lane};
use crate::executor::one_thread::run_all;
use crate::executor::ready_lane::{NEVER_WAITED, ReadyLane};
use crate::executor::shared::{LaneShared, LaneStore, Rules, Shared};
use crate::executor::{LaneTask, RunningLane};
use crate::lane::UnboundLane;
use crate::mode::InitMode;
use crate::options::RunOptions;
use crate::ready::{Cursor, Edge, LanePlan};
use crate::run::Run;
use crate::sync::Arc;
use crate::threads::Starter;

/// A complete graph, taken apart: what everybody shares, and what each thread gets.
struct Parts<H: HostLane> {
    shared: Arc<Shared>,
    host_task: LaneTask,
    host: HostHalf<H>,
    lanes: Vec<(LaneTask, Box<dyn UnboundLane>)>,
    threads: Starter,
}

impl InitGraph {
    /// Starts the run and returns at once. Inline and Serial use one thread; TwoPhase and Overlapped one per lane that has nodes.
    ///
    /// # Errors
    /// If an edge points the wrong way; the error prints the whole cycle if there is one.
    pub fn start(self, mode: InitMode) -> Result<Run, InitError> {
        self.start_with(mode, RunOptions::default())
    }

    /// Starts the run with options; else as [`start`](InitGraph::start).
    ///
    /// # Errors
    /// If an edge points the wrong way, or a thread cannot be started.
    pub fn start_with(self, mode: InitMode, options: RunOptions) -> Result<Run, InitError> {
        let parts = self.take_apart(mode, options)?;
        let Parts {
            shared,
            host_task,
            host,
            lanes,
            mut threads,
        } = parts;
        if mode.has_lane_threads() {
            let lane_shared = shared.clone();
            threads.start("host", move || {
                run_host_lane(lane_shared, host_task, Box::new(host))
            })?;
            spawn_lanes(&mut threads, &shared, lanes)?;
        } else {
            let lane_shared = shared.clone();
            threads.start("lanes", move || {
                run_on_one_thread(lane_shared, host_task, host, lanes)
            })?;
        }
        Ok(threads.into_run())
    }
}

impl InitGraph<ThisThread<'_>> {
    /// Starts the run with the calling thread as its host lane, and returns when the last host node is through. By then
    /// Inline and Serial runs have run everything, on this thread; TwoPhase and Overlapped runs go on.
    ///
    /// # Errors
    /// If an edge points the wrong way; the error prints the whole cycle if there is one.
    pub fn start(self, mode: InitMode) -> Result<Run, InitError> {
        self.start_with(mode, RunOptions::default())
    }

    /// Starts the run with options; else as [`start`](InitGraph::start).
    ///
    /// # Errors
    /// If an edge points the wrong way, or a thread cannot be started.
    pub fn start_with(self, mode: InitMode, options: RunOptions) -> Result<Run, InitError> {
        let parts = self.take_apart(mode, options)?;
        let Parts {
            shared,
            host_task,
            host,
            lanes,
            mut threads,
        } = parts;
        if mode.has_lane_threads() {
            spawn_lanes(&mut threads, &shared, lanes)?;
            run_host_lane(shared, host_task, Box::new(host));
        } else {
            run_on_one_thread(shared, host_task, host, lanes);
        }
        Ok(threads.into_run())
    }
}

fn run_on_one_thread<H: HostLane>(
    shared: Arc<Shared>,
    host_task: LaneTask,
    host: HostHalf<H>,
    lanes: Vec<(LaneTask, Box<dyn UnboundLane>)>,
) {
    let mut running = vec![RunningLane::new(host_task, Box::new(host))];
    running.extend(
        lanes
            .into_iter()
            .map(|(task, lane)| RunningLane::new(task, lane.bind())),
    );
    run_all(shared, running);
}

fn spawn_lanes(
    threads: &mut Starter,
    shared: &Arc<Shared>,
    lanes: Vec<(LaneTask, Box<dyn UnboundLane>)>,
) -> Result<(), InitError> {
    for (task, lane) in lanes.into_iter().filter(|(task, _)| task.plan.len() > 0) {
        let name = shared.topology.lanes[task.lane as usize].name.clone();
        let shared = shared.clone();
        threads.start(&name, move || run_device_lane(shared, task, lane))?;
    }
    Ok(())
}

impl<H: HostLane> InitGraph<H> {
    fn take_apart(mut self, mode: InitMode, options: RunOptions) -> Result<Parts<H>, InitError> {
        if !self.edges.is_sorted() {
            self.edges.sort_unstable();
        }
        self.edges.dedup();
        self.check_edges()?;
        let mut actions: Vec<Actions> = self.lanes.iter().map(|_| Actions::default()).collect();
        for _ in 0..self.host.len() {
            self.lanes[0].plan.push(0);
        }
        let has_dependents = self.plan_edges(mode);
        let ready_lanes = self.plan_ready_lanes(mode, &mut actions);
        for (node, tap) in std::mem::take(&mut self.taps) {
            let entry = self.nodes[node as usize];
            actions[entry.lane() as usize].push(entry.pos, Action::Tap(tap));
        }
        let barriers = self.plan_barriers(mode, &mut actions);
        // A ready-order lane counts its nodes for whoever waits, and for progress.
        let lanes = has_dependents.into_iter().zip(ready_lanes);
        let lanes = lanes
            .map(|(waited, ready)| LaneShared::new(waited || ready.is_some(), ready))
            .collect();
        Ok(self.into_parts(mode, options, actions, lanes, barriers))
    }

    /// Gives each lane the edges it must look at, and says which lanes are looked at. An edge within a lane is kept by the
    /// lane's order. Inline runs look at nothing: submission order is a valid schedule.
    fn plan_edges(&mut self, mode: InitMode) -> Vec<bool> {
        let mut has_dependents = vec![false; self.lanes.len()];
        if mode == InitMode::Inline {
            return has_dependents;
        }
        has_dependents[0] = self.lanes[1..].iter().any(|lane| lane.plan.max_host_need() > 0);
        for &(node, on) in &self.edges {
            let (node, on) = (self.nodes[node as usize], self.nodes[on as usize]);
            if node.lane() != on.lane() {
                let edge = Edge {
                    pos: node.pos,
                    lane: on.lane(),
                    on: on.pos,
                };
                self.lanes[node.lane() as usize].plan.add_edge(edge);
                has_dependents[on.lane() as usize] = true;
            }
        }
        for lane in &mut self.lanes {
            lane.plan.seal();
        }
        has_dependents
    }

    /// Counts what each node of a ready-order lane waits for, and tells the lanes of those things whom to feed.
    fn plan_ready_lanes(&self, mode: InitMode, actions: &mut [Actions]) -> Vec<Option<ReadyLane>> {
        let is_ready =
            |lane: u32| mode.has_lane_threads() && self.lanes[lane as usize].order == LaneOrder::Ready;
        let mut waits_for: Vec<Vec<u32>> = vec![Vec::new(); self.lanes.len()];
        for (lane, waits_for) in waits_for.iter_mut().enumerate() {
            if is_ready(lane as u32) {
                waits_for.resize(self.lanes[lane].plan.len() as usize, NEVER_WAITED);
            }
        }
        let mut wait = |node: u32, on: u32| {
            let (node, on) = (self.nodes[node as usize], self.nodes[on as usize]);
            if is_ready(node.lane()) {
                let count = &mut waits_for[node.lane() as usize][node.pos as usize];
                *count = count.wrapping_add(if *count == NEVER_WAITED { 2 } else { 1 });
                actions[on.lane() as usize].push(
                    on.pos,
                    Action::Feed {
                        lane: node.lane(),
                        pos: node.pos,
                    },
                );
            }
        };
        if self.lanes.iter().any(|lane| lane.order == LaneOrder::Ready) {
            for (id, _) in self
                .nodes
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.follows_own_host())
            {
                wait(id as u32, id as u32 - 1);
            }
            for &(node, on) in &self.edges {
                wait(node, on);
            }
        }
        let lane = |(lane, waits_for)| is_ready(lane as u32).then(|| ReadyLane::new(waits_for));
        waits_for.into_iter().enumerate().map(lane).collect()
    }

    /// Marks on each lane the last node that each barrier covers there.
    fn plan_barriers(&self, mode: InitMode, actions: &mut [Actions]) -> Vec<BarrierCore> {
        let n_threads = if mode.has_lane_threads() {
            1 + self.lanes[1..].iter().filter(|lane| lane.plan.len() > 0).count()
        } else {
            1
        };
        let mut barriers = vec![BarrierCore::new(n_threads as u32)];
        for (id, (_, covers)) in self.barriers.iter().enumerate().skip(1) {
            let mut last = vec![None; self.lanes.len()];
            let mut n_marks = 0;
            for node in covers {
                let entry = self.nodes[*node as usize];
                if self.lanes[entry.lane() as usize].order == LaneOrder::Ready && mode.has_lane_threads() {
                    actions[entry.lane() as usize].push(entry.pos, Action::Mark(id as u32));
                    n_marks += 1;
                    continue;
                }
                let last = &mut last[entry.lane() as usize];
                *last = (*last).max(Some(entry.pos));
            }
            for (lane, last) in last.iter().enumerate() {
                if let Some(pos) = last {
                    actions[lane].push(*pos, Action::Mark(id as u32));
                    n_marks += 1;
                }
            }
            let barrier = BarrierCore::new(n_marks);
            if n_marks == 0 {
                barrier.settle(Ok(()));
            }
            barriers.push(barrier);
        }
        for actions in actions {
            actions.seal();
        }
        barriers
    }

    fn into_parts(
        mut self,
        mode: InitMode,
        options: RunOptions,
        actions: Vec<Actions>,
        lane_shareds: Box<[LaneShared]>,
        barriers: Vec<BarrierCore>,
    ) -> Parts<H> {
        let host_outlets = self.host.freeze();
        let mut names = Vec::new();
        let mut stores = Vec::new();
        let mut host_task = None;
        let mut lanes = Vec::new();
        for (lane, (draft, actions)) in self.lanes.into_iter().zip(actions).enumerate() {
            let LaneDraft {
                name,
                operator_type,
                order,
                stripe,
                plan,
                names: nodes,
                body,
                devices,
                plains,
                ..
            } = draft;
            let order = if mode.has_lane_threads() {
                order
            } else {
                LaneOrder::Fifo
            };
            names.push(LaneNames {
                name,
                operator_type,
                order,
                stripe,
                nodes,
            });
            stores.push(LaneStore {
                devices,
                plains: plains.unwrap_or_else(|| host_outlets.clone()),
            });
            let task = LaneTask {
                lane: lane as u32,
                plan,
                actions,
                cursor: Cursor::default(),
            };
            match body {
                Some(mut body) => {
                    body.freeze();
                    lanes.push((task, body));
                }
                None => host_task = Some(task),
            }
        }
        let barrier_names = self
            .barriers
            .into_iter()
            .enumerate()
            .map(|(id, (name, covers))| BarrierNames {
                name,
                covers: (id > 0).then(|| covers.into_boxed_slice()),
            });
        let topology = Topology::new(
            self.id,
            self.nodes,
            self.edges,
            names,
            self.host_names,
            self.host_bytes,
            barrier_names.collect(),
        );
        let limit = options.staging_budget_bytes;
        let budget = limit.map(|limit| Budget::new(limit, &topology, &self.shares));
        let rules = Rules {
            mode,
            policy: options.policy,
            record: options.record,
            staging_budget_bytes: options.staging_budget_bytes,
        };
        let host_task = host_task.expect("a graph has a host lane");
        let starts_reading = host_task.plan.len() > 0 && !host_task.plan.first_has_edges();
        let shared = Shared::new(
            topology,
            rules,
            lane_shareds,
            stores.into(),
            barriers.into(),
            budget,
            starts_reading,
        );
        let shared = Arc::new(shared);
        Parts {
            threads: Starter::new(shared.clone(), options.threads),
            shared,
            host_task,
            host: self.host,
            lanes,
        }
    }
}

impl LanePlan {
    fn max_host_need(&self) -> u32 {
        match self.len() {
            0 => 0,
            len => self.host_need(len - 1),
        }
    }
}
