//! Written decoder folders, read back.

use onnx_model::synth::{Preset, synthesize, synthesize_with};
use onnx_model::write::{
    DecoderSpec, Linear, Norm, Quantization, QuantizedMatrix, Quantizer, Scheme, StagedFolder, WeightSource,
    ZeroPoints, write_decoder,
};
use onnx_model::{DataType, Error, ModelFolder, OperatorKind, Result};
use std::fs;
use std::ops::Range;
use std::path::Path;
use tempfile::tempdir;

fn tiny() -> DecoderSpec {
    DecoderSpec {
        vocab: 512,
        eos: vec![511],
        bos: 509,
        pad: 509,
        context_length: 64,
        ..Preset::Tiny.spec()
    }
}

/// Writes and opens, and reads every operator's data.
#[track_caller]
fn round_trip(spec: &DecoderSpec, quantization: Quantization) -> ModelFolder {
    let dir = tempdir().unwrap();
    synthesize_with(dir.path(), spec, quantization, 3, &mut |_| ()).unwrap();
    let folder = ModelFolder::open(dir.path()).unwrap();
    let operators = folder.operators().unwrap().to_vec();
    for operator in &operators {
        folder.read(operator).unwrap();
    }
    let count = |kind| operators.iter().filter(|operator| operator.kind == kind).count();
    assert_eq!(count(OperatorKind::GroupQueryAttention), spec.layers);
    assert_eq!(count(OperatorKind::Mlp), spec.layers);
    assert_eq!(
        (count(OperatorKind::Embedding), count(OperatorKind::LmHead)),
        (1, 1)
    );
    folder
}

#[test]
fn every_form_is_read_back() {
    let base = tiny();
    let forms = [
        base.clone(),
        DecoderSpec {
            shared_embedding: false,
            ..base.clone()
        },
        DecoderSpec {
            model_type: "qwen2".into(),
            qk_norm: false,
            qkv_bias: true,
            ..base.clone()
        },
        DecoderSpec {
            model_type: "llama".into(),
            qk_norm: false,
            eos: vec![510, 511],
            ..base.clone()
        },
    ];
    for spec in &forms {
        for scheme in [Scheme::Symmetric4, Scheme::Asymmetric4, Scheme::Symmetric8] {
            for block_size in [16, 32, 64, 128] {
                let folder = round_trip(spec, Quantization { scheme, block_size });
                let geometry = folder.geometry();
                assert_eq!((geometry.layers, geometry.hidden, geometry.vocab), (4, 256, 512));
                assert_eq!(geometry.eos, spec.eos);
                let zero_points = folder.tensor("model.layers.0.mlp.up_proj.MatMul.weight_zp");
                assert_eq!(zero_points.is_ok(), scheme == Scheme::Asymmetric4);
            }
        }
    }
}

#[test]
fn tensors_are_aligned_and_named_as_the_builder_does() {
    let folder = round_trip(
        &tiny(),
        Quantization {
            scheme: Scheme::Symmetric4,
            block_size: 32,
        },
    );
    let tensor = folder
        .tensor("model.layers.3.attn.qkv_proj.MatMul.weight_Q4G32")
        .unwrap();
    assert_eq!(
        (tensor.dtype, &tensor.shape[..]),
        (DataType::Uint8, &[384, 8, 16][..])
    );
    for initializer in &folder.graph().initializers {
        let tensor = folder.tensor(&initializer.name).unwrap();
        assert_eq!(
            tensor.bytes.mapping_offset().unwrap() % 64,
            0,
            "{}",
            initializer.name
        );
    }
}

#[test]
fn a_seed_means_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| {
        let dir = tempdir().unwrap();
        synthesize(dir.path(), &tiny(), seed, &mut |_| ()).unwrap();
        fs::read(dir.path().join("model.onnx.data")).unwrap()
    };
    assert!(bytes(1) == bytes(1));
    assert!(bytes(1) != bytes(2));
}

#[test]
fn symmetric_weights_have_a_zero_mean() {
    let folder = round_trip(
        &tiny(),
        Quantization {
            scheme: Scheme::Symmetric4,
            block_size: 32,
        },
    );
    let values = folder
        .tensor("model.layers.0.mlp.up_proj.MatMul.weight_Q4G32")
        .unwrap();
    let nibbles = values.bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
    let sum: i64 = nibbles.clone().map(|q| i64::from(q) - 8).sum();
    assert!(nibbles.clone().all(|q| q > 0));
    let mean = sum as f64 / nibbles.count() as f64;
    assert!(mean.abs() < 0.05, "{mean}");
}

