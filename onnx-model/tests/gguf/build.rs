//! Small GGUF files, made from scratch.

use half::f16;
use onnx_model::gguf::TensorType;

/// A metadata value to write.
#[derive(Clone)]
pub enum Meta {
    U32(u32),
    F32(f32),
    Str(String),
    Strs(Vec<String>),
    I32s(Vec<i32>),
}

/// A tensor to write: innermost dimension first.
#[derive(Clone)]
pub struct TestTensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub tag: u32,
    pub bytes: Vec<u8>,
}

/// A file under construction; every field may be tampered with before [`GgufBuilder::bytes`].
#[derive(Clone, Default)]
pub struct GgufBuilder {
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<TestTensor>,
}

impl GgufBuilder {
    pub fn set(&mut self, key: &str, value: Meta) {
        self.metadata.retain(|(other, _)| other != key);
        self.metadata.push((key.into(), value));
    }

    pub fn remove(&mut self, key: &str) {
        self.metadata.retain(|(other, _)| other != key);
    }

    /// A tensor of rows, with weights that depend on the name.
    pub fn tensor(&mut self, name: &str, rows: usize, columns: usize, tensor_type: TensorType) {
        let weights = weights(name, rows * columns);
        let bytes = quantize(&weights, tensor_type);
        let dims = if rows == 1 {
            vec![columns as u64]
        } else {
            vec![columns as u64, rows as u64]
        };
        self.tensors.push(TestTensor {
            name: name.into(),
            dims,
            tag: tag(tensor_type),
            bytes,
        });
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            match value {
                Meta::U32(value) => tagged(&mut out, 4, &value.to_le_bytes()),
                Meta::F32(value) => tagged(&mut out, 6, &value.to_le_bytes()),
                Meta::Str(value) => {
                    tagged(&mut out, 8, &[]);
                    string(&mut out, value);
                }
                Meta::Strs(values) => {
                    tagged(&mut out, 9, &8_u32.to_le_bytes());
                    out.extend((values.len() as u64).to_le_bytes());
                    values.iter().for_each(|value| string(&mut out, value));
                }
                Meta::I32s(values) => {
                    tagged(&mut out, 9, &5_u32.to_le_bytes());
                    out.extend((values.len() as u64).to_le_bytes());
                    values.iter().for_each(|value| out.extend(value.to_le_bytes()));
                }
            }
        }
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.tag.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += (tensor.bytes.len() as u64).next_multiple_of(32);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

/// A llama of two layers, 64 features, 4 heads over 2, 96 MLP features, 300 tokens.
pub fn tiny_llama(linear: TensorType, embedding: TensorType) -> GgufBuilder {
    let mut gguf = GgufBuilder::default();
    let strings = [
        ("general.architecture", "llama"),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "smollm"),
        ("tokenizer.chat_template", "{{ messages[0]['content'] }}"),
    ];
    for (key, value) in strings {
        gguf.set(key, Meta::Str(value.into()));
    }
    let integers = [
        ("llama.block_count", 2),
        ("llama.context_length", 128),
        ("llama.embedding_length", 64),
        ("llama.feed_forward_length", 96),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
        ("llama.rope.dimension_count", 16),
        ("tokenizer.ggml.bos_token_id", 1),
        ("tokenizer.ggml.eos_token_id", 2),
    ];
    for (key, value) in integers {
        gguf.set(key, Meta::U32(value));
    }
    gguf.set("llama.rope.freq_base", Meta::F32(10000.0));
    gguf.set("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5));
    // Three control tokens, the letters, then words that the merges make.
    let letters: Vec<String> = ('a'..='z').chain(['Ġ']).map(String::from).collect();
    let pairs: Vec<(String, String)> = letters
        .iter()
        .flat_map(|a| letters.iter().map(move |b| (a.clone(), b.clone())))
        .take(300 - 3 - 27)
        .collect();
    let mut tokens: Vec<String> = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        .map(String::from)
        .into();
    tokens.extend(letters.iter().cloned());
    tokens.extend(pairs.iter().map(|(a, b)| format!("{a}{b}")));
    let types = (0..tokens.len()).map(|id| if id < 3 { 3 } else { 1 }).collect();
    gguf.set("tokenizer.ggml.tokens", Meta::Strs(tokens));
    gguf.set("tokenizer.ggml.token_type", Meta::I32s(types));
    gguf.set(
        "tokenizer.ggml.merges",
        Meta::Strs(pairs.iter().map(|(a, b)| format!("{a} {b}")).collect()),
    );

    gguf.tensor("token_embd.weight", 300, 64, embedding);
    for layer in 0..2 {
        let mut add = |name: &str, rows, columns, kind| {
            gguf.tensor(&format!("blk.{layer}.{name}.weight"), rows, columns, kind)
        };
        add("attn_norm", 1, 64, TensorType::F32);
        add("ffn_norm", 1, 64, TensorType::F32);
        add("attn_q", 64, 64, linear);
        add("attn_k", 32, 64, linear);
        add("attn_v", 32, 64, linear);
        add("attn_output", 64, 64, linear);
        add("ffn_gate", 96, 64, linear);
        add("ffn_up", 96, 64, linear);
        add("ffn_down", 64, 96, linear);
    }
    gguf.tensor("output_norm.weight", 1, 64, TensorType::F32);
    gguf
}

fn string(out: &mut Vec<u8>, value: &str) {
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value.as_bytes());
}

