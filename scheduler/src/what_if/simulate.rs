//! The simulation: integer arithmetic over a heap of finish times, so that the same costs always give the same answer.
//!
//! Cores are shared evenly, as an operating system shares them among threads: with `n` nodes running on `c` cores each
//! advances at rate `min(1, c / n)`. Every running node advances alike, so one *virtual clock* serves them all: a node
//! with cost `k` that starts when the clock shows `v` finishes when it shows `v + k`, whatever happens in between. Only the
//! conversion of virtual to real time depends on how many nodes run, and it is exact when real time is counted in
//! units of `1 / c` ns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroUsize;

/// What to simulate. Nodes are numbered in submission order and depend on earlier nodes only.
pub(super) struct Workload<'a> {
    pub cost_ns: &'a [u64],
    pub lane: &'a [u32],
    pub is_host: &'a [bool],
    pub deps_start: &'a [u32],
    pub deps: &'a [u32],
    /// Every node once: the order in which FIFO lanes take theirs.
    pub order: &'a [u32],
    /// Per lane: nodes start in that order, or else in the order they became ready.
    pub is_fifo: &'a [bool],
    /// `None`: a core for every lane.
    pub n_cores: Option<NonZeroUsize>,
    /// Nodes that are not host reads wait until host reads can go no further.
    pub host_first: bool,
}

/// A node started or finished, this long after the beginning.
pub(super) struct Moment {
    pub at_ns: u64,
    pub node: u32,
    pub is_start: bool,
}

/// Every start and finish, in an order that agrees with cause and effect.
pub(super) fn simulate(work: &Workload<'_>) -> Vec<Moment> {
    let mut simulation = Simulation::new(work);
    simulation.start_all();
    loop {
        match simulation.running.pop() {
            Some(Reverse((finish, node))) => {
                simulation.advance_to(finish);
                simulation.finish(node as usize);
            }
            // The host lane runs without a gap until it has read everything or waits for a device.
            None if simulation.is_host_phase => {
                simulation.is_host_phase = false;
                simulation.start_all();
            }
            None => return simulation.history,
        }
    }
}

struct Simulation<'a> {
    work: &'a Workload<'a>,
    n_cores: u128,
    /// Real time, in units of `1 / n_cores` ns.
    time: u128,
    virtual_ns: u64,
    /// (virtual finish time, node): ties end in submission order.
    running: BinaryHeap<Reverse<(u64, u32)>>,
    is_host_phase: bool,
    lanes: Vec<Lane>,
    n_open_deps: Vec<u32>,
    dependents_start: Vec<u32>,
    dependents: Vec<u32>,
    history: Vec<Moment>,
}

#[derive(Default)]
struct Lane {
    is_busy: bool,
    /// FIFO: every node not yet started. Ready order: those that may start.
    waiting: VecDeque<u32>,
}

impl<'a> Simulation<'a> {
    fn new(work: &'a Workload<'a>) -> Simulation<'a> {
        let n_nodes = work.cost_ns.len();
        let mut lanes: Vec<Lane> = work.is_fifo.iter().map(|_| Lane::default()).collect();
        let n_open_deps: Vec<u32> = work
            .deps_start
            .windows(2)
            .map(|range| range[1] - range[0])
            .collect();
        for &node in work.order {
            let lane = work.lane[node as usize] as usize;
            if work.is_fifo[lane] || n_open_deps[node as usize] == 0 {
                lanes[lane].waiting.push_back(node);
            }
        }
        let (dependents_start, dependents) = reverse(work.deps_start, work.deps);
        Simulation {
            work,
            n_cores: work.n_cores.map_or(lanes.len().max(1), NonZeroUsize::get) as u128,
            time: 0,
            virtual_ns: 0,
            running: BinaryHeap::new(),
            is_host_phase: work.host_first,
            lanes,
            n_open_deps,
            dependents_start,
            dependents,
            history: Vec::with_capacity(2 * n_nodes),
        }
    }

    /// The node that finishes now still counts as running: it was, up to this moment.
    fn advance_to(&mut self, virtual_ns: u64) {
        let n_running = self.running.len() as u128 + 1;
        self.time += u128::from(virtual_ns - self.virtual_ns) * n_running.max(self.n_cores);
        self.virtual_ns = virtual_ns;
    }

    fn now_ns(&self) -> u64 {
        (self.time / self.n_cores) as u64
    }

    fn finish(&mut self, node: usize) {
        self.history.push(Moment {
            at_ns: self.now_ns(),
            node: node as u32,
            is_start: false,
        });
        let lane = self.work.lane[node] as usize;
        self.lanes[lane].is_busy = false;
        for at in self.dependents_start[node] as usize..self.dependents_start[node + 1] as usize {
            let dependent = self.dependents[at] as usize;
            self.n_open_deps[dependent] -= 1;
            if self.n_open_deps[dependent] == 0 {
                let lane = self.work.lane[dependent] as usize;
                if !self.work.is_fifo[lane] {
                    self.lanes[lane].waiting.push_back(dependent as u32);
                }
                self.start_next(lane);
            }
        }
        self.start_next(lane);
    }

    fn start_all(&mut self) {
        for lane in 0..self.lanes.len() {
            self.start_next(lane);
        }
    }

    fn start_next(&mut self, lane: usize) {
        let Some(&node) = self.lanes[lane].waiting.front() else {
            return;
        };
        let index = node as usize;
        let is_held = self.is_host_phase && !self.work.is_host[index];
        if self.lanes[lane].is_busy || self.n_open_deps[index] > 0 || is_held {
            return;
        }
        self.lanes[lane].waiting.pop_front();
        self.lanes[lane].is_busy = true;
        self.history.push(Moment {
            at_ns: self.now_ns(),
            node,
            is_start: true,
        });
        self.running
            .push(Reverse((self.virtual_ns + self.work.cost_ns[index], node)));
    }
}

/// Edges to dependencies turned into edges to dependents, in the same compact form.
fn reverse(deps_start: &[u32], deps: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let n_nodes = deps_start.len() - 1;
    let mut start = vec![0_u32; n_nodes + 1];
    for &dep in deps {
        start[dep as usize + 1] += 1;
    }
    for node in 0..n_nodes {
        start[node + 1] += start[node];
    }
    let mut next = start.clone();
    let mut dependents = vec![0; deps.len()];
    for node in 0..n_nodes {
        for &dep in &deps[deps_start[node] as usize..deps_start[node + 1] as usize] {
            dependents[next[dep as usize] as usize] = node as u32;
            next[dep as usize] += 1;
        }
    }
    (start, dependents)
}
