//! From a graph to a run.

use super::host::{HostHalf, HostLane, ThisThread};
use super::topology::{BarrierNames, LaneNames, Topology};
use super::{InitGraph, LaneDraft};
use crate::barrier::BarrierCore;
use crate::error::InitError;
use crate::event::LaneOrder;
use crate::executor::context::{Action, Actions};
use crate::executor::lanes::{run_device_lane, run_host_lane};
use crate::executor::one_thread::run_all;
use crate::executor::shared::{LaneShared, LaneStore, Rules, Shared};
use crate::executor::{LaneTask, RunningLane};
use crate::lane::UnboundLane;
use crate::mode::InitMode;
use crate::options::RunOptions;
use crate::ready::{Cursor, Edge, LanePlan};
use crate::run::Run;
use crate::sync::{Arc, thread};

/// A complete graph, taken apart: what everybody shares, and what each thread gets.
struct Parts<H: HostLane> {
    shared: Arc<Shared>,
    host_task: LaneTask,
    host: HostHalf<H>,
    lanes: Vec<(LaneTask, Box<dyn UnboundLane>)>,
    thread_prefix: String,
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
        let mut threads = Threads::new(&parts);
        let Parts {
            shared,
            host_task,
            host,
            lanes,
            ..
        } = parts;
        if mode.has_lane_threads() {
            let lane_shared = shared.clone();
            threads.spawn("host", move || {
                run_host_lane(lane_shared, host_task, Box::new(host))
            })?;
            spawn_lanes(&mut threads, &shared, lanes)?;
        } else {
            let lane_shared = shared.clone();
            threads.spawn("lanes", move || {
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
        let mut threads = Threads::new(&parts);
        let Parts {
            shared,
            host_task,
            host,
            lanes,
            ..
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
    threads: &mut Threads,
    shared: &Arc<Shared>,
    lanes: Vec<(LaneTask, Box<dyn UnboundLane>)>,
) -> Result<(), InitError> {
    for (task, lane) in lanes.into_iter().filter(|(task, _)| task.plan.len() > 0) {
        let name = shared.topology.lanes[task.lane as usize].name.clone();
        let shared = shared.clone();
        threads.spawn(&name, move || run_device_lane(shared, task, lane))?;
    }
    Ok(())
}

/// The threads of a run while it is being started.
struct Threads {
    shared: Arc<Shared>,
    prefix: String,
    handles: Vec<thread::JoinHandle<()>>,
}

impl Threads {
    fn new<H: HostLane>(parts: &Parts<H>) -> Self {
        Threads {
            shared: parts.shared.clone(),
            prefix: parts.thread_prefix.clone(),
            handles: Vec::new(),
        }
    }

    fn spawn(&mut self, lane: &str, run: impl FnOnce() + Send + 'static) -> Result<(), InitError> {
        let name = format!("{}-{lane}", self.prefix);
        match thread::Builder::new().name(name).spawn(run) {
            Ok(handle) => {
                self.handles.push(handle);
                Ok(())
            }
            Err(error) => {
                // The threads that were started wait for ones that will never come.
                drop(Run::new(self.shared.clone(), std::mem::take(&mut self.handles)));
                Err(InitError::graph(format!("no thread for lane {lane}: {error}")))
            }
        }
    }

    fn into_run(self) -> Run {
        Run::new(self.shared, self.handles)
    }
}

impl<H: HostLane> InitGraph<H> {
    fn take_apart(mut self, mode: InitMode, options: RunOptions) -> Result<Parts<H>, InitError> {
        if !self.edges.is_sorted() {
            self.edges.sort_unstable();
        }
        self.edges.dedup();
        self.check_edges()?;
        let mut actions: Vec<Actions> = self.lanes.iter().map(|_| Actions::default()).collect();
        let mut has_dependents = vec![false; self.lanes.len()];
        for _ in 0..self.host.len() {
            self.lanes[0].plan.push(0);
        }
        has_dependents[0] =
            mode != InitMode::Inline && self.lanes[1..].iter().any(|lane| lane.plan.max_host_need() > 0);
        self.plan_edges(mode, &mut has_dependents);
        for (node, tap) in std::mem::take(&mut self.taps) {
            let entry = self.nodes[node as usize];
            actions[entry.lane() as usize].push(entry.pos, Action::Tap(tap));
        }
        let barriers = self.plan_barriers(mode, &mut actions);
        Ok(self.into_parts(mode, options, actions, has_dependents, barriers))
    }

    /// Gives each lane the edges it must look at. An edge within a lane is kept by the lane's order.
    fn plan_edges(&mut self, mode: InitMode, has_dependents: &mut [bool]) {
        if mode == InitMode::Inline {
            return;
        }
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
            for node in covers {
                let entry = self.nodes[*node as usize];
                let last = &mut last[entry.lane() as usize];
                *last = (*last).max(Some(entry.pos));
            }
            let barrier = BarrierCore::new(last.iter().flatten().count() as u32);
            if covers.is_empty() {
                barrier.settle(Ok(()));
            }
            barriers.push(barrier);
            for (lane, last) in last.iter().enumerate() {
                if let Some(pos) = last {
                    actions[lane].push(*pos, Action::Mark(id as u32));
                }
            }
        }
        for actions in actions {
            actions.seal();
        }
        barriers
    }

    fn into_parts(
        self,
        mode: InitMode,
        options: RunOptions,
        actions: Vec<Actions>,
        has_dependents: Vec<bool>,
        barriers: Vec<BarrierCore>,
    ) -> Parts<H> {
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
                outlets,
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
            stores.push(LaneStore { devices, outlets });
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
        let n_threads = barriers[0].lanes_left();
        let topology = Topology::new(
            self.id,
            self.nodes,
            self.edges,
            names,
            self.host_names,
            self.host_bytes,
            barrier_names.collect(),
        );
        let rules = Rules {
            mode,
            policy: options.policy,
            record: options.record,
            staging_budget_bytes: options.staging_budget_bytes,
        };
        let host_task = host_task.expect("a graph has a host lane");
        let starts_reading = host_task.plan.len() > 0 && host_task.plan.edges_of(0).is_empty();
        let shared = Shared::new(
            topology,
            rules,
            has_dependents.into_iter().map(LaneShared::new).collect(),
            stores.into(),
            barriers.into(),
            n_threads,
            starts_reading,
        );
        Parts {
            shared: Arc::new(shared),
            host_task,
            host: self.host,
            lanes,
            thread_prefix: options.thread_prefix.unwrap_or_else(|| "init".to_owned()),
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
