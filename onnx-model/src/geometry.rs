//! The decoder's dimensions.

use crate::config::{GenaiConfig, TokenIds, layer_name};
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::graph::{Dimension, Graph};

/// Dimensions of a decoder, from `genai_config.json` and checked against the graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Geometry {
    /// Architecture as the builder names it: `qwen3`, `llama`, `phi3`, ..
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Number of tokens.
    pub vocab: usize,
    /// Longest sequence in tokens, prompt included.
    pub context_length: usize,
    /// Beginning-of-sequence token.
    pub bos: Option<u32>,
    /// End-of-sequence tokens.
    pub eos: Vec<u32>,
    /// Element type of the KV cache.
    pub kv_dtype: DataType,
    /// Element type of the logits.
    pub logits_dtype: DataType,
}

/// No real decoder comes near; keeps later products inside 64 bits.
const MAX: u64 = 1 << 31;

impl Geometry {
    /// # Errors
    /// A dimension is zero or absurd, or the graph contradicts the configuration.
    pub(crate) fn new(config: &GenaiConfig, graph: &Graph) -> Result<Self> {
        let (model, decoder) = (&config.model, &config.model.decoder);
        let size = |name: &str, value: u64| match value {
            1..MAX => Ok(value as usize),
            _ => Err(Error::range(format!(
                "{name} = {value} should be between 1 and {}",
                MAX - 1
            ))),
        };
        let ids = |ids: &Option<TokenIds>| ids.as_ref().map(TokenIds::ids).unwrap_or_default();
        let geometry = Geometry {
            architecture: model.kind.clone(),
            layers: size("num_hidden_layers", decoder.num_hidden_layers)?,
            hidden: size("hidden_size", decoder.hidden_size)?,
            heads: size("num_attention_heads", decoder.num_attention_heads)?,
            kv_heads: size("num_key_value_heads", decoder.num_key_value_heads)?,
            head_dim: size("head_size", decoder.head_size)?,
            vocab: size("vocab_size", model.vocab_size)?,
            context_length: size("context_length", model.context_length)?,
            bos: ids(&model.bos_token_id).first().copied(),
            eos: ids(&model.eos_token_id),
            kv_dtype: value_type(graph, &layer_name(&decoder.inputs.past_key_names, 0))?,
            logits_dtype: value_type(graph, &decoder.outputs.logits)?,
        };
        if !geometry.heads.is_multiple_of(geometry.kv_heads) {
            let (heads, kv_heads) = (geometry.heads, geometry.kv_heads);
            return Err(Error::range(format!(
                "num_attention_heads = {heads} should be a multiple of num_key_value_heads = {kv_heads}"
            )));
        }
        geometry.check(config, graph)?;
        Ok(geometry)
    }

    fn check(&self, config: &GenaiConfig, graph: &Graph) -> Result<()> {
        let (inputs, outputs) = (&config.model.decoder.inputs, &config.model.decoder.outputs);
        value_type(graph, &inputs.input_ids)?;
        for layer in 0..self.layers {
            for pattern in [
                &inputs.past_key_names,
                &inputs.past_value_names,
                &outputs.present_key_names,
                &outputs.present_value_names,
            ] {
                let name = layer_name(pattern, layer);
                value_type(graph, &name)?;
                expect(graph, &name, 1, self.kv_heads, "num_key_value_heads")?;
                expect(graph, &name, 3, self.head_dim, "head_size")?;
            }
        }
        let beyond = layer_name(&inputs.past_key_names, self.layers);
        if beyond != inputs.past_key_names && graph.is_input(&beyond) {
            let layers = self.layers;
            return Err(Error::malformed(format!(
                "the graph has more layers than num_hidden_layers = {layers}"
            ))
            .at_tensor(beyond));
        }
        expect(graph, &outputs.logits, 2, self.vocab, "vocab_size")
    }
}

fn value_type(graph: &Graph, name: &str) -> Result<DataType> {
    graph.declared(name).map(|v| v.dtype).ok_or_else(|| {
        Error::unsupported(
            "the graph does not have this input or output, which genai_config.json names; parts of models \
             (without embeddings or lm_head) and other kinds of models are not supported",
        )
        .at_tensor(name)
    })
}

fn expect(graph: &Graph, name: &str, axis: usize, size: usize, key: &str) -> Result<()> {
    let shape = graph.declared(name).and_then(|v| v.shape.as_ref());
    match shape.and_then(|s| s.get(axis)) {
        Some(Dimension::Fixed(n)) if *n != size as u64 => Err(Error::range(format!(
            "dimension {axis} is {n} in the graph, but genai_config.json says {key} = {size}"
        ))
        .at_tensor(name)),
        _ => Ok(()),
    }
}
