//! From protobuf messages to the typed graph: every number is checked before it is used.

use std::collections::HashSet;
use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;

use crate::dtype::DataType;
use crate::error::{Error, Result, shown};
use crate::graph::*;
use crate::proto::{self, AttributeType, DataLocation, TensorProto};
use crate::tensor::{Tensor, TensorBytes};
use crate::{check, order};

impl Graph {
    /// Parses the bytes of an ONNX model and checks the graph: names, order, opsets, shapes against attributes,
    /// and that byte ranges make sense. Files that hold external data are not looked at.
    ///
    /// # Errors
    /// The bytes are not an ONNX model, or the graph fails a check; the message names node and tensor.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Graph> {
        let bytes: Bytes = bytes.into();
        if bytes.is_empty() {
            return Err(Error::malformed("the file is empty"));
        }
        crate::wire::check_decoded_size(&bytes)?;
        let model = proto::ModelProto::decode(bytes)
            .map_err(|e| Error::malformed(format!("not an ONNX model: {e}")).caused_by(e))?;
        Graph::from_proto(model)
    }

    /// As [`Graph::parse`], from a decoded message.
    ///
    /// # Errors
    /// As [`Graph::parse`].
    pub fn from_proto(model: proto::ModelProto) -> Result<Graph> {
        if !model.functions.is_empty() {
            return Err(Error::unsupported(
                "models with local functions are not supported",
            ));
        }
        let graph = model
            .graph
            .ok_or_else(|| Error::malformed("not an ONNX model: it has no graph"))?;
        if graph.node.is_empty() {
            return Err(Error::malformed("the graph has no nodes"));
        }
        let mut out = convert_graph(*graph, Depth(0))?;
        out.ir_version = model.ir_version.unwrap_or(0);
        out.producer = [model.producer_name, model.producer_version]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ");
        out.opset_imports = model.opset_import.into_iter().map(convert_opset).collect();
        order::sort(&mut out, order::Scope::Model)?;
        out.reindex();
        check::opsets(&out)?;
        check::nodes(&out)?;
        Ok(out)
    }
}

fn convert_opset(opset: proto::OperatorSetIdProto) -> OpsetImport {
    let domain = opset.domain.unwrap_or_default();
    OpsetImport {
        domain: plain_domain(&domain).to_string(),
        version: opset.version.unwrap_or(0),
    }
}

/// How many graphs this graph is nested in.
///
/// prost stops at 100 nested messages, three per graph; this limit is its own, so that it does not depend on prost's.
#[derive(Clone, Copy)]
struct Depth(u32);

impl Depth {
    const MAX: u32 = 32;

    fn deeper(self) -> Result<Depth> {
        match self.0 {
            Self::MAX => Err(Error::unsupported(format!(
                "graphs are nested more than {} deep",
                Self::MAX
            ))),
            depth => Ok(Depth(depth + 1)),
        }
    }
}

/// Everything but order and index, which need the whole graph.
fn convert_graph(graph: proto::GraphProto, depth: Depth) -> Result<Graph> {
    if !graph.sparse_initializer.is_empty() {
        return Err(Error::unsupported("sparse initializers are not supported"));
    }
    let mut locations = Locations::default();
    let initializers = graph
        .initializer
        .into_iter()
        .map(|t| convert_initializer(t, &mut locations))
        .collect::<Result<Vec<_>>>()?;
    let is_external = |t: &&Initializer| matches!(t.data, InitializerData::External(_));
    if depth.0 > 0
        && let Some(tensor) = initializers.iter().find(is_external)
    {
        let error = Error::unsupported("an initializer of a graph in an attribute cannot be external data");
        return Err(error.at_tensor(&tensor.name));
    }
    let inputs = graph
        .input
        .into_iter()
        .map(convert_value)
        .collect::<Result<_>>()?;
    let outputs = graph
        .output
        .into_iter()
        .map(convert_value)
        .collect::<Result<_>>()?;
    let nodes = graph
        .node
        .into_iter()
        .map(|n| convert_node(n, depth))
        .collect::<Result<_>>()?;
    // A value in between without a usable type is as good as one that is not declared.
    let value_info = graph
        .value_info
        .into_iter()
        .filter_map(|v| convert_value(v).ok())
        .collect();
    Ok(Graph {
        name: graph.name.unwrap_or_default(),
        nodes,
        inputs,
        outputs,
        initializers,
        value_info,
        ..Graph::default()
    })
}

