//! Writes a decoder as an onnxruntime-genai folder, node for node what its model builder (0.18, CPU, int4) writes.

use super::config::genai_config;
use super::data_file::{DataFile, write_floats};
use super::graph::Attribute::{Float, Int};
use super::graph::{GraphBuilder, MICROSOFT};
use super::interface::{inputs, outputs};
use super::layer::AttentionInputs;
use super::matrix::{QuantizedMatrix, ZeroPoints};
use super::spec::{DecoderSpec, Norm, WeightSource};
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::proto::{GraphProto, ModelProto, OperatorSetIdProto};
use prost::Message;
use std::path::Path;

/// How far writing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteProgress {
    /// Matrix elements written so far.
    pub weights: u64,
    /// All matrix elements, [`DecoderSpec::weights`].
    pub total_weights: u64,
    /// Bytes of model.onnx.data so far.
    pub bytes: u64,
}

/// Names of the data and model files.
const DATA: &str = "model.onnx.data";
const MODEL: &str = "model.onnx";

/// Writes `model.onnx`, `model.onnx.data` and `genai_config.json` of a decoder into an existing folder.
///
/// Weights are asked for one at a time and go straight to the data file. None of the three files may exist. What an
/// error leaves half-written is the caller's to remove; [`StagedFolder`](super::StagedFolder) does it.
///
/// # Errors
/// If the spec makes no sense, the source fails or gives something of the wrong shape, or a file cannot be written.
pub fn write_decoder(
    folder: &Path,
    spec: &DecoderSpec,
    source: &mut dyn WeightSource,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<()> {
    spec.check()?;
    let writer = DecoderWriter {
        spec,
        source,
        progress,
        weights: 0,
        graph: GraphBuilder::default(),
        data: DataFile::create(folder, DATA)?,
    };
    let model = writer.write()?.encode_to_vec();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|error| Error::io(&path, "write", error))
    };
    write(MODEL, &model)?;
    write("genai_config.json", genai_config(spec, MODEL).as_bytes())
}

pub(super) struct DecoderWriter<'a> {
    pub(super) spec: &'a DecoderSpec,
    pub(super) source: &'a mut dyn WeightSource,
    progress: &'a mut dyn FnMut(WriteProgress),
    weights: u64,
    pub(super) graph: GraphBuilder,
    pub(super) data: DataFile,
}

/// A quantized matrix in the data file: the inputs of its MatMulNBits after the activation, and its numbers.
pub(super) struct StoredMatrix {
    inputs: Vec<String>,
    rows: usize,
    columns: usize,
    bits: usize,
    block_size: usize,
}

