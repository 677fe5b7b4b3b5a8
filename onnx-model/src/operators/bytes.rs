//! How many bytes operators take, with constants that several of them read.

use std::collections::HashSet;

use crate::graph::{Graph, NodeId};

impl Graph {
    /// Bytes of the constants that each group of nodes reads or has in its attributes. A constant that several groups read counts
    /// for the first of them, in the order given; so the sum is what all take together, if no node is in two groups.
    pub fn weight_bytes_in_order(&self, groups: impl IntoIterator<Item: AsRef<[NodeId]>>) -> Vec<u64> {
        let mut counted = HashSet::new();
        let mut of_node = |&id: &NodeId| {
            let node = self.node(id);
            let constants = node.reads().filter_map(|value| {
                let bytes = self.constant_bytes(value)?;
                counted.insert(value).then_some(bytes)
            });
            constants.fold(node.embedded_bytes(), u64::saturating_add)
        };
        let mut of_nodes = |nodes: &[NodeId]| nodes.iter().map(&mut of_node).fold(0, u64::saturating_add);
        groups.into_iter().map(|group| of_nodes(group.as_ref())).collect()
    }

    fn constant_bytes(&self, value: &str) -> Option<u64> {
        let initializer = self.initializer(value).map(|initializer| initializer.byte_len());
        initializer.or_else(|| Some(self.constant(value)?.bytes.len() as u64))
    }
}
