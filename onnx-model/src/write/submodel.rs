//! One operator as an ONNX model of its own, to create a session over.

use std::collections::HashSet;

use prost::Message;
use prost::bytes::Bytes;

use crate::data::OperatorData;
use crate::dtype::DataType;
use crate::graph::{Attribute, AttributeValue, Dimension, Graph, InitializerData, Node, ValueInfo};
use crate::proto::*;
use crate::tensor::Tensor;

/// An operator as an ONNX model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Submodel {
    /// The model, an encoded `ModelProto`.
    pub bytes: Vec<u8>,
    /// Names of the constants that the model declares without holding them, to be supplied when the session is
    /// created; each is a tensor of the [`OperatorData`].
    pub external: Vec<String>,
    /// Input names, in order.
    pub inputs: Vec<String>,
    /// Output names, in order.
    pub outputs: Vec<String>,
}

/// How to write a sub-model.
#[derive(Clone, Debug, Default)]
pub struct SubmodelOptions {
    /// Where weights go.
    pub weights: WeightPlacement,
    /// Attributes to set on nodes, in place of the model's.
    pub attributes: Vec<AttributeOverride>,
    /// File that external weights are declared to lie in; by default a name that no file has. ONNX Runtime's shared
    /// initializers, the only way in without a copy, want an existing file, which is not opened.
    pub location: Option<String>,
}

/// Where weights go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightPlacement {
    /// Declared only: the session gets them from memory, without a copy. Constants of up to
    /// [`INLINE_BYTES`](WeightPlacement::INLINE_BYTES) are written all the same, since shapes must be known.
    #[default]
    External,
    /// Written into the model.
    Inline,
}

impl WeightPlacement {
    /// Constants up to this size are always written into the model.
    pub const INLINE_BYTES: usize = 256;
}

/// An attribute to set on every node of one operator type, such as `accuracy_level` on `MatMulNBits`.
#[derive(Clone, Debug)]
pub struct AttributeOverride {
    /// Operator type of the nodes.
    pub op_type: String,
    /// The attribute.
    pub attribute: Attribute,
}

impl AttributeOverride {
    /// An integer attribute.
    pub fn int(op_type: impl Into<String>, name: impl Into<String>, value: i64) -> Self {
        AttributeOverride {
            op_type: op_type.into(),
            attribute: Attribute {
                name: name.into(),
                value: AttributeValue::Int(value),
            },
        }
    }
}

/// What is said of the place of weights that are supplied from memory, by default.
const NOWHERE: &str = "supplied_at_session_creation";

/// Writes an operator as an ONNX model: its nodes, its constants, its inputs and outputs as graph inputs and outputs.
pub fn submodel(data: &OperatorData, options: &SubmodelOptions) -> Submodel {
    let mut external = Vec::new();
    let location = options.location.as_deref().unwrap_or(NOWHERE);
    let initializers = data.tensors().values().map(|tensor| {
        if options.weights == WeightPlacement::External && tensor.bytes.len() > WeightPlacement::INLINE_BYTES
        {
            external.push(tensor.name.clone());
            external_tensor(
                &tensor.name,
                tensor.dtype,
                &tensor.shape,
                location,
                0,
                tensor.bytes.len() as u64,
            )
        } else {
            inline_tensor(tensor)
        }
    });
    let initializer = initializers.collect();
    let graph = GraphProto {
        name: Some(data.operator().name.clone()),
        node: data
            .nodes()
            .iter()
            .map(|node| node_proto(node, &options.attributes))
            .collect(),
        initializer,
        input: data.inputs().iter().map(value_proto).collect(),
        output: data.outputs().iter().map(value_proto).collect(),
        ..GraphProto::default()
    };
    let used: HashSet<&str> = data.nodes().iter().map(|n| n.domain.as_str()).collect();
    let opset_import = (data.opset_imports().iter())
        // Constants and captured graphs need the standard domain, whatever the nodes are.
        .filter(|o| o.domain.is_empty() || used.contains(o.domain.as_str()) || o.domain == "com.microsoft")
        .map(|o| OperatorSetIdProto {
            domain: Some(o.domain.clone()),
            version: Some(o.version),
        })
        .collect();
    let model = ModelProto {
        ir_version: Some(data.ir_version().max(8)),
        producer_name: Some("onnx-model".into()),
        graph: Some(Box::new(graph)),
        opset_import,
        ..ModelProto::default()
    };
    Submodel {
        bytes: model.encode_to_vec(),
        external,
        inputs: data.operator().inputs.clone(),
        outputs: data.operator().outputs.clone(),
    }
}