/// Rotary tables of position 1: cosine of each frequency.
fn frequencies(spec: &DecoderSpec) -> Vec<f32> {
    let folder = round_trip(
        spec,
        Quantization {
            scheme: Scheme::Symmetric4,
            block_size: 32,
        },
    );
    let half = spec.head_dim / 2;
    let sin = folder.tensor("sin_cache").unwrap();
    sin.to_f32().unwrap()[half..2 * half]
        .iter()
        .map(|sin| sin.asin())
        .collect()
}

#[test]
fn llama_3_stretches_long_wavelengths_only() {
    let spec = DecoderSpec {
        qk_norm: false,
        rope: Preset::Llama3_2_1b.spec().rope,
        head_dim: 64,
        ..tiny()
    };
    let plain = DecoderSpec {
        rope: onnx_model::write::Rope {
            scaling: None,
            ..spec.rope
        },
        ..spec.clone()
    };
    let ratios: Vec<f32> = frequencies(&plain)
        .iter()
        .zip(frequencies(&spec))
        .map(|(a, b)| a / b)
        .collect();
    // The first is a full radian, where asin folds; the rest runs from 1 to the factor.
    assert!(
        ratios[1..10].iter().all(|ratio| (ratio - 1.0).abs() < 1e-4),
        "{ratios:?}"
    );
    assert!(
        ratios[24..].iter().all(|ratio| (ratio - 32.0).abs() < 1e-2),
        "{ratios:?}"
    );
    assert!(ratios[1..].is_sorted_by(|a, b| b - a > -1e-3), "{ratios:?}");
}

#[test]
fn matches_the_genai_builders_own_folder_node_for_node() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models/qwen3-tiny-int4");
    let theirs = ModelFolder::open(path).unwrap();
    let dir = tempdir().unwrap();
    synthesize(dir.path(), &Preset::Tiny.spec(), 1, &mut |_| ()).unwrap();
    let ours = ModelFolder::open(dir.path()).unwrap();
    let shape = |folder: &ModelFolder| {
        let mut nodes: Vec<String> = folder
            .graph()
            .nodes
            .iter()
            .filter(|node| node.op_type != "Constant")
            .map(|node| {
                format!(
                    "{}::{} {} inputs {} outputs",
                    node.domain,
                    node.op_type,
                    node.inputs.len(),
                    node.outputs.len()
                )
            })
            .collect();
        nodes.sort();
        nodes
    };
    assert_eq!(shape(&ours), shape(&theirs));
    let names = |folder: &ModelFolder| {
        folder
            .operators()
            .unwrap()
            .iter()
            .map(|operator| (operator.name.clone(), operator.kind))
            .collect::<Vec<_>>()
    };
    let (mut ours, mut theirs) = (names(&ours), names(&theirs));
    ours.sort_by(|a, b| a.0.cmp(&b.0));
    theirs.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(ours, theirs);
}

/// Gives matrices that one closure spoils.
struct Spoiled<F> {
    spec: DecoderSpec,
    spoil: F,
}

impl<F: FnMut(&mut QuantizedMatrix) -> Result<()>> WeightSource for Spoiled<F> {
    fn linear(&mut self, _layer: usize, linear: Linear) -> Result<QuantizedMatrix> {
        let (rows, columns) = self.spec.linear_shape(linear);
        let mut quantizer = Quantizer::new(
            Quantization {
                scheme: Scheme::Asymmetric4,
                block_size: 32,
            },
            columns,
        )?;
        quantizer.push(&vec![0.5; rows * columns])?;
        let mut matrix = quantizer.finish();
        (self.spoil)(&mut matrix)?;
        Ok(matrix)
    }
    fn lm_head(&mut self) -> Result<QuantizedMatrix> {
        let mut quantizer = Quantizer::new(
            Quantization {
                scheme: Scheme::Symmetric8,
                block_size: 32,
            },
            self.spec.hidden,
        )?;
        quantizer.push(&vec![0.5; self.spec.vocab * self.spec.hidden])?;
        Ok(quantizer.finish())
    }
    fn norm(&mut self, norm: Norm) -> Result<Vec<f32>> {
        Ok(vec![1.0; self.spec.norm_len(norm)])
    }
    fn qkv_bias(&mut self, _layer: usize) -> Result<Vec<f32>> {
        unreachable!("no bias is asked for")
    }
    fn embedding(&mut self, _rows: Range<usize>) -> Result<Vec<f32>> {
        unreachable!("the embedding is shared")
    }
}

