//! A graph under construction: nodes in topological order, shared integer constants made on first use.

use crate::dtype::DataType;
use crate::proto::{
    AttributeProto, AttributeType, DimensionProto, DimensionValue, NodeProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use prost::bytes::Bytes;
use std::collections::HashSet;

/// Domain of ONNX Runtime's own operators.
pub(super) const MICROSOFT: &str = "com.microsoft";

/// An attribute's value.
pub(super) enum Attribute {
    Int(i64),
    Float(f32),
}

/// Collects nodes.
#[derive(Default)]
pub(super) struct GraphBuilder {
    nodes: Vec<NodeProto>,
    constants: HashSet<String>,
}

/// A node about to be added; see [`GraphBuilder::node`].
pub(super) struct NodeBuilder<'a> {
    graph: &'a mut GraphBuilder,
    node: NodeProto,
}

impl GraphBuilder {
    /// Begins a node of ai.onnx with these inputs; "" is an absent one.
    pub fn node(&mut self, op_type: &str, name: impl Into<String>, inputs: &[&str]) -> NodeBuilder<'_> {
        let node = NodeProto {
            input: inputs.iter().map(|&input| input.into()).collect(),
            name: Some(name.into()),
            op_type: Some(op_type.into()),
            ..NodeProto::default()
        };
        NodeBuilder { graph: self, node }
    }

    /// The name of a scalar int64 constant.
    pub fn scalar(&mut self, value: i64) -> String {
        self.constant(format!("/model/constants/INT64/{value}"), &[value], &[])
    }

    /// The name of a one-dimensional int64 constant.
    pub fn vector(&mut self, values: &[i64]) -> String {
        self.constant(
            format!("/model/constants/INT64/{values:?}"),
            values,
            &[values.len() as i64],
        )
    }

    fn constant(&mut self, name: String, values: &[i64], dims: &[i64]) -> String {
        if self.constants.insert(name.clone()) {
            let tensor = TensorProto {
                dims: dims.into(),
                data_type: Some(DataType::Int64 as i32),
                name: Some(String::new()),
                raw_data: Some(Bytes::from(
                    values
                        .iter()
                        .flat_map(|value| value.to_le_bytes())
                        .collect::<Vec<u8>>(),
                )),
                ..TensorProto::default()
            };
            self.nodes.push(NodeProto {
                output: vec![name.clone()],
                name: Some(name.replace("constants", "constant_nodes")),
                op_type: Some("Constant".into()),
                attribute: vec![AttributeProto {
                    name: Some("value".into()),
                    t: Some(Box::new(tensor)),
                    r#type: Some(AttributeType::Tensor as i32),
                    ..AttributeProto::default()
                }],
                ..NodeProto::default()
            });
        }
        name
    }

    /// All nodes, in the order in which they were added.
    pub fn finish(self) -> Vec<NodeProto> {
        self.nodes
    }
}

impl NodeBuilder<'_> {
    /// Makes it one of ONNX Runtime's own operators.
    pub fn microsoft(mut self) -> Self {
        self.node.domain = Some(MICROSOFT.into());
        self
    }

    /// Adds attributes.
    pub fn attributes(mut self, attributes: &[(&str, Attribute)]) -> Self {
        self.node.attribute.extend(attributes.iter().map(|(name, value)| {
            let mut attribute = AttributeProto {
                name: Some((*name).into()),
                ..AttributeProto::default()
            };
            match *value {
                Attribute::Int(value) => {
                    (attribute.i, attribute.r#type) = (Some(value), Some(AttributeType::Int as i32));
                }
                Attribute::Float(value) => {
                    (attribute.f, attribute.r#type) = (Some(value), Some(AttributeType::Float as i32));
                }
            }
            attribute
        }));
        self
    }

    /// Adds the node with its one output, which is named after it, and returns that name.
    pub fn output(self) -> String {
        let output = format!("{}/output_0", self.node.name());
        self.outputs(&[&output]);
        output
    }

    /// Adds the node with these outputs; "" is one that nobody wants.
    pub fn outputs(mut self, outputs: &[&str]) {
        self.node.output = outputs.iter().map(|&output| output.into()).collect();
        self.graph.nodes.push(self.node);
    }
}

/// A dimension of a graph input or output.
pub(super) enum Dim {
    Symbol(&'static str),
    Size(usize),
}

/// A graph input or output.
pub(super) fn value_info(name: String, dtype: DataType, dims: &[Dim]) -> ValueInfoProto {
    let dim = dims.iter().map(|dim| DimensionProto {
        value: Some(match *dim {
            Dim::Symbol(name) => DimensionValue::DimParam(name.into()),
            Dim::Size(size) => DimensionValue::DimValue(size as i64),
        }),
        denotation: None,
    });
    let shape = TensorShapeProto { dim: dim.collect() };
    let tensor_type = TensorTypeProto {
        elem_type: Some(dtype as i32),
        shape: Some(shape),
    };
    ValueInfoProto {
        name: Some(name),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor_type),
            denotation: None,
        }),
        doc_string: None,
    }
}