pub(crate) fn external_tensor(
    name: &str,
    dtype: DataType,
    shape: &[u64],
    location: &str,
    offset: u64,
    len: u64,
) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value),
    };
    TensorProto {
        name: Some(name.into()),
        data_type: Some(dtype.onnx()),
        dims: dims(shape),
        data_location: Some(DataLocation::External as i32),
        external_data: vec![
            entry("location", location.into()),
            entry("offset", offset.to_string()),
            entry("length", len.to_string()),
        ],
        ..TensorProto::default()
    }
}

pub(crate) fn inline_tensor(tensor: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(tensor.name.clone()),
        data_type: Some(tensor.dtype.onnx()),
        dims: dims(&tensor.shape),
        raw_data: Some(Bytes::copy_from_slice(&tensor.bytes)),
        ..TensorProto::default()
    }
}

fn dims(shape: &[u64]) -> Vec<i64> {
    // Shapes were read from int64 or fit the memory they describe.
    shape.iter().map(|&d| d as i64).collect()
}

pub(crate) fn value_proto(value: &ValueInfo) -> ValueInfoProto {
    let dim = |d: &Dimension| DimensionProto {
        value: match d {
            Dimension::Fixed(n) => Some(DimensionValue::DimValue(*n as i64)),
            Dimension::Symbol(s) => Some(DimensionValue::DimParam(s.clone())),
            Dimension::Unknown => None,
        },
        denotation: None,
    };
    let shape = value.shape.as_ref().map(|shape| TensorShapeProto {
        dim: shape.iter().map(dim).collect(),
    });
    ValueInfoProto {
        name: Some(value.name.clone()),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: Some(value.dtype.onnx()),
                shape,
            }),
            denotation: None,
        }),
        doc_string: None,
    }
}

fn node_proto(node: &Node, overrides: &[AttributeOverride]) -> NodeProto {
    let overrides: Vec<&Attribute> = overrides
        .iter()
        .filter(|o| o.op_type == node.op_type)
        .map(|o| &o.attribute)
        .collect();
    let kept = node
        .attributes
        .iter()
        .filter(|a| !overrides.iter().any(|o| o.name == a.name));
    NodeProto {
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        name: Some(node.name.clone()),
        op_type: Some(node.op_type.clone()),
        domain: Some(node.domain.clone()),
        attribute: kept
            .chain(overrides.iter().copied())
            .map(attribute_proto)
            .collect(),
        ..NodeProto::default()
    }
}

fn attribute_proto(attribute: &Attribute) -> AttributeProto {
    let mut out = AttributeProto {
        name: Some(attribute.name.clone()),
        ..AttributeProto::default()
    };
    let kind = match &attribute.value {
        AttributeValue::Float(v) => {
            out.f = Some(*v);
            AttributeType::Float
        }
        AttributeValue::Int(v) => {
            out.i = Some(*v);
            AttributeType::Int
        }
        AttributeValue::String(v) => {
            out.s = Some(Bytes::copy_from_slice(v.as_bytes()));
            AttributeType::String
        }
        AttributeValue::Tensor(v) => {
            out.t = Some(Box::new(inline_tensor(v)));
            AttributeType::Tensor
        }
        AttributeValue::Graph(v) => {
            out.g = Some(Box::new(graph_proto(v)));
            AttributeType::Graph
        }
        AttributeValue::Floats(v) => {
            out.floats = v.clone();
            AttributeType::Floats
        }
        AttributeValue::Ints(v) => {
            out.ints = v.clone();
            AttributeType::Ints
        }
        AttributeValue::Strings(v) => {
            out.strings = v.iter().map(|s| Bytes::copy_from_slice(s.as_bytes())).collect();
            AttributeType::Strings
        }
    };
    out.r#type = Some(kind as i32);
    out
}

/// The graph of an attribute, as it was.
fn graph_proto(graph: &Graph) -> GraphProto {
    let initializer = graph.initializers.iter().map(|t| match &t.data {
        InitializerData::Inline(bytes) => TensorProto {
            name: Some(t.name.clone()),
            data_type: Some(t.dtype.onnx()),
            dims: dims(&t.shape),
            raw_data: Some(Bytes::copy_from_slice(bytes)),
            ..TensorProto::default()
        },
        InitializerData::External(range) => external_tensor(
            &t.name,
            t.dtype,
            &t.shape,
            &range.location,
            range.offset,
            range.len,
        ),
    });
    GraphProto {
        name: Some(graph.name.clone()),
        node: graph.nodes.iter().map(|node| node_proto(node, &[])).collect(),
        initializer: initializer.collect(),
        input: graph.inputs.iter().map(value_proto).collect(),
        output: graph.outputs.iter().map(value_proto).collect(),
        value_info: graph.value_info.iter().map(value_proto).collect(),
        ..GraphProto::default()
    }
}
