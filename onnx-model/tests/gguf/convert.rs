//! What a converted folder holds is what the file held.

use crate::build::{GgufBuilder, Meta, tiny_llama};
use onnx_model::gguf::{ConvertMode, GgufFile, TensorType, convert};
use onnx_model::{Error, ModelFolder};
use std::io::Cursor;
use std::path::Path;
use tempfile::TempDir;

fn open(gguf: &GgufBuilder) -> GgufFile<Cursor<Vec<u8>>> {
    GgufFile::from_reader("test.gguf", Cursor::new(gguf.bytes())).unwrap()
}

fn converted(gguf: &GgufBuilder, mode: ConvertMode) -> (TempDir, ModelFolder) {
    let dir = tempfile::tempdir().unwrap();
    convert(&mut open(gguf), dir.path(), mode, &mut |_| ()).unwrap();
    let folder = ModelFolder::open(dir.path()).unwrap();
    (dir, folder)
}

#[track_caller]
fn refused(gguf: &GgufBuilder, mode: ConvertMode, message: &str) -> Error {
    let dir = tempfile::tempdir().unwrap();
    let error = GgufFile::from_reader("test.gguf", Cursor::new(gguf.bytes()))
        .and_then(|mut file| convert(&mut file, dir.path(), mode, &mut |_| ()))
        .unwrap_err();
    assert!(error.to_string().contains(message), "{error}");
    assert_eq!(error.file(), Some(Path::new("test.gguf")), "{error}");
    error
}

/// The float weights of a stored matrix, by the definition of MatMulNBits.
fn dequantized(folder: &ModelFolder, base: &str, columns: usize, bits: usize, block_size: usize) -> Vec<f32> {
    let values = folder.tensor(&format!("{base}.weight_Q4G{block_size}")).unwrap();
    let scales = folder.tensor(&format!("{base}.weight_scale")).unwrap();
    let scales = scales.to_f32().unwrap();
    let zero_points = folder.tensor(&format!("{base}.weight_zp")).ok();
    let blocks = columns.div_ceil(block_size);
    let rows = scales.len() / blocks;
    let mut out = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let block = row * blocks + column / block_size;
            let at = block * block_size + column % block_size;
            let q = match bits {
                8 => f32::from(values.bytes[at]),
                _ => f32::from(values.bytes[at / 2] >> (4 * (at % 2)) & 15),
            };
            let zero = match &zero_points {
                None => (1 << (bits - 1)) as f32,
                Some(zp) if zp.dtype == onnx_model::DataType::Float32 => zp.to_f32().unwrap()[block],
                Some(zp) => {
                    let in_row = column / block_size;
                    f32::from(zp.bytes[row * blocks.div_ceil(2) + in_row / 2] >> (4 * (in_row % 2)) & 15)
                }
            };
            out.push(scales[block] * (q - zero));
        }
    }
    out
}

/// The file's own weights in Hugging Face's row order: within a head, feature `i` of half `h` was stored at `2 i + h`.
fn expected(gguf: &GgufBuilder, parts: &[(&str, Option<usize>)]) -> Vec<f32> {
    let mut file = open(gguf);
    let mut out = Vec::new();
    for (name, heads) in parts {
        let tensor = file.tensor(name).unwrap().clone();
        let weights = file.rows_f32(name, 0..tensor.rows).unwrap();
        let row = |index: usize| &weights[index * tensor.columns..][..tensor.columns];
        match heads {
            None => out.extend(weights),
            Some(heads) => {
                let head_dim = tensor.rows / heads;
                for head in 0..*heads {
                    for half in 0..2 {
                        (0..head_dim / 2).for_each(|i| out.extend(row(head * head_dim + 2 * i + half)));
                    }
                }
            }
        }
    }
    out
}

#[track_caller]
fn close(found: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(found.len(), wanted.len());
    let worst = found
        .iter()
        .zip(wanted)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(worst <= tolerance, "off by {worst}, allowed {tolerance}");
}

