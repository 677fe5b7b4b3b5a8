//! Shapes of the values between operators, for one token at the start of a sequence.
//!
//! A kernel is run once before it counts as ready, so its inputs' shapes must be known before any other kernel exists. Builders
//! do not always declare them; this follows the graph once, with one rule per operator, over plain numbers. A value that no rule
//! reaches has no shape here, and the operator that reads it is set up without its warm-up run, which the load report says.

use std::collections::{HashMap, HashSet};

use onnx_model::{DataType, Graph, ModelFolder, Node, ValueInfo, layer_name};

/// Positions of the KV cache that warm-up runs see.
pub(crate) const WARM_CAPACITY: i64 = 8;

/// What kernels are run over to warm them up.
pub(crate) struct WarmShapes {
    /// Concrete shapes by value name.
    shapes: HashMap<String, Vec<i64>>,
    /// Integers that must be one, not zero: the attention mask and the length of the sequence.
    ones: HashSet<String>,
}

/// One input of a warm-up run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WarmInput {
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<i64>,
    /// Every element, zero or one.
    pub(crate) fill: u8,
}

impl WarmShapes {
    pub(crate) fn infer(folder: &ModelFolder) -> Self {
        let graph = folder.graph();
        let mut shapes = Self {
            shapes: graph_inputs(folder),
            ones: HashSet::new(),
        };
        shapes
            .ones
            .insert(folder.config().model.decoder.inputs.attention_mask.clone());
        for node in &graph.nodes {
            if let Some(total_length) = node.input(6).filter(|_| node.is_contrib("GroupQueryAttention")) {
                shapes.ones.insert(total_length.to_string());
            }
            for (position, shape) in infer(node, graph, &shapes).into_iter().enumerate() {
                if let (Some(name), Some(shape)) = (node.output(position), shape) {
                    shapes.shapes.insert(name.to_string(), shape);
                }
            }
        }
        shapes
    }

    /// What a kernel gets for this value in its warm-up run, if its shape is known.
    pub(crate) fn input(&self, value: &ValueInfo) -> Option<WarmInput> {
        let shape = self.shapes.get(&value.name)?.clone();
        Some(WarmInput {
            dtype: value.dtype,
            shape,
            fill: self.ones.contains(&value.name).into(),
        })
    }
}

fn graph_inputs(folder: &ModelFolder) -> HashMap<String, Vec<i64>> {
    let (geometry, inputs) = (folder.geometry(), &folder.config().model.decoder.inputs);
    let mut shapes = HashMap::new();
    for name in [
        Some(&inputs.input_ids),
        Some(&inputs.attention_mask),
        inputs.position_ids.as_ref(),
    ]
    .into_iter()
    .flatten()
    {
        shapes.insert(name.clone(), vec![1, 1]);
    }
    let cache = vec![
        1,
        geometry.kv_heads as i64,
        WARM_CAPACITY,
        geometry.head_dim as i64,
    ];
    for layer in 0..geometry.layers {
        shapes.insert(layer_name(&inputs.past_key_names, layer), cache.clone());
        shapes.insert(layer_name(&inputs.past_value_names, layer), cache.clone());
    }
    shapes
}

/// Shapes of the node's outputs, in order.
fn infer(node: &Node, graph: &Graph, shapes: &WarmShapes) -> Vec<Option<Vec<i64>>> {
    let shape = |position: usize| -> Option<Vec<i64>> {
        let name = node.input(position)?;
        match graph.initializer(name) {
            Some(initializer) => Some(initializer.shape.iter().map(|&d| d as i64).collect()),
            None => shapes.shapes.get(name).cloned(),
        }
    };
    let int = |name: &str, default: i64| node.int_opt(name).ok().flatten().unwrap_or(default);
    let one = |shape: Option<Vec<i64>>| vec![shape];
    match node.op_type.as_str() {
        "Constant" => one(node
            .constant_value()
            .map(|t| t.shape.iter().map(|&d| d as i64).collect())),
        "Cast"
        | "Sigmoid"
        | "Tanh"
        | "Gelu"
        | "FastGelu"
        | "QuickGelu"
        | "Relu"
        | "Neg"
        | "Sqrt"
        | "Identity"
        | "Softmax"
        | "SimplifiedLayerNormalization"
        | "LayerNormalization"
        | "RMSNormalization"
        | "DequantizeLinear"
        | "RotaryEmbedding" => one(shape(0)),
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Greater" | "Less" | "Equal" | "LessOrEqual"
        | "GreaterOrEqual" | "And" | "Or" | "Max" | "Min" => {
            one(shape(0).zip(shape(1)).and_then(|(a, b)| broadcast(&a, &b)))
        }
        "Where" => one(shape(1).zip(shape(2)).and_then(|(a, b)| broadcast(&a, &b))),
        "SkipSimplifiedLayerNormalization" | "SkipLayerNormalization" => vec![shape(0), None, None, shape(0)],
        "MatMulNBits" => one(shape(0).and_then(|s| with_last(s, int("N", 0)))),
        "MatMul" => one(shape(0).zip(shape(1)).and_then(|(a, b)| with_last(a, *b.last()?))),
        "Gather" => one(shape(0)
            .zip(shape(1))
            .and_then(|(data, indices)| gather(&data, &indices, int("axis", 0)))),
        "GatherBlockQuantized" => one(shape(0).zip(shape(1)).and_then(|(mut data, indices)| {
            // Packed elements: a uint8 holds 8 / bits of them.
            let packed = graph
                .initializer(node.input(0)?)
                .map(|t| t.dtype)
                .or_else(|| reshaped_dtype(node.input(0)?, graph));
            if packed == Some(DataType::Uint8) {
                *data.last_mut()? *= 8 / int("bits", 4).max(1);
            }
            gather(&data, &indices, int("gather_axis", 0))
        })),
        "Reshape" => one(shape(0).and_then(|from| {
            let name = node.input(1)?;
            let to = graph.constant(name)?.to_i64().ok()?;
            reshape(&from, &to)
        })),
        "Split" => {
            let axis = int("axis", 0);
            let sizes = node.input(1).and_then(|name| graph.constant(name)?.to_i64().ok());
            match (shape(0), sizes) {
                (Some(from), Some(sizes)) => sizes
                    .iter()
                    .map(|&size| with_axis(from.clone(), axis, size))
                    .collect(),
                _ => Vec::new(),
            }
        }
        "Transpose" => one(shape(0).and_then(|from| {
            let reversed = || (0..from.len() as i64).rev().collect();
            let order: Vec<i64> = node.ints_opt("perm").ok()?.map_or_else(reversed, <[i64]>::to_vec);
            order
                .iter()
                .map(|&axis| from.get(usize::try_from(axis).ok()?).copied())
                .collect()
        })),
        // Either branch gives a table of the same width; how many rows it has does not matter to a run over zeros.
        "If" => {
            let outputs = node
                .graph("then_branch")
                .map(|branch| branch.outputs.iter().map(|o| branch_output(branch, &o.name)));
            outputs.map(Iterator::collect).unwrap_or_default()
        }
        "Shape" => one(shape(0).map(|s| vec![s.len() as i64])),
        "ReduceSum" => one(shape(0).map(|s| {
            let keep = int("keepdims", 1) != 0;
            // Builders reduce the attention mask over its last axis.
            if keep {
                with_last(s, 1).unwrap_or_default()
            } else {
                s[..s.len().saturating_sub(1)].to_vec()
            }
        })),
        "Unsqueeze" => one(shape(0).map(|mut s| {
            s.insert(0, 1);
            s
        })),
        "GroupQueryAttention" => one(attention(node, shape(0), shape(3))),
        _ => Vec::new(),
    }
}

