//! Blockwise quantized weights as float32, for execution providers that do not take MatMulNBits.
//!
//! Source of the format: [MatMulNBits](https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#commicrosoftmatmulnbits):
//! rows of B are the columns of the matrix, in blocks with a scale each; low bits first; zero points packed likewise, row by row
//! padded to bytes, 2^(bits - 1) if there are none.

use onnx_model::{Node, OperatorData, Tensor};

use crate::error::{NpuError, Result};

/// The constant operand of a MatMulNBits as a float32 matrix `[K, N]`, little-endian.
///
/// # Errors
/// A constant is missing, of a type that is not handled, or not as long as the attributes say.
pub(crate) fn weight_matrix(node: &Node, data: &OperatorData) -> Result<Matrix> {
    let size = |name: &str| Ok::<usize, NpuError>(usize::try_from(node.int(name)?).unwrap_or(0));
    let (k, n, block) = (size("K")?, size("N")?, size("block_size")?);
    let bits = node.int_opt("bits")?.unwrap_or(4);
    let refuse = |why: String| NpuError::unsupported(why).at_node(node.label());
    if !matches!(bits, 4 | 8) || k == 0 || n == 0 || block == 0 {
        return Err(refuse(format!(
            "{bits}-bit weights [{k}, {n}] in blocks of {block} cannot be dequantized"
        )));
    }
    let operand = |position: usize| node.input(position).and_then(|name| data.tensor(name));
    let (Some(packed), Some(scales)) = (operand(1), operand(2)) else {
        return Err(refuse("weights or scales are not constant".into()));
    };
    if operand(4).is_some() {
        return Err(refuse(
            "weights in another order (g_idx) cannot be dequantized".into(),
        ));
    }
    let n_blocks = k.div_ceil(block);
    let layout = Layout {
        bits: bits as usize,
        block,
        n_blocks,
    };
    let scales = scales.to_f32()?;
    let zero_points = ZeroPoints::of(operand(3), layout)?;
    if packed.bytes.len() != n * layout.row_bytes()
        || scales.len() != n * n_blocks
        || !zero_points.fit(n, layout)
    {
        return Err(refuse(format!(
            "weights, scales or zero points are not those of a [{k}, {n}] matrix"
        )));
    }
    let mut matrix = vec![0.0; k * n];
    for row in 0..n {
        let packed = &packed.bytes[row * layout.row_bytes()..][..layout.row_bytes()];
        for i in 0..k {
            let scale = scales[row * n_blocks + i / block];
            let zero_point = zero_points.get(row, i / block, layout);
            matrix[i * n + row] = (f32::from(layout.element(packed, i)) - zero_point) * scale;
        }
    }
    Ok(Matrix {
        k,
        n,
        elements: matrix,
    })
}

/// A row-major matrix.
#[derive(Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) elements: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Layout {
    bits: usize,
    block: usize,
    n_blocks: usize,
}

impl Layout {
    fn block_bytes(self) -> usize {
        self.block * self.bits / 8
    }

    fn row_bytes(self) -> usize {
        self.n_blocks * self.block_bytes()
    }

    fn zero_point_bytes(self) -> usize {
        (self.n_blocks * self.bits).div_ceil(8)
    }

    /// Blocks are whole bytes, so that a row is one run of packed elements.
    fn element(self, packed: &[u8], i: usize) -> u8 {
        match self.bits {
            4 => packed[i / 2] >> (4 * (i % 2)) & 0xf,
            _ => packed[i],
        }
    }
}

enum ZeroPoints {
    Middle(f32),
    Packed(Vec<u8>),
    Float(Vec<f32>),
}

impl ZeroPoints {
    fn of(tensor: Option<&Tensor>, layout: Layout) -> Result<Self> {
        Ok(match tensor {
            None => Self::Middle(f32::from(1u8 << (layout.bits - 1))),
            Some(tensor) if tensor.dtype == onnx_model::DataType::Uint8 => {
                Self::Packed(tensor.bytes.to_vec())
            }
            Some(tensor) => Self::Float(tensor.to_f32()?.into_owned()),
        })
    }

    fn fit(&self, n: usize, layout: Layout) -> bool {
        match self {
            Self::Middle(_) => true,
            Self::Packed(bytes) => bytes.len() == n * layout.zero_point_bytes(),
            Self::Float(values) => values.len() == n * layout.n_blocks,
        }
    }

    fn get(&self, row: usize, block: usize, layout: Layout) -> f32 {
        match self {
            Self::Middle(value) => *value,
            Self::Packed(bytes) => layout
                .element(&bytes[row * layout.zero_point_bytes()..], block)
                .into(),
            Self::Float(values) => values[row * layout.n_blocks + block],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_low_bits_first() {
        let four = Layout {
            bits: 4,
            block: 4,
            n_blocks: 1,
        };
        assert_eq!(
            (0..4).map(|i| four.element(&[0x21, 0x43], i)).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
        assert_eq!((four.row_bytes(), four.zero_point_bytes()), (2, 1));
        let eight = Layout {
            bits: 8,
            block: 4,
            n_blocks: 3,
        };
        assert_eq!(
            (
                eight.element(&[7, 9], 1),
                eight.row_bytes(),
                eight.zero_point_bytes()
            ),
            (9, 12, 3)
        );
    }

    #[test]
    fn zero_points_are_padded_row_by_row() {
        let layout = Layout {
            bits: 4,
            block: 16,
            n_blocks: 3,
        };
        let packed = ZeroPoints::Packed(vec![0x21, 0x03, 0x65, 0x07]);
        assert!(packed.fit(2, layout) && !packed.fit(3, layout));
        let row = |row| {
            (0..3)
                .map(|block| packed.get(row, block, layout))
                .collect::<Vec<_>>()
        };
        assert_eq!((row(0), row(1)), (vec![1.0, 2.0, 3.0], vec![5.0, 6.0, 7.0]));
        assert_eq!(ZeroPoints::of(None, layout).unwrap().get(1, 2, layout), 8.0);
    }
}
