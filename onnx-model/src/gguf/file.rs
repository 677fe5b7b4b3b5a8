//! The reader: header, metadata, tensor directory, and tensors one at a time.

use super::source::{Bytes, Fault};
use super::tensor_type::TensorType;
use super::value::Value;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A tensor's entry in the directory of a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Element type.
    pub tensor_type: TensorType,
    /// Number of rows: the product of all dimensions but the innermost.
    pub rows: usize,
    /// Elements per row, the innermost dimension, always whole blocks.
    pub columns: usize,
    /// Offset in the file. Invariant: the rows lie within the file.
    offset: u64,
}

impl TensorInfo {
    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.columns / self.tensor_type.block_elements() * self.tensor_type.block_bytes()
    }
}

/// An open GGUF file: its metadata and tensor directory are in memory, tensors are read when asked for.
///
/// Nothing in the file is believed: every count, length and offset is compared with the file's length before
/// memory is allocated for it, so that memory stays within a small multiple of the file's size, and damaged
/// files give errors, never panics.
pub struct GgufFile<R = BufReader<File>> {
    path: PathBuf,
    bytes: Bytes<R>,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl GgufFile {
    /// Opens a file and reads its header and directories.
    ///
    /// # Errors
    /// If the file cannot be read, is not a little-endian GGUF file of version 2 or 3, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Error::io(path, "open", error))?;
        GgufFile::from_reader(path, BufReader::with_capacity(1 << 18, file))
    }
}

impl<R: Read + Seek> GgufFile<R> {
    /// Reads from anything that can seek; `path` only names it in errors.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn from_reader(path: impl Into<PathBuf>, reader: R) -> Result<Self> {
        let path = path.into();
        let parsed = Bytes::new(reader).and_then(|mut bytes| {
            let (metadata, tensors) = parse(&mut bytes)?;
            Ok((bytes, metadata, tensors))
        });
        match parsed {
            Ok((bytes, metadata, tensors)) => Ok(GgufFile {
                path,
                bytes,
                metadata,
                tensors,
            }),
            Err(fault) => Err(located(&path, fault)),
        }
    }

    /// Where the file is, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// All tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The directory entry of a tensor.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.tensors
            .get(name)
            .ok_or_else(|| self.invalid(format!("tensor {name} is missing")))
    }

    /// The bytes of some rows of a tensor, as they are stored.
    ///
    /// # Errors
    /// If there is no such tensor, the rows are out of range, or the file cannot be read.
    pub fn rows(&mut self, name: &str, rows: Range<usize>) -> Result<Vec<u8>> {
        let tensor = self.tensor(name)?;
        if rows.start > rows.end || rows.end > tensor.rows {
            return Err(self.invalid(format!(
                "tensor {name} has {} rows, asked for {rows:?}",
                tensor.rows
            )));
        }
        let (offset, row_bytes) = (tensor.offset, tensor.row_bytes());
        let mut out = vec![0; rows.len() * row_bytes];
        let read = self
            .bytes
            .seek(offset + (rows.start * row_bytes) as u64)
            .and_then(|()| self.bytes.fill(&mut out));
        read.map_err(|fault| located(&self.path, fault))?;
        Ok(out)
    }

    /// Some rows of a tensor as float32.
    ///
    /// # Errors
    /// As [`GgufFile::rows`].
    pub fn rows_f32(&mut self, name: &str, rows: Range<usize>) -> Result<Vec<f32>> {
        let tensor_type = self.tensor(name)?.tensor_type;
        Ok(tensor_type.dequantize(&self.rows(name, rows)?))
    }

    /// A metadata string.
    ///
    /// # Errors
    /// If it is missing or not a string; likewise below.
    pub fn string(&self, key: &str) -> Result<&str> {
        match self.required(key)? {
            Value::String(value) => Ok(value),
            other => Err(self.wrong(key, other, "a string")),
        }
    }

    /// A metadata array of strings.
    ///
    /// # Errors
    /// If it is missing or something else.
    pub fn strings(&self, key: &str) -> Result<&[String]> {
        match self.required(key)? {
            Value::Strings(values) => Ok(values),
            other => Err(self.wrong(key, other, "an array of strings")),
        }
    }

    /// A metadata array of integers.
    ///
    /// # Errors
    /// If it is missing or something else.
    pub fn integers(&self, key: &str) -> Result<&[i64]> {
        match self.required(key)? {
            Value::Integers(values) => Ok(values),
            other => Err(self.wrong(key, other, "an array of integers")),
        }
    }

    /// A metadata integer in the range of `u32`.
    ///
    /// # Errors
    /// If it is missing, not an integer, or out of range.
    pub fn integer(&self, key: &str) -> Result<u32> {
        let value = self.required(key)?;
        let integer = match value {
            Value::Unsigned(value) => u32::try_from(*value).ok(),
            Value::Signed(value) => u32::try_from(*value).ok(),
            other => return Err(self.wrong(key, other, "an integer")),
        };
        integer.ok_or_else(|| self.invalid(format!("metadata {key} is out of range: {value:?}")))
    }

    /// A metadata float, which must be finite.
    ///
    /// # Errors
    /// If it is missing, not a float, or not finite.
    pub fn float(&self, key: &str) -> Result<f64> {
        match self.required(key)? {
            Value::Float(value) if value.is_finite() => Ok(*value),
            Value::Float(value) => Err(self.invalid(format!("metadata {key} is {value}"))),
            other => Err(self.wrong(key, other, "a float")),
        }
    }

    /// An error that names this file.
    pub(super) fn invalid(&self, message: String) -> Error {
        located(&self.path, Fault::Invalid(message))
    }

    fn required(&self, key: &str) -> Result<&Value> {
        self.metadata
            .get(key)
            .ok_or_else(|| self.invalid(format!("metadata {key} is missing")))
    }

    fn wrong(&self, key: &str, found: &Value, wanted: &str) -> Error {
        self.invalid(format!("metadata {key} is {}, expected {wanted}", found.kind()))
    }
}