/// Shape of a constant that a branch gives, under its own name or through an `Identity`.
fn branch_output(branch: &Graph, name: &str) -> Option<Vec<i64>> {
    let shape = |name: &str| -> Option<Vec<u64>> {
        let initializer = branch.initializer(name).map(|t| t.shape.clone());
        initializer.or_else(|| branch.constant(name).map(|t| t.shape.clone()))
    };
    let through = || {
        let producer = branch.node(branch.producer(name)?);
        shape(producer.input(0).filter(|_| producer.is("Identity"))?)
    };
    Some(shape(name).or_else(through)?.iter().map(|&d| d as i64).collect())
}

fn reshaped_dtype(name: &str, graph: &Graph) -> Option<DataType> {
    let producer = graph.node(graph.producer(name)?);
    producer
        .is("Reshape")
        .then(|| graph.initializer(producer.input(0)?).map(|t| t.dtype))?
}

fn attention(node: &Node, query: Option<Vec<i64>>, past: Option<Vec<i64>>) -> Option<Vec<i64>> {
    let head_dim = past?.last().copied()?;
    with_last(query?, node.int("num_heads").ok()? * head_dim)
}

fn broadcast(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let n = a.len().max(b.len());
    let dim = |s: &[i64], i: usize| (i + s.len()).checked_sub(n).map_or(1, |i| s[i]);
    (0..n)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

fn gather(data: &[i64], indices: &[i64], axis: i64) -> Option<Vec<i64>> {
    let axis = usize::try_from(axis).ok().filter(|&axis| axis < data.len())?;
    Some([&data[..axis], indices, &data[axis + 1..]].concat())
}

fn reshape(from: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    let mut shape = to.to_vec();
    for (i, d) in shape.iter_mut().enumerate().filter(|(_, d)| **d == 0) {
        *d = *from.get(i)?;
    }
    let known: i64 = shape.iter().filter(|&&d| d != -1).product();
    let total: i64 = from.iter().product();
    if let Some(d) = shape.iter_mut().find(|d| **d == -1) {
        *d = total.checked_div(known)?;
    }
    (shape.iter().product::<i64>() == total).then_some(shape)
}

fn with_last(shape: Vec<i64>, size: i64) -> Option<Vec<i64>> {
    with_axis(shape, -1, size)
}

fn with_axis(mut shape: Vec<i64>, axis: i64, size: i64) -> Option<Vec<i64>> {
    let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
    *shape.get_mut(usize::try_from(axis).ok()?)? = size;
    Some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_over_numbers() {
        assert_eq!(broadcast(&[1, 1, 8], &[8]), Some(vec![1, 1, 8]));
        assert_eq!(broadcast(&[2, 3], &[4]), None);
        assert_eq!(gather(&[100, 16], &[1, 5], 0), Some(vec![1, 5, 16]));
        assert_eq!(gather(&[100], &[], 0), Some(vec![]));
        assert_eq!(reshape(&[1, 1, 256], &[0, -1, 32]), Some(vec![1, 8, 32]));
        assert_eq!(reshape(&[1, 1, 255], &[0, -1, 32]), None);
        assert_eq!(with_axis(vec![1, 2, 3], -1, 9), Some(vec![1, 2, 9]));
        assert_eq!(with_axis(vec![], -1, 9), None);
    }
}
