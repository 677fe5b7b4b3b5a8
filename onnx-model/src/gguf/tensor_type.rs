//! Tensor types of GGUF files, and turning them into float32.
//!
//! The block formats are those of llama.cpp's ggml: 32 weights share a float16 scale `d`, and in Q4_1 a float16
//! minimum `m`. Of the 16 bytes of nibbles, the low halves are weights 0 to 15, the high halves weights 16 to 31.

use half::{bf16, f16};

/// Weights per block of the quantized types.
pub const BLOCK: usize = 32;

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// bfloat16.
    Bf16,
    /// 4 bit, `w = d * (q - 8)`.
    Q4_0,
    /// 4 bit, `w = d * q + m`.
    Q4_1,
    /// 8 bit, `w = d * q`, q signed.
    Q8_0,
}

impl TensorType {
    pub(super) fn from_tag(tag: u32) -> Option<TensorType> {
        Some(match tag {
            0 => TensorType::F32,
            1 => TensorType::F16,
            2 => TensorType::Q4_0,
            3 => TensorType::Q4_1,
            8 => TensorType::Q8_0,
            30 => TensorType::Bf16,
            _ => return None,
        })
    }

    /// Name of a type that exists but cannot be read here, for messages.
    pub(super) fn foreign_name(tag: u32) -> &'static str {
        match tag {
            6 => "Q5_0",
            7 => "Q5_1",
            9 => "Q8_1",
            10 => "Q2_K",
            11 => "Q3_K",
            12 => "Q4_K",
            13 => "Q5_K",
            14 => "Q6_K",
            15 => "Q8_K",
            16..=23 | 29 => "an IQ type",
            24..=27 => "an integer type",
            28 => "F64",
            _ => "unknown",
        }
    }

    /// Elements that are stored together.
    pub fn block_elements(self) -> usize {
        match self {
            TensorType::F32 | TensorType::F16 | TensorType::Bf16 => 1,
            TensorType::Q4_0 | TensorType::Q4_1 | TensorType::Q8_0 => BLOCK,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            TensorType::F32 => 4,
            TensorType::F16 | TensorType::Bf16 => 2,
            TensorType::Q4_0 => 18,
            TensorType::Q4_1 => 20,
            TensorType::Q8_0 => 34,
        }
    }

    /// Turns whole blocks into float32, as ggml's reference code does: one multiplication, then one addition.
    ///
    /// # Panics
    /// If `bytes` does not hold whole blocks; [`GgufFile`](super::GgufFile) only hands out whole ones.
    pub fn dequantize(self, bytes: &[u8]) -> Vec<f32> {
        let (blocks, rest) = (
            bytes.chunks_exact(self.block_bytes()),
            bytes.len() % self.block_bytes(),
        );
        assert_eq!(rest, 0, "partial block");
        let mut out = vec![0.0; blocks.len() * self.block_elements()];
        match self {
            TensorType::F32 => {
                for (out, bytes) in out.iter_mut().zip(blocks) {
                    *out = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
            TensorType::F16 => {
                for (out, bytes) in out.iter_mut().zip(blocks) {
                    *out = half_at(bytes, 0);
                }
            }
            TensorType::Bf16 => {
                for (out, bytes) in out.iter_mut().zip(blocks) {
                    *out = bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
                }
            }
            TensorType::Q4_0 => {
                for (out, bytes) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
                    let scale = half_at(bytes, 0);
                    *out = nibbles(&bytes[2..]).map(|q| (f32::from(q) - 8.0) * scale);
                }
            }
            TensorType::Q4_1 => {
                for (out, bytes) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
                    let (scale, minimum) = (half_at(bytes, 0), half_at(bytes, 2));
                    *out = nibbles(&bytes[4..]).map(|q| f32::from(q) * scale + minimum);
                }
            }
            TensorType::Q8_0 => {
                for (out, bytes) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
                    let scale = half_at(bytes, 0);
                    for (out, byte) in out.iter_mut().zip(&bytes[2..]) {
                        *out = f32::from(byte.cast_signed()) * scale;
                    }
                }
            }
        }
        out
    }
}

/// The float16 at `offset`, widened.
pub(super) fn half_at(bytes: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([bytes[offset], bytes[offset + 1]]).to_f32()
}

/// The 32 nibbles of a Q4 block in weight order.
pub(super) fn nibbles(packed: &[u8]) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    for (i, &byte) in packed.iter().enumerate() {
        out[i] = byte & 15;
        out[i + BLOCK / 2] = byte >> 4;
    }
    out
}
