//! Which nodes belong together: a decoder is cut at its attention and norm nodes, and what remains between two cuts is one operator.
//!
//! ```text
//!  attention_mask -> [Glue: attn_mask] ----------------+
//!                                                       v
//!  input_ids -> [Embedding] -> |Norm| -> [qkv_proj] -> |Attention| -> [o_proj] -> |Norm| -> [Mlp] -> |Norm| -> .. -> [LmHead]
//!                     +---------------------- residual sum ----------------------->+
//! ```
//!
//! - *Cuts* are attention nodes, norms, and additions of two computed values that lie between norms (the residual
//!   sum, where no norm node does it). Norms that follow each other without anything in between are one operator.
//! - A norm between a projection and its attention (q and k norm) is no cut.
//! - Nodes connected by a value, and not separated by a cut, are one region. Regions whose results meet in the same
//!   attention (separate q, k and v projections) are one.
//! - What does not depend on the tokens' vectors (mask, positions) is glue, also where it is connected to a region.
//!
//! The result is only a proposal: [`partition`](super::partition) splits what would make operators depend on each other in a circle.

use std::collections::HashMap;

use super::OperatorKind;
use crate::graph::{Graph, Node, NodeId};

/// The proposal: nodes with the same `group` belong together.
pub(super) struct Regions {
    /// Group of each node; `None` for `Constant` nodes.
    pub(super) group: Vec<Option<u32>>,
    /// Kind of each group.
    pub(super) kinds: HashMap<u32, OperatorKind>,
    /// Role of each node, by which split groups are told apart.
    pub(super) roles: Vec<Role>,
}

/// What a node is for the structure of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A `Constant`, part of whatever reads it.
    Constant,
    /// Attention.
    Attention,
    /// A norm or residual sum between regions.
    Norm,
    /// Looks up token vectors.
    Lookup,
    /// A matrix product with a constant.
    Product,
    /// Computed from constants only, such as dequantized weights.
    Folded,
    /// Chooses between graphs.
    Branch,
    /// Anything else that depends on token vectors.
    Stream,
    /// Anything else.
    Side,
}

impl Role {
    pub(super) fn is_cut(self) -> bool {
        matches!(self, Role::Attention | Role::Norm)
    }
}

fn is_attention(node: &Node) -> bool {
    matches!(
        node.op_type.as_str(),
        "GroupQueryAttention"
            | "MultiHeadAttention"
            | "Attention"
            | "PagedAttention"
            | "SparseAttention"
            | "DecoderMaskedMultiHeadAttention"
    )
}

fn is_norm(node: &Node) -> bool {
    matches!(
        node.op_type.as_str(),
        "SimplifiedLayerNormalization"
            | "SkipSimplifiedLayerNormalization"
            | "LayerNormalization"
            | "SkipLayerNormalization"
            | "RMSNormalization"
    )
}

fn is_lookup(node: &Node) -> bool {
    matches!(node.op_type.as_str(), "Gather" | "GatherBlockQuantized")
}

/// Products of a computed value and a constant; whether there is a constant is seen from the inputs.
fn is_product(node: &Node) -> bool {
    matches!(
        node.op_type.as_str(),
        "MatMul"
            | "Gemm"
            | "MatMulNBits"
            | "MatMulBnb4"
            | "FusedMatMul"
            | "MatMulInteger"
            | "DynamicQuantizeMatMul"
            | "MoE"
            | "QMoE"
    )
}

/// Producers and readers of each node, without `Constant` nodes.
pub(super) struct Flow {
    pub(super) producers: Vec<Vec<u32>>,
    pub(super) readers: Vec<Vec<u32>>,
}

impl Flow {
    pub(super) fn of(graph: &Graph) -> Self {
        let n = graph.nodes.len();
        let (mut producers, mut readers) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        let mut last_reader = vec![u32::MAX; n];
        for id in graph.node_ids() {
            for producer in graph.node(id).reads().filter_map(|value| graph.producer(value)) {
                // Once per reader, although it may read several values of one producer.
                if !graph.node(producer).is("Constant") && last_reader[producer.index()] != id.0 {
                    last_reader[producer.index()] = id.0;
                    producers[id.index()].push(producer.0);
                    readers[producer.index()].push(id.0);
                }
            }
        }
        Flow { producers, readers }
    }
}

