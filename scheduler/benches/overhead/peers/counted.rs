//! A graph of boxed closures with a counter of open dependencies per node, as most hand-written schedulers have it.

use crate::shape::Shape;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

pub struct CountedGraph {
    bodies: Vec<Box<dyn Fn() + Send + Sync>>,
    lanes: Vec<u16>,
    open_deps: Vec<AtomicU32>,
    dependents_start: Vec<u32>,
    dependents: Vec<u32>,
    open_nodes: AtomicUsize,
    /// Collected before the run: during it a counter of zero no longer tells a root.
    roots: Vec<u32>,
}

impl CountedGraph {
    pub fn new(shape: &Shape) -> CountedGraph {
        let n_nodes = shape.n_nodes();
        let mut bodies: Vec<Box<dyn Fn() + Send + Sync>> = Vec::with_capacity(n_nodes);
        let mut lanes = Vec::with_capacity(n_nodes);
        let mut open_deps = Vec::with_capacity(n_nodes);
        let mut dependents_start = vec![0_u32; n_nodes + 1];
        for node in 0..n_nodes {
            bodies.push(Box::new(move || {
                black_box(node);
            }));
            lanes.push(shape.lane(node) as u16);
            open_deps.push(AtomicU32::new(shape.deps(node).len() as u32));
            for &dep in shape.deps(node) {
                dependents_start[dep as usize + 1] += 1;
            }
        }
        for node in 0..n_nodes {
            dependents_start[node + 1] += dependents_start[node];
        }
        let mut next = dependents_start.clone();
        let mut dependents = vec![0; dependents_start[n_nodes] as usize];
        for node in 0..n_nodes {
            for &dep in shape.deps(node) {
                dependents[next[dep as usize] as usize] = node as u32;
                next[dep as usize] += 1;
            }
        }
        let roots = (0..n_nodes as u32)
            .filter(|&node| shape.deps(node as usize).is_empty())
            .collect();
        let open_nodes = AtomicUsize::new(n_nodes);
        CountedGraph {
            bodies,
            lanes,
            open_deps,
            dependents_start,
            dependents,
            open_nodes,
            roots,
        }
    }

    pub fn roots(&self) -> &[u32] {
        &self.roots
    }

    pub fn lane(&self, node: u32) -> usize {
        self.lanes[node as usize] as usize
    }

    /// Runs a node and tells which nodes became ready; true when it was the last of the graph.
    pub fn run(&self, node: u32, mut ready: impl FnMut(u32)) -> bool {
        let index = node as usize;
        (self.bodies[index])();
        let range = self.dependents_start[index] as usize..self.dependents_start[index + 1] as usize;
        for &dependent in &self.dependents[range] {
            if self.open_deps[dependent as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                ready(dependent);
            }
        }
        self.open_nodes.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
