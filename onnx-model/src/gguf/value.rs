//! Metadata values of a GGUF file.

use super::source::{Bytes, Fault};
use std::io::{Read, Seek};

/// One metadata value. Integers are widened, arrays are flat and of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A float of either width.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A UTF-8 string.
    String(String),
    /// An array of integers of any width and sign.
    Integers(Vec<i64>),
    /// An array of floats.
    Floats(Vec<f64>),
    /// An array of booleans.
    Bools(Vec<bool>),
    /// An array of strings.
    Strings(Vec<String>),
}

impl Value {
    /// Reads the type tag and the value after it.
    pub(super) fn parse<R: Read + Seek>(bytes: &mut Bytes<R>) -> Result<Value, Fault> {
        let tag = bytes.u32()?;
        Ok(match tag {
            0 => Value::Unsigned(bytes.array::<1>()?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(bytes.array()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(bytes.array()?).into()),
            3 => Value::Signed(i16::from_le_bytes(bytes.array()?).into()),
            4 => Value::Unsigned(bytes.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(bytes.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(bytes.array()?).into()),
            7 => Value::Bool(bytes.bool()?),
            8 => Value::String(bytes.string()?),
            9 => Value::parse_array(bytes)?,
            10 => Value::Unsigned(bytes.u64()?),
            11 => Value::Signed(i64::from_le_bytes(bytes.array()?)),
            12 => Value::Float(f64::from_le_bytes(bytes.array()?)),
            _ => return Err(bytes.invalid(format!("unknown metadata type {tag}"))),
        })
    }

    fn parse_array<R: Read + Seek>(bytes: &mut Bytes<R>) -> Result<Value, Fault> {
        let tag = bytes.u32()?;
        let integers = |bytes: &mut Bytes<R>, width, read: fn(&mut Bytes<R>) -> Result<i64, Fault>| {
            Ok(Value::Integers(bytes.many(width, read)?))
        };
        match tag {
            0 => integers(bytes, 1, |b| Ok(b.array::<1>()?[0].into())),
            1 => integers(bytes, 1, |b| Ok(i8::from_le_bytes(b.array()?).into())),
            2 => integers(bytes, 2, |b| Ok(u16::from_le_bytes(b.array()?).into())),
            3 => integers(bytes, 2, |b| Ok(i16::from_le_bytes(b.array()?).into())),
            4 => integers(bytes, 4, |b| Ok(b.u32()?.into())),
            5 => integers(bytes, 4, |b| Ok(i32::from_le_bytes(b.array()?).into())),
            6 => Ok(Value::Floats(
                bytes.many(4, |b| Ok(f32::from_le_bytes(b.array()?).into()))?,
            )),
            7 => Ok(Value::Bools(bytes.many(1, Bytes::bool)?)),
            8 => Ok(Value::Strings(bytes.many(8, Bytes::string)?)),
            10 => integers(bytes, 8, |b| {
                let value = b.u64()?;
                i64::try_from(value).map_err(|_| b.invalid(format!("array element {value} is over 2^63")))
            }),
            11 => integers(bytes, 8, |b| Ok(i64::from_le_bytes(b.array()?))),
            12 => Ok(Value::Floats(
                bytes.many(8, |b| Ok(f64::from_le_bytes(b.array()?)))?,
            )),
            9 => Err(Fault::Unsupported("arrays of arrays are not supported".into())),
            _ => Err(bytes.invalid(format!("unknown metadata array type {tag}"))),
        }
    }

    /// What the value is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Unsigned(_) | Value::Signed(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a boolean",
            Value::String(_) => "a string",
            Value::Integers(_) => "an array of integers",
            Value::Floats(_) => "an array of floats",
            Value::Bools(_) => "an array of booleans",
            Value::Strings(_) => "an array of strings",
        }
    }
}
