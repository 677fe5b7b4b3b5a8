//! GGUF to onnxruntime-genai folder.

use super::exact::exact_matrix;
use super::file::{GgufFile, TensorInfo};
use super::tokenizer::write_tokenizer;
use crate::error::{Error, Result};
use crate::write::{
    DecoderSpec, Linear, Norm, Quantization, QuantizedMatrix, Quantizer, Rope, Scheme, WeightSource,
    WriteProgress, write_decoder,
};
use std::fmt;
use std::io::{Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

/// How the weights of a GGUF file become those of MatMulNBits.
///
/// A Q4_1 block has a float minimum, which MatMulNBits can only express with float zero points. Those are exact, but
/// ONNX Runtime then multiplies unpacked weights, at a few tokens per second. Everything else rounds once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ConvertMode {
    /// 8 bit in blocks of 64, rounded to nearest. Practically the source's own quality; somewhat slower than 4 bit on the
    /// CPU and 1.5 times its size: the default, see the table in [`convert`].
    #[default]
    Int8,
    /// 4 bit in blocks of 32 with integer zero points, rounded to nearest.
    Int4Asymmetric,
    /// 4 bit in blocks of 32 without zero points, as the genai builder does by default.
    Int4Symmetric,
    /// The source's own integers, with float zero points where it has minima; float activations.
    Exact,
}

impl ConvertMode {
    /// All modes.
    pub const ALL: [ConvertMode; 4] = [
        ConvertMode::Int8,
        ConvertMode::Int4Asymmetric,
        ConvertMode::Int4Symmetric,
        ConvertMode::Exact,
    ];

    fn name(self) -> &'static str {
        match self {
            ConvertMode::Int8 => "int8",
            ConvertMode::Int4Asymmetric => "int4-asymmetric",
            ConvertMode::Int4Symmetric => "int4-symmetric",
            ConvertMode::Exact => "exact",
        }
    }

    /// The quantization, or none when the source's own is kept.
    fn quantization(self) -> Option<Quantization> {
        let (scheme, block_size) = match self {
            ConvertMode::Int8 => (Scheme::Symmetric8, 64),
            ConvertMode::Int4Asymmetric => (Scheme::Asymmetric4, 32),
            ConvertMode::Int4Symmetric => (Scheme::Symmetric4, 32),
            ConvertMode::Exact => return None,
        };
        Some(Quantization { scheme, block_size })
    }
}

impl fmt::Display for ConvertMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ConvertMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        ConvertMode::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| {
                let names = ConvertMode::ALL.map(ConvertMode::name).join(", ");
                Error::invalid_argument(format!(
                    "unknown conversion mode {name:?}, expected one of {names}"
                ))
            })
    }
}

