//! From proposed regions to operators: no cycle between operators, topological order, inputs and outputs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::names::Names;
use super::regions::{Flow, Regions};
use super::{Operator, OperatorId};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::order::Adjacency;

/// Takes the graph apart into operators, in topological order.
pub(crate) fn group(graph: &Graph) -> Result<Vec<Operator>> {
    let flow = Flow::of(graph);
    let regions = Regions::of(graph, &flow);
    let groups = acyclic(&flow, &regions.group);
    let order = groups
        .order(&flow)
        .map_err(|_| Error::unsupported("the graph cannot be taken apart into operators"))?;
    let mut members: Vec<Vec<NodeId>> = vec![Vec::new(); groups.n];
    for id in graph.node_ids() {
        if let Some(group) = groups.of[id.index()] {
            members[group as usize].push(id);
        }
    }
    let in_order = order.iter().map(|&group| &members[group as usize]);
    let weight_bytes = graph.weight_bytes_in_order(in_order);
    let mut names = Names::new(graph, &flow, &regions);
    let interface = Interface::of(graph, &groups);
    let mut operators = Vec::with_capacity(groups.n);
    for (position, (&group, weight_bytes)) in order.iter().zip(weight_bytes).enumerate() {
        let nodes = std::mem::take(&mut members[group as usize]);
        let proposed = regions.group[nodes[0].index()].expect("no Constant is in a group");
        let kind = regions.kinds[&proposed];
        let (name, layer) = names.of(kind, &nodes);
        let (inputs, outputs) = interface.of_nodes(&nodes, group);
        operators.push(Operator {
            id: OperatorId(position as u32),
            name,
            kind,
            layer,
            nodes,
            inputs,
            outputs,
            weight_bytes,
        });
    }
    Ok(operators)
}

/// A group number for each node, dense.
struct Groups {
    of: Vec<Option<u32>>,
    n: usize,
}

impl Groups {
    fn dense(of: impl Iterator<Item = Option<u64>>) -> Self {
        let mut numbers = HashMap::new();
        let of = of
            .map(|g| {
                g.map(|g| {
                    let next = numbers.len() as u32;
                    *numbers.entry(g).or_insert(next)
                })
            })
            .collect();
        Groups { of, n: numbers.len() }
    }

    /// Edges between different groups.
    fn edges(&self, flow: &Flow) -> Vec<(u32, u32)> {
        let mut edges = Vec::new();
        for (i, producers) in flow.producers.iter().enumerate() {
            for &p in producers {
                if let (Some(from), Some(to)) = (self.of[p as usize], self.of[i])
                    && from != to
                {
                    edges.push((from, to));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// Groups in topological order, earlier first node first; or those that are on a cycle or between two.
    fn order(&self, flow: &Flow) -> Result<Vec<u32>, HashSet<u32>> {
        let edges = self.edges(flow);
        let forward = peel(self.n, &edges);
        if forward.len() == self.n {
            return Ok(forward);
        }
        let reversed: Vec<(u32, u32)> = edges.iter().map(|&(a, b)| (b, a)).collect();
        let outside: HashSet<u32> = forward.into_iter().chain(peel(self.n, &reversed)).collect();
        Err((0..self.n as u32).filter(|g| !outside.contains(g)).collect())
    }
}

/// Kahn's algorithm, as far as it comes; group numbers follow first nodes, so the smallest free one goes first.
fn peel(n: usize, edges: &[(u32, u32)]) -> Vec<u32> {
    let adjacency = Adjacency::new(n, edges);
    let mut waits = vec![0u32; n];
    for &(_, to) in edges {
        waits[to as usize] += 1;
    }
    let mut free: BinaryHeap<Reverse<u32>> = (0..n as u32)
        .filter(|&g| waits[g as usize] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(n);
    while let Some(Reverse(g)) = free.pop() {
        order.push(g);
        for &to in adjacency.of(g) {
            waits[to as usize] -= 1;
            if waits[to as usize] == 0 {
                free.push(Reverse(to));
            }
        }
    }
    order
}

/// Splits the groups that depend on each other in a circle, so that none do.
///
/// Nodes of such groups are taken in topological order; each goes into its group's latest part if all it reads comes
/// from that part or from parts begun earlier, else it begins a new part. So every edge leads from a part to itself
/// or to one begun later, and there is no circle. Groups outside circles cannot close a new one: no path leads from a
/// circle to them and back.
fn acyclic(flow: &Flow, proposed: &[Option<u32>]) -> Groups {
    let groups = Groups::dense(proposed.iter().map(|g| g.map(u64::from)));
    let Err(circular) = groups.order(flow) else {
        return groups;
    };
    let mut latest: HashMap<u32, u32> = HashMap::new();
    let mut n_parts = 0u32;
    let mut part = vec![u32::MAX; proposed.len()];
    for (i, producers) in flow.producers.iter().enumerate() {
        let Some(group) = groups.of[i].filter(|g| circular.contains(g)) else {
            continue;
        };
        let needed = producers
            .iter()
            .map(|&p| part[p as usize])
            .filter(|&p| p != u32::MAX)
            .max();
        part[i] = match latest.get(&group) {
            Some(&latest) if needed.is_none_or(|needed| needed <= latest) => latest,
            _ => {
                n_parts += 1;
                latest.insert(group, n_parts - 1);
                n_parts - 1
            }
        };
    }
    let key = |i: usize| match part[i] {
        u32::MAX => groups.of[i].map(u64::from),
        part => Some((1 << 32) + u64::from(part)),
    };
    Groups::dense((0..proposed.len()).map(key))
}

/// Where values are read, to find what crosses a group's border.
struct Interface<'g> {
    graph: &'g Graph,
    groups: &'g Groups,
    graph_outputs: HashSet<&'g str>,
    /// Values read by more than their producer's group.
    crossing: HashSet<&'g str>,
}

impl<'g> Interface<'g> {
    fn of(graph: &'g Graph, groups: &'g Groups) -> Self {
        let mut crossing = HashSet::new();
        for id in graph.node_ids() {
            for value in graph.node(id).reads() {
                if let Some(producer) = graph.producer(value)
                    && groups.of[producer.index()] != groups.of[id.index()]
                {
                    crossing.insert(value);
                }
            }
        }
        let graph_outputs = graph.outputs.iter().map(|v| v.name.as_str()).collect();
        Interface {
            graph,
            groups,
            graph_outputs,
            crossing,
        }
    }

    /// Inputs and outputs.
    fn of_nodes(&self, nodes: &[NodeId], group: u32) -> (Vec<String>, Vec<String>) {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let graph = self.graph;
        for node in nodes.iter().map(|&id| graph.node(id)) {
            for value in node.reads().filter(|v| seen.insert(*v)) {
                let is_constant = graph.initializer(value).is_some() || graph.constant(value).is_some();
                let is_own = |producer: NodeId| self.groups.of[producer.index()] == Some(group);
                if !is_constant && !graph.producer(value).is_some_and(is_own) {
                    inputs.push(value.to_string());
                }
            }
            for value in node.outputs.iter().filter(|o| !o.is_empty()) {
                if self.crossing.contains(value.as_str()) || self.graph_outputs.contains(value.as_str()) {
                    outputs.push(value.clone());
                }
            }
        }
        (inputs, outputs)
    }
}
