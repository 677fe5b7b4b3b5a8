//! Real folders: the four fixtures, read and taken apart.

use std::collections::HashSet;

use onnx_model::write::{AttributeOverride, SubmodelOptions, submodel};
use onnx_model::{Graph, ModelFolder, Operator, OperatorKind};

const FIXTURES: [&str; 4] = [
    "qwen3-tiny-int4",
    "qwen3-tiny-int4-asym",
    "llama3-tiny-int4",
    "phi3-tiny-int4",
];

fn fixture(name: &str) -> ModelFolder {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/");
    ModelFolder::open(format!("{dir}{name}")).unwrap()
}

/// Every node but Constants in exactly one operator; every input a graph input or an earlier operator's output;
/// every graph output and every value that an operator reads is some operator's output; names unique.
#[track_caller]
fn check_partition(graph: &Graph, operators: &[Operator]) {
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
                    constant || own.contains(value) || operator.inputs.iter().any(|i| i == value),
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
        assert!(
            available.contains(output.name.as_str()),
            "nobody gives {}",
            output.name
        );
    }
}

#[test]
fn fixtures_are_partitioned_into_six_operators_per_layer() {
    for name in FIXTURES {
        let folder = fixture(name);
        let operators = folder.operators().unwrap();
        check_partition(folder.graph(), operators);
        let names: Vec<&str> = operators.iter().map(|o| o.name.as_str()).collect();
        let mut expected = vec!["attn_mask".to_string(), "embed_tokens".to_string()];
        for layer in 0..4 {
            for part in [
                "input_layernorm",
                "attn.qkv_proj",
                "attn",
                "attn.o_proj",
                "post_attention_layernorm",
                "mlp",
            ] {
                expected.push(format!("layers.{layer}.{part}"));
            }
        }
        expected.extend(["final_norm_layernorm".to_string(), "lm_head".to_string()]);
        assert_eq!(names, expected);
        for kind in OperatorKind::ALL {
            let n = operators.iter().filter(|o| o.kind == kind).count();
            let expected = match kind {
                OperatorKind::Norm => 9,
                OperatorKind::MatMulNBits => 8,
                OperatorKind::Mlp | OperatorKind::GroupQueryAttention => 4,
                _ => 1,
            };
            assert_eq!(n, expected, "{kind}");
        }
    }
}

#[test]
fn operator_data_hold_constants_types_and_a_model() {
    let folder = fixture("qwen3-tiny-int4-asym");
    let options = SubmodelOptions {
        attributes: vec![AttributeOverride::int("MatMulNBits", "accuracy_level", 1)],
        ..Default::default()
    };
    for operator in folder.operators().unwrap() {
        let data = folder.read(operator).unwrap();
        data.prefault().unwrap();
        assert_eq!(data.weight_bytes(), operator.weight_bytes);
        let model = submodel(&data, &options);
        assert!(model.external.iter().all(|name| data.tensor(name).is_some()));
        let read = Graph::parse(model.bytes).unwrap();
        assert_eq!(read.nodes.len(), operator.nodes.len());
        assert_eq!(read.inputs, data.inputs());
        assert_eq!(read.outputs, data.outputs());
        for node in read.nodes.iter().filter(|n| n.is_contrib("MatMulNBits")) {
            assert_eq!(node.int("accuracy_level").unwrap(), 1);
        }
    }
}
