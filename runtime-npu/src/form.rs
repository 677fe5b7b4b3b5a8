//! The graph that a kernel is created over: the operator's own, or a form of it that the execution provider takes.

use onnx_model::proto::{
    DimensionProto, DimensionValue, GraphProto, TensorProto, TensorShapeProto, ValueInfoProto,
};
use onnx_model::write::SubmodelOptions;
use onnx_model::{DataType, ModelFolder, Node, Operator, OperatorData, Tensor};

use crate::dequantize::{Matrix, weight_matrix};
use crate::draft::{Draft, clear_shape};
use crate::error::{NpuError, Result};
use crate::joint::Joint;
use crate::kernel::{KernelSource, Rewriting, Rows, Weight};
use crate::quick_gelu;
use crate::shapes::{WarmInput, WarmShapes};

/// Which form of the operator's graph the provider gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphForm {
    /// As the model has it.
    Native,
    /// Reshapes of constants done here, so that they are neither repeated in every run nor kept as a second copy.
    FoldedReshapes,
    /// Weights as float32, products as MatMul, and so many positions at once: what NPU compilers take.
    Dequantized { rows: usize },
}

/// The graph of an operator with its weights beside it.
pub(crate) fn kernel_source(
    data: &OperatorData,
    form: GraphForm,
    options: &SubmodelOptions,
    warm_shapes: &WarmShapes,
) -> Result<KernelSource> {
    Ok(draft(data, form, options, warm_shapes)?.finish())
}

/// One graph of several operators as the model has them, the one that gives it its name last.
pub(crate) fn joint_kernel_source(
    parts: &[OperatorData],
    joint: &Joint,
    options: &SubmodelOptions,
    warm_shapes: &WarmShapes,
) -> Result<KernelSource> {
    let drafts = parts
        .iter()
        .map(|data| draft(data, GraphForm::Native, options, warm_shapes));
    let drafts = drafts.collect::<Result<Vec<_>>>()?;
    Ok(Draft::join(drafts, &joint.inputs, &joint.outputs).finish())
}

fn draft(
    data: &OperatorData,
    form: GraphForm,
    options: &SubmodelOptions,
    warm_shapes: &WarmShapes,
) -> Result<Draft> {
    let mut draft = Draft::of(data, options, warm_shapes)?;
    draft.rewriting = rewriting(data, form, &draft.weights);
    match form {
        GraphForm::Native => {}
        GraphForm::FoldedReshapes => fold_reshapes(&mut draft, data)?,
        GraphForm::Dequantized { rows } => dequantize(&mut draft, data, rows)?,
    }
    // Otherwise the optimizer does it.
    if draft.rewriting == Rewriting::None && is_float32(data) {
        quick_gelu::fuse(&mut draft.model);
    }
    Ok(draft)
}

fn rewriting(data: &OperatorData, form: GraphForm, weights: &[Weight]) -> Rewriting {
    let nodes = data.nodes();
    let folded_here = |node: &Node| form == GraphForm::FoldedReshapes && node.is("Reshape");
    let half = |weight: &Weight| {
        matches!(weight.dtype, DataType::Float16 | DataType::BFloat16) && weight.shape.len() > 1
    };
    let is_constant = |name: &str| data.tensor(name).is_some();
    if nodes.iter().any(|node| node.is("DequantizeLinear")) {
        Rewriting::Fusion
    } else if nodes
        .iter()
        .any(|node| over_constants(node, is_constant) && !folded_here(node))
        || (!nodes.iter().any(is_quantized)
            && nodes.iter().any(|node| node.is("MatMul"))
            && weights.iter().any(half))
    {
        Rewriting::Folding
    } else {
        Rewriting::None
    }
}

/// Whether the operator's graph, as the model has it, is efficient as it is.
pub(crate) fn is_efficient(folder: &ModelFolder, operator: &Operator) -> bool {
    let graph = folder.graph();
    let is_constant = |name: &str| graph.initializer(name).is_some() || graph.constant(name).is_some();
    let mut nodes = operator.nodes.iter().map(|&id| graph.node(id));
    nodes.all(|node| !node.is("DequantizeLinear") && !node.is("MatMul") && !over_constants(node, is_constant))
}

fn over_constants(node: &Node, is_constant: impl Fn(&str) -> bool) -> bool {
    let mut reads = node.reads().peekable();
    reads.peek().is_some() && reads.all(is_constant)
}

fn is_quantized(node: &Node) -> bool {
    node.is_contrib("MatMulNBits") || node.is_contrib("GatherBlockQuantized")
}

fn is_float32(data: &OperatorData) -> bool {
    data.inputs()
        .iter()
        .chain(data.outputs())
        .all(|value| value.dtype == DataType::Float32)
}

/// Whether an NPU takes the operator in its dequantized form: products and what is between them, over one value.
pub(crate) fn is_dequantizable(data: &OperatorData) -> bool {
    let taken = |node: &Node| {
        node.is_contrib("MatMulNBits")
            || ["MatMul", "Add", "Mul", "Sigmoid"]
                .iter()
                .any(|op_type| node.is(op_type))
    };
    data.inputs().len() == 1
        && data.outputs().len() == 1
        && is_float32(data)
        && data.nodes().iter().all(taken)
}

