//! Real folders: the four fixtures, read and taken apart.

#[path = "../support/mod.rs"]
mod support;

mod random;
mod variants;

use onnx_model::write::{AttributeOverride, SubmodelOptions, submodel};
use onnx_model::{Graph, OperatorKind};
use support::{FIXTURES, check_partition, fixture};

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
        let bytes: usize = data.tensors().values().map(|t| t.bytes.len()).sum();
        assert_eq!(bytes as u64, operator.weight_bytes);
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
