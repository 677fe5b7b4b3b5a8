//! How busy each lane was, and what each operator type cost.

use super::{Trace, ratio};
use crate::event::{LaneId, NodeId, Phase};
use std::borrow::Cow;
use std::time::Duration;

/// What one lane did.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneUsage {
    /// The lane.
    pub lane: LaneId,
    /// Nodes that started.
    pub n_nodes: usize,
    /// Sum of the times its nodes ran.
    pub busy: Duration,
    /// Sum of the times its nodes waited for their turn after everything they depend on had finished.
    pub queue: Duration,
    /// Share of the run's wall time in which the lane was busy, from 0 to 1.
    pub utilization: f64,
}

/// What the operators of one type cost, over all lanes.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeUsage {
    /// The operator type.
    pub operator_type: Cow<'static, str>,
    /// Nodes that started, host reads and device setups together.
    pub n_nodes: usize,
    /// Sum of its host reads.
    pub host: Duration,
    /// Sum of its device setups.
    pub device: Duration,
    /// Sum of the times its nodes waited for their turn after everything they depend on had finished.
    pub queue: Duration,
    /// Staging bytes of its host reads.
    pub host_bytes: u64,
}

impl Trace {
    /// What each lane did, by lane id.
    pub fn lane_usage(&self) -> Vec<LaneUsage> {
        let wall = self.wall();
        let mut usage: Vec<LaneUsage> = self.lanes().iter().map(|lane| LaneUsage::none(lane.id)).collect();
        for (node, span) in self.record.nodes.iter().zip(&self.spans) {
            let (Some(range), Some(lane)) = (span.range_ns(), usage.get_mut(node.lane.index())) else {
                continue;
            };
            lane.n_nodes += 1;
            lane.busy += span.duration();
            lane.queue += self.queue(node.id, range.start);
        }
        for lane in &mut usage {
            lane.utilization = ratio(lane.busy, wall);
        }
        usage
    }

    /// What each operator type cost, the most expensive first; equal ones in order of appearance.
    pub fn type_usage(&self) -> Vec<TypeUsage> {
        let mut usage: Vec<TypeUsage> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for (node, span) in self.record.nodes.iter().zip(&self.spans) {
            let place = *places.entry(&node.operator_type).or_insert_with(|| {
                usage.push(TypeUsage::none(node.operator_type.clone()));
                usage.len() - 1
            });
            let Some(range) = span.range_ns() else { continue };
            let of_type = &mut usage[place];
            of_type.n_nodes += 1;
            of_type.queue += self.queue(node.id, range.start);
            of_type.host_bytes += node.bytes;
            match node.phase {
                Phase::Host => of_type.host += span.duration(),
                Phase::Device | Phase::Open => of_type.device += span.duration(),
            }
        }
        usage.sort_by_key(|of_type| std::cmp::Reverse(of_type.host + of_type.device));
        usage
    }

    fn queue(&self, node: NodeId, start_ns: u64) -> Duration {
        let ready_ns = self.ready_ns(node).unwrap_or(start_ns);
        Duration::from_nanos(start_ns.saturating_sub(ready_ns))
    }
}

impl LaneUsage {
    fn none(lane: LaneId) -> LaneUsage {
        LaneUsage {
            lane,
            n_nodes: 0,
            busy: Duration::ZERO,
            queue: Duration::ZERO,
            utilization: 0.0,
        }
    }
}

impl TypeUsage {
    fn none(operator_type: Cow<'static, str>) -> TypeUsage {
        let zero = Duration::ZERO;
        TypeUsage {
            operator_type,
            n_nodes: 0,
            host: zero,
            device: zero,
            queue: zero,
            host_bytes: 0,
        }
    }
}
