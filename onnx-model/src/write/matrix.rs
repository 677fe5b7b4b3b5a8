//! Block-quantized matrices in MatMulNBits' layout, and quantizing to it.

use crate::error::{Error, Result};

/// Zero points of a quantized matrix.
#[derive(Clone, Debug, PartialEq)]
pub enum ZeroPoints {
    /// None: every block's zero is at 8 (4 bit) or 128 (8 bit).
    Middle,
    /// As values: 4-bit ones packed two per byte, low nibble first, each row padded to a byte; 8-bit ones a byte each.
    Integer(Vec<u8>),
    /// As floats, one per block: exact for any source, but slow in ONNX Runtime, which then multiplies unpacked.
    Float(Vec<f32>),
}

/// A matrix of `rows` output features by `columns` input features, quantized in blocks along the columns:
/// `w = scale * (q - zero_point)`.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedMatrix {
    /// Output features, MatMulNBits' `N`.
    pub rows: usize,
    /// Input features, MatMulNBits' `K`.
    pub columns: usize,
    /// 4 or 8.
    pub bits: usize,
    /// Input features that share a scale.
    pub block_size: usize,
    /// `[rows, blocks, block_size * bits / 8]`, 4-bit values with the low nibble first.
    pub values: Vec<u8>,
    /// `[rows, blocks]`.
    pub scales: Vec<f32>,
    /// `[rows, blocks]` in one of three forms.
    pub zero_points: ZeroPoints,
}

impl QuantizedMatrix {
    /// Blocks per row; the last one is padded when `columns` is no multiple of the block size.
    pub fn blocks_per_row(&self) -> usize {
        self.columns.div_ceil(self.block_size)
    }

    /// Fails unless the three buffers have the lengths that shape, bits and block size ask for.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        let wrong = |message: String| Error::invalid_argument(message).at_tensor(name);
        check_block_size(self.block_size).map_err(|error| error.at_tensor(name))?;
        if !matches!(self.bits, 4 | 8) {
            return Err(wrong(format!("{} bits, expected 4 or 8", self.bits)));
        }
        let blocks = self.rows * self.blocks_per_row();
        let zero_points = match &self.zero_points {
            ZeroPoints::Middle => true,
            ZeroPoints::Integer(packed) => {
                packed.len() == self.rows * (self.blocks_per_row() * self.bits).div_ceil(8)
            }
            ZeroPoints::Float(values) => values.len() == blocks,
        };
        if self.values.len() != blocks * self.block_size * self.bits / 8
            || self.scales.len() != blocks
            || !zero_points
        {
            return Err(wrong(format!(
                "buffer lengths do not fit {} rows, {} columns, {} bits, block size {}",
                self.rows, self.columns, self.bits, self.block_size
            )));
        }
        Ok(())
    }
}

/// How float weights become integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// 4 bit around 8; the scale is the largest weight over -8. What the genai builder does by default.
    Symmetric4,
    /// 4 bit with integer zero points, from minimum to maximum. Rounds to nearest.
    Asymmetric4,
    /// 8 bit around 128; the scale is the largest weight over 127. Rounds to nearest.
    Symmetric8,
}

/// A scheme and the number of input features that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// How float weights become integers.
    pub scheme: Scheme,
    /// A power of two, at least 16.
    pub block_size: usize,
}

/// Quantizes rows as they come, so that the float form of a large matrix never exists as a whole.
pub struct Quantizer {
    quantization: Quantization,
    columns: usize,
    rows: usize,
    values: Vec<u8>,
    scales: Vec<f32>,
    zero_points: Vec<u8>,
}

impl Quantizer {
    /// A quantizer of rows of `columns` weights, which may be no multiple of the block size.
    ///
    /// # Errors
    /// If the block size is not a power of two of at least 16, or a row is empty.
    pub fn new(quantization: Quantization, columns: usize) -> Result<Self> {
        check_block_size(quantization.block_size)?;
        if columns == 0 {
            return Err(Error::invalid_argument(
                "rows without columns cannot be quantized",
            ));
        }
        Ok(Quantizer {
            quantization,
            columns,
            rows: 0,
            values: vec![],
            scales: vec![],
            zero_points: vec![],
        })
    }