fn convert_value(value: proto::ValueInfoProto) -> Result<ValueInfo> {
    let name = value.name.unwrap_or_default();
    if name.is_empty() {
        return Err(Error::malformed("a declared value has no name"));
    }
    let Some(tensor) = value.r#type.and_then(|t| t.tensor_type) else {
        return Err(Error::unsupported("the value is not declared to be a tensor").at_tensor(name));
    };
    let code = tensor.elem_type.unwrap_or(0);
    let Some(dtype) = DataType::from_onnx(code) else {
        return Err(Error::unsupported(format!("unknown element type {code}")).at_tensor(name));
    };
    let shape = tensor
        .shape
        .map(|s| s.dim.into_iter().map(convert_dimension).collect());
    Ok(ValueInfo { name, dtype, shape })
}

fn convert_dimension(dim: proto::DimensionProto) -> Dimension {
    match dim.value {
        Some(proto::DimensionValue::DimValue(n)) => {
            u64::try_from(n).map_or(Dimension::Unknown, Dimension::Fixed)
        }
        Some(proto::DimensionValue::DimParam(symbol)) if !symbol.is_empty() => Dimension::Symbol(symbol),
        _ => Dimension::Unknown,
    }
}

fn convert_node(node: proto::NodeProto, depth: Depth) -> Result<Node> {
    let domain = node.domain.unwrap_or_default();
    let mut out = Node {
        name: node.name.unwrap_or_default(),
        domain: plain_domain(&domain).to_string(),
        op_type: node.op_type.unwrap_or_default(),
        inputs: node.input,
        outputs: node.output,
        attributes: Vec::with_capacity(node.attribute.len()),
        captures: Vec::new(),
    };
    if out.op_type.is_empty() {
        return Err(out.error(Error::malformed("the node has no operator type")));
    }
    let (mut names, mut captured) = (HashSet::new(), HashSet::new());
    for attribute in node.attribute {
        let attribute = convert_attribute(attribute, depth).map_err(|e| out.error(e))?;
        if !names.insert(attribute.name.clone()) {
            let name = shown(&attribute.name);
            return Err(out.error(Error::malformed(format!("attribute '{name}' is given twice"))));
        }
        if let AttributeValue::Graph(graph) = &attribute.value {
            out.captures.extend(
                order::free_values(graph)
                    .into_iter()
                    .filter(|name| captured.insert(name.clone())),
            );
        }
        out.attributes.push(attribute);
    }
    if out.is("Constant") {
        convert_constant(&mut out)?;
    }
    Ok(out)
}

fn convert_attribute(attribute: proto::AttributeProto, depth: Depth) -> Result<Attribute> {
    let name = attribute.name.unwrap_or_default();
    let what = |e: &str| Error::malformed(format!("attribute '{}' {e}", shown(&name)));
    if name.is_empty() {
        return Err(Error::malformed("an attribute has no name"));
    }
    if attribute.ref_attr_name.is_some_and(|r| !r.is_empty()) {
        return Err(what("refers to a function's attribute, but is not in a function"));
    }
    let code = attribute.r#type.unwrap_or(0);
    let value = match AttributeType::try_from(code) {
        // Proto3 writers leave a zero out.
        Ok(AttributeType::Float) => AttributeValue::Float(attribute.f.unwrap_or(0.0)),
        Ok(AttributeType::Int) => AttributeValue::Int(attribute.i.unwrap_or(0)),
        Ok(AttributeType::String) => AttributeValue::String(text(&name, attribute.s.unwrap_or_default())?),
        Ok(AttributeType::Floats) => AttributeValue::Floats(attribute.floats),
        Ok(AttributeType::Ints) => AttributeValue::Ints(attribute.ints),
        Ok(AttributeType::Strings) => AttributeValue::Strings(
            attribute
                .strings
                .into_iter()
                .map(|s| text(&name, s))
                .collect::<Result<_>>()?,
        ),
        Ok(AttributeType::Tensor) => {
            let tensor = *attribute
                .t
                .ok_or_else(|| what("is said to be a tensor, but has none"))?;
            AttributeValue::Tensor(convert_inline_tensor(tensor).map_err(|e| e.at_tensor(&name))?)
        }
        Ok(AttributeType::Graph) => {
            let graph = *attribute
                .g
                .ok_or_else(|| what("is said to be a graph, but has none"))?;
            let mut graph = convert_graph(graph, depth.deeper()?)?;
            order::sort(&mut graph, order::Scope::Attribute)?;
            graph.reindex();
            AttributeValue::Graph(Arc::new(graph))
        }
        Ok(AttributeType::Undefined) | Err(_) => return Err(what(&format!("has unknown kind {code}"))),
        Ok(other) => {
            return Err(Error::unsupported(format!(
                "attribute '{name}' has kind {other:?}, which is not supported"
            )));
        }
    };
    Ok(Attribute { name, value })
}

