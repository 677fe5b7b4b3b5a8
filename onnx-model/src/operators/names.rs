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
        // Norms that follow each other are called after the first.
        let named = match nodes
            .iter()
            .find(|id| self.regions.roles[id.index()] == Role::Norm)
        {
            Some(norm) if kind == OperatorKind::Norm => std::slice::from_ref(norm),
            _ => nodes,
        };
        let (named_layer, module) = split_layer(self.module_path(named));
        let layer = match kind {
            OperatorKind::Embedding | OperatorKind::LmHead => None,
            // A norm after the last layer is numbered like a layer of its own.
            _ => named_layer
                .or_else(|| self.structural_layer(kind, nodes))
                .filter(|&n| n < self.n_attentions),
        };
        let module = self.module(kind, module, nodes);
        let name = match layer {
            Some(layer) => format!("layers.{layer}.{module}"),
            None => module,
        };
        (self.unique(name), layer)
    }

    /// The name inside the layer: the path that the nodes have in common if it says enough, else what such an
    /// operator is usually called.
    fn module(&self, kind: OperatorKind, path: Option<String>, nodes: &[NodeId]) -> String {
        let usual = match kind {
            OperatorKind::Embedding => return "embed_tokens".into(),
            OperatorKind::LmHead => return "lm_head".into(),
            OperatorKind::GroupQueryAttention => return "attn".into(),
            OperatorKind::Glue => return self.glue(path, nodes),
            OperatorKind::Norm => "norm",
            OperatorKind::Mlp => "mlp",
            OperatorKind::MatMulNBits if nodes.iter().any(|id| self.feeds_attention.contains(id)) => {
                "attn.qkv_proj"
            }
            OperatorKind::MatMulNBits => "attn.o_proj",
        };
        // All of "attn" is not what one of its projections is called.
        path.filter(|path| path != "attn" && path != "self_attn")
            .unwrap_or_else(|| usual.into())
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

    /// What the structure says about the layer: attentions before the group, or for what comes after one, one less.
    fn structural_layer(&self, kind: OperatorKind, nodes: &[NodeId]) -> Option<usize> {
        let before = self.attentions_before[nodes[0].index()] as usize;
        match kind {
            OperatorKind::GroupQueryAttention => Some(before),
            OperatorKind::MatMulNBits if nodes.iter().any(|id| self.feeds_attention.contains(id)) => {
                Some(before)
            }
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

/// `layers.3.mlp` as layer 3 and `mlp`.
fn split_layer(path: Option<String>) -> (Option<usize>, Option<String>) {
    let Some(path) = path else { return (None, None) };
    let parts: Vec<&str> = path.split('.').collect();
    let at = parts
        .iter()
        .position(|&part| matches!(part, "layers" | "h" | "blocks"));
    let layer = at.and_then(|at| Some((at, parts.get(at + 1)?.parse().ok()?)));
    match layer {
        None => (None, Some(path)),
        Some((at, layer)) => {
            let rest = parts[at + 2..].join(".");
            (Some(layer), (!rest.is_empty()).then_some(rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split_layer;

    #[track_caller]
    fn check(path: &str, layer: Option<usize>, rest: Option<&str>) {
        assert_eq!(split_layer(Some(path.into())), (layer, rest.map(String::from)));
    }

    #[test]
    fn layers_are_split_off() {
        check("layers.3.mlp.down_proj", Some(3), Some("mlp.down_proj"));
        check("transformer.h.0.attn", Some(0), Some("attn"));
        check("layers.12", Some(12), None);
        check("layers.x.mlp", None, Some("layers.x.mlp"));
        check("layers", None, Some("layers"));
        check("final_norm", None, Some("final_norm"));
    }
}
