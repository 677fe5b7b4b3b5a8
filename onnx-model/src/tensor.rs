//! Constant tensors: element type, shape and reference-counted bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use prost::bytes::Bytes;

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// A constant tensor. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name in the graph.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Shape, outermost dimension first; empty for a scalar.
    pub shape: Vec<u64>,
    /// Elements, little-endian, row-major. Invariant: as long as `dtype` and `shape` say, and aligned for `dtype`.
    pub bytes: TensorBytes,
}

impl Tensor {
    /// A tensor of owned elements.
    ///
    /// # Errors
    /// `bytes` is not as long as `dtype` and `shape` say.
    pub fn new(name: impl Into<String>, dtype: DataType, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Self> {
        let name = name.into();
        if dtype.byte_len(&shape) != Some(bytes.len() as u64) {
            let len = bytes.len();
            return Err(
                Error::range(format!("{len} bytes are not a {dtype} tensor of shape {shape:?}"))
                    .at_tensor(name),
            );
        }
        Ok(Tensor {
            name,
            dtype,
            shape,
            bytes: TensorBytes::owned(&bytes),
        })
    }

    /// Number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    /// The elements in place.
    ///
    /// # Errors
    /// `T` is not the Rust type of this tensor's elements (`f32` for float32, `half::f16` for float16, ..).
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::invalid_argument(format!(
                "elements are {}, asked for as {}",
                self.dtype,
                T::DTYPE
            ))
            .at_tensor(&self.name));
        }
        bytemuck::try_cast_slice(&self.bytes).map_err(|e| {
            Error::invalid_argument(format!("cannot be taken as {}: {e}", T::DTYPE)).at_tensor(&self.name)
        })
    }

    /// The elements as float32: borrowed if they are, else converted from float16, bfloat16 or float64.
    ///
    /// # Errors
    /// The elements are not floating point numbers of these types.
    pub fn to_f32(&self) -> Result<Cow<'_, [f32]>> {
        Ok(match self.dtype {
            DataType::Float32 => Cow::Borrowed(self.as_slice()?),
            DataType::Float16 => {
                Cow::Owned(self.as_slice::<half::f16>()?.iter().map(|x| x.to_f32()).collect())
            }
            DataType::BFloat16 => Cow::Owned(
                self.as_slice::<half::bf16>()?
                    .iter()
                    .map(|x| x.to_f32())
                    .collect(),
            ),
            DataType::Float64 => Cow::Owned(self.as_slice::<f64>()?.iter().map(|&x| x as f32).collect()),
            other => {
                return Err(
                    Error::invalid_argument(format!("{other} elements are not floats")).at_tensor(&self.name),
                );
            }
        })
    }

    /// The elements as int64, for shapes, axes and the like.
    ///
    /// # Errors
    /// The elements are not int64 or int32.
    pub fn to_i64(&self) -> Result<Vec<i64>> {
        match self.dtype {
            DataType::Int64 => Ok(self.as_slice::<i64>()?.to_vec()),
            DataType::Int32 => Ok(self.as_slice::<i32>()?.iter().map(|&x| x.into()).collect()),
            other => Err(
                Error::invalid_argument(format!("{other} elements are not int64 or int32"))
                    .at_tensor(&self.name),
            ),
        }
    }
}

/// Rust types of tensor elements.
pub trait Element: bytemuck::Pod {
    /// The element type in a model.
    const DTYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty = $onnx:ident),* $(,)?) => { $(impl Element for $rust { const DTYPE: DataType = DataType::$onnx; })* };
}

elements! {
    f32 = Float32, f64 = Float64, half::f16 = Float16, half::bf16 = BFloat16,
    u8 = Uint8, i8 = Int8, u16 = Uint16, i16 = Int16, u32 = Uint32, i32 = Int32, u64 = Uint64, i64 = Int64,
}

/// Reference-counted bytes: a range of a mapped file, or owned. Cloning is one atomic increment.
#[derive(Clone)]
pub struct TensorBytes(Repr);

#[derive(Clone)]
enum Repr {
    /// Invariant: `offset + len <= mapping.len()`.
    Mapped {
        mapping: Arc<Mapping>,
        offset: usize,
        len: usize,
    },
    Owned(Bytes),
}

impl TensorBytes {
    pub(crate) fn mapped(mapping: &Arc<Mapping>, offset: u64, len: u64) -> Result<Self> {
        match offset.checked_add(len) {
            Some(end) if end <= mapping.len() => Ok(TensorBytes(Repr::Mapped {
                mapping: mapping.clone(),
                offset: offset as usize,
                len: len as usize,
            })),
            _ => Err(Error::range(format!(
                "{len} bytes at {offset} lie behind the end of the file, {}",
                mapping.len()
            ))
            .in_file(mapping.path())),
        }
    }

