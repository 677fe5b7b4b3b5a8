//! The graph as operators: the units that have their own kernel on a device.
//!
//! How nodes become operators is described in `regions`; that the result is a partition without cycles, in `partition`; what
//! shared constants count for, in `bytes`.

mod bytes;
mod names;
mod partition;
mod regions;

pub(crate) use partition::group;

use crate::error::Result;
use crate::graph::{Graph, NodeId};

impl Graph {
    /// Takes the graph apart into operators; see [`ModelFolder::operators`](crate::ModelFolder::operators), which
    /// keeps the result.
    ///
    /// # Errors
    /// The graph cannot be taken apart into operators.
    pub fn operators(&self) -> Result<Vec<Operator>> {
        group(self)
    }
}

/// Index of an operator in [`ModelFolder::operators`](crate::ModelFolder::operators).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId(pub(crate) u32);

impl OperatorId {
    /// The index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operator: a group of nodes that is set up and run as one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operator {
    /// Index among the model's operators.
    pub id: OperatorId,
    /// Unique name, such as `layers.3.mlp` or `lm_head`.
    pub name: String,
    /// Operator type.
    pub kind: OperatorKind,
    /// Layer, for operators of a layer.
    pub layer: Option<usize>,
    /// Nodes in topological order; never empty, never a `Constant`.
    pub nodes: Vec<NodeId>,
    /// Values from outside that the nodes read: graph inputs and outputs of operators before this one.
    /// Constants are not among them.
    pub inputs: Vec<String>,
    /// Values that other operators read or that are graph outputs.
    pub outputs: Vec<String>,
    /// Bytes of the constants that the nodes read or have in their attributes. A constant that several operators read, such as
    /// rotary tables or tied embeddings, counts for the first of them, so that the sum over all operators is what the model takes.
    /// [`Graph::weight_bytes_in_order`] counts for another order.
    pub weight_bytes: u64,
}

/// Operator types: families of operators that share a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperatorKind {
    /// Token ids to vectors, with the scaling some models apply.
    Embedding,
    /// Normalizations, with the residual addition where the graph fuses it.
    Norm,
    /// A matrix product with constant weights (quantized, dequantized or plain), with bias; before attention also the split into query, key and value and their norms.
    MatMulNBits,
    /// Attention with its KV cache.
    GroupQueryAttention,
    /// Gate, up, activation and down.
    Mlp,
    /// The last product, to logits, with soft capping.
    LmHead,
    /// What is in between: the attention mask to sequence lengths, choice of rotary tables, and anything unknown.
    Glue,
}

impl OperatorKind {
    /// All kinds.
    pub const ALL: [OperatorKind; 7] = [
        OperatorKind::Embedding,
        OperatorKind::Norm,
        OperatorKind::MatMulNBits,
        OperatorKind::GroupQueryAttention,
        OperatorKind::Mlp,
        OperatorKind::LmHead,
        OperatorKind::Glue,
    ];

    /// The operator type's name.
    pub fn name(self) -> &'static str {
        match self {
            OperatorKind::Embedding => "Embedding",
            OperatorKind::Norm => "Norm",
            OperatorKind::MatMulNBits => "MatMulNBits",
            OperatorKind::GroupQueryAttention => "GroupQueryAttention",
            OperatorKind::Mlp => "Mlp",
            OperatorKind::LmHead => "LmHead",
            OperatorKind::Glue => "Glue",
        }
    }
}

impl std::fmt::Display for OperatorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
