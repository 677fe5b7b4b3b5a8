//! The typed graph: nodes with attributes, initializers, declared values.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, TensorBytes};

/// Index of a node in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A graph that passed all checks: every value is produced exactly once, every input exists, nodes are in
/// topological order.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Graph {
    /// Name, may be empty.
    pub name: String,
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Graph inputs.
    pub inputs: Vec<ValueInfo>,
    /// Graph outputs.
    pub outputs: Vec<ValueInfo>,
    /// Constant tensors.
    pub initializers: Vec<Initializer>,
    /// Declared types of values in between.
    pub value_info: Vec<ValueInfo>,
    /// Operator sets of the model; empty in the graph of an attribute.
    pub opset_imports: Vec<OpsetImport>,
    /// ONNX IR version of the model; 0 in the graph of an attribute.
    pub ir_version: i64,
    /// Tool that wrote the model.
    pub producer: String,
    pub(crate) index: Index,
}

/// Where each value comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(crate) producers: HashMap<String, NodeId>,
    pub(crate) initializers: HashMap<String, u32>,
    pub(crate) declared: HashMap<String, Declared>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Declared {
    Input(u32),
    Output(u32),
    Between(u32),
}

impl Graph {
    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All ids, in topological order.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The node that produces this value.
    pub fn producer(&self, value: &str) -> Option<NodeId> {
        self.index.producers.get(value).copied()
    }

    /// The initializer of this name.
    pub fn initializer(&self, name: &str) -> Option<&Initializer> {
        self.index
            .initializers
            .get(name)
            .map(|&i| &self.initializers[i as usize])
    }

    /// What is declared about this value: graph input, output or value in between.
    pub fn declared(&self, value: &str) -> Option<&ValueInfo> {
        self.index.declared.get(value).map(|d| match *d {
            Declared::Input(i) => &self.inputs[i as usize],
            Declared::Output(i) => &self.outputs[i as usize],
            Declared::Between(i) => &self.value_info[i as usize],
        })
    }

    /// The value of a `Constant` node, by the name of its output.
    pub fn constant(&self, value: &str) -> Option<&Tensor> {
        self.node(self.producer(value)?).constant_value()
    }

    /// Whether this name is a graph input that no initializer gives a value to.
    pub fn is_input(&self, value: &str) -> bool {
        matches!(self.index.declared.get(value), Some(Declared::Input(_)))
            && !self.index.initializers.contains_key(value)
    }

    /// Version of the operator set of this domain ("" or "ai.onnx" for the standard one).
    pub fn opset(&self, domain: &str) -> Option<i64> {
        let domain = plain_domain(domain);
        self.opset_imports
            .iter()
            .find(|o| o.domain == domain)
            .map(|o| o.version)
    }

    /// Puts the checked parts together and indexes them.
    pub(crate) fn reindex(&mut self) {
        let index = &mut self.index;
        *index = Index::default();
        for (i, node) in self.nodes.iter().enumerate() {
            for output in node.outputs.iter().filter(|o| !o.is_empty()) {
                index.producers.insert(output.clone(), NodeId(i as u32));
            }
        }
        for (i, initializer) in self.initializers.iter().enumerate() {
            index.initializers.insert(initializer.name.clone(), i as u32);
        }
        let between = self
            .value_info
            .iter()
            .zip(0..)
            .map(|(v, i)| (v, Declared::Between(i)));
        let outputs = self
            .outputs
            .iter()
            .zip(0..)
            .map(|(v, i)| (v, Declared::Output(i)));
        let inputs = self.inputs.iter().zip(0..).map(|(v, i)| (v, Declared::Input(i)));
        for (value, declared) in between.chain(outputs).chain(inputs) {
            index.declared.insert(value.name.clone(), declared);
        }
    }
}

/// The standard domain has two names.
pub(crate) fn plain_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// An operator set: a domain ("" is the standard one) and a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpsetImport {
    /// Domain.
    pub domain: String,
    /// Version.
    pub version: i64,
}

/// A named value with what is declared about its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Shape; `None` when not even the rank is known.
    pub shape: Option<Vec<Dimension>>,
}

/// One dimension of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// A number.
    Fixed(u64),
    /// A symbol such as `sequence_length`.
    Symbol(String),
    /// Not said.
    Unknown,
}

/// A constant tensor of the graph: its type, and where its bytes are.
#[derive(Clone, Debug)]
pub struct Initializer {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Shape.
    pub shape: Vec<u64>,
    /// The bytes.
    pub data: InitializerData,
}

impl Initializer {
    /// Bytes of the tensor.
    pub fn byte_len(&self) -> u64 {
        match &self.data {
            InitializerData::Inline(bytes) => bytes.len() as u64,
            InitializerData::External(range) => range.len,
        }
    }
}

/// Where a constant tensor's bytes are.
#[derive(Clone, Debug)]
pub enum InitializerData {
    /// In the graph file itself.
    Inline(TensorBytes),
    /// In another file of the folder.
    External(ExternalRange),
}

/// A byte range of a file next to the graph file. Invariant: `offset + len` does not overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalRange {
    /// File, relative to the folder, as the graph names it.
    pub location: Arc<str>,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// One node: an operator applied to named values.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Name, may be empty.
    pub name: String,
    /// Domain of the operator; "" is the standard one.
    pub domain: String,
    /// Operator type.
    pub op_type: String,
    /// Input values in order; "" is an absent optional input.
    pub inputs: Vec<String>,
    /// Output values in order; "" is an output nobody wants.
    pub outputs: Vec<String>,
    /// Attributes in the order of the file.
    pub attributes: Vec<Attribute>,
    /// Values from outside that the graphs in attributes use, without duplicates.
    pub captures: Vec<String>,
}