    /// Adds whole rows.
    ///
    /// # Errors
    /// If `weights` does not hold whole rows.
    pub fn push(&mut self, weights: &[f32]) -> Result<()> {
        if !weights.len().is_multiple_of(self.columns) {
            return Err(Error::invalid_argument(format!(
                "{} weights are no whole rows of {}",
                weights.len(),
                self.columns
            )));
        }
        let block_size = self.quantization.block_size;
        let mut padded = vec![0.0; block_size];
        for row in weights.chunks_exact(self.columns) {
            let row_zero_points = self.zero_points.len();
            let blocks = row.chunks_exact(block_size);
            let rest = blocks.remainder();
            for (index, block) in blocks.enumerate() {
                self.block(block, index, row_zero_points);
            }
            if !rest.is_empty() {
                padded.fill(0.0);
                padded[..rest.len()].copy_from_slice(rest);
                self.block(&padded, self.columns / block_size, row_zero_points);
            }
            self.rows += 1;
        }
        Ok(())
    }

    /// The matrix of all rows so far.
    pub fn finish(self) -> QuantizedMatrix {
        let (bits, zero_points) = match self.quantization.scheme {
            Scheme::Symmetric4 => (4, ZeroPoints::Middle),
            Scheme::Asymmetric4 => (4, ZeroPoints::Integer(self.zero_points)),
            Scheme::Symmetric8 => (8, ZeroPoints::Middle),
        };
        QuantizedMatrix {
            rows: self.rows,
            columns: self.columns,
            bits,
            block_size: self.quantization.block_size,
            values: self.values,
            scales: self.scales,
            zero_points,
        }
    }

    fn block(&mut self, weights: &[f32], index: usize, row_zero_points: usize) {
        let (mut low, mut high) = (0.0_f32, 0.0_f32);
        for &w in weights {
            low = low.min(w);
            high = high.max(w);
        }
        match self.quantization.scheme {
            Scheme::Symmetric4 => {
                let extreme = if high > -low { high } else { low };
                let scale = extreme / -8.0;
                let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
                self.scales.push(scale);
                // Adding a half and cutting off rounds what cannot be negative; the cast saturates below.
                self.pack4(weights, |w| ((w * inverse + 8.5) as u8).min(15));
            }
            Scheme::Asymmetric4 => {
                let scale = nonzero((high - low) / 15.0);
                let zero = round_ties_even(-low / scale).clamp(0.0, 15.0);
                self.scales.push(scale);
                if index.is_multiple_of(2) {
                    self.zero_points.push(zero as u8);
                } else {
                    self.zero_points[row_zero_points + index / 2] |= (zero as u8) << 4;
                }
                self.pack4(weights, |w| ((round_ties_even(w / scale) + zero) as u8).min(15));
            }
            Scheme::Symmetric8 => {
                let scale = nonzero(high.max(-low) / 127.0);
                self.scales.push(scale);
                self.values
                    .extend(weights.iter().map(|w| (round_ties_even(w / scale) + 128.0) as u8));
            }
        }
    }

    fn pack4(&mut self, weights: &[f32], quantize: impl Fn(f32) -> u8) {
        let pairs = weights.as_chunks::<2>().0;
        self.values.extend(
            pairs
                .iter()
                .map(|&[even, odd]| quantize(even) | quantize(odd) << 4),
        );
    }
}

fn check_block_size(block_size: usize) -> Result<()> {
    if block_size < 16 || !block_size.is_power_of_two() {
        return Err(Error::invalid_argument(format!(
            "block size {block_size}, expected a power of two of at least 16"
        )));
    }
    Ok(())
}

fn nonzero(scale: f32) -> f32 {
    if scale == 0.0 { 1.0 } else { scale }
}

/// Rounds `|x| < 2^22` to the nearest integer, halves to even, without a library call: adding 1.5 * 2^23 leaves no
/// fraction bits, so the addition itself rounds.
fn round_ties_even(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    (x + MAGIC) - MAGIC
}
