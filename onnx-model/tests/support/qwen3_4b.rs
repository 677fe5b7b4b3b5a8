//! A folder of Qwen3-4B's size that takes no disk space.

use std::fs;

use onnx_model::DataType;
use onnx_model::proto::*;

use super::*;

/// Qwen3-4B: 36 layers of hidden size 2560, four-bit weights in blocks of 32.
pub const LAYERS: usize = 36;
const HIDDEN: i64 = 2560;
const INTERMEDIATE: i64 = 9728;
const HEADS: i64 = 32;
const KV_HEADS: i64 = 8;
const HEAD: i64 = 128;
const VOCAB: i64 = 151_936;

/// Writes a graph of Qwen3-4B's size, counting where weights would lie.
#[derive(Default)]
struct Writer {
    graph: GraphProto,
    offset: u64,
}

impl Writer {
    fn weight(&mut self, name: &str, dtype: DataType, dims: &[i64]) {
        let shape: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
        let len = dtype.byte_len(&shape).unwrap();
        let (offset, length) = (self.offset.to_string(), len.to_string());
        let place = [
            ("location", "model.onnx.data"),
            ("offset", offset.as_str()),
            ("length", length.as_str()),
        ];
        self.graph.initializer.push(external(name, dtype, dims, &place));
        self.offset = (self.offset + len).next_multiple_of(64);
    }

    fn product(&mut self, name: &str, from: &str, to: &str, k: i64, n: i64) {
        let (weight, scales) = (format!("{name}.weight"), format!("{name}.scales"));
        self.weight(&weight, DataType::Uint8, &[n, k / 32, 16]);
        self.weight(&scales, DataType::Float32, &[n, k / 32]);
        let path = format!("/{}/MatMul_Q4", name.replace('.', "/"));
        let sizes = [("K", k), ("N", n), ("bits", 4), ("block_size", 32)];
        self.graph.node.push(contrib(
            "MatMulNBits",
            &path,
            &[from, &weight, &scales],
            &[to],
            &sizes,
        ));
    }

    fn norm(&mut self, name: &str, residual: &str, from: &str) -> (String, String) {
        let (weight, path) = (format!("{name}.weight"), format!("/{}", name.replace('.', "/")));
        self.weight(&weight, DataType::Float32, &[HIDDEN]);
        let (out, sum) = (format!("{path}/output_0"), format!("{path}/output_3"));
        let op = "SkipSimplifiedLayerNormalization";
        let node = contrib(
            op,
            &format!("{path}/SkipLayerNorm"),
            &[residual, from, &weight],
            &[&out, "", "", &sum],
            &[],
        );
        self.graph.node.push(node);
        (out, sum)
    }

    fn layer(&mut self, i: usize, residual: &str, from: &str) -> (String, String) {
        let p = format!("model.layers.{i}");
        let (x, residual) = self.norm(&format!("{p}.input_layernorm"), residual, from);
        let v = |what: &str| format!("{what}{i}");
        self.product(
            &format!("{p}.attn.qkv_proj"),
            &x,
            &v("qkv"),
            HIDDEN,
            (HEADS + 2 * KV_HEADS) * HEAD,
        );
        let kv = ["past_key_values", "present"].map(|s| ["key", "value"].map(|t| format!("{s}.{i}.{t}")));
        let path = format!("/model/layers.{i}/attn/GroupQueryAttention");
        let inputs = [
            v("qkv").as_str(),
            "",
            "",
            &kv[0][0],
            &kv[0][1],
            "lengths",
            "lengths",
        ]
        .map(str::to_string);
        let inputs = inputs.each_ref().map(String::as_str);
        let outputs = [v("a"), kv[1][0].clone(), kv[1][1].clone()];
        let outputs = outputs.each_ref().map(String::as_str);
        let heads = [("num_heads", HEADS), ("kv_num_heads", KV_HEADS)];
        self.graph
            .node
            .push(contrib("GroupQueryAttention", &path, &inputs, &outputs, &heads));
        self.graph
            .input
            .extend(kv[0].iter().map(|n| value(n, DataType::Float32)));
        self.graph
            .output
            .extend(kv[1].iter().map(|n| value(n, DataType::Float32)));
        self.product(
            &format!("{p}.attn.o_proj"),
            &v("a"),
            &v("o"),
            HEADS * HEAD,
            HIDDEN,
        );
        let (x, residual) = self.norm(&format!("{p}.post_attention_layernorm"), &residual, &v("o"));
        self.product(
            &format!("{p}.mlp.gate_proj"),
            &x,
            &v("gate"),
            HIDDEN,
            INTERMEDIATE,
        );
        self.product(&format!("{p}.mlp.up_proj"), &x, &v("up"), HIDDEN, INTERMEDIATE);
        let mlp = |op: &str| format!("/model/layers.{i}/mlp/{op}");
        self.graph.node.push(node(
            "Sigmoid",
            &mlp("act_fn/Sigmoid"),
            &[&v("gate")],
            &[&v("sig")],
        ));
        self.graph.node.push(node(
            "Mul",
            &mlp("act_fn/Mul"),
            &[&v("gate"), &v("sig")],
            &[&v("act")],
        ));
        self.graph
            .node
            .push(node("Mul", &mlp("Mul"), &[&v("act"), &v("up")], &[&v("mul")]));
        self.product(
            &format!("{p}.mlp.down_proj"),
            &v("mul"),
            &v("down"),
            INTERMEDIATE,
            HIDDEN,
        );
        (residual, v("down"))
    }
}

/// The folder, with a sparse file for weights: it has the size, but no blocks on disk.
pub fn qwen3_4b() -> Folder {
    let mut w = Writer::default();
    w.graph.input = vec![
        value("input_ids", DataType::Int64),
        value("attention_mask", DataType::Int64),
    ];
    w.graph.output = vec![value("logits", DataType::Float32)];
    w.weight("embed", DataType::Float16, &[VOCAB, HIDDEN]);
    w.graph.node.push(node(
        "Shape",
        "/model/attn_mask_reformat/Shape",
        &["attention_mask"],
        &["shape"],
    ));
    w.graph
        .node
        .push(cast("/model/attn_mask_reformat/Cast", &["shape"], &["lengths"]));
    w.graph.node.push(node(
        "Gather",
        "/model/embed_tokens/Gather",
        &["embed", "input_ids"],
        &["e"],
    ));
    let (mut residual, mut x) = ("e".to_string(), "e".to_string());
    for i in 0..LAYERS {
        (residual, x) = w.layer(i, &residual, &x);
    }
    let (x, _) = w.norm(
        &format!("model.layers.{LAYERS}.final_norm_layernorm"),
        &residual,
        &x,
    );
    w.product("lm_head", &x, "logits", HIDDEN, VOCAB);
    let folder = Folder::new(&encode(w.graph), 0);
    let config = format!(
        r#"{{"model": {{"type": "qwen3", "context_length": 40960, "vocab_size": {VOCAB}, "eos_token_id": 7, "decoder": {{
        "head_size": {HEAD}, "hidden_size": {HIDDEN}, "num_attention_heads": {HEADS}, "num_hidden_layers": {LAYERS}, "num_key_value_heads": {KV_HEADS}}}}}}}"#
    );
    fs::write(folder.path("genai_config.json"), config).unwrap();
    fs::File::options()
        .write(true)
        .open(folder.path("model.onnx.data"))
        .unwrap()
        .set_len(w.offset)
        .unwrap();
    folder
}