fn text(attribute: &str, bytes: Bytes) -> Result<String> {
    String::from_utf8(bytes.into())
        .map_err(|_| Error::malformed(format!("attribute '{attribute}' is not UTF-8 text")))
}

/// Brings the six ways to write a constant to one: attribute `value`, named as the node's output.
fn convert_constant(node: &mut Node) -> Result<()> {
    let name = node.outputs.first().cloned().unwrap_or_default();
    let [Attribute { value, .. }] = node.attributes.as_slice() else {
        return Err(node.error(Error::malformed(
            "a Constant has exactly one attribute, its value",
        )));
    };
    let tensor = match value {
        AttributeValue::Tensor(tensor) => Ok(Tensor {
            name,
            ..tensor.clone()
        }),
        AttributeValue::Int(i) => Tensor::new(name, DataType::Int64, vec![], i.to_le_bytes().to_vec()),
        AttributeValue::Float(f) => Tensor::new(name, DataType::Float32, vec![], f.to_le_bytes().to_vec()),
        AttributeValue::Ints(v) => Tensor::new(
            name,
            DataType::Int64,
            vec![v.len() as u64],
            v.iter().flat_map(|i| i.to_le_bytes()).collect(),
        ),
        AttributeValue::Floats(v) => Tensor::new(
            name,
            DataType::Float32,
            vec![v.len() as u64],
            v.iter().flat_map(|f| f.to_le_bytes()).collect(),
        ),
        _ => Err(Error::unsupported("a Constant of this kind is not supported")),
    };
    let value = AttributeValue::Tensor(tensor.map_err(|e| node.error(e))?);
    node.attributes = vec![Attribute {
        name: "value".into(),
        value,
    }];
    Ok(())
}

/// Type and shape of a tensor message.
fn tensor_type(tensor: &TensorProto) -> Result<(DataType, Vec<u64>, u64)> {
    let code = tensor.data_type.unwrap_or(0);
    let dtype = DataType::from_onnx(code)
        .ok_or_else(|| Error::unsupported(format!("unknown element type {code}")))?;
    let dims = &tensor.dims;
    let shape = dims
        .iter()
        .map(|&d| u64::try_from(d).ok())
        .collect::<Option<Vec<u64>>>();
    let shape = shape.ok_or_else(|| Error::malformed(format!("a dimension is negative: {dims:?}")))?;
    if dtype == DataType::String {
        return Err(Error::unsupported("constant strings are not supported"));
    }
    let len = dtype.byte_len(&shape).filter(|&len| len <= isize::MAX as u64);
    let len = len.ok_or_else(|| Error::range(format!("shape {shape:?} is larger than any memory")))?;
    Ok((dtype, shape, len))
}

/// One string per file named, not per tensor.
#[derive(Default)]
struct Locations(Option<Arc<str>>);

impl Locations {
    fn intern(&mut self, location: &str) -> Arc<str> {
        match &self.0 {
            Some(last) if **last == *location => last.clone(),
            _ => self.0.insert(location.into()).clone(),
        }
    }
}

fn convert_initializer(mut tensor: TensorProto, locations: &mut Locations) -> Result<Initializer> {
    let name = tensor.name.take().unwrap_or_default();
    if name.is_empty() {
        return Err(Error::malformed("an initializer has no name"));
    }
    let converted = tensor_type(&tensor).and_then(|(dtype, shape, len)| {
        let data = match tensor.data_location.unwrap_or(0) {
            code if code == DataLocation::Default as i32 => {
                InitializerData::Inline(inline_bytes(&mut tensor, dtype, len)?)
            }
            code if code == DataLocation::External as i32 => {
                InitializerData::External(external_range(&tensor, &shape, len, locations)?)
            }
            code => return Err(Error::malformed(format!("unknown data location {code}"))),
        };
        Ok((dtype, shape, data))
    });
    let (dtype, shape, data) = converted.map_err(|e| e.at_tensor(&name))?;
    Ok(Initializer {
        name,
        dtype,
        shape,
        data,
    })
}