    /// A copy of `bytes`, aligned for any element type.
    pub fn owned(bytes: &[u8]) -> Self {
        let mut lines = AlignedBytes::zeroed(bytes.len());
        lines.as_mut().copy_from_slice(bytes);
        TensorBytes(Repr::Owned(Bytes::from_owner(lines)))
    }

    /// `bytes` itself if it is aligned for elements of `align` bytes, else a copy that is.
    pub(crate) fn shared(bytes: Bytes, align: usize) -> Self {
        match bytes.as_ptr().align_offset(align) {
            0 => TensorBytes(Repr::Owned(bytes)),
            _ => Self::owned(&bytes),
        }
    }

    /// `len` bytes read from the file, not through the mapping.
    pub(crate) fn read(mapping: &Mapping, offset: u64, len: u64) -> Result<Self> {
        mapping.check(offset.saturating_add(len))?;
        let mut lines = AlignedBytes::zeroed(len as usize);
        mapping.read_range(offset, lines.as_mut())?;
        Ok(TensorBytes(Repr::Owned(Bytes::from_owner(lines))))
    }

    /// Where in the file the bytes lie, if they are mapped.
    pub fn mapping_offset(&self) -> Option<u64> {
        match &self.0 {
            Repr::Mapped { offset, .. } => Some(*offset as u64),
            Repr::Owned(_) => None,
        }
    }

    /// The mapped file, if the bytes are mapped.
    pub fn mapping(&self) -> Option<&Arc<Mapping>> {
        match &self.0 {
            Repr::Mapped { mapping, .. } => Some(mapping),
            Repr::Owned(_) => None,
        }
    }

    /// Makes mapped bytes resident; does nothing for owned ones.
    ///
    /// # Errors
    /// As [`Mapping::prefault`].
    pub fn prefault(&self) -> Result<()> {
        match &self.0 {
            Repr::Mapped { mapping, offset, len } => mapping.prefault(*offset as u64, *len as u64),
            Repr::Owned(_) => Ok(()),
        }
    }

    /// Gives mapped bytes back to the page cache, for a user that has made its own copy; does nothing for owned ones. Nothing is
    /// lost: whoever uses the bytes again gets them from the cache.
    pub fn release(&self) {
        if let Repr::Mapped { mapping, offset, len } = &self.0 {
            mapping.release(*offset as u64, *len as u64);
        }
    }
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Mapped { mapping, offset, len } => &mapping.bytes()[*offset..*offset + *len],
            Repr::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Mapped { mapping, offset, len } => {
                write!(f, "{len} bytes at {offset} of {}", mapping.path().display())
            }
            Repr::Owned(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// One cache line, the alignment that the weights of a model file have too.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Owned bytes that begin at a cache line.
struct AlignedBytes {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBytes {
    fn zeroed(len: usize) -> Self {
        AlignedBytes {
            lines: vec![Line([0; 64]); len.div_ceil(64)],
            len,
        }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_bytes_are_aligned_and_shared() {
        let tensor = Tensor::new(
            "t",
            DataType::Float32,
            vec![3],
            bytemuck::cast_slice(&[1f32, 2., 3.]).to_vec(),
        )
        .unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), [1., 2., 3.]);
        assert_eq!(tensor.bytes.as_ptr() as usize % 64, 0);
        assert_eq!(tensor.clone().bytes.as_ptr(), tensor.bytes.as_ptr());
        assert!(tensor.as_slice::<i32>().unwrap_err().is_invalid_argument());
    }

    #[test]
    fn misaligned_bytes_are_copied() {
        let bytes = Bytes::from_owner(AlignedBytes::zeroed(64));
        assert_eq!(
            TensorBytes::shared(bytes.slice(8..16), 8).as_ptr(),
            bytes[8..].as_ptr()
        );
        assert_ne!(
            TensorBytes::shared(bytes.slice(9..17), 8).as_ptr(),
            bytes[9..].as_ptr()
        );
    }

    #[test]
    fn halves_become_f32() {
        let bytes = [half::f16::from_f32(0.5), half::f16::from_f32(-2.0)];
        let tensor = Tensor::new(
            "t",
            DataType::Float16,
            vec![2],
            bytemuck::cast_slice(&bytes).to_vec(),
        )
        .unwrap();
        assert_eq!(*tensor.to_f32().unwrap(), [0.5, -2.0]);
        assert!(tensor.to_i64().unwrap_err().to_string().contains("float16"));
    }

    #[test]
    fn a_wrong_length_is_refused() {
        assert!(
            Tensor::new("t", DataType::Float32, vec![2], vec![0; 7])
                .unwrap_err()
                .is_out_of_range()
        );
    }
}
