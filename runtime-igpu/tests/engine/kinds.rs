//! The other kinds of decoders that the builder writes: each decodes as stock ONNX Runtime does, or is refused by node.

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuOptions, IgpuPlan};
use serde_json::Value;

use crate::common::{engine, folder, reference};

/// Kinds that run, with the difference allowed relative to the logits' standard deviation.
///
/// The reference of a float16 graph rounds every value to float16; the engine computes in float32.
const RUNS: [(&str, f64); 12] = [
    ("gemma-int4", 1e-3),
    ("gemma2-int4", 1e-3),
    ("gemma3-int4", 1e-3),
    ("llama3-fp16", 2e-2),
    ("mistral-int4", 1e-3),
    ("qwen2-int4", 1e-3),
    ("qwen3-fp16-int4", 2e-2),
    ("qwen3-fp32", 1e-3),
    ("qwen3-int4-b16", 1e-3),
    ("qwen3-int4-b64", 1e-3),
    ("qwen3-int4-prune", 1e-3),
    ("qwen3-int8", 1e-3),
];

/// Kinds that are refused, with what there is no kernel for.
const REFUSED: [(&str, &str); 3] = [
    ("gemma3-int4-ring", "sliding_window_cache"),
    ("phi3-long-int4", "Greater"),
    ("qwen3-int4-qdq", "DequantizeLinear"),
];

/// Kinds that stock ONNX Runtime's CPU provider cannot run, each with one it can that is made from the same checkpoint.
const SIBLINGS: [(&str, &str); 2] = [
    ("llama3-bf16", "llama3-fp16"),
    ("qwen3-fp16-fused-norm", "qwen3-fp32"),
];

fn kind(name: &str) -> ModelFolder {
    folder(&format!("kinds/{name}"))
}

#[test]
fn each_kind_decodes_as_onnx_runtime_does() {
    let references = reference("kinds");
    for (name, tolerance) in RUNS {
        let Some(mut engine) = engine(
            &kind(name),
            IgpuOptions::default(),
            &format!("decode parity of {name}"),
        ) else {
            return;
        };
        let reference = &references["kinds"][name];
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let tokens: Vec<u32> = list(&reference["tokens"])
            .iter()
            .map(|t| t.as_u64().expect("a token") as u32)
            .collect();
        let logits: Vec<_> = tokens
            .iter()
            .map(|&token| engine.decode(token).expect("decodes"))
            .collect();
        let expected = list(&reference["logits"]);
        for (at, expected) in [39, tokens.len() - 1].into_iter().zip(expected) {
            let expected: Vec<f64> = list(&expected)
                .iter()
                .map(|x| x.as_f64().expect("a float"))
                .collect();
            let std = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
            for (i, (got, want)) in logits[at].iter().zip(&expected).enumerate() {
                let difference = (f64::from(*got) - want).abs() / std;
                assert!(
                    difference <= tolerance,
                    "{name}, position {at}: logit {i} is {got}, {want} was expected"
                );
            }
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused_by_operator_and_node() {
    for (name, what) in REFUSED {
        match IgpuPlan::new(&kind(name), IgpuOptions::default()) {
            Ok(_) => panic!("{name} should be refused"),
            Err(error) if error.is_no_adapter() => {
                eprintln!("not exercised: refusal of {name}: {error}");
                return;
            }
            Err(error) => {
                assert!(error.is_unsupported_model(), "{name}: {error:?}");
                assert!(
                    error.operator().is_some() && error.node().is_some(),
                    "{name}: {error:?}"
                );
                assert!(error.to_string().contains(what), "{name}: {error}");
            }
        }
    }
}

#[test]
fn kinds_without_a_reference_decode_as_their_siblings_do() {
    for (name, sibling) in SIBLINGS {
        let what = format!("decode parity of {name}");
        let logits = [name, sibling].map(|name| {
            let mut engine = engine(&kind(name), IgpuOptions::default(), &what)?;
            (1..30).map(|token| engine.decode(token).expect("decodes")).last()
        });
        let [Some(a), Some(b)] = logits else { return };
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
        // bfloat16 keeps eight bits of a weight.
        assert!(cosine > 0.998, "{name} and {sibling}: {cosine}");
    }
}
