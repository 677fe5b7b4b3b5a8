//! The other kinds of decoders that the builder writes: each runs with parity, or is refused at load by operator and node.

use runtime_npu::{AccuracyLevel, Warmth};
use scheduler::InitMode;

use tests::npu::{argmax, at_level, engine, folder, largest_difference, load, options, prompt, stock};

const N_PROMPT: usize = 100;
const N_TOKENS: usize = 20;

/// Prompt and greedy tokens of both sides; the largest difference of any logit.
#[track_caller]
fn check(kind: &str, tolerance: f32) {
    let folder = folder(&format!("kinds/{kind}"));
    let (engine, stock) = (
        engine(&folder, at_level(AccuracyLevel::Float32)),
        stock(&folder, Some(AccuracyLevel::Float32)),
    );
    let prompt = prompt(&folder, N_PROMPT);
    let capacity = N_PROMPT + N_TOKENS;
    let (mut ours, mut theirs) = (
        engine.new_cache(capacity).unwrap(),
        stock.new_cache(capacity).unwrap(),
    );
    let expected = stock.run(&mut theirs, &prompt).unwrap();
    let logits = engine.prefill_all_logits(&mut ours, &prompt).unwrap();
    let mut difference = largest_difference(&logits, &expected);
    let mut token = argmax(&expected[expected.len() - folder.geometry().vocab..]);
    for _ in 0..N_TOKENS {
        let expected = stock.run(&mut theirs, &[token]).unwrap();
        difference = difference.max(largest_difference(
            &engine.decode(&mut ours, token).unwrap(),
            &expected,
        ));
        token = argmax(&expected);
    }
    assert!(difference <= tolerance, "{kind}: {difference}");
    let cold: Vec<&str> = engine
        .placements()
        .filter(|(_, _, warmth)| *warmth == Warmth::Cold)
        .map(|(o, ..)| o.name.as_str())
        .collect();
    assert!(cold.is_empty(), "{kind}: set up without a warm-up run: {cold:?}");
}

#[track_caller]
fn check_refused(kind: &str, operator: &str, node: &str, why: &str) {
    let folder = folder(&format!("kinds/{kind}"));
    let error = load(&folder, options(), InitMode::Overlapped)
        .err()
        .expect("should be refused")
        .to_string();
    for part in [operator, node, why] {
        assert!(error.contains(part), "{kind}: no {part:?} in: {error}");
    }
}

#[test]
fn gemma_scales_its_embedding() {
    check("gemma-int4", 1e-4);
}

#[test]
fn gemma2_caps_logits_and_attention() {
    check("gemma2-int4", 1e-4);
}

#[test]
fn gemma3_has_two_rotary_tables() {
    check("gemma3-int4", 1e-4);
}

#[test]
fn mistral() {
    check("mistral-int4", 1e-4);
}

#[test]
fn qwen2_has_biases() {
    check("qwen2-int4", 1e-4);
}

#[test]
fn phi3_chooses_rotary_tables_by_length() {
    check("phi3-long-int4", 1e-4);
}

#[test]
fn eight_bit_weights() {
    check("qwen3-int8", 1e-4);
}

#[test]
fn other_block_sizes() {
    check("qwen3-int4-b16", 1e-4);
    check("qwen3-int4-b64", 1e-4);
}

#[test]
fn dequantization_as_nodes() {
    check("qwen3-int4-qdq", 1e-4);
}

#[test]
fn last_position_only_in_the_graph() {
    check("qwen3-int4-prune", 1e-4);
}

#[test]
fn float32() {
    check("qwen3-fp32", 1e-4);
}

/// Stock keeps some values between operators in float32 where the graph says float16: two units in the last place of a logit.
#[test]
fn float16() {
    check("llama3-fp16", 8e-3);
    check("qwen3-fp16-int4", 8e-3);
}

#[test]
fn ring_buffer_cache_is_refused() {
    check_refused(
        "gemma3-int4-ring",
        "layers.0.attn",
        "GroupQueryAttention",
        "windowed_kv_cache=false",
    );
}

#[test]
fn bfloat16_is_refused() {
    check_refused("llama3-bf16", "embed_tokens", "Gather", "bfloat16");
}

#[test]
fn norms_inside_attention_are_refused() {
    check_refused(
        "qwen3-fp16-fused-norm",
        "layers.0.attn",
        "GroupQueryAttention",
        "fuse_qk_norm_gqa=false",
    );
}