/// Writes MatMulNBits as MatMul over dequantized weights, with `rows` positions in every shape.
fn dequantize(draft: &mut Draft, data: &OperatorData, rows: usize) -> Result<()> {
    let graph = draft.graph();
    for (node, proto) in data
        .nodes()
        .iter()
        .zip(&mut graph.node)
        .filter(|(node, _)| node.is_contrib("MatMulNBits"))
    {
        let Matrix { k, n, elements } = weight_matrix(node, data)?;
        let name = format!("{}.dequantized", node.input(1).unwrap_or_default());
        let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
        let shape = vec![k as i64, n as i64];
        graph.initializer.push(TensorProto {
            name: Some(name.clone()),
            data_type: Some(DataType::Float32.onnx()),
            dims: shape.clone(),
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        });
        // A bias is the sixth input.
        proto.input = vec![node.input(0).unwrap_or_default().to_string(), name];
        (proto.op_type, proto.domain, proto.attribute) =
            (Some("MatMul".into()), Some(String::new()), Vec::new());
        if node.input(5).is_some() {
            return Err(NpuError::unsupported("a bias inside the product").at_node(node.label()));
        }
    }
    draft.drop_unused();
    (draft.rewriting, draft.rows) = (Rewriting::Fusion, Rows::Fixed(rows));
    let mut warm_inputs = draft.warm_inputs.take();
    let graph = draft.graph();
    for (proto, input) in graph.input.iter_mut().zip(warm_inputs.iter_mut().flatten()) {
        set_rows(input, rows);
        set_shape(proto, &input.shape);
    }
    // The shape of the result follows; what the model declares has symbols in it.
    graph.output.iter_mut().for_each(clear_shape);
    draft.warm_inputs = warm_inputs;
    Ok(())
}

fn set_rows(input: &mut WarmInput, rows: usize) {
    if let [1, positions, _] = input.shape.as_mut_slice() {
        *positions = rows as i64;
    }
}

fn set_shape(value: &mut ValueInfoProto, shape: &[i64]) {
    if let Some(tensor) = value.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
        let dim = shape.iter().map(|&d| DimensionProto {
            value: Some(DimensionValue::DimValue(d)),
            denotation: None,
        });
        tensor.shape = Some(TensorShapeProto { dim: dim.collect() });
    }
}

/// Replaces `Reshape(constant, constant)` by the constant in its new shape, over the same bytes.
fn fold_reshapes(draft: &mut Draft, data: &OperatorData) -> Result<()> {
    for node in data.nodes().iter().filter(|node| node.is("Reshape")) {
        let constants = node
            .input(0)
            .zip(node.input(1))
            .and_then(|(from, to)| data.tensor(from).zip(data.tensor(to)));
        let (Some((from, to)), Some(output)) = (constants, node.output(0)) else {
            continue;
        };
        let Some(shape) = reshaped(&from.shape, &to.to_i64()?) else {
            continue;
        };
        let Some(weight) = draft.weights.iter().find(|weight| weight.name == from.name) else {
            continue;
        };
        let weight = Weight {
            name: output.to_string(),
            shape: shape.clone(),
            ..weight.clone()
        };
        draft.weights.push(weight);
        replace(draft.graph(), output, from, &shape);
    }
    draft.drop_unused();
    Ok(())
}

/// The node that makes `output` becomes an initializer like that of `from`.
fn replace(graph: &mut GraphProto, output: &str, from: &Tensor, shape: &[i64]) {
    graph
        .node
        .retain(|node| node.output.first().is_none_or(|o| o != output));
    let Some(like) = graph
        .initializer
        .iter()
        .find(|tensor| tensor.name.as_deref() == Some(&from.name))
    else {
        return;
    };
    let folded = TensorProto {
        name: Some(output.to_string()),
        dims: shape.to_vec(),
        ..like.clone()
    };
    graph.initializer.push(folded);
}

fn reshaped(from: &[u64], to: &[i64]) -> Option<Vec<i64>> {
    let total: i64 = from.iter().product::<u64>().try_into().ok()?;
    let known: i64 = to.iter().filter(|&&d| d > 0).product();
    let shape: Vec<i64> = to
        .iter()
        .map(|&d| {
            if d == -1 {
                total.checked_div(known).unwrap_or(0)
            } else {
                d
            }
        })
        .collect();
    (shape.iter().product::<i64>() == total && shape.iter().all(|&d| d > 0)).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_rule() {
        assert_eq!(reshaped(&[2048, 8, 16], &[2048, 128]), Some(vec![2048, 128]));
        assert_eq!(reshaped(&[2048, 8, 16], &[2048, -1]), Some(vec![2048, 128]));
        assert_eq!(reshaped(&[2048, 8, 16], &[2048, 127]), None);
    }
}
