//! The graph that a kernel is created over: the operator's own, or a form of it that the execution provider takes.

use onnx_model::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, TensorProto, TensorShapeProto, ValueInfoProto,
};
use std::collections::HashMap;

use onnx_model::write::{Submodel, SubmodelOptions, submodel};
use onnx_model::{DataType, Node, OperatorData, OperatorKind, Tensor};
use prost::Message;

use crate::dequantize::{Matrix, weight_matrix};
use crate::error::{NpuError, Result};
use crate::kernel::{KernelSource, Packed, Rewriting, Rows, Weight};
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
    let Submodel {
        bytes,
        external,
        inputs,
        outputs,
        ..
    } = submodel(data, options);
    let weights = external
        .iter()
        .map(|name| weight(name, data.tensor(name)))
        .collect::<Result<Vec<_>>>()?;
    let warm_inputs = data
        .inputs()
        .iter()
        .map(|value| warm_shapes.input(value))
        .collect();
    let rewriting = rewriting(data, form, &weights);
    let source = KernelSource {
        model: bytes,
        weights,
        inputs,
        outputs,
        rewriting,
        warm_inputs,
        rows: Rows::Any,
        packed: packed(data),
    };
    let source = match form {
        GraphForm::Native => source,
        GraphForm::FoldedReshapes => fold_reshapes(source, data)?,
        GraphForm::Dequantized { rows } => dequantize(source, data, rows)?,
    };
    Ok(with_short_names(source))
}

/// Weights that only products read are packed; a table is read where it is.
fn packed(data: &OperatorData) -> Packed {
    match data.operator().kind {
        OperatorKind::MatMulNBits | OperatorKind::Mlp | OperatorKind::LmHead => Packed::ByProvider,
        _ => Packed::No,
    }
}

/// Names inputs and outputs `i0`, `o0` and so on. ONNX Runtime makes strings of them and looks them up in every run; a name of a few
/// letters needs no allocation for that.
fn with_short_names(mut source: KernelSource) -> KernelSource {
    let mut model = ModelProto::decode(source.model.as_slice()).expect("the model was encoded a moment ago");
    let graph = model.graph.as_mut().expect("the model was written with a graph");
    // Graphs inside nodes may read inputs by name; such an operator keeps its names.
    if graph
        .node
        .iter()
        .any(|node| node.attribute.iter().any(|attribute| attribute.g.is_some()))
    {
        return source;
    }
    let short = |names: &[String], letter: char| -> Vec<(String, String)> {
        names
            .iter()
            .enumerate()
            .map(|(i, name)| (name.clone(), format!("{letter}{i}")))
            .collect()
    };
    let (inputs, outputs) = (short(&source.inputs, 'i'), short(&source.outputs, 'o'));
    let names: HashMap<&str, &str> = inputs
        .iter()
        .chain(&outputs)
        .map(|(long, short)| (long.as_str(), short.as_str()))
        .collect();
    let rename = |name: &mut String| {
        if let Some(short) = names.get(name.as_str()) {
            *name = short.to_string();
        }
    };
    for node in &mut graph.node {
        node.input.iter_mut().chain(&mut node.output).for_each(rename);
    }
    graph
        .input
        .iter_mut()
        .chain(&mut graph.output)
        .filter_map(|value| value.name.as_mut())
        .for_each(rename);
    source.model = model.encode_to_vec();
    source.inputs = inputs.into_iter().map(|(_, short)| short).collect();
    source.outputs = outputs.into_iter().map(|(_, short)| short).collect();
    source
}

fn rewriting(data: &OperatorData, form: GraphForm, weights: &[Weight]) -> Rewriting {
    let nodes = data.nodes();
    if nodes.iter().any(|node| node.is("DequantizeLinear")) {
        return Rewriting::Fusion;
    }
    let folded_here = |node: &Node| form == GraphForm::FoldedReshapes && node.is("Reshape");
    let over_constants = |node: &Node| {
        let mut reads = node.reads().peekable();
        reads.peek().is_some() && reads.all(|name| data.tensor(name).is_some())
    };
    let half = |weight: &Weight| {
        matches!(weight.dtype, DataType::Float16 | DataType::BFloat16) && weight.shape.len() > 1
    };
    let quantized = nodes
        .iter()
        .any(|node| node.is_contrib("MatMulNBits") || node.is_contrib("GatherBlockQuantized"));
    let foldable = nodes
        .iter()
        .any(|node| over_constants(node) && !folded_here(node));
    match foldable || (!quantized && nodes.iter().any(|node| node.is("MatMul")) && weights.iter().any(half)) {
        true => Rewriting::Folding,
        false => Rewriting::None,
    }
}

