//! The graph inputs and outputs of a decoder.

use super::graph::{Dim, value_info};
use super::spec::DecoderSpec;
use crate::dtype::DataType;
use crate::proto::ValueInfoProto;

pub(super) fn inputs(spec: &DecoderSpec) -> Vec<ValueInfoProto> {
    let tokens = |name: &str, length| {
        value_info(
            name.into(),
            DataType::Int64,
            &[Dim::Symbol("batch_size"), Dim::Symbol(length)],
        )
    };
    let mut inputs = vec![
        tokens("input_ids", "sequence_length"),
        tokens("attention_mask", "total_sequence_length"),
    ];
    inputs.extend(kv_infos(spec, "past_key_values", "past_sequence_length"));
    inputs
}

pub(super) fn outputs(spec: &DecoderSpec) -> Vec<ValueInfoProto> {
    let dims = [
        Dim::Symbol("batch_size"),
        Dim::Symbol("sequence_length"),
        Dim::Size(spec.vocab),
    ];
    let mut outputs = vec![value_info("logits".into(), DataType::Float32, &dims)];
    outputs.extend(kv_infos(spec, "present", "total_sequence_length"));
    outputs
}

/// All keys, then all values, as the builder orders them; it leaves the head dimension symbolic.
fn kv_infos(spec: &DecoderSpec, prefix: &str, length: &'static str) -> Vec<ValueInfoProto> {
    let info = |part: &str, layer| {
        let dims = [
            Dim::Symbol("batch_size"),
            Dim::Size(spec.kv_heads),
            Dim::Symbol(length),
            Dim::Symbol("kv_cache_dim"),
        ];
        value_info(kv_name(prefix, layer, part), DataType::Float32, &dims)
    };
    ["key", "value"]
        .iter()
        .flat_map(|part| (0..spec.layers).map(move |layer| info(part, layer)))
        .collect()
}

/// Name of a layer's part of the KV cache.
pub(super) fn kv_name(prefix: &str, layer: usize, part: &str) -> String {
    format!("{prefix}.{layer}.{part}")
}
