//! A GGUF tensor's own integers in MatMulNBits' layout.

use super::file::TensorInfo;
use super::tensor_type::{BLOCK, TensorType, half_at, nibbles};
use crate::error::{Error, Result};
use crate::write::{QuantizedMatrix, ZeroPoints};

/// Rearranges rows of a Q4_0, Q4_1 or Q8_0 tensor without rounding.
///
/// Q4_1's `w = d * q + m` becomes `d * (q - z)` with `z = -m / d`; a block of equal weights (`d = 0`) becomes
/// `m * (1 - 0)`.
pub(super) fn exact_matrix(tensor: &TensorInfo, rows: &[u8]) -> Result<QuantizedMatrix> {
    let blocks = rows.chunks_exact(tensor.tensor_type.block_bytes());
    let (mut values, mut scales, mut zero_points) = (vec![], vec![], vec![]);
    match tensor.tensor_type {
        TensorType::Q4_0 => {
            for block in blocks {
                scales.push(half_at(block, 0));
                pack(&nibbles(&block[2..]), &mut values);
            }
        }
        TensorType::Q4_1 => {
            for block in blocks {
                let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                if scale == 0.0 {
                    scales.push(if minimum == 0.0 { 1.0 } else { minimum });
                    zero_points.push(0.0);
                    pack(&[u8::from(minimum != 0.0); BLOCK], &mut values);
                } else {
                    scales.push(scale);
                    zero_points.push(-minimum / scale);
                    pack(&nibbles(&block[4..]), &mut values);
                }
            }
        }
        TensorType::Q8_0 => {
            for block in blocks {
                scales.push(half_at(block, 0));
                values.extend(block[2..].iter().map(|value| value ^ 0x80));
            }
        }
        other @ (TensorType::F32 | TensorType::F16 | TensorType::Bf16) => {
            let message = format!("type {other:?} has no integers to keep, so mode exact cannot be used");
            return Err(Error::unsupported(message).at_tensor(&tensor.name));
        }
    }
    Ok(QuantizedMatrix {
        rows: scales.len() * BLOCK / tensor.columns,
        columns: tensor.columns,
        bits: if tensor.tensor_type == TensorType::Q8_0 {
            8
        } else {
            4
        },
        block_size: BLOCK,
        values,
        scales,
        zero_points: if zero_points.is_empty() {
            ZeroPoints::Middle
        } else {
            ZeroPoints::Float(zero_points)
        },
    })
}

/// Puts matrices of one form above each other.
pub(super) fn stack(matrices: Vec<QuantizedMatrix>) -> Result<QuantizedMatrix> {
    let mut matrices = matrices.into_iter();
    let mut all = matrices.next().expect("a matrix has at least one part");
    for next in matrices {
        let same = all.bits == next.bits && all.columns == next.columns;
        match (&mut all.zero_points, next.zero_points) {
            (ZeroPoints::Middle, ZeroPoints::Middle) if same => {}
            (ZeroPoints::Float(all), ZeroPoints::Float(next)) if same => all.extend(next),
            _ => {
                return Err(Error::unsupported(
                    "q, k and v are of different types, so mode exact cannot be used",
                ));
            }
        }
        all.rows += next.rows;
        all.values.extend(next.values);
        all.scales.extend(next.scales);
    }
    Ok(all)
}

fn pack(values: &[u8; BLOCK], out: &mut Vec<u8>) {
    out.extend(
        values
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&[even, odd]| even | odd << 4),
    );
}
