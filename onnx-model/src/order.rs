//! Names and order: every value is produced once, every input exists, and nodes come after what they read.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};

/// What a graph may read besides its own values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing.
    Model,
    /// Values of the graphs around it; whether they exist is checked there.
    Attribute,
}

#[derive(Clone, Copy)]
enum Origin {
    Node(u32),
    Input,
    Initializer,
}

/// Checks names and brings the nodes into topological order; nodes that are in order keep their place.
pub(crate) fn sort(graph: &mut Graph, scope: Scope) -> Result<()> {
    let origins = origins(graph)?;
    for output in &graph.outputs {
        if scope == Scope::Model && !origins.contains_key(output.name.as_str()) {
            return Err(Error::malformed("no node produces this graph output").at_tensor(&output.name));
        }
    }
    let mut edges: Vec<(u32, u32)> = Vec::with_capacity(graph.nodes.len());
    let mut in_order = true;
    for (i, node) in graph.nodes.iter().enumerate() {
        let i = i as u32;
        for value in node.reads() {
            match origins.get(value) {
                Some(&Origin::Node(from)) => {
                    in_order &= from < i;
                    edges.push((from, i));
                }
                Some(Origin::Input | Origin::Initializer) => {}
                None if scope == Scope::Attribute => {}
                None => {
                    return Err(node.error(
                        Error::malformed(
                            "an input that is no graph input, no initializer, and no node's output",
                        )
                        .at_tensor(value),
                    ));
                }
            }
        }
    }
    if !in_order {
        let order = toposort(&graph.nodes, &edges)?;
        let mut nodes: Vec<Option<Node>> = std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
        graph.nodes = order
            .into_iter()
            .map(|i| nodes[i as usize].take().expect("each node once"))
            .collect();
    }
    Ok(())
}

/// Where each value comes from; an error if from two places.
fn origins(graph: &Graph) -> Result<HashMap<&str, Origin>> {
    let mut origins =
        HashMap::with_capacity(graph.nodes.len() + graph.initializers.len() + graph.inputs.len());
    for input in &graph.inputs {
        if origins.insert(input.name.as_str(), Origin::Input).is_some() {
            return Err(Error::malformed("two graph inputs have this name").at_tensor(&input.name));
        }
    }
    for initializer in &graph.initializers {
        // An initializer may give a graph input its default value.
        if let Some(Origin::Initializer) = origins.insert(initializer.name.as_str(), Origin::Initializer) {
            return Err(Error::malformed("two initializers have this name").at_tensor(&initializer.name));
        }
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|o| !o.is_empty()) {
            match origins.entry(output.as_str()) {
                Entry::Vacant(entry) => {
                    entry.insert(Origin::Node(i as u32));
                }
                Entry::Occupied(entry) => {
                    let other = match *entry.get() {
                        Origin::Node(other) => format!(
                            "node '{}'",
                            crate::error::shown(&graph.nodes[other as usize].label())
                        ),
                        Origin::Input => "a graph input".to_string(),
                        Origin::Initializer => "an initializer".to_string(),
                    };
                    return Err(node.error(
                        Error::malformed(format!("this value is already produced by {other}"))
                            .at_tensor(output),
                    ));
                }
            }
        }
    }
    Ok(origins)
}

/// Kahn's algorithm, earliest node of the file first.
fn toposort(nodes: &[Node], edges: &[(u32, u32)]) -> Result<Vec<u32>> {
    let adjacency = Adjacency::new(nodes.len(), edges);
    let mut waits = vec![0u32; nodes.len()];
    for &(_, to) in edges {
        waits[to as usize] += 1;
    }
    let mut free: BinaryHeap<Reverse<u32>> = (0..nodes.len() as u32)
        .filter(|&i| waits[i as usize] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = free.pop() {
        order.push(i);
        for &to in adjacency.of(i) {
            waits[to as usize] -= 1;
            if waits[to as usize] == 0 {
                free.push(Reverse(to));
            }
        }
    }
    if order.len() < nodes.len() {
        return Err(Error::cycle(cycle(nodes, edges, &waits)));
    }
    Ok(order)
}

/// A cycle among the nodes that still wait: each of them waits for another, so walking backwards must come round.
fn cycle(nodes: &[Node], edges: &[(u32, u32)], waits: &[u32]) -> Vec<String> {
    let mut waits_for = vec![u32::MAX; nodes.len()];
    for &(from, to) in edges {
        if waits[from as usize] > 0 && waits[to as usize] > 0 {
            waits_for[to as usize] = from;
        }
    }
    let start = waits.iter().position(|&w| w > 0).expect("a node that waits") as u32;
    let mut seen_at = HashMap::new();
    let mut path = Vec::new();
    let mut at = start;
    while let Entry::Vacant(entry) = seen_at.entry(at) {
        entry.insert(path.len());
        path.push(at);
        at = waits_for[at as usize];
    }
    let mut path: Vec<String> = path[seen_at[&at]..]
        .iter()
        .rev()
        .map(|&i| nodes[i as usize].label())
        .collect();
    path.insert(0, nodes[at as usize].label());
    path
}

/// Successors of each node, packed.
pub(crate) struct Adjacency {
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Adjacency {
    pub(crate) fn new(n: usize, edges: &[(u32, u32)]) -> Self {
        let mut starts = vec![0u32; n + 1];
        for &(from, _) in edges {
            starts[from as usize + 1] += 1;
        }
        for i in 0..n {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; edges.len()];
        for &(from, to) in edges {
            targets[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Adjacency { starts, targets }
    }

    pub(crate) fn of(&self, i: u32) -> &[u32] {
        &self.targets[self.starts[i as usize] as usize..self.starts[i as usize + 1] as usize]
    }
}

/// Values that a graph reads but does not have: they come from the graphs around it.
pub(crate) fn free_values(graph: &Graph) -> Vec<String> {
    let own: HashSet<&str> = (graph.inputs.iter().map(|v| v.name.as_str()))
        .chain(graph.initializers.iter().map(|t| t.name.as_str()))
        .chain(
            graph
                .nodes
                .iter()
                .flat_map(|n| n.outputs.iter().map(String::as_str)),
        )
        .collect();
    let mut seen = HashSet::new();
    let reads = graph
        .nodes
        .iter()
        .flat_map(Node::reads)
        .chain(graph.outputs.iter().map(|v| v.name.as_str()));
    reads
        .filter(|v| !own.contains(v) && seen.insert(*v))
        .map(str::to_string)
        .collect()
}
