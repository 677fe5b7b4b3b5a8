//! The geometries that can be synthesized.

use crate::error::{Error, Result};
use crate::write::{DecoderSpec, Llama3Scaling, Rope};
use std::fmt;
use std::str::FromStr;

/// A decoder geometry by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// 4 layers of 256 features, 2048 tokens; Qwen3's graph. Two megabytes.
    Tiny,
    /// Qwen3-0.6B.
    Qwen3_0_6b,
    /// Qwen3-4B, 2.5 GB.
    Qwen3_4b,
    /// Llama 3.2 1B: scaled rotary embedding, no q/k norms.
    Llama3_2_1b,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 4] = [
        Preset::Tiny,
        Preset::Qwen3_0_6b,
        Preset::Qwen3_4b,
        Preset::Llama3_2_1b,
    ];

    /// The name that [`FromStr`] takes.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Tiny => "tiny",
            Preset::Qwen3_0_6b => "qwen3-0.6b",
            Preset::Qwen3_4b => "qwen3-4b",
            Preset::Llama3_2_1b => "llama-3.2-1b",
        }
    }

    /// The geometry: 4-bit weights, accuracy level 4, one tensor for embedding and lm_head, as the builder does.
    pub fn spec(self) -> DecoderSpec {
        let (layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, context_length) = match self {
            Preset::Tiny => (4, 256, 512, 8, 2, 32, 2048, 2048),
            Preset::Qwen3_0_6b => (28, 1024, 3072, 16, 8, 128, 151_936, 40_960),
            Preset::Qwen3_4b => (36, 2560, 9728, 32, 8, 128, 151_936, 40_960),
            Preset::Llama3_2_1b => (16, 2048, 8192, 32, 8, 64, 128_256, 131_072),
        };
        let llama = self == Preset::Llama3_2_1b;
        let scaling = Llama3Scaling {
            factor: 32.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 8192.0,
        };
        let last = vocab as u32 - 1;
        DecoderSpec {
            model_type: if llama { "llama" } else { "qwen3" }.into(),
            layers,
            hidden,
            intermediate,
            heads,
            kv_heads,
            head_dim,
            vocab,
            context_length,
            norm_epsilon: if llama { 1e-5 } else { 1e-6 },
            rope: Rope {
                theta: if llama { 5e5 } else { 1e6 },
                scaling: llama.then_some(scaling),
            },
            qk_norm: !llama,
            qkv_bias: false,
            shared_embedding: true,
            accuracy_level: 4,
            bos: last - 2,
            eos: vec![last],
            pad: last - 2,
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Preset::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| {
                let names = Preset::ALL.map(Preset::name).join(", ");
                Error::invalid_argument(format!("unknown preset {name:?}, expected one of {names}"))
            })
    }
}