type Directories = (BTreeMap<String, Value>, BTreeMap<String, TensorInfo>);

fn parse<R: Read + Seek>(bytes: &mut Bytes<R>) -> Result<Directories, Fault> {
    if bytes.len() < 24 || &bytes.array()? != b"GGUF" {
        return Err(Fault::Invalid("not a GGUF file".into()));
    }
    let version = bytes.u32()?;
    if !(2..=3).contains(&version) {
        let hint = if version.swap_bytes() <= 3 {
            " (big-endian)"
        } else {
            ""
        };
        return Err(Fault::Unsupported(format!(
            "GGUF version {version}{hint} is not supported, only 2 and 3"
        )));
    }
    let (n_tensors, n_values) = (bytes.u64()?, bytes.u64()?);
    // A directory entry takes at least a name length, a dimension count, one dimension, a type and an offset.
    bytes.require(n_tensors, 8 + 4 + 8 + 4 + 8, "tensor directory")?;
    bytes.require(n_values, 8 + 4 + 1, "metadata")?;

    let mut metadata = BTreeMap::new();
    for _ in 0..n_values {
        let key = bytes.string()?;
        let value = Value::parse(bytes).map_err(|fault| within(fault, &format!("metadata {key}")))?;
        if metadata.contains_key(&key) {
            return Err(bytes.invalid(format!("metadata {key} occurs twice")));
        }
        metadata.insert(key, value);
    }
    let mut tensors: BTreeMap<String, TensorInfo> = BTreeMap::new();
    for _ in 0..n_tensors {
        let name = bytes.string()?;
        let tensor = parse_tensor(bytes, &name).map_err(|fault| within(fault, &format!("tensor {name}")))?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(bytes.invalid(format!("tensor {name} occurs twice")));
        }
    }

    let alignment = match metadata.get("general.alignment") {
        None => 32,
        Some(Value::Unsigned(value)) if value.is_power_of_two() && *value <= 1 << 20 => *value,
        Some(other) => return Err(Fault::Invalid(format!("general.alignment is {other:?}"))),
    };
    let data = bytes.position().next_multiple_of(alignment);
    for tensor in tensors.values_mut() {
        let size = (tensor.rows as u64).checked_mul(tensor.row_bytes() as u64);
        let offset = data.checked_add(tensor.offset);
        let end = offset
            .zip(size)
            .and_then(|(offset, size)| offset.checked_add(size));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= bytes.len() => tensor.offset = offset,
            _ => {
                return Err(Fault::Invalid(format!(
                    "tensor {} lies outside of the file ({} bytes); the file is truncated or damaged",
                    tensor.name,
                    bytes.len()
                )));
            }
        }
    }
    Ok((metadata, tensors))
}

/// An entry whose offset is still relative to the data section.
fn parse_tensor<R: Read + Seek>(bytes: &mut Bytes<R>, name: &str) -> Result<TensorInfo, Fault> {
    let n_dims = bytes.u32()?;
    if !(1..=4).contains(&n_dims) {
        return Err(bytes.invalid(format!("{n_dims} dimensions")));
    }
    let columns = bytes.u64()?;
    let mut rows: u64 = 1;
    for _ in 1..n_dims {
        rows = rows
            .checked_mul(bytes.u64()?)
            .ok_or_else(|| bytes.invalid("the dimensions overflow".into()))?;
    }
    let tag = bytes.u32()?;
    let tensor_type = TensorType::from_tag(tag).ok_or_else(|| {
        let name = TensorType::foreign_name(tag);
        Fault::Unsupported(format!(
            "type {tag} ({name}) is not supported, only F32, F16, BF16, Q4_0, Q4_1 and Q8_0"
        ))
    })?;
    if columns == 0 || rows == 0 || !columns.is_multiple_of(tensor_type.block_elements() as u64) {
        return Err(bytes.invalid(format!(
            "{rows} rows of {columns} elements of type {tensor_type:?}"
        )));
    }
    let offset = bytes.u64()?;
    // Bounded by the file, so that later arithmetic in `usize` cannot overflow.
    let fits = |count: u64| usize::try_from(count).ok().filter(|_| count <= bytes.len() * 2);
    let (Some(rows), Some(columns)) = (fits(rows), fits(columns)) else {
        return Err(bytes.invalid(format!(
            "{rows} rows of {columns} elements do not fit into the file"
        )));
    };
    Ok(TensorInfo {
        name: name.into(),
        tensor_type,
        rows,
        columns,
        offset,
    })
}

fn within(fault: Fault, place: &str) -> Fault {
    match fault {
        Fault::Invalid(message) => Fault::Invalid(format!("{place}: {message}")),
        Fault::Unsupported(message) => Fault::Unsupported(format!("{place}: {message}")),
        Fault::Io(error) => Fault::Io(error),
    }
}

fn located(path: &Path, fault: Fault) -> Error {
    match fault {
        Fault::Io(error) => Error::io(path, "read", error),
        Fault::Invalid(message) => Error::malformed(message).in_file(path),
        Fault::Unsupported(message) => Error::unsupported(message).in_file(path),
    }
}