/// A node's attribute.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Name.
    pub name: String,
    /// Value.
    pub value: AttributeValue,
}

/// An attribute's value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttributeValue {
    /// A float.
    Float(f32),
    /// An integer.
    Int(i64),
    /// Text.
    String(String),
    /// A constant tensor.
    Tensor(Tensor),
    /// A graph, as in `If`.
    Graph(Arc<Graph>),
    /// Floats.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
    /// Texts.
    Strings(Vec<String>),
}

impl AttributeValue {
    fn kind(&self) -> &'static str {
        match self {
            AttributeValue::Float(_) => "a float",
            AttributeValue::Int(_) => "an integer",
            AttributeValue::String(_) => "a string",
            AttributeValue::Tensor(_) => "a tensor",
            AttributeValue::Graph(_) => "a graph",
            AttributeValue::Floats(_) => "a list of floats",
            AttributeValue::Ints(_) => "a list of integers",
            AttributeValue::Strings(_) => "a list of strings",
        }
    }
}

macro_rules! attribute_getters {
    ($($(#[$doc:meta])* $required:ident, $optional:ident, $variant:ident => $ty:ty, $what:literal, |$v:ident| $get:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// The node has no such attribute, or it is of another kind.
        pub fn $required(&self, name: &str) -> Result<$ty> {
            self.$optional(name)?.ok_or_else(|| self.error(Error::malformed(format!("attribute '{name}' is missing"))))
        }

        #[doc = concat!("As [`Node::", stringify!($required), "`], `None` if the node has no such attribute.")]
        ///
        /// # Errors
        /// The attribute is of another kind.
        pub fn $optional(&self, name: &str) -> Result<Option<$ty>> {
            match self.attribute(name) {
                None => Ok(None),
                Some(AttributeValue::$variant($v)) => Ok(Some($get)),
                Some(other) => Err(self.error(Error::malformed(
                    format!(concat!("attribute '{}' should be ", $what, ", is {}"), name, other.kind())))),
            }
        }
    )* };
}

impl Node {
    /// The node's name, or for a nameless one its operator type and first output.
    pub fn label(&self) -> String {
        match (self.name.as_str(), self.outputs.iter().find(|o| !o.is_empty())) {
            ("", Some(output)) => format!("{} -> {output}", self.op_type),
            ("", None) => self.op_type.clone(),
            (name, _) => name.to_string(),
        }
    }

    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|a| a.name == name).map(|a| &a.value)
    }

    attribute_getters! {
        /// An integer attribute.
        int, int_opt, Int => i64, "an integer", |v| *v;
        /// A float attribute.
        float, float_opt, Float => f32, "a float", |v| *v;
        /// A string attribute.
        string, string_opt, String => &str, "a string", |v| v.as_str();
        /// A list of integers.
        ints, ints_opt, Ints => &[i64], "a list of integers", |v| v.as_slice();
        /// A list of floats.
        floats, floats_opt, Floats => &[f32], "a list of floats", |v| v.as_slice();
        /// A tensor attribute.
        tensor, tensor_opt, Tensor => &Tensor, "a tensor", |v| v;
        /// A graph attribute.
        graph, graph_opt, Graph => &Graph, "a graph", |v| v;
    }

    /// The input at this position; `None` when absent.
    pub fn input(&self, position: usize) -> Option<&str> {
        self.inputs
            .get(position)
            .map(String::as_str)
            .filter(|i| !i.is_empty())
    }

    /// The output at this position; `None` when absent.
    pub fn output(&self, position: usize) -> Option<&str> {
        self.outputs
            .get(position)
            .map(String::as_str)
            .filter(|o| !o.is_empty())
    }

    /// All values the node reads, also inside the graphs of its attributes.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        self.inputs
            .iter()
            .filter(|i| !i.is_empty())
            .chain(&self.captures)
            .map(String::as_str)
    }

    /// Whether this is the operator `op_type` of the standard domain.
    pub fn is(&self, op_type: &str) -> bool {
        self.domain.is_empty() && self.op_type == op_type
    }

    /// Whether this is the operator `op_type` of domain `com.microsoft`.
    pub fn is_contrib(&self, op_type: &str) -> bool {
        self.domain == "com.microsoft" && self.op_type == op_type
    }

    /// The value of a `Constant` node, held in attribute `value` after parsing.
    pub fn constant_value(&self) -> Option<&Tensor> {
        // The type first: other nodes may have any number of attributes to look through.
        match self.is("Constant").then(|| self.attribute("value"))? {
            Some(AttributeValue::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }

    /// Bytes of the constants in the node's attributes, graphs included.
    pub(crate) fn embedded_bytes(&self) -> u64 {
        let of = |attribute: &Attribute| match &attribute.value {
            AttributeValue::Tensor(tensor) => tensor.bytes.len() as u64,
            AttributeValue::Graph(graph) => {
                let initializers = graph.initializers.iter().map(Initializer::byte_len);
                initializers
                    .chain(graph.nodes.iter().map(Node::embedded_bytes))
                    .fold(0, u64::saturating_add)
            }
            _ => 0,
        };
        self.attributes.iter().map(of).fold(0, u64::saturating_add)
    }

    /// `error` with this node named.
    pub(crate) fn error(&self, error: Error) -> Error {
        error.at_node(self.label())
    }
}
