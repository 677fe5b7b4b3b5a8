//! What the test targets share: fixtures, partition check, models built by hand.
#![allow(dead_code)]

pub mod qwen3_4b;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use onnx_model::proto::*;
use onnx_model::{Attribute, AttributeValue, DataType, Graph, ModelFolder, Node, Operator};
use prost::Message;

pub const FIXTURES: [&str; 4] = [
    "qwen3-tiny-int4",
    "qwen3-tiny-int4-asym",
    "llama3-tiny-int4",
    "phi3-tiny-int4",
];

pub fn fixture_dir(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models")).join(name)
}

pub fn fixture(name: &str) -> ModelFolder {
    ModelFolder::open(fixture_dir(name)).unwrap()
}

/// Operators take together what the constants take that nodes read or have in their attributes, each counted once.
#[track_caller]
pub fn check_weight_bytes(folder: &ModelFolder) {
    fn embedded(node: &Node) -> u64 {
        let of = |attribute: &Attribute| match &attribute.value {
            AttributeValue::Tensor(tensor) => tensor.bytes.len() as u64,
            AttributeValue::Graph(graph) => {
                let inner: u64 = graph.nodes.iter().map(embedded).sum();
                inner
                    + graph
                        .initializers
                        .iter()
                        .map(|t| t.dtype.byte_len(&t.shape).unwrap())
                        .sum::<u64>()
            }
            _ => 0,
        };
        node.attributes.iter().map(of).sum()
    }
    let operators = folder.operators().unwrap();
    let data: Vec<_> = operators.iter().map(|o| folder.read(o).unwrap()).collect();
    let tensors = data.iter().flat_map(|data| data.tensors());
    let distinct: BTreeMap<_, _> = tensors
        .map(|(name, tensor)| (name, tensor.bytes.len() as u64))
        .collect();
    let in_attributes: u64 = data.iter().flat_map(|data| data.nodes()).map(embedded).sum();
    assert_eq!(
        operators.iter().map(|o| o.weight_bytes).sum::<u64>(),
        distinct.values().sum::<u64>() + in_attributes,
        "{}",
        folder.dir().display()
    );
}

/// Every node but Constants in exactly one operator; every input a graph input or an earlier operator's output (so
/// no operators need each other's results); every graph output and every value that an operator reads is given by
/// some operator; names unique.
#[track_caller]
pub fn check_partition(graph: &Graph, operators: &[Operator]) {
    let mut nodes = HashSet::new();
    let mut names = HashSet::new();
    let mut available: HashSet<&str> = graph.inputs.iter().map(|v| v.name.as_str()).collect();
    for (i, operator) in operators.iter().enumerate() {
        assert_eq!(operator.id.index(), i);
        assert!(
            names.insert(&operator.name),
            "two operators are called {}",
            operator.name
        );
        for input in &operator.inputs {
            assert!(
                available.contains(input.as_str()),
                "{} reads {input} before it is there",
                operator.name
            );
        }
        let inputs: HashSet<&str> = operator.inputs.iter().map(String::as_str).collect();
        assert_eq!(
            inputs.len(),
            operator.inputs.len(),
            "{} has an input twice",
            operator.name
        );
        let own: HashSet<&str> = operator
            .nodes
            .iter()
            .flat_map(|&id| &graph.node(id).outputs)
            .map(String::as_str)
            .collect();
        for &id in &operator.nodes {
            assert!(nodes.insert(id), "a node is in two operators");
            for value in graph.node(id).reads() {
                let constant = graph.initializer(value).is_some() || graph.constant(value).is_some();
                assert!(
                    constant || own.contains(value) || inputs.contains(value),
                    "{} reads {value}, which is not among its inputs",
                    operator.name
                );
            }
        }
        assert!(operator.outputs.iter().all(|o| own.contains(o.as_str())));
        available.extend(operator.outputs.iter().map(String::as_str));
    }
    for id in graph.node_ids() {
        assert_eq!(
            nodes.contains(&id),
            !graph.node(id).is("Constant"),
            "node {}",
            graph.node(id).label()
        );
    }
    for output in &graph.outputs {
        let constant = graph.initializer(&output.name).is_some() || graph.constant(&output.name).is_some();
        assert!(
            constant || available.contains(output.name.as_str()),
            "nobody gives {}",
            output.name
        );
    }
}

pub fn node(op_type: &str, name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(op_type.into()),
        name: Some(name.into()),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        ..Default::default()
    }
}

/// A cast to int32.
pub fn cast(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let attribute = vec![int("to", DataType::Int32.onnx().into())];
    NodeProto {
        attribute,
        ..node("Cast", name, inputs, outputs)
    }
}

pub fn contrib(
    op_type: &str,
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    ints: &[(&str, i64)],
) -> NodeProto {
    let attribute = ints.iter().map(|&(name, value)| int(name, value)).collect();
    NodeProto {
        domain: Some("com.microsoft".into()),
        attribute,
        ..node(op_type, name, inputs, outputs)
    }
}

pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(value),
        r#type: Some(AttributeType::Int as i32),
        ..Default::default()
    }
}

pub fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        g: Some(Box::new(graph)),
        r#type: Some(AttributeType::Graph as i32),
        ..Default::default()
    }
}

pub fn value(name: &str, dtype: DataType) -> ValueInfoProto {
    let tensor_type = Some(TensorTypeProto {
        elem_type: Some(dtype.onnx()),
        shape: None,
    });
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            tensor_type,
            denotation: None,
        }),
        doc_string: None,
    }
}

pub fn external(name: &str, dtype: DataType, dims: &[i64], place: &[(&str, &str)]) -> TensorProto {
    let entry = |(k, v): &(&str, &str)| StringStringEntryProto {
        key: Some(k.to_string()),
        value: Some(v.to_string()),
    };
    TensorProto {
        name: Some(name.into()),
        data_type: Some(dtype.onnx()),
        dims: dims.to_vec(),
        data_location: Some(DataLocation::External as i32),
        external_data: place.iter().map(entry).collect(),
        ..Default::default()
    }
}

pub fn inline(name: &str, dtype: DataType, dims: &[i64], raw: Vec<u8>) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(dtype.onnx()),
        dims: dims.to_vec(),
        raw_data: Some(raw.into()),
        ..Default::default()
    }
}

pub fn model(graph: GraphProto) -> ModelProto {
    let opset = |domain: &str, version| OperatorSetIdProto {
        domain: Some(domain.into()),
        version: Some(version),
    };
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![opset("", 22), opset("com.microsoft", 1)],
        graph: Some(Box::new(graph)),
        ..Default::default()
    }
}

pub fn encode(graph: GraphProto) -> Vec<u8> {
    model(graph).encode_to_vec()
}

/// A one-layer decoder of the smallest size that passes all checks, for tests that then break it.
pub fn tiny_graph() -> GraphProto {
    let f = DataType::Float32;
    let file = |offset: &'static str, length: &'static str| {
        [
            ("location", "model.onnx.data"),
            ("offset", offset),
            ("length", length),
        ]
    };
    GraphProto {
        node: vec![
            node(
                "Gather",
                "/model/embed_tokens/Gather",
                &["embed", "input_ids"],
                &["x"],
            ),
            node(
                "Shape",
                "/model/attn_mask_reformat/Shape",
                &["attention_mask"],
                &["mask_shape"],
            ),
            node(
                "Cast",
                "/model/attn_mask_reformat/Cast",
                &["mask_shape"],
                &["lengths"],
            ),
            contrib(
                "MatMulNBits",
                "/model/layers.0/attn/qkv_proj/MatMul",
                &["x", "w", "scales"],
                &["qkv"],
                &[("K", 16), ("N", 48), ("bits", 4), ("block_size", 16)],
            ),
            contrib(
                "GroupQueryAttention",
                "/model/layers.0/attn/GroupQueryAttention",
                &[
                    "qkv",
                    "",
                    "",
                    "past_key_values.0.key",
                    "past_key_values.0.value",
                    "lengths",
                    "lengths",
                ],
                &["a", "present.0.key", "present.0.value"],
                &[("num_heads", 1), ("kv_num_heads", 1)],
            ),
            node("MatMul", "/lm_head/MatMul", &["a", "head"], &["logits"]),
        ],
        initializer: vec![
            external("embed", f, &[8, 16], &file("0", "512")),
            external("w", DataType::Uint8, &[48, 1, 8], &file("512", "384")),
            external("scales", f, &[48, 1], &file("896", "192")),
            external("head", f, &[16, 8], &file("1088", "512")),
        ],
        input: vec![
            value("input_ids", DataType::Int64),
            value("attention_mask", DataType::Int64),
            value("past_key_values.0.key", f),
            value("past_key_values.0.value", f),
        ],
        output: vec![
            value("logits", f),
            value("present.0.key", f),
            value("present.0.value", f),
        ],
        ..Default::default()
    }
}

/// Bytes of the weights of [`tiny_graph`].
pub const TINY_DATA: usize = 1600;

pub const TINY_CONFIG: &str = r#"{"model": {"type": "llama", "context_length": 8, "vocab_size": 8, "eos_token_id": 7, "decoder": {
    "head_size": 16, "hidden_size": 16, "num_attention_heads": 1, "num_hidden_layers": 1, "num_key_value_heads": 1}}}"#;

/// A folder on disk, removed when dropped.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn tiny() -> Self {
        Folder::new(&encode(tiny_graph()), TINY_DATA)
    }

    pub fn new(graph: &[u8], data_bytes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("genai_config.json"), TINY_CONFIG).unwrap();
        std::fs::write(dir.path().join("model.onnx"), graph).unwrap();
        std::fs::write(dir.path().join("model.onnx.data"), vec![1u8; data_bytes]).unwrap();
        Folder(dir)
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    pub fn open(&self) -> onnx_model::Result<ModelFolder> {
        ModelFolder::open(self.0.path())
    }
}