impl DecoderWriter<'_> {
    fn write(mut self) -> Result<ModelProto> {
        let spec = self.spec;
        let (sequence_lengths, total_length) = self.attention_mask();
        let (embedded, shared_head) = self.embedding()?;
        let (cos, sin) = self.rope_tables()?;
        let attention = AttentionInputs {
            sequence_lengths,
            total_length,
            cos,
            sin,
        };

        // `normed` is what a block works on, `residual` the stream around it.
        let mut residual = embedded;
        let mut normed = self.first_norm(&residual)?;
        for layer in 0..spec.layers {
            let attended = self.attention(layer, &normed, &attention)?;
            let name = format!("/model/layers.{layer}/post_attention_layernorm");
            let mlp_input;
            (mlp_input, residual) =
                self.skip_norm(&name, Norm::PostAttention(layer), &residual, &attended)?;
            let mlp_output = self.mlp(layer, &mlp_input)?;
            let last = layer + 1 == spec.layers;
            let norm = if last { Norm::Final } else { Norm::Input(layer + 1) };
            let kind = if last { "final_norm" } else { "input" };
            let name = format!("/model/layers.{}/{kind}_layernorm", layer + 1);
            (normed, residual) = self.skip_norm(&name, norm, &residual, &mlp_output)?;
        }
        let head = match shared_head {
            Some(head) => head,
            None => {
                let matrix = self.source.lm_head()?;
                self.store("lm_head.MatMul", matrix, (spec.vocab, spec.hidden))?
            }
        };
        self.matmul("/lm_head/MatMul_Q4", &normed, &head, "logits");

        let graph = GraphProto {
            node: self.graph.finish(),
            name: Some("main_graph".into()),
            initializer: self.data.finish()?,
            input: inputs(spec),
            output: outputs(spec),
            ..GraphProto::default()
        };
        let opset = |domain: &str, version| OperatorSetIdProto {
            domain: Some(domain.into()),
            version: Some(version),
        };
        Ok(ModelProto {
            ir_version: Some(10),
            producer_name: Some("hostlane".into()),
            producer_version: Some(env!("CARGO_PKG_VERSION").into()),
            graph: Some(Box::new(graph)),
            opset_import: vec![opset("", 22), opset(MICROSOFT, 1)],
            ..ModelProto::default()
        })
    }

    /// The embedded tokens, and the lm_head when it shares the embedding's tensor.
    fn embedding(&mut self) -> Result<(String, Option<StoredMatrix>)> {
        let spec = self.spec;
        let name = "/model/embed_tokens";
        if !spec.shared_embedding {
            let table = self.float_embedding()?;
            let gather = self
                .graph
                .node("Gather", format!("{name}/Gather"), &[&table, "input_ids"]);
            return Ok((gather.output(), None));
        }
        let matrix = self.source.lm_head()?;
        let head = self.store("lm_head.MatMul", matrix, (spec.vocab, spec.hidden))?;
        if !head.columns.is_multiple_of(head.block_size) {
            let message = format!(
                "{} columns are no whole blocks of {}, as a shared embedding needs",
                head.columns, head.block_size
            );
            return Err(Error::invalid_argument(message).at_tensor(&head.inputs[0]));
        }
        let row_bytes = head.columns * head.bits / 8;
        let shape = self.graph.vector(&[spec.vocab as i64, row_bytes as i64]);
        let flat = self
            .graph
            .node("Reshape", format!("{name}/Reshape"), &[&head.inputs[0], &shape])
            .output();
        let mut inputs = vec![flat.as_str(), "input_ids"];
        inputs.extend(head.inputs[1..].iter().map(String::as_str));
        let gather = self.graph.node(
            "GatherBlockQuantized",
            format!("{name}/GatherBlockQuantized"),
            &inputs,
        );
        let embedded = gather
            .microsoft()
            .attributes(&[
                ("bits", Int(head.bits as i64)),
                ("block_size", Int(head.block_size as i64)),
                ("gather_axis", Int(0)),
                ("quantize_axis", Int(1)),
            ])
            .output();
        Ok((embedded, Some(head)))
    }

    fn float_embedding(&mut self) -> Result<String> {
        let (vocab, hidden) = (self.spec.vocab, self.spec.hidden);
        // About 4 MiB at a time.
        let step = (1_usize << 20).div_ceil(hidden);
        let source = &mut *self.source;
        let name = "model.embed_tokens.weight";
        let stored = self
            .data
            .tensor_in_parts(name.into(), DataType::Float32, &[vocab, hidden], |out| {
                for start in (0..vocab).step_by(step) {
                    let rows = start..(start + step).min(vocab);
                    let values = source.embedding(rows.clone())?;
                    expect_len(name, values.len(), rows.len() * hidden)?;
                    write_floats(&values, out)?;
                }
                Ok(())
            })?;
        self.advance(vocab * hidden);
        Ok(stored)
    }

    fn rope_tables(&mut self) -> Result<(String, String)> {
        let (positions, head_dim) = (self.spec.context_length, self.spec.head_dim);
        let frequencies = self.spec.rope.frequencies(head_dim);
        let mut table = |name: &str, function: fn(f64) -> f64| {
            self.data.tensor_in_parts(
                name.into(),
                DataType::Float32,
                &[positions, head_dim / 2],
                |out| {
                    let mut row = vec![0.0_f32; head_dim / 2];
                    for position in 0..positions {
                        for (value, frequency) in row.iter_mut().zip(&frequencies) {
                            // The angle is rounded to float32, as in the builder; its sine is not.
                            *value = function(f64::from(position as f32 * frequency)) as f32;
                        }
                        write_floats(&row, out)?;
                    }
                    Ok(())
                },
            )
        };
        Ok((table("cos_cache", f64::cos)?, table("sin_cache", f64::sin)?))
    }

    fn first_norm(&mut self, embedded: &str) -> Result<String> {
        let name = "/model/layers.0/input_layernorm";
        let weight = self.norm_weight("model.layers.0.input_layernorm.weight".into(), Norm::Input(0))?;
        let output = format!("{name}/output_0");
        self.rms_norm(format!("{name}/LayerNorm"), embedded, &weight, &output);
        Ok(output)
    }

    pub(super) fn rms_norm(&mut self, name: String, input: &str, weight: &str, output: &str) {
        let epsilon = self.spec.norm_epsilon;
        let node = self
            .graph
            .node("SimplifiedLayerNormalization", name, &[input, weight]);
        node.attributes(&[
            ("axis", Int(-1)),
            ("epsilon", Float(epsilon)),
            ("stash_type", Int(1)),
        ])
        .outputs(&[output]);
    }

    /// Adds `branch` to the residual stream and norms the sum; gives both, the sum only where somebody needs it.
    pub(super) fn skip_norm(
        &mut self,
        name: &str,
        norm: Norm,
        residual: &str,
        branch: &str,
    ) -> Result<(String, String)> {
        let weight = self.norm_weight(format!("{}.weight", dotted(name)), norm)?;
        let (normed, sum) = (format!("{name}/output_0"), format!("{name}/output_3"));
        let outputs: &[&str] = if norm == Norm::Final {
            &[&normed]
        } else {
            &[&normed, "", "", &sum]
        };
        let node_name = format!("{name}/SkipLayerNorm");
        let node = self.graph.node(
            "SkipSimplifiedLayerNormalization",
            node_name,
            &[residual, branch, &weight],
        );
        node.microsoft()
            .attributes(&[("epsilon", Float(self.spec.norm_epsilon))])
            .outputs(outputs);
        Ok((normed, sum))
    }

    pub(super) fn norm_weight(&mut self, name: String, norm: Norm) -> Result<String> {
        let values = self.source.norm(norm)?;
        expect_len(&name, values.len(), self.spec.norm_len(norm))?;
        self.data.floats(name, &[values.len()], &values)
    }

    pub(super) fn matmul(&mut self, name: &str, input: &str, matrix: &StoredMatrix, output: &str) {
        let mut inputs = vec![input];
        inputs.extend(matrix.inputs.iter().map(String::as_str));
        let attributes = [
            ("K", Int(matrix.columns as i64)),
            ("N", Int(matrix.rows as i64)),
            ("bits", Int(matrix.bits as i64)),
            ("block_size", Int(matrix.block_size as i64)),
            ("accuracy_level", Int(self.spec.accuracy_level.into())),
        ];
        self.graph
            .node("MatMulNBits", name, &inputs)
            .microsoft()
            .attributes(&attributes)
            .outputs(&[output]);
    }

    /// Writes a matrix to the data file.
    pub(super) fn store(
        &mut self,
        base: &str,
        matrix: QuantizedMatrix,
        (rows, columns): (usize, usize),
    ) -> Result<StoredMatrix> {
        if (matrix.rows, matrix.columns) != (rows, columns) {
            return Err(Error::invalid_argument(format!(
                "{} rows of {} columns given, expected {rows} of {columns}",
                matrix.rows, matrix.columns
            ))
            .at_tensor(base));
        }
        matrix.check(base)?;
        let QuantizedMatrix { bits, block_size, .. } = matrix;
        let blocks = matrix.blocks_per_row();
        let shape = [rows, blocks, block_size * bits / 8];
        let name = format!("{base}.weight_Q4G{block_size}");
        let mut inputs = vec![
            self.data.tensor(name, DataType::Uint8, &shape, &matrix.values)?,
            self.data
                .floats(format!("{base}.weight_scale"), &[rows, blocks], &matrix.scales)?,
        ];
        let name = format!("{base}.weight_zp");
        match &matrix.zero_points {
            ZeroPoints::Middle => {}
            ZeroPoints::Integer(packed) => {
                let shape = [rows, (blocks * bits).div_ceil(8)];
                inputs.push(self.data.tensor(name, DataType::Uint8, &shape, packed)?);
            }
            ZeroPoints::Float(values) => inputs.push(self.data.floats(name, &[rows, blocks], values)?),
        }
        self.advance(rows * columns);
        Ok(StoredMatrix {
            inputs,
            rows,
            columns,
            bits,
            block_size,
        })
    }

    fn advance(&mut self, weights: usize) {
        self.weights += weights as u64;
        let (total_weights, bytes) = (self.spec.weights(), self.data.position());
        (self.progress)(WriteProgress {
            weights: self.weights,
            total_weights,
            bytes,
        });
    }
}

/// A node's name as the builder turns it into a weight's name.
pub(super) fn dotted(name: &str) -> String {
    name.trim_matches('/').replace('/', ".")
}

pub(super) fn expect_len(name: &str, len: usize, wanted: usize) -> Result<()> {
    if len == wanted {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{len} elements given, expected {wanted}")).at_tensor(name))
}