fn weight(name: &str, tensor: Option<&Tensor>) -> Result<Weight> {
    let tensor =
        tensor.ok_or_else(|| NpuError::unsupported(format!("constant {name} is declared but not there")))?;
    let shape = tensor.shape.iter().map(|&d| d as i64).collect();
    Ok(Weight {
        name: name.to_string(),
        dtype: tensor.dtype,
        shape,
        bytes: tensor.bytes.clone(),
    })
}

/// Whether an NPU takes the operator in its dequantized form: products and what is between them, over one value.
pub(crate) fn is_dequantizable(data: &OperatorData) -> bool {
    let taken = |node: &Node| {
        node.is_contrib("MatMulNBits")
            || ["MatMul", "Add", "Mul", "Sigmoid"]
                .iter()
                .any(|op_type| node.is(op_type))
    };
    let float32 = data
        .inputs()
        .iter()
        .chain(data.outputs())
        .all(|value| value.dtype == DataType::Float32);
    data.inputs().len() == 1 && data.outputs().len() == 1 && float32 && data.nodes().iter().all(taken)
}

/// Writes MatMulNBits as MatMul over dequantized weights, with `rows` positions in every shape.
fn dequantize(source: KernelSource, data: &OperatorData, rows: usize) -> Result<KernelSource> {
    let mut model = ModelProto::decode(source.model.as_slice()).expect("the model was encoded a moment ago");
    let graph = model.graph.as_mut().expect("the model was written with a graph");
    let mut weights = source.weights;
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
    drop_unused(graph, &mut weights);
    let warm_inputs = source.warm_inputs.map(|inputs| {
        inputs
            .into_iter()
            .map(|input| with_rows(input, rows))
            .collect::<Vec<_>>()
    });
    for (proto, input) in graph.input.iter_mut().zip(warm_inputs.iter().flatten()) {
        set_shape(proto, &input.shape);
    }
    // The shape of the result follows; what the model declares has symbols in it.
    graph.output.iter_mut().for_each(clear_shape);
    Ok(KernelSource {
        model: model.encode_to_vec(),
        weights,
        rewriting: Rewriting::Fusion,
        warm_inputs,
        rows: Rows::Fixed(rows),
        ..source
    })
}

fn with_rows(mut input: WarmInput, rows: usize) -> WarmInput {
    if let [1, positions, _] = input.shape.as_mut_slice() {
        *positions = rows as i64;
    }
    input
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

fn clear_shape(value: &mut ValueInfoProto) {
    if let Some(tensor) = value.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
        tensor.shape = None;
    }
}

/// Replaces `Reshape(constant, constant)` by the constant in its new shape, over the same bytes.
fn fold_reshapes(mut source: KernelSource, data: &OperatorData) -> Result<KernelSource> {
    let mut model = ModelProto::decode(source.model.as_slice()).expect("the model was encoded a moment ago");
    let graph = model.graph.as_mut().expect("the model was written with a graph");
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
        if !source.weights.iter().any(|weight| weight.name == from.name) {
            continue;
        }
        replace(graph, output, from, &shape);
        source.weights.push(Weight {
            name: output.to_string(),
            dtype: from.dtype,
            shape,
            bytes: from.bytes.clone(),
        });
    }
    drop_unused(graph, &mut source.weights);
    source.model = model.encode_to_vec();
    Ok(source)
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

/// Initializers that no node reads any more, declared or held.
fn drop_unused(graph: &mut GraphProto, weights: &mut Vec<Weight>) {
    let used = |name: &str| {
        graph
            .node
            .iter()
            .any(|node| node.input.iter().any(|input| input == name))
    };
    weights.retain(|weight| used(&weight.name));
    let unused: Vec<bool> = graph
        .initializer
        .iter()
        .map(|tensor| !used(tensor.name.as_deref().unwrap_or_default()))
        .collect();
    let mut unused = unused.into_iter();
    graph.initializer.retain(|_| !unused.next().unwrap_or(false));
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
