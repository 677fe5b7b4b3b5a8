//! What the measured node costs would give on other lanes and cores: a deterministic simulation.
//!
//! The simulation knows dependencies, lanes and their order, modes, and cores that are shared evenly. It does not know
//! what another layout does to the costs themselves (caches, memory bandwidth, locks in a provider), nor thread start,
//! wake-ups or a staging budget. So it answers "what could this layout gain at best", and the difference to a
//! real run of the same layout is what those effects cost.

mod simulate;

use crate::event::{Event, EventKind, LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase, RunRecord};
use crate::mode::InitMode;
use crate::trace::Trace;
use simulate::{Workload, simulate};
use std::num::NonZeroUsize;

/// Lanes, cores and mode to try. Starts as what was recorded, on a core for every lane.
///
/// # Examples
///
/// ```
/// use scheduler::{InitMode, Layout, Trace};
///
/// fn on_four_cores(inline: &Trace) -> Option<f64> {
///     let matmul = inline.find_lane("MatMulNBits")?;
///     let layout = Layout::of(inline).mode(InitMode::Overlapped).cores(4).stripes(matmul, 2);
///     let simulated = inline.what_if(&layout);
///     println!("{}", simulated.timeline(100));
///     Some(inline.wall().as_secs_f64() / simulated.wall().as_secs_f64())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    mode: InitMode,
    n_cores: Option<NonZeroUsize>,
    /// By recorded lane: the first lane of its group; stripes of one lane are a group, so are merged lanes.
    group: Vec<usize>,
    /// By recorded lane, used of a group's first: on how many lanes the group's nodes are dealt out.
    n_stripes: Vec<usize>,
}

impl Layout {
    /// The lanes and mode of a recorded run, on a core for every lane.
    pub fn of(trace: &Trace) -> Layout {
        let lanes = trace.lanes();
        let mut group: Vec<usize> = (0..lanes.len()).collect();
        let mut n_stripes = vec![1; lanes.len()];
        for lane in 0..lanes.len() {
            if let Some((stripe, n)) = lanes[lane].stripe {
                group[lane] = lane.saturating_sub(stripe as usize);
                n_stripes[lane] = (n as usize).max(1);
            }
        }
        Layout {
            mode: trace.mode(),
            n_cores: None,
            group,
            n_stripes,
        }
    }

    /// Runs in another mode.
    pub fn mode(self, mode: InitMode) -> Layout {
        Layout { mode, ..self }
    }

    /// Shares `n_cores` cores evenly among the nodes that run; 0 counts as 1.
    pub fn cores(self, n_cores: usize) -> Layout {
        Layout {
            n_cores: Some(NonZeroUsize::new(n_cores).unwrap_or(NonZeroUsize::MIN)),
            ..self
        }
    }

    /// Deals the nodes of `lane` (of all its stripes, if it was striped) out over `n` lanes; 0 counts as 1.
    ///
    /// # Panics
    ///
    /// If `lane` is not of the recorded run.
    pub fn stripes(mut self, lane: LaneId, n: usize) -> Layout {
        let group = self.group[lane.index()];
        self.n_stripes[group] = n.max(1);
        self
    }

    /// Puts the nodes of `other` on `lane`, in submission order with the nodes that are there.
    ///
    /// # Panics
    ///
    /// If a lane is not of the recorded run.
    pub fn merge(mut self, lane: LaneId, other: LaneId) -> Layout {
        let (kept, gone) = (self.group[lane.index()], self.group[other.index()]);
        for group in &mut self.group {
            if *group == gone {
                *group = kept;
            }
        }
        self
    }
}

