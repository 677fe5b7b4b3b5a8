//! What a graph looks like, once it no longer changes.

use std::borrow::Cow;

use crate::error::Site;
use crate::event::{BarrierId, BarrierInfo, LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase};
use crate::ready::Pos;
use crate::sync::OnceLock;

/// Names are borrowed where they can be: no allocation for a literal.
pub(crate) type Name = Cow<'static, str>;

/// Where a node is: its lane and its place in that lane's order.
#[derive(Clone, Copy)]
pub(crate) struct NodeEntry {
    lane_and_flag: u32,
    pub(crate) pos: Pos,
}

/// The node before this one in submission order is its host node.
const OWN_HOST: u32 = 1 << 31;

impl NodeEntry {
    pub(crate) fn new(lane: u32, pos: Pos) -> Self {
        NodeEntry {
            lane_and_flag: lane,
            pos,
        }
    }

    pub(crate) fn device_of_previous(lane: u32, pos: Pos) -> Self {
        NodeEntry {
            lane_and_flag: lane | OWN_HOST,
            pos,
        }
    }

    pub(crate) fn lane(self) -> u32 {
        self.lane_and_flag & !OWN_HOST
    }

    pub(crate) fn follows_own_host(self) -> bool {
        self.lane_and_flag & OWN_HOST != 0
    }
}

/// The names of a lane and its nodes.
pub(crate) struct LaneNames {
    pub(crate) name: String,
    pub(crate) operator_type: Name,
    pub(crate) order: LaneOrder,
    pub(crate) stripe: Option<(u32, u32)>,
    /// By place. Empty for the host lane, whose operators' names are with their device nodes.
    pub(crate) nodes: Vec<Name>,
}

pub(crate) struct BarrierNames {
    pub(crate) name: Name,
    /// Sorted. Nothing for the barrier over everything.
    pub(crate) covers: Option<Box<[u32]>>,
}

/// A complete graph's shape and names. By node id throughout, that is in submission order.
pub(crate) struct Topology {
    /// Which graph of this process, so that references of another are told apart.
    pub(crate) graph: u32,
    pub(crate) nodes: Vec<NodeEntry>,
    /// Declared edges as (node, what it waits for), sorted. An operator's own host node is not among them.
    pub(crate) edges: Vec<(u32, u32)>,
    pub(crate) lanes: Vec<LaneNames>,
    /// Names of plain host nodes, sorted by node.
    pub(crate) host_names: Vec<(u32, Name)>,
    /// Staging bytes by place on the host lane, where not 0, sorted.
    pub(crate) host_bytes: Vec<(Pos, u64)>,
    pub(crate) barriers: Vec<BarrierNames>,
    by_place: OnceLock<Vec<Vec<u32>>>,
    /// Running sums over `host_bytes`.
    bytes_up_to: OnceLock<Vec<u64>>,
}

impl Topology {
    pub(crate) fn new(
        graph: u32,
        nodes: Vec<NodeEntry>,
        edges: Vec<(u32, u32)>,
        lanes: Vec<LaneNames>,
        host_names: Vec<(u32, Name)>,
        host_bytes: Vec<(Pos, u64)>,
        barriers: Vec<BarrierNames>,
    ) -> Self {
        let (by_place, bytes_up_to) = (OnceLock::new(), OnceLock::new());
        Topology {
            graph,
            nodes,
            edges,
            lanes,
            host_names,
            host_bytes,
            barriers,
            by_place,
            bytes_up_to,
        }
    }

    /// The node at a place of a lane. Builds a table at its first use: only failures and traces ask.
    pub(crate) fn node_at(&self, lane: u32, pos: Pos) -> u32 {
        let table = self.by_place.get_or_init(|| {
            let mut table = vec![Vec::new(); self.lanes.len()];
            for (id, entry) in self.nodes.iter().enumerate() {
                table[entry.lane() as usize].push(id as u32);
            }
            table
        });
        table[lane as usize][pos as usize]
    }

    pub(crate) fn name(&self, id: u32) -> &Name {
        let entry = self.nodes[id as usize];
        if entry.lane() != 0 {
            return &self.lanes[entry.lane() as usize].nodes[entry.pos as usize];
        }
        match self.host_names.binary_search_by_key(&id, |(node, _)| *node) {
            Ok(i) => &self.host_names[i].1,
            Err(_) => self.name(id + 1),
        }
    }

    fn operator_type(&self, id: u32) -> &Name {
        let entry = self.nodes[id as usize];
        let is_plain = self
            .host_names
            .binary_search_by_key(&id, |(node, _)| *node)
            .is_ok();
        let lane = if entry.lane() != 0 || is_plain {
            entry.lane()
        } else {
            self.nodes[id as usize + 1].lane()
        };
        &self.lanes[lane as usize].operator_type
    }