#[track_caller]
fn check_weights(
    gguf: &GgufBuilder,
    mode: ConvertMode,
    bits: (usize, usize),
    block_size: usize,
    tolerance: f32,
) {
    let (_dir, folder) = converted(gguf, mode);
    let layer = "model.layers.1";
    let qkv = [
        ("blk.1.attn_q.weight", Some(4)),
        ("blk.1.attn_k.weight", Some(2)),
        ("blk.1.attn_v.weight", None),
    ];
    let found = dequantized(
        &folder,
        &format!("{layer}.attn.qkv_proj.MatMul"),
        64,
        bits.0,
        block_size,
    );
    close(&found, &expected(gguf, &qkv), tolerance);
    // 96 columns are no whole number of blocks of 64.
    let found = dequantized(
        &folder,
        &format!("{layer}.mlp.down_proj.MatMul"),
        96,
        bits.0,
        block_size,
    );
    close(
        &found,
        &expected(gguf, &[("blk.1.ffn_down.weight", None)]),
        tolerance,
    );
    let found = dequantized(&folder, "lm_head.MatMul", 64, bits.1, block_size);
    close(&found, &expected(gguf, &[("token_embd.weight", None)]), tolerance);
    let norm = folder
        .tensor("model.layers.2.final_norm_layernorm.weight")
        .unwrap();
    close(
        &norm.to_f32().unwrap(),
        &expected(gguf, &[("output_norm.weight", None)]),
        0.0,
    );
}

/// Half a step of the coarsest block: weights lie between -1 and 1.
const STEP8: f32 = 0.5 / 127.0 + 1e-6;
const STEP4: f32 = 0.5 * 2.0 / 15.0 + 1e-3;

#[test]
fn exact_mode_keeps_every_type() {
    for (linear, bits) in [
        (TensorType::Q4_0, 4),
        (TensorType::Q4_1, 4),
        (TensorType::Q8_0, 8),
    ] {
        check_weights(
            &tiny_llama(linear, TensorType::Q8_0),
            ConvertMode::Exact,
            (bits, 8),
            32,
            1e-6,
        );
    }
}

#[test]
fn other_modes_are_off_by_half_a_step_at_most() {
    for linear in [
        TensorType::Q4_1,
        TensorType::Q4_0,
        TensorType::Q8_0,
        TensorType::F16,
        TensorType::Bf16,
        TensorType::F32,
    ] {
        let gguf = tiny_llama(linear, TensorType::F16);
        check_weights(&gguf, ConvertMode::Int8, (8, 8), 64, STEP8);
        // Zero points are rounded too.
        check_weights(&gguf, ConvertMode::Int4Asymmetric, (4, 4), 32, 2.0 * STEP4);
        // The side away from the extreme is cut off one step early.
        check_weights(&gguf, ConvertMode::Int4Symmetric, (4, 4), 32, 2.0 * STEP4);
    }
}

#[test]
fn the_folder_has_the_files_geometry_and_operators() {
    let (dir, folder) = converted(&tiny_llama(TensorType::Q4_1, TensorType::Q8_0), ConvertMode::Int8);
    let geometry = folder.geometry();
    assert_eq!(
        (
            geometry.layers,
            geometry.hidden,
            geometry.heads,
            geometry.kv_heads
        ),
        (2, 64, 4, 2)
    );
    assert_eq!(
        (geometry.head_dim, geometry.vocab, geometry.context_length),
        (16, 300, 128)
    );
    assert_eq!((geometry.bos, &geometry.eos[..]), (Some(1), &[2][..]));
    let names: Vec<&str> = folder
        .operators()
        .unwrap()
        .iter()
        .map(|operator| operator.name.as_str())
        .collect();
    for name in [
        "embed_tokens",
        "layers.0.attn.qkv_proj",
        "layers.1.mlp",
        "lm_head",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(text("chat_template.jinja"), "{{ messages[0]['content'] }}");
    let tokenizer: serde_json::Value = serde_json::from_str(&text("tokenizer.json")).unwrap();
    assert_eq!(tokenizer["pre_tokenizer"]["pretokenizers"][0]["type"], "Digits");
    assert_eq!(tokenizer["added_tokens"][2]["content"], "<|im_end|>");
    let config: serde_json::Value = serde_json::from_str(&text("tokenizer_config.json")).unwrap();
    assert_eq!(config["eos_token"], "<|im_end|>");
}

#[test]
fn a_separate_output_keeps_the_embedding_as_floats() {
    let mut gguf = tiny_llama(TensorType::Q4_1, TensorType::F16);
    gguf.tensor("output.weight", 300, 64, TensorType::Q8_0);
    let (_dir, folder) = converted(&gguf, ConvertMode::Int8);
    let table = folder.tensor("model.embed_tokens.weight").unwrap();
    close(
        &table.to_f32().unwrap(),
        &expected(&gguf, &[("token_embd.weight", None)]),
        0.0,
    );
    let head = dequantized(&folder, "lm_head.MatMul", 64, 8, 64);
    close(&head, &expected(&gguf, &[("output.weight", None)]), STEP8);
}

#[test]
fn progress_ends_at_the_total() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    let gguf = tiny_llama(TensorType::Q4_1, TensorType::Q8_0);
    convert(&mut open(&gguf), dir.path(), ConvertMode::Int8, &mut |progress| {
        seen.push(progress)
    })
    .unwrap();
    assert!(seen.is_sorted_by_key(|progress| (progress.weights, progress.bytes)));
    let last = seen.last().unwrap();
    assert_eq!(last.weights, last.total_weights);
}

