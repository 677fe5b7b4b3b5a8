//! Looking at a graph as a whole: cycles, and an order for edges that come from outside.

use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::InitGraph;
use super::host::HostLane;
use crate::error::InitError;
use crate::event::NodeId;

/// An order in which things that wait for each other can be added to a graph: for edges taken from outside, say from a model file.
///
/// `edges` are pairs (what waits, what it waits for) of indices into `names`. Among things that may come in any order, the
/// one that is earlier in `names` tends to come first, but only the edges are promised.
///
/// ```
/// let order = scheduler::order_for(&["add", "mul", "input"], &[(0, 1), (1, 2)])?;
/// assert_eq!(order, [2, 1, 0]);
///
/// let error = scheduler::order_for(&["add", "mul"], &[(0, 1), (1, 0)]).unwrap_err();
/// assert_eq!(error.to_string(), "the graph has a cycle: add -> mul -> add");
/// # Ok::<(), scheduler::InitError>(())
/// ```
///
/// # Errors
/// If there is a cycle; the error prints all of it. If an edge names an index that `names` does not have.
pub fn order_for<S: AsRef<str>>(names: &[S], edges: &[(usize, usize)]) -> Result<Vec<usize>, InitError> {
    if let Some((node, on)) = edges.iter().find(|(node, on)| (*node).max(*on) >= names.len()) {
        let n = names.len();
        return Err(InitError::graph(format!(
            "edge ({node}, {on}) is outside of the {n} things that have names"
        )));
    }
    let mut graph = DiGraph::<(), (), u32>::with_capacity(names.len(), edges.len());
    // toposort's order is the reverse of the order in which its search finishes nodes, hence the mirrored indices.
    let mirror = |i: usize| NodeIndex::new(names.len() - 1 - i);
    for _ in names {
        graph.add_node(());
    }
    for &(node, on) in edges {
        graph.add_edge(mirror(on), mirror(node), ());
    }
    match toposort(&graph, None) {
        Ok(order) => Ok(order
            .into_iter()
            .map(|node| names.len() - 1 - node.index())
            .collect()),
        Err(_) => {
            let mut forward = DiGraph::<(), (), u32>::with_capacity(names.len(), edges.len());
            for _ in names {
                forward.add_node(());
            }
            for &(node, on) in edges {
                forward.add_edge(NodeIndex::new(on), NodeIndex::new(node), ());
            }
            let path = find_cycle(&forward).expect("no order means a cycle");
            let name = |node: &NodeIndex<u32>| names[node.index()].as_ref().to_owned();
            Err(InitError::cycle(path.iter().map(name).collect()))
        }
    }
}

impl<H: HostLane> InitGraph<H> {
    /// The graph for petgraph's algorithms: nodes in submission order, an edge from what is waited for to what waits.
    ///
    /// petgraph's recursive algorithms (`is_cyclic_directed`, `tarjan_scc`) overflow the stack on graphs some 50,000 nodes
    /// deep; `toposort` and `kosaraju_scc` do not.
    pub fn to_petgraph(&self) -> DiGraph<NodeId, ()> {
        let mut graph = DiGraph::with_capacity(self.nodes.len(), self.edges.len() + self.nodes.len() / 2);
        for (id, entry) in self.nodes.iter().enumerate() {
            let node = graph.add_node(NodeId(id as u32));
            if entry.follows_own_host() {
                graph.add_edge(NodeIndex::new(id - 1), node, ());
            }
        }
        for &(node, on) in &self.edges {
            graph.add_edge(NodeIndex::new(on as usize), NodeIndex::new(node as usize), ());
        }
        graph
    }

    /// Whether every edge goes from an earlier node to a later one.
    pub(super) fn check_edges(&self) -> Result<(), InitError> {
        let n = self.nodes.len() as u32;
        if let Some((node, on)) = self.edges.iter().find(|(node, on)| (*node).max(*on) >= n) {
            let outside = node.max(on);
            return Err(InitError::graph(format!(
                "an edge names node {outside}, but the graph has {n} nodes"
            )));
        }
        let Some((node, on)) = self.edges.iter().find(|(node, on)| on >= node) else {
            return Ok(());
        };
        if let Some(path) = find_cycle(&self.to_petgraph()) {
            return Err(InitError::cycle(
                path.iter().map(|node| self.name(node.index())).collect(),
            ));
        }
        let (node, on) = (self.name(*node as usize), self.name(*on as usize));
        Err(InitError::graph(format!(
            "{node} waits for {on}, which was added later: add a node after what it waits for"
        )))
    }

    fn name(&self, id: usize) -> String {
        let entry = self.nodes[id];
        if entry.lane() != 0 {
            return self.lanes[entry.lane() as usize].names[entry.pos as usize].to_string();
        }
        match self
            .host_names
            .binary_search_by_key(&(id as u32), |(node, _)| *node)
        {
            Ok(i) => self.host_names[i].1.to_string(),
            Err(_) => self.name(id + 1) + " (host)",
        }
    }
}

/// A shortest cycle through the earliest node that is on one: that node first, and again at the end.
fn find_cycle<N>(graph: &DiGraph<N, (), u32>) -> Option<Vec<NodeIndex<u32>>> {
    let loops = graph
        .edge_references()
        .filter(|edge| edge.source() == edge.target())
        .map(|edge| edge.source());
    let components = kosaraju_scc(graph);
    let in_components = components
        .iter()
        .filter(|component| component.len() > 1)
        .flatten()
        .copied();
    let start = loops.chain(in_components).min()?;
    // Breadth first from `start` until an edge leads back to it.
    let mut came_from = vec![None; graph.node_count()];
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for next in graph.neighbors(node) {
            if next == start {
                let mut path = vec![start, node];
                while let Some(before) = came_from[path[path.len() - 1].index()] {
                    path.push(before);
                }
                path.reverse();
                return Some(path);
            }
            if came_from[next.index()].is_none() {
                came_from[next.index()] = Some(node);
                queue.push_back(next);
            }
        }
    }
    None
}