/// Converts an open llama-architecture GGUF file into an onnxruntime-genai folder: `model.onnx`, `model.onnx.data`,
/// `genai_config.json`, `tokenizer.json`, `tokenizer_config.json` and, if the file has one, `chat_template.jinja`.
///
/// `folder` must exist and hold none of these; use a [`StagedFolder`](crate::write::StagedFolder) so that an
/// interruption leaves nothing that looks complete. Weights go through memory a few megabytes at a time, except that
/// each matrix is held in its quantized form until it is written.
///
/// Modes on SmolLM2-135M-Instruct (Q4_1), against the file's own weights: mean Kullback-Leibler divergence per token
/// on a page of English, share of equal top tokens, and megabytes.
///
/// | mode | divergence | equal top tokens | MB |
/// | --- | --- | --- | --- |
/// | int8 | 0.008 | 94 % | 145 |
/// | int4-asymmetric | 0.436 | 67 % | 88 |
/// | int4-symmetric | 0.446 | 61 % | 86 |
///
/// # Errors
/// If the architecture, a tensor type or the tokenizer is not supported, something is missing or of the wrong shape,
/// or a file cannot be read or written.
pub fn convert<R: Read + Seek>(
    gguf: &mut GgufFile<R>,
    folder: &Path,
    mode: ConvertMode,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<()> {
    let spec = decoder_spec(gguf, mode)?;
    // First, since it is quick and may refuse.
    write_tokenizer(gguf, folder, &spec)?;
    let tied = !gguf.tensors().contains_key(OUTPUT);
    let mut source = GgufSource {
        gguf,
        spec: &spec,
        mode,
        tied,
    };
    write_decoder(folder, &spec, &mut source, progress)
}

const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

fn decoder_spec<R: Read + Seek>(gguf: &GgufFile<R>, mode: ConvertMode) -> Result<DecoderSpec> {
    let architecture = gguf.string("general.architecture")?;
    if architecture != "llama" {
        return Err(unsupported(
            gguf,
            format!("architecture {architecture:?}, only \"llama\" can be converted"),
        ));
    }
    let has = |key: &str| gguf.metadata().contains_key(key);
    let size = |key: &str| gguf.integer(key).map(|value| value as usize);
    let size_or = |key: &str, default: usize| if has(key) { size(key) } else { Ok(default) };
    let token_or = |key: &str, default: u32| if has(key) { gguf.integer(key) } else { Ok(default) };

    if has("llama.expert_count") && size("llama.expert_count")? > 0 {
        return Err(unsupported(
            gguf,
            "mixtures of experts cannot be converted".into(),
        ));
    }
    let scaled = has("llama.rope.scaling.type") && gguf.string("llama.rope.scaling.type")? != "none";
    if scaled || gguf.tensors().contains_key("rope_freqs.weight") {
        return Err(unsupported(
            gguf,
            "scaled rotary embedding cannot be converted".into(),
        ));
    }
    let (hidden, heads) = (
        size("llama.embedding_length")?,
        size("llama.attention.head_count")?,
    );
    if heads == 0 || !hidden.is_multiple_of(heads) {
        return Err(gguf.invalid(format!("{heads} attention heads over {hidden} features")));
    }
    let head_dim = size_or("llama.attention.key_length", hidden / heads)?;
    let rotated = size_or("llama.rope.dimension_count", head_dim)?;
    if rotated != head_dim || size_or("llama.attention.value_length", head_dim)? != head_dim {
        return Err(unsupported(
            gguf,
            "partly rotated or differently sized heads cannot be converted".into(),
        ));
    }
    let vocab = gguf.strings("tokenizer.ggml.tokens")?.len();
    let eos = gguf.integer("tokenizer.ggml.eos_token_id")?;
    let bos = token_or("tokenizer.ggml.bos_token_id", eos)?;
    let pad = token_or("tokenizer.ggml.padding_token_id", eos)?;
    for token in [bos, eos, pad] {
        if token as usize >= vocab {
            return Err(gguf.invalid(format!(
                "special token {token} is outside of the vocabulary ({vocab} tokens)"
            )));
        }
    }
    let theta = if has("llama.rope.freq_base") {
        gguf.float("llama.rope.freq_base")?
    } else {
        10000.0
    };
    Ok(DecoderSpec {
        model_type: "llama".into(),
        layers: size("llama.block_count")?,
        hidden,
        intermediate: size("llama.feed_forward_length")?,
        heads,
        kv_heads: size_or("llama.attention.head_count_kv", heads)?,
        head_dim,
        vocab,
        context_length: size("llama.context_length")?,
        norm_epsilon: gguf.float("llama.attention.layer_norm_rms_epsilon")? as f32,
        rope: Rope {
            theta: theta as f32,
            scaling: None,
        },
        qk_norm: false,
        qkv_bias: false,
        shared_embedding: !gguf.tensors().contains_key(OUTPUT),
        accuracy_level: if mode == ConvertMode::Exact { 1 } else { 4 },
        bos,
        eos: vec![eos],
        pad,
    })
}

fn unsupported<R: Read + Seek>(gguf: &GgufFile<R>, message: String) -> Error {
    Error::unsupported(message).in_file(gguf.path())
}

struct GgufSource<'a, R> {
    gguf: &'a mut GgufFile<R>,
    spec: &'a DecoderSpec,
    mode: ConvertMode,
    tied: bool,
}

/// Rows of a layer's matrix that lie in a tensor of their own.
struct Part {
    tensor: &'static str,
    rows: usize,
    /// Heads whose rows are stored interleaved.
    interleaved_heads: Option<usize>,
}

