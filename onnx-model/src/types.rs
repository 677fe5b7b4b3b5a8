//! Element types of values: as declared, else inferred by one rule per operator.
//!
//! Builders declare the values in between, but a model that went through another tool may not; sub-models need the
//! types of their inputs. Rules follow the operators' documentation: [ONNX](https://onnx.ai/onnx/operators/) and
//! [ONNX Runtime](https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md).

use std::collections::HashMap;

use crate::dtype::DataType;
use crate::graph::{AttributeValue, Graph, Node};

/// Inferred types of the values that the graph does not declare.
#[derive(Clone, Debug, Default)]
pub(crate) struct InferredTypes(HashMap<String, DataType>);

impl InferredTypes {
    /// Walks the nodes in order; values whose type cannot be told are left out.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut inferred = InferredTypes::default();
        for node in &graph.nodes {
            for (position, output) in node.outputs.iter().enumerate() {
                if output.is_empty() || graph.declared(output).is_some() {
                    continue;
                }
                if let Some(dtype) = output_type(node, position, &|value| inferred.get(graph, value)) {
                    inferred.0.insert(output.clone(), dtype);
                }
            }
        }
        inferred
    }

    /// The type of a value: graph input or output, initializer, declared or inferred.
    pub(crate) fn get(&self, graph: &Graph, value: &str) -> Option<DataType> {
        (graph.declared(value).map(|v| v.dtype))
            .or_else(|| graph.initializer(value).map(|t| t.dtype))
            .or_else(|| self.0.get(value).copied())
    }
}

/// The type of a node's output, given the types of its inputs.
fn output_type(
    node: &Node,
    position: usize,
    value_type: &dyn Fn(&str) -> Option<DataType>,
) -> Option<DataType> {
    let input = |i: usize| node.input(i).and_then(value_type);
    let attribute_type = |name: &str| match node.attribute(name) {
        Some(AttributeValue::Int(code)) => i32::try_from(*code).ok().and_then(DataType::from_onnx),
        _ => None,
    };
    match node.op_type.as_str() {
        "Constant" => node.constant_value().map(|t| t.dtype),
        "ConstantOfShape" => match node.attribute("value") {
            Some(AttributeValue::Tensor(tensor)) => Some(tensor.dtype),
            _ => Some(DataType::Float32),
        },
        "Cast" => attribute_type("to"),
        "CastLike" => input(1),
        "Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero" => Some(DataType::Int64),
        "TopK" if position == 1 => Some(DataType::Int64),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "And" | "Or" | "Xor" | "Not"
        | "IsNaN" | "IsInf" => Some(DataType::Bool),
        "Where" => input(1),
        "GatherBlockQuantized" => input(2),
        "DequantizeLinear" => attribute_type("output_dtype").or(input(1)),
        "QuantizeLinear" => input(2)
            .or(attribute_type("output_dtype"))
            .or(Some(DataType::Uint8)),
        "DynamicQuantizeLinear" => Some(if position == 1 {
            DataType::Float32
        } else {
            DataType::Uint8
        }),
        "MatMulInteger" => Some(DataType::Int32),
        // Mean and inverse deviation are kept at the precision of the computation.
        "SkipSimplifiedLayerNormalization" | "SkipLayerNormalization" if matches!(position, 1 | 2) => {
            Some(DataType::Float32)
        }
        "SimplifiedLayerNormalization" | "LayerNormalization" if position > 0 => Some(DataType::Float32),
        "GroupQueryAttention" if matches!(position, 1 | 2) => input(2 + position).or(input(0)),
        "If" => match node.attribute("then_branch") {
            Some(AttributeValue::Graph(branch)) => branch.outputs.get(position).map(|v| v.dtype),
            _ => None,
        },
        "Loop" | "Scan" => None,
        _ => input(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(op_type: &str, inputs: &[&str], attributes: Vec<crate::Attribute>) -> Node {
        Node {
            op_type: op_type.into(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            attributes,
            ..Node::default()
        }
    }

    #[track_caller]
    fn check(node: Node, position: usize, expected: Option<DataType>) {
        let types = |value: &str| match value {
            "f16" => Some(DataType::Float16),
            "f32" => Some(DataType::Float32),
            "i64" => Some(DataType::Int64),
            "u8" => Some(DataType::Uint8),
            _ => None,
        };
        assert_eq!(output_type(&node, position, &types), expected);
    }

    #[test]
    fn rules() {
        use DataType::*;
        let to = |name: &str, t: DataType| {
            vec![crate::Attribute {
                name: name.into(),
                value: AttributeValue::Int(t.onnx().into()),
            }]
        };
        check(node("Cast", &["f32"], to("to", Float16)), 0, Some(Float16));
        check(node("Cast", &["f32"], vec![]), 0, None);
        check(
            node("MatMulNBits", &["f16", "u8", "f16"], vec![]),
            0,
            Some(Float16),
        );
        check(node("Greater", &["i64", "i64"], vec![]), 0, Some(Bool));
        check(
            node("GatherBlockQuantized", &["u8", "i64", "f32"], vec![]),
            0,
            Some(Float32),
        );
        check(
            node("DequantizeLinear", &["u8", "f16", "u8"], vec![]),
            0,
            Some(Float16),
        );
        check(
            node("SkipSimplifiedLayerNormalization", &["f16", "f16"], vec![]),
            3,
            Some(Float16),
        );
        check(
            node("SkipSimplifiedLayerNormalization", &["f16", "f16"], vec![]),
            1,
            Some(Float32),
        );
        check(
            node("GroupQueryAttention", &["f16", "", "", "f32", "f32"], vec![]),
            1,
            Some(Float32),
        );
        check(node("Where", &["x", "f16", "f16"], vec![]), 0, Some(Float16));
        check(node("Sub", &["i64", "i64"], vec![]), 0, Some(Int64));
    }
}
