//! Model folders with random weights: the size and graph of a real model, for measuring and testing.

mod preset;
mod random;
mod tokenizer;

use crate::error::Result;
use crate::write::{
    DecoderSpec, Linear, Norm, Quantization, QuantizedMatrix, Scheme, WeightSource, WriteProgress,
    ZeroPoints, write_decoder,
};
pub use preset::Preset;
use random::Random;
use std::ops::Range;
use std::path::Path;

/// Writes a complete folder with random weights: 4-bit, symmetric, in blocks of 32.
///
/// The same spec and seed give the same bytes, on every machine. Scales are chosen so that activations stay near 1 in
/// every layer and greedy decoding does not get stuck at once; the text is gibberish. `folder` must exist; use a
/// [`StagedFolder`](crate::write::StagedFolder) so that an interruption leaves nothing that looks complete.
///
/// # Errors
/// If the vocabulary is too small for a tokenizer, or a file cannot be written.
pub fn synthesize(
    folder: &Path,
    spec: &DecoderSpec,
    seed: u64,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<()> {
    synthesize_with(
        folder,
        spec,
        Quantization {
            scheme: Scheme::Symmetric4,
            block_size: 32,
        },
        seed,
        progress,
    )
}

/// As [`synthesize`], in another quantization.
///
/// # Errors
/// As [`synthesize`].
pub fn synthesize_with(
    folder: &Path,
    spec: &DecoderSpec,
    quantization: Quantization,
    seed: u64,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| crate::Error::io(&path, "write", error))
    };
    write("tokenizer.json", &tokenizer::tokenizer_json(spec.vocab)?)?;
    write("tokenizer_config.json", &tokenizer::tokenizer_config(spec))?;
    write("chat_template.jinja", tokenizer::CHAT_TEMPLATE)?;
    write_decoder(
        folder,
        spec,
        &mut RandomSource {
            spec,
            quantization,
            seed,
            stream: 0,
        },
        progress,
    )
}

/// Random weights. Every tensor has a stream of its own, by the order in which they are asked for.
struct RandomSource<'a> {
    spec: &'a DecoderSpec,
    quantization: Quantization,
    seed: u64,
    stream: u64,
}

impl RandomSource<'_> {
    fn random(&mut self) -> Random {
        self.stream += 1;
        Random::new(self.seed, self.stream)
    }

    /// Uniform integers with a zero mean, and scales that vary by a fifth around what gives this standard deviation.
    fn matrix(&mut self, (rows, columns): (usize, usize), deviation: f32) -> QuantizedMatrix {
        let mut random = self.random();
        let Quantization { scheme, block_size } = self.quantization;
        let blocks_per_row = columns.div_ceil(block_size);
        let blocks = rows * blocks_per_row;
        let (bits, integer_deviation) = match scheme {
            Scheme::Symmetric4 => (4, 4.18),
            Scheme::Asymmetric4 => (4, 4.61),
            Scheme::Symmetric8 => (8, 73.9),
        };
        let mut values = vec![0; blocks * block_size * bits / 8];
        match scheme {
            Scheme::Asymmetric4 | Scheme::Symmetric8 => random.fill(&mut values, |bits| bits),
            Scheme::Symmetric4 => random.fill(&mut values, |bits| {
                // 0 has no counterpart above 8, so it becomes 8: 1 to 15 remain, their mean is 8.
                const LOW: u64 = 0x1111_1111_1111_1111;
                let zeros = !(bits | bits >> 1 | bits >> 2 | bits >> 3) & LOW;
                bits | zeros << 3
            }),
        }
        let scale = deviation / integer_deviation;
        let scales = random.uniform(0.8 * scale, 1.2 * scale, blocks);
        let zero_points = match scheme {
            Scheme::Symmetric4 | Scheme::Symmetric8 => ZeroPoints::Middle,
            Scheme::Asymmetric4 => {
                let mut packed = vec![0; rows * blocks_per_row.div_ceil(2)];
                // 6 to 9.
                random.fill(&mut packed, |bits| {
                    (bits & 0x3333_3333_3333_3333) + 0x6666_6666_6666_6666
                });
                ZeroPoints::Integer(packed)
            }
        };
        QuantizedMatrix {
            rows,
            columns,
            bits,
            block_size,
            values,
            scales,
            zero_points,
        }
    }
}

impl WeightSource for RandomSource<'_> {
    fn linear(&mut self, _layer: usize, linear: Linear) -> Result<QuantizedMatrix> {
        let shape = self.spec.linear_shape(linear);
        Ok(self.matrix(shape, 1.5 / (shape.1 as f32).sqrt()))
    }

    fn lm_head(&mut self) -> Result<QuantizedMatrix> {
        // A shared table is the embedding too, where smaller values are wanted.
        let factor = if self.spec.shared_embedding { 0.5 } else { 1.5 };
        Ok(self.matrix(
            (self.spec.vocab, self.spec.hidden),
            factor / (self.spec.hidden as f32).sqrt(),
        ))
    }

    fn norm(&mut self, norm: Norm) -> Result<Vec<f32>> {
        let len = self.spec.norm_len(norm);
        Ok(self.random().uniform(0.5, 1.5, len))
    }

    fn qkv_bias(&mut self, _layer: usize) -> Result<Vec<f32>> {
        let (rows, _) = self.spec.linear_shape(Linear::Qkv);
        Ok(self.random().uniform(-0.9, 0.9, rows))
    }

    fn embedding(&mut self, rows: Range<usize>) -> Result<Vec<f32>> {
        Ok(self.random().uniform(-0.9, 0.9, rows.len() * self.spec.hidden))
    }
}