#[test]
fn what_cannot_be_converted_is_refused_by_name() {
    let fresh = || tiny_llama(TensorType::Q4_1, TensorType::Q8_0);
    let text = |value: &str| Meta::Str(value.into());
    let with = |key: &str, value: Meta| {
        let mut gguf = fresh();
        gguf.set(key, value);
        gguf
    };
    let cases = [
        (with("general.architecture", text("mamba")), "\"mamba\""),
        (with("tokenizer.ggml.model", text("llama")), "\"llama\""),
        (with("tokenizer.ggml.pre", text("qwen2")), "\"qwen2\""),
        (with("llama.rope.scaling.type", text("yarn")), "scaled rotary"),
        (with("llama.expert_count", Meta::U32(8)), "mixtures of experts"),
        (with("llama.rope.dimension_count", Meta::U32(8)), "partly rotated"),
    ];
    for (gguf, message) in cases {
        assert!(
            refused(&gguf, ConvertMode::Int8, message).is_unsupported(),
            "{message}"
        );
    }
    let mut gguf = fresh();
    gguf.tensors[3].tag = 14;
    assert!(
        refused(
            &gguf,
            ConvertMode::Int8,
            "tensor blk.0.attn_q.weight: type 14 (Q6_K)"
        )
        .is_unsupported()
    );
    let floats = tiny_llama(TensorType::F16, TensorType::Q8_0);
    assert!(refused(&floats, ConvertMode::Exact, "type F16 has no integers").is_unsupported());
}

#[test]
fn what_is_inconsistent_is_named() {
    let fresh = || tiny_llama(TensorType::Q4_1, TensorType::Q8_0);
    let check = |change: fn(&mut GgufBuilder), message: &str| {
        let mut gguf = fresh();
        change(&mut gguf);
        let error = refused(&gguf, ConvertMode::Int8, message);
        assert!(error.is_malformed() || error.is_invalid_argument(), "{error:?}");
    };
    check(
        |gguf| gguf.remove("llama.block_count"),
        "metadata llama.block_count is missing",
    );
    check(
        |gguf| gguf.set("llama.block_count", Meta::Str("2".into())),
        "is a string, expected an integer",
    );
    check(
        |gguf| gguf.set("tokenizer.ggml.eos_token_id", Meta::U32(300)),
        "token 300 is outside of the vocabulary",
    );
    check(
        |gguf| gguf.set("llama.attention.head_count", Meta::U32(0)),
        "0 attention heads",
    );
    check(
        |gguf| gguf.set("llama.feed_forward_length", Meta::U32(64)),
        "ffn_gate.weight has 96 rows of 64 columns, expected 64",
    );
    check(
        |gguf| gguf.tensors.retain(|tensor| tensor.name != "blk.1.ffn_up.weight"),
        "tensor blk.1.ffn_up.weight is missing",
    );
    check(
        |gguf| gguf.set("tokenizer.ggml.token_type", Meta::I32s(vec![1])),
        "300 tokens but 1 token types",
    );
    check(
        |gguf| gguf.set("tokenizer.ggml.merges", Meta::Strs(vec!["a".into()])),
        "merge \"a\"",
    );
    check(
        |gguf| gguf.set("llama.rope.freq_base", Meta::F32(f32::NAN)),
        "freq_base is NaN",
    );
}
