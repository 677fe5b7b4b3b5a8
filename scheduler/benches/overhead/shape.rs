//! The graphs that are measured, as plain data: a lane and earlier nodes for each node.

/// A graph to run: nodes in submission order, each on one lane, depending on earlier nodes only.
pub struct Shape {
    pub name: String,
    pub n_lanes: usize,
    /// Host-read and device-setup nodes in pairs (node 2i is read by node 2i + 1), lane 0 is the host lane.
    pub is_mission: bool,
    lanes: Vec<u16>,
    deps_start: Vec<u32>,
    deps: Vec<u32>,
}

/// Lanes of the shapes that are not the mission's: the mission's eight operator types.
const N_LANES: usize = 8;
/// Nodes in one layer of the layered random DAG.
const LAYER_WIDTH: usize = 100;

impl Shape {
    /// `n_layers` layers of one operator per type: a host-read node on lane 0, a device-setup node on the type's lane.
    pub fn mission(n_layers: usize, n_types: usize) -> Shape {
        let mut shape = Shape::empty(format!("mission-{n_layers}x{n_types}"), n_types + 1);
        shape.is_mission = true;
        for _ in 0..n_layers {
            for operator_type in 0..n_types {
                let host = shape.push(0, &[]);
                shape.push(operator_type + 1, &[host]);
            }
        }
        shape
    }

    /// One lane, every node after the one before it.
    pub fn chain(n_nodes: usize) -> Shape {
        Shape::chain_over("chain", n_nodes, 1)
    }

    /// Two lanes, every node after the one before it on the other lane: each edge is a hop.
    pub fn hop(n_nodes: usize) -> Shape {
        Shape::chain_over("hop", n_nodes, 2)
    }

    fn chain_over(name: &str, n_nodes: usize, n_lanes: usize) -> Shape {
        let mut shape = Shape::empty(format!("{name}-{}", short(n_nodes)), n_lanes);
        let mut last = shape.push(0, &[]);
        for index in 1..n_nodes {
            last = shape.push(index % n_lanes, &[last]);
        }
        shape
    }

    /// One root and everything else after it, dealt out over the lanes.
    pub fn fan_out(n_nodes: usize) -> Shape {
        let mut shape = Shape::empty(format!("fan-out-{}", short(n_nodes)), N_LANES);
        let root = shape.push(0, &[]);
        for index in 1..n_nodes {
            shape.push(index % N_LANES, &[root]);
        }
        shape
    }

    /// Layers of [`LAYER_WIDTH`] nodes on random lanes, each after one to three nodes of the layer before.
    pub fn layered(n_nodes: usize) -> Shape {
        let mut shape = Shape::empty(format!("layered-{}", short(n_nodes)), N_LANES);
        let mut random = SplitMix(n_nodes as u64);
        let mut deps = Vec::new();
        for index in 0..n_nodes {
            deps.clear();
            let layer = index / LAYER_WIDTH;
            if layer > 0 {
                let first = (layer - 1) * LAYER_WIDTH;
                deps.extend((0..=random.below(3)).map(|_| (first + random.below(LAYER_WIDTH)) as u32));
                deps.sort_unstable();
                deps.dedup();
            }
            shape.push(random.below(N_LANES), &deps);
        }
        shape
    }

    pub fn n_nodes(&self) -> usize {
        self.lanes.len()
    }

    pub fn lane(&self, node: usize) -> usize {
        self.lanes[node] as usize
    }

    pub fn deps(&self, node: usize) -> &[u32] {
        &self.deps[self.deps_start[node] as usize..self.deps_start[node + 1] as usize]
    }

    fn empty(name: String, n_lanes: usize) -> Shape {
        Shape {
            name,
            n_lanes,
            is_mission: false,
            lanes: Vec::new(),
            deps_start: vec![0],
            deps: Vec::new(),
        }
    }

    fn push(&mut self, lane: usize, deps: &[u32]) -> u32 {
        self.lanes.push(lane as u16);
        self.deps.extend_from_slice(deps);
        self.deps_start.push(self.deps.len() as u32);
        (self.lanes.len() - 1) as u32
    }
}

pub fn short(n_nodes: usize) -> String {
    match n_nodes {
        n if n % 1_000_000 == 0 => format!("{}M", n / 1_000_000),
        n if n % 1_000 == 0 => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}

/// The splitmix64 generator: the same graph in every run.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