impl<R: Read + Seek> GgufSource<'_, R> {
    fn parts(&self, linear: Linear) -> Vec<Part> {
        let spec = self.spec;
        let (rows, _) = spec.linear_shape(linear);
        let whole = |tensor| {
            vec![Part {
                tensor,
                rows,
                interleaved_heads: None,
            }]
        };
        match linear {
            Linear::Qkv => {
                let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
                vec![
                    Part {
                        tensor: "attn_q",
                        rows: queries,
                        interleaved_heads: Some(spec.heads),
                    },
                    Part {
                        tensor: "attn_k",
                        rows: keys,
                        interleaved_heads: Some(spec.kv_heads),
                    },
                    Part {
                        tensor: "attn_v",
                        rows: keys,
                        interleaved_heads: None,
                    },
                ]
            }
            Linear::Output => whole("attn_output"),
            Linear::Gate => whole("ffn_gate"),
            Linear::Up => whole("ffn_up"),
            Linear::Down => whole("ffn_down"),
        }
    }

    /// The directory entry of a tensor that must have this shape.
    fn shaped(&self, name: &str, rows: usize, columns: usize) -> Result<TensorInfo> {
        let tensor = self.gguf.tensor(name)?;
        if (tensor.rows, tensor.columns) != (rows, columns) {
            return Err(self.gguf.invalid(format!(
                "tensor {name} has {} rows of {} columns, expected {rows} of {columns}",
                tensor.rows, tensor.columns
            )));
        }
        Ok(tensor.clone())
    }

    /// Quantizes parts, one above the other, into one matrix.
    fn matrix(&mut self, parts: &[(String, Part)], columns: usize) -> Result<QuantizedMatrix> {
        let mut quantizer = match self.mode.quantization() {
            Some(quantization) => Some(Quantizer::new(quantization, columns)?),
            None => None,
        };
        let mut exact = Vec::new();
        for (name, part) in parts {
            let tensor = self.shaped(name, part.rows, columns)?;
            // Interleaved rows are put in order as a whole, others can pass by in steps of about 1M weights.
            let step = match (part.interleaved_heads, &quantizer) {
                (None, Some(_)) => (1_usize << 20).div_ceil(columns),
                _ => part.rows,
            };
            for start in (0..part.rows).step_by(step) {
                let mut rows = self.gguf.rows(name, start..(start + step).min(part.rows))?;
                if let Some(heads) = part.interleaved_heads {
                    rows = untangle(&rows, tensor.row_bytes(), part.rows / heads);
                }
                match &mut quantizer {
                    Some(quantizer) => quantizer.push(&tensor.tensor_type.dequantize(&rows))?,
                    None => exact
                        .push(exact_matrix(&tensor, &rows).map_err(|error| error.in_file(self.gguf.path()))?),
                }
            }
        }
        match quantizer {
            Some(quantizer) => Ok(quantizer.finish()),
            None => super::exact::stack(exact).map_err(|error| error.in_file(self.gguf.path())),
        }
    }
}

impl<R: Read + Seek> WeightSource for GgufSource<'_, R> {
    fn linear(&mut self, layer: usize, linear: Linear) -> Result<QuantizedMatrix> {
        let (_, columns) = self.spec.linear_shape(linear);
        let named = |part: Part| (format!("blk.{layer}.{}.weight", part.tensor), part);
        let parts: Vec<_> = self.parts(linear).into_iter().map(named).collect();
        self.matrix(&parts, columns)
    }

    fn lm_head(&mut self) -> Result<QuantizedMatrix> {
        let tensor = if self.tied { EMBEDDING } else { OUTPUT };
        let part = Part {
            tensor,
            rows: self.spec.vocab,
            interleaved_heads: None,
        };
        self.matrix(&[(tensor.into(), part)], self.spec.hidden)
    }

    fn norm(&mut self, norm: Norm) -> Result<Vec<f32>> {
        let name = match norm {
            Norm::Input(layer) => format!("blk.{layer}.attn_norm.weight"),
            Norm::PostAttention(layer) => format!("blk.{layer}.ffn_norm.weight"),
            Norm::Final => "output_norm.weight".into(),
            Norm::Query(_) | Norm::Key(_) => unreachable!("llama has no q/k norms, and the spec says so"),
        };
        self.shaped(&name, 1, self.spec.norm_len(norm))?;
        self.gguf.rows_f32(&name, 0..1)
    }

    fn qkv_bias(&mut self, _layer: usize) -> Result<Vec<f32>> {
        unreachable!("llama has no bias, and the spec says so")
    }

    fn embedding(&mut self, rows: Range<usize>) -> Result<Vec<f32>> {
        self.shaped(EMBEDDING, self.spec.vocab, self.spec.hidden)?;
        self.gguf.rows_f32(EMBEDDING, rows)
    }
}

/// Puts the rows of a q or k projection into Hugging Face's order. llama.cpp's rotary embedding turns neighbouring
/// features, so its converter stores feature `i` and `i + head_dim / 2` of a head next to each other.
fn untangle(rows: &[u8], row_bytes: usize, head_dim: usize) -> Vec<u8> {
    let half = head_dim / 2;
    let mut out = Vec::with_capacity(rows.len());
    for head in rows.chunks_exact(row_bytes * head_dim) {
        for row in 0..head_dim {
            let from = 2 * (row % half) + row / half;
            out.extend_from_slice(&head[from * row_bytes..][..row_bytes]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untangling_separates_the_halves_of_each_head() {
        // Two heads of four features, one byte per row; even features first.
        assert_eq!(
            untangle(&[0, 1, 2, 3, 10, 11, 12, 13], 1, 4),
            [0, 2, 1, 3, 10, 12, 11, 13]
        );
    }

    #[test]
    fn modes_are_named_as_they_print() {
        for mode in ConvertMode::ALL {
            assert_eq!(mode.to_string().parse::<ConvertMode>().unwrap(), mode);
        }
        let error = "int7".parse::<ConvertMode>().unwrap_err().to_string();
        assert!(
            error.contains("int8, int4-asymmetric, int4-symmetric, exact"),
            "{error}"
        );
    }
}
