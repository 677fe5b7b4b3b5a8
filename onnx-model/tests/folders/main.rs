//! Real folders: the four fixtures, read and taken apart.

#[path = "../support/mod.rs"]
mod support;

mod random;
mod variants;

use onnx_model::write::{AttributeOverride, SubmodelOptions, submodel};
use onnx_model::{Graph, OperatorKind};
use support::{FIXTURES, check_partition, check_weight_bytes, fixture};

#[test]
fn fixtures_are_partitioned_into_six_operators_per_layer() {
    for name in FIXTURES {
        let folder = fixture(name);
        let operators = folder.operators().unwrap();
        check_weight_bytes(&folder);
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

/// Rotary tables are shared by all layers; `qwen3-tiny-int4` shares its embeddings with the last product, its variant does not.
#[test]
fn a_constant_of_several_operators_counts_for_the_first() {
    for (name, is_tied) in [("qwen3-tiny-int4", true), ("qwen3-tiny-int4-asym", false)] {
        let folder = fixture(name);
        let operators = folder.operators().unwrap();
        let named = |name: &str| operators.iter().find(|o| o.name == name).unwrap();
        let bytes = |name: &str| folder.tensor(name).unwrap().bytes.len() as u64;
        let tables = bytes("cos_cache") + bytes("sin_cache");
        let attention = [0, 1, 2, 3].map(|layer| named(&format!("layers.{layer}.attn")).weight_bytes);
        assert!(tables > 0 && attention[0] >= tables, "{name}: {attention:?}");
        assert_eq!([attention[0] - tables; 3], attention[1..], "{name}");
        let [embedding, head] = ["embed_tokens", "lm_head"].map(|name| named(name).weight_bytes);
        assert!(embedding > 100_000, "{name}: {embedding}");
        assert_eq!(head < embedding / 100, is_tied, "{name}: {head} of {embedding}");
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
