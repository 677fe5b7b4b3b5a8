//! A model at a glance, for people and for JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::dtype::DataType;
use crate::error::Result;
use crate::folder::ModelFolder;
use crate::graph::Node;
use crate::operators::OperatorKind;

/// What a model folder holds. Made from the graph alone: no weight is touched.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Architecture as the builder names it.
    pub architecture: String,
    /// Tool that wrote the graph.
    pub producer: String,
    /// Layers.
    pub layers: usize,
    /// Nodes of the graph.
    pub nodes: usize,
    /// Bytes of all initializers.
    pub weight_bytes: u64,
    /// Operators by type.
    pub kinds: Vec<KindSummary>,
    /// Initializers by element type, most bytes first.
    pub element_types: Vec<TypeSummary>,
    /// Ways in which weights are quantized, most products first.
    pub quantization: Vec<QuantizationSummary>,
    /// Nodes by operator, most first.
    pub node_types: Vec<NodeTypeSummary>,
    /// All operators in topological order.
    pub operators: Vec<OperatorSummary>,
}

/// Operators of one type.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KindSummary {
    /// Operator type.
    pub kind: OperatorKind,
    /// Number of operators.
    pub operators: usize,
    /// Number of nodes in them.
    pub nodes: usize,
    /// Bytes of their constants, as [`Operator::weight_bytes`](crate::Operator::weight_bytes).
    pub weight_bytes: u64,
}

/// Initializers of one element type.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TypeSummary {
    /// Element type.
    pub dtype: DataType,
    /// Number of initializers.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// MatMulNBits nodes of one kind of quantization.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QuantizationSummary {
    /// Bits per weight.
    pub bits: i64,
    /// Weights per scale.
    pub block_size: i64,
    /// Whether blocks have zero points.
    pub zero_points: bool,
    /// ONNX Runtime's accuracy level; 0 when unset.
    pub accuracy_level: i64,
    /// Number of nodes.
    pub products: usize,
}

/// Nodes of one operator.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NodeTypeSummary {
    /// Operator, with its domain unless it is the standard one.
    pub op_type: String,
    /// Number of nodes.
    pub nodes: usize,
}

/// One operator.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct OperatorSummary {
    /// Name.
    pub name: String,
    /// Operator type.
    pub kind: OperatorKind,
    /// Layer.
    pub layer: Option<usize>,
    /// Number of nodes.
    pub nodes: usize,
    /// Bytes of its constants, as [`Operator::weight_bytes`](crate::Operator::weight_bytes).
    pub weight_bytes: u64,
}

impl Serialize for OperatorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for DataType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl ModelFolder {
    /// The model at a glance.
    ///
    /// # Errors
    /// As [`ModelFolder::operators`].
    pub fn summary(&self) -> Result<Summary> {
        let (graph, operators) = (self.graph(), self.operators()?);
        let kinds = OperatorKind::ALL.map(|kind| {
            let of_kind = || operators.iter().filter(move |o| o.kind == kind);
            let (nodes, weight_bytes) = (
                of_kind().map(|o| o.nodes.len()).sum(),
                of_kind().map(|o| o.weight_bytes).sum(),
            );
            KindSummary {
                kind,
                operators: of_kind().count(),
                nodes,
                weight_bytes,
            }
        });
        let mut element_types: BTreeMap<DataType, TypeSummary> = BTreeMap::new();
        for tensor in &graph.initializers {
            let new = TypeSummary {
                dtype: tensor.dtype,
                tensors: 0,
                bytes: 0,
            };
            let entry = element_types.entry(tensor.dtype).or_insert(new);
            entry.tensors += 1;
            entry.bytes = entry.bytes.saturating_add(tensor.byte_len());
        }
        let mut element_types: Vec<_> = element_types.into_values().collect();
        element_types.sort_by_key(|t| std::cmp::Reverse(t.bytes));
        Ok(Summary {
            architecture: self.geometry().architecture.clone(),
            producer: graph.producer.clone(),
            layers: self.geometry().layers,
            nodes: graph.nodes.len(),
            weight_bytes: element_types.iter().map(|t| t.bytes).sum(),
            kinds: kinds.into_iter().filter(|k| k.operators > 0).collect(),
            element_types,
            quantization: quantization(&graph.nodes),
            node_types: node_types(&graph.nodes),
            operators: (operators.iter())
                .map(|o| OperatorSummary {
                    name: o.name.clone(),
                    kind: o.kind,
                    layer: o.layer,
                    nodes: o.nodes.len(),
                    weight_bytes: o.weight_bytes,
                })
                .collect(),
        })
    }
}

/// Counts equal things, most frequent first.
fn counted<T: Ord>(things: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for thing in things {
        *counts.entry(thing).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    counts
}

fn quantization(nodes: &[Node]) -> Vec<QuantizationSummary> {
    let int = |node: &Node, name, default| node.int_opt(name).ok().flatten().unwrap_or(default);
    let kinds = nodes.iter().filter(|n| n.is_contrib("MatMulNBits")).map(|n| {
        (
            int(n, "bits", 4),
            int(n, "block_size", 128),
            n.input(3).is_some(),
            int(n, "accuracy_level", 0),
        )
    });
    let summary = |((bits, block_size, zero_points, accuracy_level), products)| QuantizationSummary {
        bits,
        block_size,
        zero_points,
        accuracy_level,
        products,
    };
    counted(kinds).into_iter().map(summary).collect()
}

fn node_types(nodes: &[Node]) -> Vec<NodeTypeSummary> {
    let name = |node: &Node| match node.domain.as_str() {
        "" => node.op_type.clone(),
        domain => format!("{domain}::{}", node.op_type),
    };
    counted(nodes.iter().map(name))
        .into_iter()
        .map(|(op_type, nodes)| NodeTypeSummary { op_type, nodes })
        .collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            architecture,
            producer,
            layers,
            nodes,
            ..
        } = self;
        writeln!(
            f,
            "{architecture}, {layers} layers, {nodes} nodes, {} of weights, written by {producer}",
            Bytes(self.weight_bytes)
        )?;
        writeln!(
            f,
            "\n{:<22} {:>9} {:>7} {:>10}",
            "operator type", "operators", "nodes", "weights"
        )?;
        for k in &self.kinds {
            writeln!(
                f,
                "{:<22} {:>9} {:>7} {:>10}",
                k.kind.name(),
                k.operators,
                k.nodes,
                Bytes(k.weight_bytes).to_string()
            )?;
        }
        writeln!(f, "\n{:<22} {:>9} {:>18}", "element type", "tensors", "bytes")?;
        for t in &self.element_types {
            writeln!(
                f,
                "{:<22} {:>9} {:>18}",
                t.dtype.name(),
                t.tensors,
                Bytes(t.bytes).to_string()
            )?;
        }
        for q in &self.quantization {
            let zero_points = if q.zero_points {
                "with zero points"
            } else {
                "symmetric"
            };
            let (bits, block, level, n) = (q.bits, q.block_size, q.accuracy_level, q.products);
            writeln!(
                f,
                "\n{n} products of {bits}-bit weights in blocks of {block}, {zero_points}, accuracy level {level}"
            )?;
        }
        Ok(())
    }
}

/// A number of bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 30 => write!(f, "{:.2} GiB", n as f64 / (1u64 << 30) as f64),
            n if n >= 1 << 20 => write!(f, "{:.1} MiB", n as f64 / (1u64 << 20) as f64),
            n if n >= 1 << 10 => write!(f, "{:.1} KiB", n as f64 / (1u64 << 10) as f64),
            n => write!(f, "{n} B"),
        }
    }
}
