//! genai_config.json and the tokenizer's companions.

use super::spec::DecoderSpec;
use serde_json::{Value, json};

/// The genai_config.json that the builder writes for such a decoder.
pub(super) fn genai_config(spec: &DecoderSpec, model_file: &str) -> String {
    let eos = match spec.eos[..] {
        [one] => json!(one),
        ref many => json!(many),
    };
    pretty(&json!({
        "model": {
            "bos_token_id": spec.bos,
            "context_length": spec.context_length,
            "decoder": {
                "session_options": { "log_id": "onnxruntime-genai", "provider_options": [] },
                "filename": model_file,
                "head_size": spec.head_dim,
                "hidden_size": spec.hidden,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value"
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value"
                },
                "num_attention_heads": spec.heads,
                "num_hidden_layers": spec.layers,
                "num_key_value_heads": spec.kv_heads
            },
            "eos_token_id": eos,
            "pad_token_id": spec.pad,
            "type": spec.model_type,
            "vocab_size": spec.vocab
        },
        "search": {
            "diversity_penalty": 0.0,
            "do_sample": false,
            "early_stopping": true,
            "length_penalty": 1.0,
            "max_length": spec.context_length,
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": true,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0
        }
    }))
}

/// Indented JSON text; `Value` always serializes.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