fn convert_inline_tensor(mut tensor: TensorProto) -> Result<Tensor> {
    if tensor.data_location == Some(DataLocation::External as i32) {
        return Err(Error::unsupported(
            "a tensor in an attribute cannot be external data",
        ));
    }
    let (dtype, shape, len) = tensor_type(&tensor)?;
    let name = tensor.name.take().unwrap_or_default();
    let bytes = inline_bytes(&mut tensor, dtype, len)?;
    Ok(Tensor {
        name,
        dtype,
        shape,
        bytes,
    })
}

fn external_range(
    tensor: &TensorProto,
    shape: &[u64],
    needed: u64,
    locations: &mut Locations,
) -> Result<ExternalRange> {
    let get = |key: &str| {
        let mut found = tensor
            .external_data
            .iter()
            .filter(|e| e.key.as_deref() == Some(key));
        match (found.next(), found.next()) {
            (entry, None) => Ok(entry.map(|e| e.value.as_deref().unwrap_or(""))),
            _ => Err(Error::malformed(format!("external data give '{key}' twice"))),
        }
    };
    let number = |key: &str| match get(key)? {
        None => Ok(None),
        Some(v) => v.parse::<u64>().map(Some).map_err(|_| {
            Error::range(format!(
                "external data {key} '{}' is not a number of bytes",
                shown(v)
            ))
        }),
    };
    let location = get("location")?.ok_or_else(|| Error::malformed("external data name no file"))?;
    check::location(location)?;
    let offset = number("offset")?.unwrap_or(0);
    let len = number("length")?.unwrap_or(needed);
    if len != needed {
        return Err(Error::range(format!(
            "external data have {len} bytes, but shape {shape:?} needs {needed}"
        )));
    }
    if offset.checked_add(len).is_none() {
        return Err(Error::range(format!(
            "external data offset {offset} + length {len} overflows"
        )));
    }
    Ok(ExternalRange {
        location: locations.intern(location),
        offset,
        len,
    })
}

/// The elements of a tensor message as bytes: raw, or in the field that belongs to the type.
fn inline_bytes(tensor: &mut TensorProto, dtype: DataType, needed: u64) -> Result<TensorBytes> {
    let align = dtype.bits().map_or(1, |bits| bits.div_ceil(8)) as usize;
    let bytes = match tensor.raw_data.take() {
        Some(raw) => TensorBytes::shared(raw, align),
        None => TensorBytes::owned(&field_bytes(tensor, dtype, needed)?),
    };
    if bytes.len() as u64 != needed {
        let dims = &tensor.dims;
        return Err(Error::range(format!(
            "{} bytes of data, but shape {dims:?} of {dtype} needs {needed}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

fn field_bytes(tensor: &TensorProto, dtype: DataType, needed: u64) -> Result<Vec<u8>> {
    /// The low bytes of each element, however wide it is in the message.
    fn narrow<const N: usize>(values: &[i32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes().into_iter().take(N))
            .collect()
    }
    Ok(match dtype {
        DataType::Float32 => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Float64 => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Int64 => tensor.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Uint64 => tensor.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::Uint32 => tensor
            .uint64_data
            .iter()
            .flat_map(|v| (*v as u32).to_le_bytes())
            .collect(),
        DataType::Int32 => narrow::<4>(&tensor.int32_data),
        DataType::Uint16 | DataType::Int16 | DataType::Float16 | DataType::BFloat16 => {
            narrow::<2>(&tensor.int32_data)
        }
        DataType::Uint8
        | DataType::Int8
        | DataType::Bool
        | DataType::Float8E4M3Fn
        | DataType::Float8E5M2
        | DataType::Uint4
        | DataType::Int4 => narrow::<1>(&tensor.int32_data),
        DataType::String => {
            return Err(Error::unsupported(format!(
                "constant strings are not supported ({needed} bytes)"
            )));
        }
    })
}
