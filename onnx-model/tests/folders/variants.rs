//! The graphs of other kinds of decoders, each as the builder writes it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use onnx_model::proto::ModelProto;
use onnx_model::write::{SubmodelOptions, submodel};
use onnx_model::{FolderOptions, Graph, InitializerData, ModelFolder, OperatorKind};
use prost::Message;

use crate::support::{check_partition, check_weight_bytes};

/// What lies before, in and after layer 1; the other layers must be like it.
#[track_caller]
fn check(name: &str, expected: Expect) {
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/graphs")
        .join(name);
    let bytes = fs::read(graphs.join("model.onnx")).unwrap();
    let graph = Graph::parse(bytes.clone()).unwrap();
    let ends = graph.initializers.iter().map(|t| match &t.data {
        InitializerData::External(range) => range.offset + range.len,
        InitializerData::Inline(_) => 0,
    });
    let dir = tempfile::tempdir().unwrap();
    fs::copy(
        graphs.join("genai_config.json"),
        dir.path().join("genai_config.json"),
    )
    .unwrap();
    fs::File::create(dir.path().join("model.onnx.data"))
        .unwrap()
        .set_len(ends.max().unwrap())
        .unwrap();
    let folder = ModelFolder::open_with_graph(dir.path(), &bytes, FolderOptions::default()).unwrap();
    check_inferred_types(&folder, &bytes);
    let operators = folder.operators().unwrap();
    check_partition(folder.graph(), operators);
    check_weight_bytes(&folder);
    let mut text = String::new();
    for operator in operators {
        let data = folder.read(operator).unwrap();
        Graph::parse(submodel(&data, &SubmodelOptions::default()).bytes).unwrap();
        if operator.layer.is_none_or(|layer| layer == 1) {
            let mut ops: Vec<&str> = operator
                .nodes
                .iter()
                .map(|&id| folder.graph().node(id).op_type.as_str())
                .collect();
            ops.dedup();
            writeln!(text, "{}: {} = {}", operator.name, operator.kind, ops.join(" ")).unwrap();
        }
    }
    expected.assert_eq(&text);
    let of_layer = |layer| {
        operators
            .iter()
            .filter(move |o| o.layer == Some(layer))
            .map(|o| o.kind)
    };
    for layer in [2, 3] {
        // The last norm of a layer may be one operator with the first of the next.
        let (kinds, like): (Vec<_>, Vec<_>) = (of_layer(layer).collect(), of_layer(1).collect());
        assert_eq!(kinds, like, "layer {layer}");
    }
    assert_eq!(
        operators
            .iter()
            .filter(|o| o.kind == OperatorKind::GroupQueryAttention)
            .count(),
        4
    );
}

/// Without the builder's declarations, types are inferred to be what it declares.
#[track_caller]
fn check_inferred_types(folder: &ModelFolder, graph: &[u8]) {
    let mut model = ModelProto::decode(graph).unwrap();
    model.graph.as_mut().unwrap().value_info.clear();
    let bare = model.encode_to_vec();
    let bare = ModelFolder::open_with_graph(folder.dir(), &bare, FolderOptions::default()).unwrap();
    let declared = &folder.graph().value_info;
    assert!(declared.len() > 50 && bare.graph().value_info.is_empty());
    for value in declared
        .iter()
        .filter(|v| folder.graph().producer(&v.name).is_some())
    {
        assert_eq!(bare.value_type(&value.name), Some(value.dtype), "{}", value.name);
    }
}

#[test]
fn qwen3_fp32() {
    check(
        "qwen3-tiny-fp32",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Transpose Gather
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMul Split Reshape SimplifiedLayerNormalization Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMul
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMul Sigmoid Mul MatMul
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMul
    "#]],
    );
}

#[test]
fn qwen3_int4_nofuse() {
    check(
        "qwen3-tiny-int4-nofuse",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Reshape SimplifiedLayerNormalization Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn qwen3_int4_qdq_asym() {
    check(
        "qwen3-tiny-int4-qdq-asym",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Gather
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = DequantizeLinear MatMul Split Reshape SimplifiedLayerNormalization Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = DequantizeLinear MatMul
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = DequantizeLinear MatMul DequantizeLinear MatMul Sigmoid Mul DequantizeLinear MatMul
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = DequantizeLinear MatMul
    "#]],
    );
}

#[test]
fn qwen3_int4_prune() {
    check(
        "qwen3-tiny-int4-prune",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Split Reshape SimplifiedLayerNormalization Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = Gather Unsqueeze MatMulNBits
    "#]],
    );
}

#[test]
fn qwen3_int4_kquant_mixed() {
    check(
        "qwen3-tiny-int4-kquant-mixed",
        expect![[r#"
        attn_mask: Glue = Shape Gather ReduceSum Sub Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Split Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn qwen3_cuda_int4() {
    check(
        "qwen3-tiny-cuda-int4",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Split
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn qwen3_int8() {
    check(
        "qwen3-tiny-int8",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Gather
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Split Reshape SimplifiedLayerNormalization Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn qwen2_int4() {
    check(
        "qwen2-tiny-int4",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Add
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn phi3_long_fp16_cuda() {
    check(
        "phi3-long-tiny-fp16-cuda",
        expect![[r#"
        attn_mask: Glue = Shape Gather Greater ReduceSum Sub Cast
        rope_caches: Glue = If
        embed_tokens: Embedding = Gather
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMul
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMul
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMul Sigmoid Mul MatMul
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMul
    "#]],
    );
}

#[test]
fn gemma_int4() {
    check(
        "gemma-tiny-int4",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized Mul
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Gelu Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn gemma2_int4() {
    check(
        "gemma2-tiny-int4",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized Mul
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Gelu Mul MatMulNBits
        layers.1.post_feedforward_layernorm: Norm = SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits Div Tanh Mul
    "#]],
    );
}

#[test]
fn gemma3_bf16_cuda() {
    check(
        "gemma3-tiny-bf16-cuda",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Transpose Gather Mul Cast
        layers.1.attn.qkv_proj: MatMulNBits = Cast MatMul Split
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMul Cast
        layers.1.post_attention_layernorm: Norm = SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = Cast MatMul Gelu Mul MatMul Cast
        layers.1.post_feedforward_layernorm: Norm = SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
        lm_head: LmHead = Cast MatMul Cast
    "#]],
    );
}

#[test]
fn gemma3_int4_ring() {
    check(
        "gemma3-tiny-int4-ring",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Reshape GatherBlockQuantized Mul
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits Split Reshape SimplifiedLayerNormalization Reshape SimplifiedLayerNormalization Reshape
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Gelu Mul MatMulNBits
        layers.1.post_feedforward_layernorm: Norm = SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}

#[test]
fn llama3_int4_dml() {
    check(
        "llama3-tiny-int4-dml",
        expect![[r#"
        attn_mask: Glue = ReduceSum Sub Cast Shape Gather Cast
        embed_tokens: Embedding = Gather
        layers.1.input_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.attn.qkv_proj: MatMulNBits = MatMulNBits RotaryEmbedding
        layers.1.attn: GroupQueryAttention = GroupQueryAttention
        layers.1.attn.o_proj: MatMulNBits = MatMulNBits
        layers.1.post_attention_layernorm: Norm = SkipSimplifiedLayerNormalization
        layers.1.mlp: Mlp = MatMulNBits Sigmoid Mul MatMulNBits
        final_norm_layernorm: Norm = SkipSimplifiedLayerNormalization
        lm_head: LmHead = MatMulNBits
    "#]],
    );
}