impl Regions {
    pub(super) fn of(graph: &Graph, flow: &Flow) -> Self {
        let mut roles = roles(graph, flow);
        inner_norms(graph, flow, &mut roles);
        residual_sums(graph, flow, &mut roles);
        let mut sets = Sets::new(graph.nodes.len());
        join_connected(flow, &roles, &mut sets);
        join_norms(flow, &roles, &mut sets);
        join_projections(graph, &roles, &mut sets);
        join_side(graph, &roles, &mut sets);
        absorb_leftovers(graph, flow, &roles, &mut sets);
        let group = graph
            .node_ids()
            .map(|id| (roles[id.index()] != Role::Constant).then(|| sets.find(id.0)))
            .collect::<Vec<_>>();
        let kinds = kinds(graph, flow, &roles, &group);
        Regions { group, kinds, roles }
    }
}

fn roles(graph: &Graph, flow: &Flow) -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::with_capacity(graph.nodes.len());
    // Whether the node's result depends on a graph input at all.
    let mut computed = vec![false; graph.nodes.len()];
    // Positions are looked up too, in rotary tables.
    let named_ids = graph.inputs.iter().any(|v| v.name.contains("input_ids"));
    let reads_tokens = |value: &str| graph.is_input(value) && (!named_ids || value.contains("input_ids"));
    for id in graph.node_ids() {
        let (node, i) = (graph.node(id), id.index());
        let is_computed =
            |value: &str| graph.is_input(value) || graph.producer(value).is_some_and(|p| computed[p.index()]);
        let any_computed = node.reads().any(is_computed);
        let constant_table = node.input(0).is_some_and(|v| !is_computed(v));
        let after_stream = || {
            flow.producers[i].iter().any(|&p| {
                matches!(
                    roles[p as usize],
                    Role::Attention | Role::Norm | Role::Lookup | Role::Product | Role::Stream
                )
            })
        };
        let role = if node.is("Constant") {
            Role::Constant
        } else if is_attention(node) {
            Role::Attention
        } else if !any_computed {
            Role::Folded
        } else if is_lookup(node) && constant_table && node.input(1).is_some_and(&reads_tokens) {
            Role::Lookup
        } else if is_norm(node) {
            Role::Norm
        } else if is_product(node)
            && (1..node.inputs.len()).any(|k| node.input(k).is_some_and(|v| !is_computed(v)))
        {
            Role::Product
        } else if after_stream() {
            Role::Stream
        } else if !graph_attributes(node) {
            Role::Side
        } else {
            Role::Branch
        };
        computed[i] = any_computed;
        roles.push(role);
    }
    roles
}

fn graph_attributes(node: &Node) -> bool {
    node.attributes
        .iter()
        .any(|a| matches!(a.value, crate::AttributeValue::Graph(_)))
}

/// Norms that lie between a projection and attention are part of the projection.
fn inner_norms(graph: &Graph, flow: &Flow, roles: &mut [Role]) {
    // Nodes from which an attention's query, key or value is reached without passing a projection.
    let mut before = vec![false; graph.nodes.len()];
    let mut stack: Vec<NodeId> = Vec::new();
    for id in graph.node_ids().filter(|id| roles[id.index()] == Role::Attention) {
        stack.extend((0..3).filter_map(|k| graph.producer(graph.node(id).input(k)?)));
    }
    while let Some(id) = stack.pop() {
        let role = roles[id.index()];
        if before[id.index()] || !matches!(role, Role::Norm | Role::Stream) {
            continue;
        }
        before[id.index()] = true;
        stack.extend(flow.producers[id.index()].iter().map(|&p| NodeId(p)));
    }
    // Backwards, so that a norm's readers are decided before it.
    for i in (0..roles.len()).rev() {
        if !before[i] {
            continue;
        }
        let leads_only_to_attention = flow.readers[i].iter().all(|&r| {
            roles[r as usize] == Role::Attention || (before[r as usize] && roles[r as usize] != Role::Norm)
        });
        // A norm that reads the residual stream directly is the layer's own norm, though it may feed attention only.
        let after_projection = flow.producers[i].iter().any(|&p| {
            roles[p as usize] == Role::Product || (before[p as usize] && roles[p as usize] == Role::Stream)
        });
        if roles[i] == Role::Norm && leads_only_to_attention && after_projection {
            roles[i] = Role::Stream;
        }
        before[i] &= leads_only_to_attention;
    }
}

