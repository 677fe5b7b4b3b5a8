//! What a decoder is made of, and where its weights come from.

use super::matrix::QuantizedMatrix;
use crate::error::{Error, Result};
use std::ops::Range;

/// The geometry of a llama-like decoder: grouped-query attention with rotary embedding, SwiGLU, RMS norms.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// The `type` of genai_config.json: `llama`, `qwen2`, `qwen3`.
    pub model_type: String,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// Features per head, even.
    pub head_dim: usize,
    /// Vocabulary size.
    pub vocab: usize,
    /// Most positions, the length of the rotary tables.
    pub context_length: usize,
    /// Epsilon of all norms.
    pub norm_epsilon: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// Whether queries and keys are normed per head before attention (Qwen3).
    pub qk_norm: bool,
    /// Whether the packed q/k/v projection has a bias (Qwen2).
    pub qkv_bias: bool,
    /// Whether embedding and lm_head share one quantized tensor. If not, the embedding is a float table.
    pub shared_embedding: bool,
    /// The `accuracy_level` of every MatMulNBits: 1 multiplies floats, 4 quantizes activations to 8 bit.
    pub accuracy_level: u32,
    /// Token that starts a text.
    pub bos: u32,
    /// Tokens that end an answer, at least one.
    pub eos: Vec<u32>,
    /// Token that fills batches.
    pub pad: u32,
}

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Llama 3's stretching of long wavelengths.
    pub scaling: Option<Llama3Scaling>,
}

/// Llama 3's rotary scaling (`rope_type: llama3` in Hugging Face configurations): wavelengths shorter than
/// `original_context / high_frequency_factor` stay, longer than `original_context / low_frequency_factor` are
/// multiplied by `factor`, in between it is interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// How much long wavelengths grow.
    pub factor: f32,
    /// Divides the context into the wavelength from where on all grow.
    pub low_frequency_factor: f32,
    /// Divides the context into the wavelength up to where none grow.
    pub high_frequency_factor: f32,
    /// Context length that the model was first trained with.
    pub original_context: f32,
}

/// The matrices of a decoder layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linear {
    /// Queries, keys and values, one above the other.
    Qkv,
    /// Attention output.
    Output,
    /// MLP gate.
    Gate,
    /// MLP up.
    Up,
    /// MLP down.
    Down,
}

impl Linear {
    /// All of them, in the order in which they are written.
    pub const ALL: [Linear; 5] = [
        Linear::Qkv,
        Linear::Output,
        Linear::Gate,
        Linear::Up,
        Linear::Down,
    ];

    /// The builder's name below a layer.
    pub(super) fn path(self) -> &'static str {
        match self {
            Linear::Qkv => "attn/qkv_proj",
            Linear::Output => "attn/o_proj",
            Linear::Gate => "mlp/gate_proj",
            Linear::Up => "mlp/up_proj",
            Linear::Down => "mlp/down_proj",
        }
    }
}

/// The norms of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// Before a layer's attention.
    Input(usize),
    /// Before a layer's MLP.
    PostAttention(usize),
    /// On a layer's queries, per head.
    Query(usize),
    /// On a layer's keys, per head.
    Key(usize),
    /// Before the lm_head.
    Final,
}

/// Gives the weights of a decoder one at a time, in the order in which the writer asks.
pub trait WeightSource {
    /// A layer's matrix, of the shape that [`DecoderSpec::linear_shape`] says.
    ///
    /// # Errors
    /// Whatever keeps the source from giving it; the writer stops and passes it on.
    fn linear(&mut self, layer: usize, linear: Linear) -> Result<QuantizedMatrix>;

    /// The output projection, `vocab` rows of `hidden` columns; also the embedding when that is shared.
    ///
    /// # Errors
    /// As above.
    fn lm_head(&mut self) -> Result<QuantizedMatrix>;