impl Trace {
    /// The run that the measured costs of this one's nodes would give in another layout: a [`Trace`] like any other, whose
    /// [`wall`](Trace::wall) is the makespan. Nodes that did not run cost nothing.
    ///
    /// # Panics
    ///
    /// If the layout was made for a run with other lanes.
    pub fn what_if(&self, layout: &Layout) -> Trace {
        assert_eq!(
            layout.group.len(),
            self.lanes().len(),
            "a layout fits the lanes of the trace it was made of"
        );
        let placed = Placed::new(self, layout);
        let costs: Vec<u64> = self
            .nodes()
            .iter()
            .map(|node| self.span(node.id).duration_ns())
            .collect();
        let is_host: Vec<bool> = self
            .nodes()
            .iter()
            .map(|node| node.phase == Phase::Host)
            .collect();
        let mut deps_start = vec![0_u32];
        let mut deps = Vec::new();
        for node in self.nodes() {
            deps.extend(node.deps.iter().map(|dep| dep.0));
            deps_start.push(deps.len() as u32);
        }

        let has_threads = layout.mode.has_lane_threads();
        let (thread_of, is_fifo): (Vec<u32>, Vec<bool>) = if has_threads {
            (
                placed.lane.clone(),
                placed
                    .lanes
                    .iter()
                    .map(|lane| lane.order == LaneOrder::Fifo)
                    .collect(),
            )
        } else {
            (vec![0; costs.len()], vec![true])
        };
        let order = match layout.mode {
            InitMode::Serial => serial_order(self.nodes()),
            _ => (0..costs.len() as u32).collect(),
        };
        let history = simulate(&Workload {
            cost_ns: &costs,
            lane: &thread_of,
            is_host: &is_host,
            deps_start: &deps_start,
            deps: &deps,
            order: &order,
            is_fifo: &is_fifo,
            n_cores: layout.n_cores,
            host_first: layout.mode == InitMode::TwoPhase,
        });
        let mut record = RunRecord {
            mode: layout.mode,
            lanes: placed.lanes,
            events: Vec::new(),
            ..self.record().clone()
        };
        for (node, &lane) in record.nodes.iter_mut().zip(&placed.lane) {
            node.lane = LaneId(lane);
        }
        record
            .events
            .extend(history.into_iter().enumerate().map(|(seq, moment)| {
                let node = NodeId(moment.node);
                let kind = if moment.is_start {
                    EventKind::NodeStarted(node)
                } else {
                    EventKind::NodeFinished(node)
                };
                let lane = record.nodes[node.index()].lane;
                Event {
                    seq: seq as u64,
                    at_ns: moment.at_ns,
                    lane,
                    thread: u64::from(thread_of[node.index()]),
                    kind,
                }
            }));
        Trace::new(record)
    }
}

/// Host reads as far as they go, then everything else that may run, and again: one thread's order in Serial mode.
fn serial_order(nodes: &[NodeInfo]) -> Vec<u32> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut is_placed = vec![false; nodes.len()];
    let (mut hosts, mut devices): (Vec<&NodeInfo>, Vec<&NodeInfo>) =
        nodes.iter().partition(|node| node.phase == Phase::Host);
    while !hosts.is_empty() || !devices.is_empty() {
        let n_before = order.len();
        for phase in [&mut hosts, &mut devices] {
            let n_ready = phase
                .iter()
                .take_while(|node| {
                    let is_ready = node.deps.iter().all(|dep| is_placed[dep.index()]);
                    is_placed[node.id.index()] |= is_ready;
                    is_ready
                })
                .count();
            order.extend(phase.drain(..n_ready).map(|node| node.id.0));
        }
        assert!(order.len() > n_before, "a node depends on earlier nodes only");
    }
    order
}

/// The lanes of a layout, and each node's place on them.
struct Placed {
    lanes: Vec<LaneInfo>,
    lane: Vec<u32>,
}

impl Placed {
    fn new(trace: &Trace, layout: &Layout) -> Placed {
        let mut lanes: Vec<LaneInfo> = Vec::new();
        let mut first_lane = vec![0_usize; layout.group.len()];
        for (index, recorded) in trace.lanes().iter().enumerate() {
            if layout.group[index] != index {
                continue;
            }
            first_lane[index] = lanes.len();
            let n = layout.n_stripes[index];
            for stripe in 0..n {
                lanes.push(LaneInfo {
                    id: LaneId::from_index(lanes.len()),
                    name: if stripe == 0 {
                        recorded.name.clone()
                    } else {
                        format!("{}#{stripe}", recorded.name)
                    },
                    stripe: (n > 1).then_some((stripe as u32, n as u32)),
                    ..recorded.clone()
                });
            }
        }
        let mut n_dealt = vec![0_usize; layout.group.len()];
        let lane = trace.nodes().iter().map(|node| {
            let group = layout.group[node.lane.index()];
            let stripe = n_dealt[group] % layout.n_stripes[group];
            n_dealt[group] += 1;
            (first_lane[group] + stripe) as u32
        });
        let lane = lane.collect();
        Placed { lanes, lane }
    }
}