#[track_caller]
fn spoiled(spoil: impl FnMut(&mut QuantizedMatrix) -> Result<()>) -> Error {
    let dir = tempdir().unwrap();
    write_decoder(
        dir.path(),
        &tiny(),
        &mut Spoiled { spec: tiny(), spoil },
        &mut |_| (),
    )
    .unwrap_err()
}

#[test]
fn wrong_weights_are_refused_by_name() {
    let errors = [
        spoiled(|matrix| {
            matrix.rows += 1;
            Ok(())
        }),
        spoiled(|matrix| {
            matrix.scales.pop();
            Ok(())
        }),
        spoiled(|matrix| {
            matrix.values.push(0);
            Ok(())
        }),
        spoiled(|matrix| {
            matrix.zero_points = ZeroPoints::Float(vec![]);
            Ok(())
        }),
        spoiled(|matrix| {
            matrix.bits = 3;
            Ok(())
        }),
    ];
    for error in errors {
        assert!(error.is_invalid_argument(), "{error:?}");
        assert_eq!(error.tensor(), Some("model.layers.0.attn.qkv_proj.MatMul"));
    }
}

#[test]
fn impossible_geometries_and_block_sizes_are_refused() {
    let refused = |spec: DecoderSpec| {
        let dir = tempdir().unwrap();
        let error = synthesize(dir.path(), &spec, 1, &mut |_| ()).unwrap_err();
        assert!(error.is_invalid_argument(), "{error:?}");
    };
    refused(DecoderSpec { layers: 0, ..tiny() });
    refused(DecoderSpec {
        kv_heads: 3,
        ..tiny()
    });
    refused(DecoderSpec {
        head_dim: 31,
        ..tiny()
    });
    refused(DecoderSpec {
        eos: vec![],
        ..tiny()
    });
    refused(DecoderSpec { vocab: 100, ..tiny() });
    refused(DecoderSpec {
        hidden: usize::MAX,
        ..tiny()
    });
    // A shared embedding cannot be padded.
    refused(DecoderSpec {
        hidden: 250,
        ..tiny()
    });
    for block_size in [0, 8, 48] {
        assert!(
            Quantizer::new(
                Quantization {
                    scheme: Scheme::Symmetric4,
                    block_size
                },
                64
            )
            .is_err()
        );
    }
}

#[test]
fn zeros_and_ragged_rows_are_quantized() {
    for scheme in [Scheme::Symmetric4, Scheme::Asymmetric4, Scheme::Symmetric8] {
        let mut quantizer = Quantizer::new(
            Quantization {
                scheme,
                block_size: 32,
            },
            40,
        )
        .unwrap();
        quantizer.push(&[0.0; 80]).unwrap();
        assert!(quantizer.push(&[0.0; 41]).is_err());
        let matrix = quantizer.finish();
        assert_eq!(
            (matrix.rows, matrix.blocks_per_row(), matrix.scales.len()),
            (2, 2, 4)
        );
        assert!(matrix.scales.iter().all(|scale| scale.is_finite()));
    }
}

#[test]
fn a_staged_folder_appears_whole_or_not_at_all() {
    let dir = tempdir().unwrap();
    let destination = dir.path().join("deep/model");
    let staged = StagedFolder::new(&destination).unwrap();
    staged.write("a", "1").unwrap();
    drop(staged);
    assert_eq!(
        fs::read_dir(dir.path().join("deep")).unwrap().count(),
        0,
        "nothing is left behind"
    );

    let staged = StagedFolder::new(&destination).unwrap();
    let other = StagedFolder::new(&destination).unwrap();
    staged.write("a", "2").unwrap();
    assert!(!destination.exists());
    staged.publish().unwrap();
    assert_eq!(fs::read_to_string(destination.join("a")).unwrap(), "2");

    let message = "exists already; remove it or choose another folder";
    assert!(other.publish().unwrap_err().to_string().contains(message));
    assert!(
        StagedFolder::new(&destination)
            .unwrap_err()
            .to_string()
            .contains(message)
    );
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(
        StagedFolder::new(dir.path().join("file"))
            .unwrap_err()
            .to_string()
            .contains(message)
    );
    assert_eq!(
        fs::read_dir(dir.path().join("deep")).unwrap().count(),
        1,
        "no temporary folder is left"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_with_the_file() {
    // A device that is always full stands in for the disk.
    let dir = tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join("tokenizer.json")).unwrap();
    let error = synthesize(dir.path(), &tiny(), 1, &mut |_| ()).unwrap_err();
    assert!(
        error.is_io() && error.to_string().contains("tokenizer.json"),
        "{error}"
    );
}
