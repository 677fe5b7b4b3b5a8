//! Element types.

use std::fmt;

/// A tensor's element type, numbered as in ONNX's `TensorProto.DataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum DataType {
    /// IEEE 754 binary32.
    Float32 = 1,
    /// Unsigned 8-bit integer.
    Uint8 = 2,
    /// Signed 8-bit integer.
    Int8 = 3,
    /// Unsigned 16-bit integer.
    Uint16 = 4,
    /// Signed 16-bit integer.
    Int16 = 5,
    /// Signed 32-bit integer.
    Int32 = 6,
    /// Signed 64-bit integer.
    Int64 = 7,
    /// Text; has no fixed size, so only values (not constant tensors) may have this type here.
    String = 8,
    /// One byte, 0 or 1.
    Bool = 9,
    /// IEEE 754 binary16.
    Float16 = 10,
    /// IEEE 754 binary64.
    Float64 = 11,
    /// Unsigned 32-bit integer.
    Uint32 = 12,
    /// Unsigned 64-bit integer.
    Uint64 = 13,
    /// The upper half of a binary32.
    BFloat16 = 16,
    /// 8-bit float, 4 exponent bits, no infinities.
    Float8E4M3Fn = 17,
    /// 8-bit float, 5 exponent bits.
    Float8E5M2 = 19,
    /// Unsigned 4-bit integer, two to a byte, low nibble first.
    Uint4 = 21,
    /// Signed 4-bit integer, two to a byte, low nibble first.
    Int4 = 22,
}

impl DataType {
    /// All types, in order of their ONNX codes.
    pub const ALL: [DataType; 18] = [
        DataType::Float32,
        DataType::Uint8,
        DataType::Int8,
        DataType::Uint16,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::String,
        DataType::Bool,
        DataType::Float16,
        DataType::Float64,
        DataType::Uint32,
        DataType::Uint64,
        DataType::BFloat16,
        DataType::Float8E4M3Fn,
        DataType::Float8E5M2,
        DataType::Uint4,
        DataType::Int4,
    ];

    /// The type with this ONNX code; `None` for codes that are undefined or not handled here.
    pub fn from_onnx(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.onnx() == code)
    }

    /// The ONNX code.
    pub fn onnx(self) -> i32 {
        self as i32
    }

    /// Bits per element; `None` for [`DataType::String`].
    pub fn bits(self) -> Option<u64> {
        Some(match self {
            DataType::String => return None,
            DataType::Uint4 | DataType::Int4 => 4,
            DataType::Uint8
            | DataType::Int8
            | DataType::Bool
            | DataType::Float8E4M3Fn
            | DataType::Float8E5M2 => 8,
            DataType::Uint16 | DataType::Int16 | DataType::Float16 | DataType::BFloat16 => 16,
            DataType::Float32 | DataType::Int32 | DataType::Uint32 => 32,
            DataType::Float64 | DataType::Int64 | DataType::Uint64 => 64,
        })
    }

    /// Bytes of a tensor of this type and shape; `None` if that overflows or the type has no fixed size.
    ///
    /// 4-bit elements are packed without gaps, the last byte padded.
    pub fn byte_len(self, shape: &[u64]) -> Option<u64> {
        let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        Some(elements.checked_mul(self.bits()?)?.div_ceil(8))
    }

    /// Whether elements are floating point numbers.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            DataType::Float32
                | DataType::Float16
                | DataType::Float64
                | DataType::BFloat16
                | DataType::Float8E4M3Fn
                | DataType::Float8E5M2
        )
    }

    /// The name in lower case, as in `float32`.
    pub fn name(self) -> &'static str {
        match self {
            DataType::Float32 => "float32",
            DataType::Uint8 => "uint8",
            DataType::Int8 => "int8",
            DataType::Uint16 => "uint16",
            DataType::Int16 => "int16",
            DataType::Int32 => "int32",
            DataType::Int64 => "int64",
            DataType::String => "string",
            DataType::Bool => "bool",
            DataType::Float16 => "float16",
            DataType::Float64 => "float64",
            DataType::Uint32 => "uint32",
            DataType::Uint64 => "uint64",
            DataType::BFloat16 => "bfloat16",
            DataType::Float8E4M3Fn => "float8e4m3fn",
            DataType::Float8E5M2 => "float8e5m2",
            DataType::Uint4 => "uint4",
            DataType::Int4 => "int4",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for t in DataType::ALL {
            assert_eq!(DataType::from_onnx(t.onnx()), Some(t));
        }
        for code in [-1, 0, 14, 15, 18, 20, 23, 1000] {
            assert_eq!(DataType::from_onnx(code), None);
        }
    }

    #[test]
    fn byte_lengths() {
        assert_eq!(DataType::Float32.byte_len(&[2, 3]), Some(24));
        assert_eq!(DataType::Uint4.byte_len(&[3]), Some(2));
        assert_eq!(DataType::Int64.byte_len(&[]), Some(8));
        assert_eq!(DataType::Int64.byte_len(&[0, 5]), Some(0));
        assert_eq!(DataType::Int64.byte_len(&[u64::MAX, 2]), None);
        assert_eq!(DataType::Int64.byte_len(&[u64::MAX / 4]), None);
        assert_eq!(DataType::String.byte_len(&[1]), None);
    }
}