/// Additions of two computed values whose sum goes on to a norm or to the next such addition.
fn residual_sums(graph: &Graph, flow: &Flow, roles: &mut [Role]) {
    for i in (0..roles.len()).rev() {
        let node = &graph.nodes[i];
        let two_values = flow.producers[i]
            .iter()
            .filter(|&&p| roles[p as usize] != Role::Folded)
            .count()
            == 2;
        if node.is("Add")
            && roles[i] == Role::Stream
            && two_values
            && flow.readers[i].iter().any(|&r| roles[r as usize] == Role::Norm)
        {
            roles[i] = Role::Norm;
        }
    }
}

/// Nodes that a value connects are one region, unless one of them is a cut.
fn join_connected(flow: &Flow, roles: &[Role], sets: &mut Sets) {
    let side = |role| matches!(role, Role::Side | Role::Branch);
    for (i, producers) in flow.producers.iter().enumerate() {
        for &p in producers {
            let (from, to) = (roles[p as usize], roles[i]);
            let joined = match from {
                // Dequantized weights, reshaped tables: with the first node that uses them, cut or not.
                Role::Folded => flow.readers[p as usize][0] == i as u32,
                _ if from.is_cut() || to.is_cut() => false,
                _ => side(from) == side(to) && from != Role::Branch && to != Role::Branch,
            };
            if joined {
                sets.join(p, i as u32);
            }
        }
    }
}

/// A norm that directly follows a norm is one operator with it, and a residual sum goes with the norm that reads it,
/// although the next sum reads it too. One reader at most: the residual stream connects all norms of a model.
fn join_norms(flow: &Flow, roles: &[Role], sets: &mut Sets) {
    for (i, readers) in flow
        .readers
        .iter()
        .enumerate()
        .filter(|&(i, _)| roles[i] == Role::Norm)
    {
        let is_norm = |r: u32| roles[r as usize] == Role::Norm;
        let only_norms = readers.iter().all(|&r| is_norm(r));
        let is_sum = flow.producers[i].len() == 2;
        let next = match readers.first() {
            Some(&first) if only_norms => Some(first),
            _ if is_sum => readers
                .iter()
                .copied()
                .find(|&r| is_norm(r) && flow.producers[r as usize].len() == 1),
            _ => None,
        };
        if let Some(next) = next {
            sets.join(i as u32, next);
        }
    }
}

/// Projections whose results meet in one attention are one operator.
fn join_projections(graph: &Graph, roles: &[Role], sets: &mut Sets) {
    for id in graph.node_ids().filter(|id| roles[id.index()] == Role::Attention) {
        let sources = (0..3).filter_map(|k| graph.producer(graph.node(id).input(k)?));
        let sources: Vec<u32> = sources
            .map(|p| p.0)
            .filter(|&p| matches!(roles[p as usize], Role::Product | Role::Stream))
            .collect();
        for pair in sources.windows(2) {
            sets.join(pair[0], pair[1]);
        }
    }
}

/// All glue is one operator, except what chooses between graphs, which may hold large tables.
fn join_side(graph: &Graph, roles: &[Role], sets: &mut Sets) {
    let mut first = None;
    for id in graph.node_ids().filter(|id| roles[id.index()] == Role::Side) {
        match first {
            None => first = Some(id.0),
            Some(first) => sets.join(first, id.0),
        }
    }
}