    /// The factors of a norm.
    ///
    /// # Errors
    /// As above.
    fn norm(&mut self, norm: Norm) -> Result<Vec<f32>>;

    /// A layer's q/k/v bias; asked for only when the spec has one.
    ///
    /// # Errors
    /// As above.
    fn qkv_bias(&mut self, layer: usize) -> Result<Vec<f32>>;

    /// Rows of the float embedding; asked for only when it is not shared.
    ///
    /// # Errors
    /// As above.
    fn embedding(&mut self, rows: Range<usize>) -> Result<Vec<f32>>;
}

impl DecoderSpec {
    /// Rows (output features) and columns (input features) of a layer's matrix.
    pub fn linear_shape(&self, linear: Linear) -> (usize, usize) {
        let queries = self.heads * self.head_dim;
        match linear {
            Linear::Qkv => (queries + 2 * self.kv_heads * self.head_dim, self.hidden),
            Linear::Output => (self.hidden, queries),
            Linear::Gate | Linear::Up => (self.intermediate, self.hidden),
            Linear::Down => (self.hidden, self.intermediate),
        }
    }

    /// Number of factors of a norm.
    pub fn norm_len(&self, norm: Norm) -> usize {
        match norm {
            Norm::Input(_) | Norm::PostAttention(_) | Norm::Final => self.hidden,
            Norm::Query(_) | Norm::Key(_) => self.head_dim,
        }
    }

    /// Elements of all matrices, embedding included: what progress counts.
    pub fn weights(&self) -> u64 {
        let area = |(rows, columns): (usize, usize)| rows as u64 * columns as u64;
        let layer: u64 = Linear::ALL
            .iter()
            .map(|&linear| area(self.linear_shape(linear)))
            .sum();
        let tables = if self.shared_embedding { 1 } else { 2 };
        self.layers as u64 * layer + tables * area((self.vocab, self.hidden))
    }

    pub(super) fn check(&self) -> Result<()> {
        let sizes = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("intermediate", self.intermediate),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("vocab", self.vocab),
            ("context_length", self.context_length),
        ];
        // Far above any model, far below where products of two overflow.
        const MOST: usize = 1 << 28;
        for (name, size) in sizes {
            if size == 0 || size > MOST {
                return Err(Error::invalid_argument(format!(
                    "{name} is {size}, expected 1 to {MOST}"
                )));
            }
        }
        // The rotary tables are written out, so a damaged number would fill the disk.
        if self.context_length > 1 << 22 {
            return Err(Error::invalid_argument(format!(
                "context_length is {}, over 4M positions",
                self.context_length
            )));
        }
        if !self.heads.is_multiple_of(self.kv_heads) || !self.head_dim.is_multiple_of(2) {
            return Err(Error::invalid_argument(format!(
                "{} heads of {} features over {} key/value heads: the heads must be a multiple, the features even",
                self.heads, self.head_dim, self.kv_heads
            )));
        }
        if self.eos.is_empty() {
            return Err(Error::invalid_argument("no token ends an answer (eos is empty)"));
        }
        Ok(())
    }
}

impl Rope {
    /// The angle per position of each pair of features.
    pub(super) fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|pair| {
                let exponent = (2 * pair) as f32 / head_dim as f32;
                let frequency = 1.0 / f64::from(self.theta).powf(f64::from(exponent)) as f32;
                self.scaling.map_or(frequency, |scaling| scaling.apply(frequency))
            })
            .collect()
    }
}

impl Llama3Scaling {
    fn apply(&self, frequency: f32) -> f32 {
        let wavelength = std::f32::consts::TAU / frequency;
        let (low, high) = (self.low_frequency_factor, self.high_frequency_factor);
        if wavelength < self.original_context / high {
            frequency
        } else if wavelength > self.original_context / low {
            frequency / self.factor
        } else {
            let smooth = (self.original_context / wavelength - low) / (high - low);
            (1.0 - smooth) * frequency / self.factor + smooth * frequency
        }
    }
}
