//! Names that a person recognises: `layers.3.mlp`, `layers.0.input_layernorm`, `lm_head`.
//!
//! Builders name nodes by module path (`/model/layers.3/mlp/down_proj/MatMul_Q4`), so a group's name is the path that
//! its nodes have in common. Where there is no such path, the name is made from the group's place in the structure.

use std::collections::{HashMap, HashSet};

use super::OperatorKind;
use super::regions::{Flow, Regions, Role};
use crate::graph::{Graph, NodeId};

pub(super) struct Names<'g> {
    graph: &'g Graph,
    regions: &'g Regions,
    /// For each node, the most attentions on a path to it.
    attentions_before: Vec<u32>,
    n_attentions: usize,
    /// Producers of some attention's query, key or value.
    feeds_attention: HashSet<NodeId>,
    taken: HashMap<String, u32>,
}

impl<'g> Names<'g> {
    pub(super) fn new(graph: &'g Graph, flow: &Flow, regions: &'g Regions) -> Self {
        let mut before = vec![0u32; graph.nodes.len()];
        let mut n_attentions = 0;
        for (i, producers) in flow.producers.iter().enumerate() {
            let is_attention = |&p: &u32| u32::from(regions.roles[p as usize] == Role::Attention);
            before[i] = producers
                .iter()
                .map(|p| before[*p as usize].saturating_add(is_attention(p)))
                .max()
                .unwrap_or(0);
            n_attentions += usize::from(regions.roles[i] == Role::Attention);
        }
        let attentions = graph
            .node_ids()
            .filter(|id| regions.roles[id.index()] == Role::Attention);
        let sources = attentions.flat_map(|id| graph.node(id).inputs.iter().take(3));
        let feeds_attention = sources.filter_map(|value| graph.producer(value)).collect();
        Names {
            graph,
            regions,
            attentions_before: before,
            n_attentions,
            feeds_attention,
            taken: HashMap::new(),
        }
    }

    /// A unique name, and the layer.
    pub(super) fn of(&mut self, kind: OperatorKind, nodes: &[NodeId]) -> (String, Option<usize>) {
        let path = self.module_path(nodes);
        let named_layer = path.as_deref().and_then(layer_of);
        let layer = match kind {
            OperatorKind::Embedding | OperatorKind::LmHead => None,
            _ => named_layer
                .or_else(|| self.structural_layer(kind, nodes))
                .filter(|&layer| layer < self.n_attentions),
        };
        let name = match (kind, path, layer) {
            (OperatorKind::Embedding, _, _) => "embed_tokens".to_string(),
            (OperatorKind::LmHead, _, _) => "lm_head".to_string(),
            (OperatorKind::GroupQueryAttention, _, Some(layer)) => format!("layers.{layer}.attn"),
            (OperatorKind::Mlp, path, Some(layer)) => match path {
                Some(path) if path.split('.').count() == 3 => path,
                _ => format!("layers.{layer}.mlp"),
            },
            (OperatorKind::MatMulNBits, path, Some(layer)) => match path {
                Some(path) if path.split('.').count() > 3 => path,
                _ if self.feeds_attention(nodes) => format!("layers.{layer}.attn.qkv_proj"),
                Some(path) if path.split('.').count() == 3 && !path.ends_with(".attn") => path,
                _ => format!("layers.{layer}.attn.o_proj"),
            },
            (OperatorKind::Glue, path, None) if named_layer.is_none() => self.glue(path, nodes),
            // A norm after the last layer is numbered like a layer of its own.
            (_, Some(path), None) => match path.strip_prefix("layers.").and_then(|rest| rest.split_once('.'))
            {
                Some((_, rest)) => rest.to_string(),
                None => path,
            },
            (_, Some(path), Some(_)) if path.split('.').count() > 2 => path,
            (kind, _, Some(layer)) => format!("layers.{layer}.{}", kind.name().to_lowercase()),
            (kind, None, None) => kind.name().to_lowercase(),
        };
        (self.unique(name), layer)
    }

    /// `name`, or with a number if an operator has that name already.
    fn unique(&mut self, name: String) -> String {
        let mut n = *self
            .taken
            .entry(name.clone())
            .and_modify(|n| *n += 1)
            .or_insert(1);
        if n == 1 {
            return name;
        }
        loop {
            let candidate = format!("{name}#{n}");
            if !self.taken.contains_key(&candidate) {
                self.taken.insert(candidate.clone(), 1);
                self.taken.insert(name, n);
                return candidate;
            }
            n += 1;
        }
    }

    fn glue(&self, path: Option<String>, nodes: &[NodeId]) -> String {
        match path.as_deref().and_then(|p| p.split('.').next()) {
            Some("attn_mask_reformat") => "attn_mask".to_string(),
            Some("rope_caches_subgraph") => "rope_caches".to_string(),
            Some(other) => other.to_string(),
            None if nodes
                .iter()
                .any(|&id| self.graph.node(id).reads().any(|v| v == "attention_mask")) =>
            {
                "attn_mask".to_string()
            }
            None => "glue".to_string(),
        }
    }

    fn feeds_attention(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().any(|id| self.feeds_attention.contains(id))
    }

    /// What the structure says about the layer: attentions before the group, or for what comes after one, one less.
    fn structural_layer(&self, kind: OperatorKind, nodes: &[NodeId]) -> Option<usize> {
        let before = self.attentions_before[nodes[0].index()] as usize;
        match kind {
            OperatorKind::GroupQueryAttention => Some(before),
            OperatorKind::MatMulNBits if self.feeds_attention(nodes) => Some(before),
            OperatorKind::MatMulNBits | OperatorKind::Mlp | OperatorKind::Norm => before.checked_sub(1),
            _ => None,
        }
    }

    /// What the nodes' names have in common, without `/model/` and the operator: `/model/layers.3/mlp/Mul` and
    /// `/model/layers.3/mlp/down_proj/MatMul_Q4` give `layers.3.mlp`.
    fn module_path(&self, nodes: &[NodeId]) -> Option<String> {
        let mut common: Option<Vec<&str>> = None;
        // Dequantized weights and reshaped tables are often named after something else.
        let of_interest = nodes
            .iter()
            .filter(|id| nodes.len() == 1 || self.regions.roles[id.index()] != Role::Folded);
        for &id in of_interest {
            let name = self.graph.node(id).name.trim_start_matches('/');
            let mut parts: Vec<&str> = name.split('/').collect();
            parts.pop();
            match &mut common {
                None => common = Some(parts),
                Some(common) => {
                    let same = common.iter().zip(&parts).take_while(|(a, b)| a == b).count();
                    common.truncate(same);
                }
            }
        }
        let mut common = common?;
        if common.first() == Some(&"model") {
            common.remove(0);
        }
        let path = common.join(".");
        (!path.is_empty() && path.len() <= 120).then_some(path)
    }
}

/// The layer in a path such as `layers.3.mlp`.
fn layer_of(path: &str) -> Option<usize> {
    let mut parts = path.split('.');
    parts.find(|&part| part == "layers" || part == "h" || part == "blocks")?;
    parts.next()?.parse().ok()
}