/// A region without a product or lookup (casts, reshapes between cuts) goes with the norm before it.
fn absorb_leftovers(graph: &Graph, flow: &Flow, roles: &[Role], sets: &mut Sets) {
    let mut own_work = vec![false; graph.nodes.len()];
    for id in graph.node_ids().filter(|id| roles[id.index()] != Role::Stream) {
        own_work[sets.find(id.0) as usize] = true;
    }
    for i in 0..roles.len() {
        if roles[i] == Role::Stream
            && !own_work[sets.find(i as u32) as usize]
            && let Some(&norm) = flow.producers[i]
                .iter()
                .find(|&&p| roles[p as usize] == Role::Norm)
        {
            sets.join(norm, i as u32);
            own_work[sets.find(i as u32) as usize] = true;
        }
    }
}

fn kinds(graph: &Graph, flow: &Flow, roles: &[Role], group: &[Option<u32>]) -> HashMap<u32, OperatorKind> {
    #[derive(Default)]
    struct Seen {
        attention: bool,
        lookup: bool,
        norm: bool,
        products: u32,
        activation: bool,
        feeds_attention: bool,
        logits: bool,
    }
    let outputs: std::collections::HashSet<&str> = graph.outputs.iter().map(|v| v.name.as_str()).collect();
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    for (i, group) in group.iter().enumerate() {
        let Some(group) = group else { continue };
        let (node, seen) = (&graph.nodes[i], seen.entry(*group).or_default());
        match roles[i] {
            Role::Attention => seen.attention = true,
            Role::Lookup => seen.lookup = true,
            Role::Norm => seen.norm = true,
            Role::Product => seen.products += 1,
            _ => {}
        }
        let stream = matches!(roles[i], Role::Product | Role::Stream);
        seen.activation |= roles[i] == Role::Stream && is_activation(node);
        seen.feeds_attention |= stream
            && flow.readers[i]
                .iter()
                .any(|&r| roles[r as usize] == Role::Attention);
        seen.logits |= stream && node.outputs.iter().any(|o| outputs.contains(o.as_str()));
    }
    let kind = |s: Seen| match s {
        Seen { attention: true, .. } => OperatorKind::GroupQueryAttention,
        Seen { lookup: true, .. } => OperatorKind::Embedding,
        Seen {
            products: 1..,
            logits: true,
            ..
        } => OperatorKind::LmHead,
        Seen {
            products: 1..,
            feeds_attention: true,
            ..
        } => OperatorKind::MatMulNBits,
        Seen {
            products: 2..,
            activation: true,
            ..
        } => OperatorKind::Mlp,
        Seen { products: 1.., .. } => OperatorKind::MatMulNBits,
        Seen { norm: true, .. } => OperatorKind::Norm,
        _ => OperatorKind::Glue,
    };
    seen.into_iter()
        .map(|(group, seen)| (group, kind(seen)))
        .collect()
}

fn is_activation(node: &Node) -> bool {
    matches!(
        node.op_type.as_str(),
        "Sigmoid"
            | "Gelu"
            | "FastGelu"
            | "QuickGelu"
            | "BiasGelu"
            | "Relu"
            | "Silu"
            | "Swish"
            | "Tanh"
            | "Erf"
            | "Elu"
            | "LeakyRelu"
            | "HardSwish"
            | "Mish"
            | "Softplus"
            | "Mul"
            | "Pow"
    )
}

/// Disjoint sets of nodes.
pub(super) struct Sets(Vec<u32>);

impl Sets {
    pub(super) fn new(n: usize) -> Self {
        Sets((0..n as u32).collect())
    }

    /// The set's representative: its smallest member.
    pub(super) fn find(&mut self, i: u32) -> u32 {
        let mut root = i;
        while self.0[root as usize] != root {
            root = self.0[root as usize];
        }
        let mut at = i;
        while self.0[at as usize] != root {
            at = std::mem::replace(&mut self.0[at as usize], root);
        }
        root
    }

    pub(super) fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}
