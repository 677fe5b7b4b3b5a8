//! model.onnx.data: tensors one after the other, each aligned as the genai builder aligns them.

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::proto::{DataLocation, StringStringEntryProto, TensorProto};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Alignment of every tensor in bytes.
const ALIGNMENT: u64 = 64;

/// Appends tensors to an external data file and keeps the initializers that point to them.
pub(super) struct DataFile {
    path: PathBuf,
    location: String,
    file: BufWriter<File>,
    position: u64,
    initializers: Vec<TensorProto>,
}

impl DataFile {
    /// Creates the file `location` in `folder`; it must not exist.
    pub fn create(folder: &Path, location: &str) -> Result<Self> {
        let path = folder.join(location);
        let file = File::create_new(&path).map_err(|error| Error::io(&path, "create", error))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(DataFile {
            path,
            location: location.into(),
            file,
            position: 0,
            initializers: Vec::new(),
        })
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends a whole tensor and returns its name.
    pub fn tensor(&mut self, name: String, dtype: DataType, shape: &[usize], bytes: &[u8]) -> Result<String> {
        self.tensor_in_parts(name, dtype, shape, |out| out(bytes))
    }

    /// Appends a float tensor.
    pub fn floats(&mut self, name: String, shape: &[usize], values: &[f32]) -> Result<String> {
        self.tensor_in_parts(name, DataType::Float32, shape, |out| write_floats(values, out))
    }

    /// Appends a tensor whose bytes `fill` hands over in parts.
    pub fn tensor_in_parts(
        &mut self,
        name: String,
        dtype: DataType,
        shape: &[usize],
        fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<String> {
        let padding = self.position.next_multiple_of(ALIGNMENT) - self.position;
        let (file, path) = (&mut self.file, &self.path);
        let mut length = 0;
        let mut write = |bytes: &[u8]| {
            length += bytes.len() as u64;
            file.write_all(bytes)
                .map_err(|error| Error::io(path, "write", error))
        };
        write(&[0; ALIGNMENT as usize][..padding as usize])?;
        fill(&mut write)?;
        let (offset, length) = (self.position + padding, length - padding);
        self.position = offset + length;

        let entry = |key: &str, value: String| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value),
        };
        self.initializers.push(TensorProto {
            dims: shape.iter().map(|&dim| dim as i64).collect(),
            data_type: Some(dtype as i32),
            name: Some(name.clone()),
            external_data: vec![
                entry("location", self.location.clone()),
                entry("offset", offset.to_string()),
                entry("length", length.to_string()),
            ],
            data_location: Some(DataLocation::External as i32),
            ..TensorProto::default()
        });
        Ok(name)
    }

    /// Writes out what is buffered and returns the initializers.
    pub fn finish(self) -> Result<Vec<TensorProto>> {
        let DataFile {
            path,
            file,
            initializers,
            ..
        } = self;
        file.into_inner()
            .map_err(|error| Error::io(&path, "write", error.into_error()))?;
        Ok(initializers)
    }
}

/// Hands floats over as little-endian bytes, in parts.
pub(super) fn write_floats(values: &[f32], out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    if cfg!(target_endian = "little") {
        return out(bytemuck::cast_slice(values));
    }
    for part in values.chunks(4096) {
        out(&part
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>())?;
    }
    Ok(())
}