    pub(crate) fn phase(&self, id: u32) -> Phase {
        if self.nodes[id as usize].lane() == 0 {
            Phase::Host
        } else {
            Phase::Device
        }
    }

    pub(crate) fn site(&self, id: u32, phase: Phase) -> Site {
        Site {
            node: self.name(id).clone(),
            lane: self.lanes[self.nodes[id as usize].lane() as usize].name.clone(),
            operator_type: self.operator_type(id).clone(),
            phase,
        }
    }

    pub(crate) fn bytes_at(&self, pos: Pos) -> u64 {
        match self.host_bytes.binary_search_by_key(&pos, |(pos, _)| *pos) {
            Ok(i) => self.host_bytes[i].1,
            Err(_) => 0,
        }
    }

    /// How many bytes the host nodes before `pos` hold.
    pub(crate) fn bytes_before(&self, pos: Pos) -> u64 {
        let sums = self.bytes_up_to.get_or_init(|| {
            let mut sum = 0;
            let sums = self.host_bytes.iter().map(|(_, bytes)| {
                sum += bytes;
                sum
            });
            sums.collect()
        });
        match self.host_bytes.partition_point(|(at, _)| *at < pos) {
            0 => 0,
            n => sums[n - 1],
        }
    }

    /// What a node waits for, besides its lane's order.
    pub(crate) fn deps(&self, id: u32) -> impl Iterator<Item = u32> {
        let own = self.nodes[id as usize].follows_own_host().then(|| id - 1);
        let from = self.edges.partition_point(|(node, _)| *node < id);
        let declared = self.edges[from..].iter().take_while(move |(node, _)| *node == id);
        own.into_iter().chain(declared.map(|(_, on)| *on))
    }

    /// Marks everything that waits for a marked node, directly or not. Every node waits for earlier ones only,
    /// so one pass in submission order finds all.
    pub(crate) fn mark_dependents(&self, first: u32, marked: &mut [bool]) {
        let mut edge = self.edges.partition_point(|(node, _)| *node <= first);
        for id in first as usize + 1..self.nodes.len() {
            if self.nodes[id].follows_own_host() && marked[id - 1] {
                marked[id] = true;
            }
            while let Some((_, on)) = self.edges.get(edge).filter(|(node, _)| *node as usize == id) {
                marked[id] |= marked[*on as usize];
                edge += 1;
            }
        }
    }

    /// How many host nodes must have finished before each node can finish: because of itself, what it waits for, or
    /// what its lane's order puts before it.
    pub(crate) fn host_needs(&self) -> Vec<u32> {
        let mut needs: Vec<u32> = Vec::with_capacity(self.nodes.len());
        let mut of_lane = vec![0; self.lanes.len()];
        for (id, entry) in self.nodes.iter().enumerate() {
            let lane = entry.lane() as usize;
            let own = if lane == 0 { entry.pos + 1 } else { 0 };
            let before = match self.lanes[lane].order {
                LaneOrder::Fifo => of_lane[lane],
                LaneOrder::Ready => 0,
            };
            let deps = self.deps(id as u32).map(|on| needs[on as usize]);
            let need = deps.chain([own, before]).max().unwrap_or(0);
            of_lane[lane] = need;
            needs.push(need);
        }
        needs
    }

    pub(crate) fn node_infos(&self) -> Vec<NodeInfo> {
        (0..self.nodes.len() as u32)
            .map(|id| NodeInfo {
                id: NodeId(id),
                name: self.name(id).clone(),
                phase: self.phase(id),
                lane: LaneId(self.nodes[id as usize].lane()),
                operator_type: self.operator_type(id).clone(),
                deps: self.deps(id).map(NodeId).collect(),
                bytes: match self.nodes[id as usize] {
                    entry if entry.lane() == 0 => self.bytes_at(entry.pos),
                    _ => 0,
                },
            })
            .collect()
    }

    pub(crate) fn lane_infos(&self) -> Vec<LaneInfo> {
        let info = |(id, lane): (usize, &LaneNames)| LaneInfo {
            id: LaneId(id as u32),
            name: lane.name.clone(),
            operator_type: lane.operator_type.clone(),
            order: lane.order,
            stripe: lane.stripe,
        };
        self.lanes.iter().enumerate().map(info).collect()
    }

    pub(crate) fn barrier_infos(&self) -> Vec<BarrierInfo> {
        let info = |(id, barrier): (usize, &BarrierNames)| BarrierInfo {
            id: BarrierId(id as u32),
            name: barrier.name.clone(),
            covers: match &barrier.covers {
                Some(covers) => covers.iter().map(|id| NodeId(*id)).collect(),
                None => (0..self.nodes.len() as u32).map(NodeId).collect(),
            },
        };
        self.barriers.iter().enumerate().map(info).collect()
    }
}
