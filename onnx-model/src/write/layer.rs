//! The parts of a decoder layer: attention with its inputs, and the MLP.

use super::decoder::{DecoderWriter, dotted, expect_len};
use super::graph::Attribute::{Float, Int};
use super::interface::kv_name;
use super::spec::{Linear, Norm};
use crate::dtype::DataType;
use crate::error::Result;

/// The values that every attention node shares.
pub(super) struct AttentionInputs {
    pub sequence_lengths: String,
    pub total_length: String,
    pub cos: String,
    pub sin: String,
}

impl DecoderWriter<'_> {
    /// From the attention mask, what GroupQueryAttention wants: last positions and total length.
    pub(super) fn attention_mask(&mut self) -> (String, String) {
        let name = "/model/attn_mask_reformat/attn_mask_subgraph";
        let to_int32 = [("to", Int(DataType::Int32 as i64))];
        let one = self.graph.vector(&[1]);
        let sum = self.graph.node(
            "ReduceSum",
            format!("{name}/ReduceSum"),
            &["attention_mask", &one],
        );
        let sum = sum.attributes(&[("keepdims", Int(0))]).output();
        let last = self
            .graph
            .node("Sub", format!("{name}/Sub"), &[&sum, &one])
            .output();
        let last = self
            .graph
            .node("Cast", format!("{name}/Sub/Cast"), &[&last])
            .attributes(&to_int32)
            .output();

        let shape = self
            .graph
            .node("Shape", format!("{name}/Shape"), &["attention_mask"])
            .output();
        let one = self.graph.scalar(1);
        let total = self
            .graph
            .node("Gather", format!("{name}/Gather"), &[&shape, &one]);
        let total = total.attributes(&[("axis", Int(0))]).output();
        let total = self
            .graph
            .node("Cast", format!("{name}/Gather/Cast"), &[&total])
            .attributes(&to_int32)
            .output();
        (last, total)
    }

    pub(super) fn attention(
        &mut self,
        layer: usize,
        normed: &str,
        shared: &AttentionInputs,
    ) -> Result<String> {
        let spec = self.spec;
        let name = format!("/model/layers.{layer}/attn");
        let mut packed = self.linear(layer, Linear::Qkv, normed)?;
        if spec.qkv_bias {
            let bias = self.source.qkv_bias(layer)?;
            let bias_name = format!("{}.qkv_proj.Add.bias", dotted(&name));
            expect_len(&bias_name, bias.len(), spec.linear_shape(Linear::Qkv).0)?;
            let bias = self.data.floats(bias_name, &[bias.len()], &bias)?;
            packed = self
                .graph
                .node("Add", format!("{name}/qkv_proj/Add"), &[&packed, &bias])
                .output();
        }
        let [query, key, value] = if spec.qk_norm {
            self.split_and_norm(layer, &name, &packed)?
        } else {
            [packed, String::new(), String::new()]
        };
        let (past_key, past_value) = (
            kv_name("past_key_values", layer, "key"),
            kv_name("past_key_values", layer, "value"),
        );
        let (present_key, present_value) = (
            kv_name("present", layer, "key"),
            kv_name("present", layer, "value"),
        );
        let output = format!("{name}/GroupQueryAttention/output_0");
        let AttentionInputs {
            sequence_lengths,
            total_length,
            cos,
            sin,
        } = shared;
        let inputs = [
            &query,
            &key,
            &value,
            &past_key,
            &past_value,
            sequence_lengths,
            total_length,
            cos,
            sin,
        ]
        .map(String::as_str);
        let inputs = [&inputs[..], &["", "", ""]].concat();
        let node = self
            .graph
            .node(
                "GroupQueryAttention",
                format!("{name}/GroupQueryAttention"),
                &inputs,
            )
            .microsoft();
        let attributes = [
            ("num_heads", Int(spec.heads as i64)),
            ("kv_num_heads", Int(spec.kv_heads as i64)),
            ("scale", Float((spec.head_dim as f64).powf(-0.5) as f32)),
            ("local_window_size", Int(-1)),
            ("softcap", Float(0.0)),
            ("do_rotary", Int(1)),
            ("rotary_interleaved", Int(0)),
        ];
        node.attributes(&attributes)
            .outputs(&[&output, &present_key, &present_value]);
        self.linear(layer, Linear::Output, &output)
    }

    /// Qwen3: queries and keys are normed per head between projection and attention.
    fn split_and_norm(&mut self, layer: usize, name: &str, packed: &str) -> Result<[String; 3]> {
        let spec = self.spec;
        let widths = [spec.heads, spec.kv_heads, spec.kv_heads].map(|heads| (heads * spec.head_dim) as i64);
        let sizes = self.graph.vector(&widths);
        let parts = [0, 1, 2].map(|part| format!("{name}/qkv_proj/Split/output_{part}"));
        let split = self
            .graph
            .node("Split", format!("{name}/qkv_proj/Split"), &[packed, &sizes]);
        split
            .attributes(&[("axis", Int(-1))])
            .outputs(&[&parts[0], &parts[1], &parts[2]]);

        let [query, key, value] = parts;
        let mut norm = |kind: &str, norm: Norm, input: &str, width: i64| {
            let name = format!("{name}/{kind}");
            let per_head = self.graph.vector(&[0, -1, spec.head_dim as i64]);
            let reshaped = self
                .graph
                .node("Reshape", format!("{name}/Reshape_1"), &[input, &per_head])
                .output();
            let weight = self.norm_weight(format!("{}.layernorm.weight", dotted(&name)), norm)?;
            let node_name = format!("{name}/SimplifiedLayerNormalization");
            let normed = format!("{node_name}/output_0");
            self.rms_norm(node_name, &reshaped, &weight, &normed);
            let packed = self.graph.vector(&[0, -1, width]);
            Ok(self
                .graph
                .node("Reshape", format!("{name}/Reshape_2"), &[&normed, &packed])
                .output())
        };
        let query = norm("q_norm", Norm::Query(layer), &query, widths[0])?;
        let key = norm("k_norm", Norm::Key(layer), &key, widths[1])?;
        Ok([query, key, value])
    }

    pub(super) fn mlp(&mut self, layer: usize, input: &str) -> Result<String> {
        let name = format!("/model/layers.{layer}/mlp");
        let gate = self.linear(layer, Linear::Gate, input)?;
        let up = self.linear(layer, Linear::Up, input)?;
        let sigmoid = self
            .graph
            .node("Sigmoid", format!("{name}/act_fn/Sigmoid"), &[&gate])
            .output();
        let activated = self
            .graph
            .node("Mul", format!("{name}/act_fn/Mul"), &[&gate, &sigmoid])
            .output();
        let product = self
            .graph
            .node("Mul", format!("{name}/Mul"), &[&activated, &up])
            .output();
        self.linear(layer, Linear::Down, &product)
    }

    fn linear(&mut self, layer: usize, linear: Linear, input: &str) -> Result<String> {
        let name = format!("/model/layers.{layer}/{}/MatMul", linear.path());
        let matrix = self.source.linear(layer, linear)?;
        let stored = self.store(&dotted(&name), matrix, self.spec.linear_shape(linear))?;
        let output = format!("{name}/output_0");
        self.matmul(&format!("{name}_Q4"), input, &stored, &output);
        Ok(output)
    }
}
