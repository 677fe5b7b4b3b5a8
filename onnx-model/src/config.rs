//! `genai_config.json`, as onnxruntime-genai's builder writes it.
//!
//! Source of the format: onnxruntime-genai's [configuration
//! reference](https://onnxruntime.ai/docs/genai/reference/config.html) and builder 0.18. Unknown keys are ignored,
//! since every builder version adds some.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct GenaiConfig {
    /// The model.
    pub model: ModelConfig,
    /// Defaults of the token search.
    #[serde(default)]
    pub search: SearchConfig,
}

/// Key `model`.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ModelConfig {
    /// Architecture as the builder names it: `qwen3`, `llama`, `phi3`, ..
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Longest sequence, in tokens, prompt included.
    pub context_length: u64,
    /// Number of tokens.
    pub vocab_size: u64,
    /// Beginning-of-sequence token.
    #[serde(default)]
    pub bos_token_id: Option<TokenIds>,
    /// End-of-sequence token or tokens.
    #[serde(default)]
    pub eos_token_id: Option<TokenIds>,
    /// Padding token.
    #[serde(default)]
    pub pad_token_id: Option<TokenIds>,
    /// The decoder.
    pub decoder: DecoderConfig,
}

/// One token id or a list of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum TokenIds {
    /// One.
    One(i64),
    /// Several.
    Many(Vec<i64>),
}

impl TokenIds {
    /// The ids that can be tokens; builders write -1 for "none".
    pub fn ids(&self) -> Vec<u32> {
        let all = match self {
            TokenIds::One(id) => std::slice::from_ref(id),
            TokenIds::Many(ids) => ids.as_slice(),
        };
        all.iter().filter_map(|&id| u32::try_from(id).ok()).collect()
    }
}

/// Key `model.decoder`.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct DecoderConfig {
    /// Graph file, relative to the folder.
    #[serde(default = "default_filename")]
    pub filename: String,
    /// Elements of one attention head.
    pub head_size: u64,
    /// Elements of the residual stream.
    pub hidden_size: u64,
    /// Query heads.
    pub num_attention_heads: u64,
    /// Layers.
    pub num_hidden_layers: u64,
    /// Key and value heads.
    pub num_key_value_heads: u64,
    /// Names of graph inputs.
    #[serde(default)]
    pub inputs: InputNames,
    /// Names of graph outputs.
    #[serde(default)]
    pub outputs: OutputNames,
    /// Present when attention looks at the last tokens only.
    #[serde(default)]
    pub sliding_window: Option<SlidingWindow>,
    /// Present when the decoder is cut into several graph files.
    #[serde(default)]
    pipeline: Option<serde::de::IgnoredAny>,
}

fn default_filename() -> String {
    "model.onnx".into()
}

/// Key `model.decoder.sliding_window`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SlidingWindow {
    /// Tokens that attention sees.
    pub window_size: Option<u64>,
    /// Whether the runtime keeps only that many tokens in its KV cache.
    pub slide_key_value_cache: Option<bool>,
    /// Whether prompts are fed in chunks of the window size.
    pub slide_inputs: Option<bool>,
    /// Layers that have the window; all when absent.
    pub layers: Option<Vec<u64>>,
}

/// Key `model.decoder.inputs`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct InputNames {
    /// Token ids, int64 `[batch, sequence]`.
    pub input_ids: String,
    /// Ones for every token so far, int64 `[batch, total]`.
    pub attention_mask: String,
    /// Positions, where the graph wants them as an input.
    pub position_ids: Option<String>,
    /// Past keys; `%d` stands for the layer.
    pub past_key_names: String,
    /// Past values; `%d` stands for the layer.
    pub past_value_names: String,
}

impl Default for InputNames {
    fn default() -> Self {
        InputNames {
            input_ids: "input_ids".into(),
            attention_mask: "attention_mask".into(),
            position_ids: None,
            past_key_names: "past_key_values.%d.key".into(),
            past_value_names: "past_key_values.%d.value".into(),
        }
    }
}

/// Key `model.decoder.outputs`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OutputNames {
    /// Logits `[batch, sequence, vocab]`.
    pub logits: String,
    /// Present keys; `%d` stands for the layer.
    pub present_key_names: String,
    /// Present values; `%d` stands for the layer.
    pub present_value_names: String,
}

impl Default for OutputNames {
    fn default() -> Self {
        OutputNames {
            logits: "logits".into(),
            present_key_names: "present.%d.key".into(),
            present_value_names: "present.%d.value".into(),
        }
    }
}

/// Key `search`: defaults that a generator may take over.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SearchConfig {
    /// Longest sequence, prompt included.
    pub max_length: Option<u64>,
    /// Whether to sample rather than take the likeliest token.
    pub do_sample: Option<bool>,
    /// Logits are divided by this before sampling.
    pub temperature: Option<f64>,
    /// Sample among this many likeliest tokens.
    pub top_k: Option<u64>,
    /// Sample among the likeliest tokens that have this probability together.
    pub top_p: Option<f64>,
    /// Factor against repeating tokens.
    pub repetition_penalty: Option<f64>,
}

impl GenaiConfig {
    /// Parses the text of a `genai_config.json`.
    ///
    /// # Errors
    /// The text is not JSON, a key that a decoder needs is missing or of the wrong kind.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let config: GenaiConfig = serde_json::from_slice(text)
            .map_err(|e| Error::malformed(format!("not a usable genai_config.json: {e}")).caused_by(e))?;
        if config.model.decoder.pipeline.is_some() {
            return Err(Error::unsupported(
                "decoders cut into several graph files (key decoder.pipeline) are not supported",
            ));
        }
        Ok(config)
    }

    /// Reads a `genai_config.json`.
    ///
    /// # Errors
    /// As [`GenaiConfig::parse`], or the file cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        const LIMIT: u64 = 16 << 20;
        let text = crate::mapping::read_file(path, LIMIT)?;
        Self::parse(&text).map_err(|e| e.in_file(path))
    }
}

/// `pattern` with its `%d` replaced by the layer.
pub fn layer_name(pattern: &str, layer: usize) -> String {
    pattern.replacen("%d", &layer.to_string(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"model": {"context_length": 8, "vocab_size": 4, "eos_token_id": [2, 3], "bos_token_id": -1, "unknown": {},
        "decoder": {"head_size": 2, "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 1}}}"#;

    #[test]
    fn defaults_and_unknown_keys() {
        let config = GenaiConfig::parse(MINIMAL.as_bytes()).unwrap();
        assert_eq!(config.model.decoder.filename, "model.onnx");
        assert_eq!(config.model.eos_token_id.unwrap().ids(), [2, 3]);
        assert!(config.model.bos_token_id.unwrap().ids().is_empty());
        assert_eq!(
            layer_name(&config.model.decoder.inputs.past_key_names, 7),
            "past_key_values.7.key"
        );
    }

    #[test]
    fn a_missing_key_is_named() {
        let error = GenaiConfig::parse(MINIMAL.replace("head_size", "x").as_bytes()).unwrap_err();
        assert!(
            error.is_malformed() && error.to_string().contains("head_size"),
            "{error}"
        );
    }

    #[test]
    fn pipelines_are_refused() {
        let text = MINIMAL.replace("\"head_size\"", "\"pipeline\": [], \"head_size\"");
        assert!(GenaiConfig::parse(text.as_bytes()).unwrap_err().is_unsupported());
    }

    #[test]
    fn deep_json_is_refused() {
        let bomb = "[".repeat(200_000);
        assert!(GenaiConfig::parse(bomb.as_bytes()).unwrap_err().is_malformed());
    }
}
