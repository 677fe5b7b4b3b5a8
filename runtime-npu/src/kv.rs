//! The KV cache of one sequence: past and present are the same memory.

use std::borrow::Cow;
use std::sync::Arc;

use half::{bf16, f16};
use onnx_model::{DataType, Geometry};

use crate::error::{NpuError, Result};
use crate::value::{RawValue, element_type};

/// Keys and values of one sequence, per layer `[kv_heads, capacity, head_dim]`. Attention appends in place; positions from
/// [`KvCache::len`] on are not meaningful.
pub struct KvCache {
    /// Per layer key, then value; tensors over `memory`. Declared first, so dropped first.
    values: Vec<RawValue<'static>>,
    /// Invariant: never reallocated; every slice is as long as `shape` says.
    memory: Vec<Buffer>,
    dtype: DataType,
    len: usize,
    capacity: usize,
    /// Which engine's geometry it has.
    geometry: Arc<Geometry>,
}

/// Zeroed memory of 8-byte alignment that runs write through a pointer.
struct Buffer {
    words: Box<[u64]>,
    n_bytes: usize,
}

impl KvCache {
    pub(crate) fn new(geometry: &Arc<Geometry>, capacity: usize) -> Result<Self> {
        let Geometry {
            layers,
            kv_heads,
            head_dim,
            context_length,
            kv_dtype,
            ..
        } = **geometry;
        if capacity == 0 || capacity > context_length {
            return Err(NpuError::request(format!(
                "a KV cache of {capacity} positions was asked for; the model allows 1 to {context_length}"
            )));
        }
        let bits = kv_dtype.bits().unwrap_or(32) as usize;
        let n_bytes = kv_heads * capacity * head_dim * bits / 8;
        let shape = [1, kv_heads as i64, capacity as i64, head_dim as i64];
        let mut memory: Vec<Buffer> = (0..2 * layers).map(|_| Buffer::new(n_bytes)).collect();
        let values = memory
            .iter_mut()
            // SAFETY: the buffer's heap memory neither moves nor is freed before the value, and is only read through
            // `layer`, which borrows the whole cache, so never during a run.
            .map(|buffer| unsafe {
                RawValue::over_raw(
                    buffer.words.as_mut_ptr().cast(),
                    n_bytes,
                    element_type(kv_dtype),
                    &shape,
                )
            })
            .collect::<ort::Result<Vec<_>>>()
            .map_err(|e| NpuError::runtime("cannot create the KV cache", e))?;
        Ok(Self {
            values,
            memory,
            dtype: kv_dtype,
            len: 0,
            capacity,
            geometry: geometry.clone(),
        })
    }

    /// Number of positions that hold a token.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position holds a token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most positions that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets the sequence from position `len` on, so that the cache can be used again from there.
    ///
    /// # Panics
    /// If `len` is larger than [`KvCache::len`].
    pub fn truncate(&mut self, len: usize) {
        assert!(
            len <= self.len,
            "a KV cache of {} positions cannot be cut to {len}",
            self.len
        );
        self.len = len;
    }

    /// Key and value of one layer, `[kv_heads, capacity, head_dim]` each; borrowed if the model's cache is float32, else
    /// converted.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn layer(&self, layer: usize) -> (Cow<'_, [f32]>, Cow<'_, [f32]>) {
        (
            self.memory[2 * layer].as_f32(self.dtype),
            self.memory[2 * layer + 1].as_f32(self.dtype),
        )
    }

    pub(crate) fn grow_by(&mut self, n_tokens: usize) {
        self.len += n_tokens;
        debug_assert!(self.len <= self.capacity);
    }

    pub(crate) fn values(&self) -> &[RawValue<'static>] {
        &self.values
    }

    pub(crate) fn belongs_to(&self, geometry: &Arc<Geometry>) -> bool {
        Arc::ptr_eq(&self.geometry, geometry)
    }
}

impl std::fmt::Debug for KvCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvCache")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .field("dtype", &self.dtype)
            .finish()
    }
}

impl Buffer {
    fn new(n_bytes: usize) -> Self {
        // Zeroed by the operating system, page by page as they are touched.
        Self {
            words: vec![0u64; n_bytes.div_ceil(8)].into_boxed_slice(),
            n_bytes,
        }
    }

    fn as_f32(&self, dtype: DataType) -> Cow<'_, [f32]> {
        // SAFETY: the memory is initialized, aligned to 8 and at least n_bytes long, and any bit pattern is a number.
        let halves =
            || unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u16>(), self.n_bytes / 2) };
        match dtype {
            DataType::Float16 => Cow::Owned(
                halves()
                    .iter()
                    .map(|&bits| f16::from_bits(bits).to_f32())
                    .collect(),
            ),
            DataType::BFloat16 => Cow::Owned(
                halves()
                    .iter()
                    .map(|&bits| bf16::from_bits(bits).to_f32())
                    .collect(),
            ),
            // SAFETY: as above.
            _ => Cow::Borrowed(unsafe {
                std::slice::from_raw_parts(self.words.as_ptr().cast::<f32>(), self.n_bytes / 4)
            }),
        }
    }
}