fn tagged(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    out.extend(tag.to_le_bytes());
    out.extend(bytes);
}

fn tag(tensor_type: TensorType) -> u32 {
    match tensor_type {
        TensorType::F32 => 0,
        TensorType::F16 => 1,
        TensorType::Q4_0 => 2,
        TensorType::Q4_1 => 3,
        TensorType::Q8_0 => 8,
        TensorType::Bf16 => 30,
    }
}

/// Weights between -1 and 1 that depend on the name, with one block of equal ones.
fn weights(name: &str, len: usize) -> Vec<f32> {
    let mut state = name.bytes().fold(7_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    let mut out: Vec<f32> = (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    out[..32].fill(0.25);
    out
}

fn quantize(weights: &[f32], tensor_type: TensorType) -> Vec<u8> {
    let mut out = Vec::new();
    let nibbles = |out: &mut Vec<u8>, q: &[u8]| out.extend((0..16).map(|i| q[i] | q[i + 16] << 4));
    match tensor_type {
        TensorType::F32 => weights.iter().for_each(|w| out.extend(w.to_le_bytes())),
        TensorType::F16 => weights
            .iter()
            .for_each(|w| out.extend(f16::from_f32(*w).to_le_bytes())),
        TensorType::Bf16 => weights
            .iter()
            .for_each(|w| out.extend(half::bf16::from_f32(*w).to_le_bytes())),
        TensorType::Q4_0 => {
            for block in weights.chunks(32) {
                let scale = f16::from_f32(block.iter().fold(0.0_f32, |a, b| a.max(b.abs())) / 7.0);
                out.extend(scale.to_le_bytes());
                let q: Vec<u8> = block
                    .iter()
                    .map(|w| (w / scale.to_f32() + 8.5) as u8)
                    .map(|q| q.min(15))
                    .collect();
                nibbles(&mut out, &q);
            }
        }
        TensorType::Q4_1 => {
            for block in weights.chunks(32) {
                let (low, high) = block
                    .iter()
                    .fold((f32::MAX, f32::MIN), |(a, b), w| (a.min(*w), b.max(*w)));
                let (scale, minimum) = (f16::from_f32((high - low) / 15.0), f16::from_f32(low));
                out.extend(scale.to_le_bytes());
                out.extend(minimum.to_le_bytes());
                let inverse = if scale == f16::ZERO {
                    0.0
                } else {
                    scale.to_f32().recip()
                };
                let q: Vec<u8> = block
                    .iter()
                    .map(|w| ((w - low) * inverse + 0.5) as u8)
                    .map(|q| q.min(15))
                    .collect();
                nibbles(&mut out, &q);
            }
        }
        TensorType::Q8_0 => {
            for block in weights.chunks(32) {
                let scale = f16::from_f32(block.iter().fold(0.0_f32, |a, b| a.max(b.abs())) / 127.0);
                out.extend(scale.to_le_bytes());
                out.extend(block.iter().map(|w| (w / scale.to_f32()).round() as i8 as u8));
            }
        }
    }
    out
}
