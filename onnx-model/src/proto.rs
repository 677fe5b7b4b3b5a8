//! The part of ONNX's protobuf schema that decoder folders use, for reading and writing.
//!
//! Field numbers and types are those of [`onnx.proto`](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto)
//! (IR version 10). What is left out (training information, functions' bodies, sparse values, device configurations)
//! is skipped by the decoder as an unknown field; where leaving it out would change what a model means, a
//! placeholder is kept so that its presence can be refused.
//!
//! Tensor bytes are [`Bytes`]: decoding from a `Bytes` shares the file's buffer instead of copying weights.

use prost::Message;
use prost::bytes::Bytes;

/// A whole model: graph, operator sets, metadata.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// ONNX IR version, 10 in builder 0.18.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// Tool that wrote the model.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// That tool's version.
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    /// Model namespace.
    #[prost(string, optional, tag = "4")]
    pub domain: Option<String>,
    /// Version of the model itself.
    #[prost(int64, optional, tag = "5")]
    pub model_version: Option<i64>,
    /// Free text.
    #[prost(string, optional, tag = "6")]
    pub doc_string: Option<String>,
    /// The graph.
    #[prost(message, optional, boxed, tag = "7")]
    pub graph: Option<Box<GraphProto>>,
    /// Operator sets, one per domain.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Model-local functions; kept undecoded, so that a model that has some can be refused.
    #[prost(bytes = "bytes", repeated, tag = "25")]
    pub functions: Vec<Bytes>,
}

/// An operator set: a domain ("" is ai.onnx) and a version.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Domain; empty for ai.onnx.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// Version.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// Value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// A graph: nodes in topological order, initializers, declared values.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Nodes.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Constant tensors, by name.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Free text.
    #[prost(string, optional, tag = "10")]
    pub doc_string: Option<String>,
    /// Graph inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Graph outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of values in between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Sparse initializers; kept undecoded, so that a model that has some can be refused.
    #[prost(bytes = "bytes", repeated, tag = "15")]
    pub sparse_initializer: Vec<Bytes>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// One node: an operator applied to named values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Input values; "" is an absent optional input.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Output values; "" is an output nobody wants.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name, may be empty.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// Operator type.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Free text.
    #[prost(string, optional, tag = "6")]
    pub doc_string: Option<String>,
    /// Domain of the operator set that defines the type; empty for ai.onnx.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A node's attribute: a name and one value of the kind that `type` says.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Value of kind FLOAT.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// Value of kind INT.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// Value of kind STRING.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// Value of kind TENSOR.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// Value of kind GRAPH.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// Value of kind FLOATS.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Value of kind INTS.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Value of kind STRINGS.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Value of kind TENSORS.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Value of kind GRAPHS.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Free text.
    #[prost(string, optional, tag = "13")]
    pub doc_string: Option<String>,
    /// Kind of value.
    #[prost(enumeration = "AttributeType", optional, tag = "20")]
    pub r#type: Option<i32>,
    /// In a function body only: the function's attribute that this one takes its value from.
    #[prost(string, optional, tag = "21")]
    pub ref_attr_name: Option<String>,
}

/// Kinds of attribute value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// Not said.
    Undefined = 0,
    /// A 32-bit float.
    Float = 1,
    /// A 64-bit integer.
    Int = 2,
    /// Bytes, by convention UTF-8.
    String = 3,
    /// A tensor.
    Tensor = 4,
    /// A graph, as in `If`.
    Graph = 5,
    /// Floats.
    Floats = 6,
    /// Integers.
    Ints = 7,
    /// Strings.
    Strings = 8,
    /// Tensors.
    Tensors = 9,
    /// Graphs.
    Graphs = 10,
    /// A sparse tensor.
    SparseTensor = 11,
    /// Sparse tensors.
    SparseTensors = 12,
    /// A type.
    TypeProto = 13,
    /// Types.
    TypeProtos = 14,
}

/// A constant tensor: inline or a byte range of another file.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Shape.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Element type, a [`DataType`](crate::DataType) code.
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    /// FLOAT elements, where not raw.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// INT32 and all narrower elements, where not raw.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// STRING elements.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// INT64 elements, where not raw.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name.
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    /// Elements as little-endian bytes in row-major order.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// DOUBLE elements, where not raw.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// UINT32 and UINT64 elements, where not raw.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Free text.
    #[prost(string, optional, tag = "12")]
    pub doc_string: Option<String>,
    /// Where external data lie: `location`, `offset`, `length`, `checksum`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// Whether data are inline or external.
    #[prost(enumeration = "DataLocation", optional, tag = "14")]
    pub data_location: Option<i32>,
}

/// Where a tensor's data lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum DataLocation {
    /// In the message.
    Default = 0,
    /// In another file.
    External = 1,
}

/// A named value with its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// Free text.
    #[prost(string, optional, tag = "3")]
    pub doc_string: Option<String>,
}

/// A type; only tensors are kept.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A dense tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
    /// What the value stands for.
    #[prost(string, optional, tag = "6")]
    pub denotation: Option<String>,
}

/// A tensor type: element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// Element type, a [`DataType`](crate::DataType) code.
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// Shape; absent when the rank is unknown.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Dimensions, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// A dimension: a number, a symbol, or neither (unknown).
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// Number or symbol.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
    /// What the dimension stands for.
    #[prost(string, optional, tag = "3")]
    pub denotation: Option<String>,
}

/// What is known of a dimension.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimensionValue {
    /// A fixed size.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// A symbol.
    #[prost(string, tag = "2")]
    DimParam(String),
}
