//! The KV cache on the device: imported from prefill, appended to by decode, grown when full.

use crate::device::Gpu;
use crate::error::{IgpuError, Kind, Result};
use crate::program::KvShape;

/// One layer's cached keys and values; clones share the buffers. Float32 `[kv_heads, capacity, head_dim]` each.
#[derive(Clone)]
pub(crate) struct LayerCache {
    pub(crate) layer: usize,
    pub(crate) keys: wgpu::Buffer,
    pub(crate) values: wgpu::Buffer,
}

impl LayerCache {
    pub(crate) fn new(gpu: &Gpu, shape: KvShape, layer: usize, capacity: u32) -> Result<Self> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor {
            label: Some("kv cache"),
            size: shape.bytes(capacity),
            usage,
            mapped_at_creation: false,
        };
        let (keys, values) = gpu.checked(|device| {
            (
                device.create_buffer(&descriptor),
                device.create_buffer(&descriptor),
            )
        })?;
        // After a loss, creation seems to succeed; only now does the driver tell.
        gpu.reclaim()?;
        Ok(Self { layer, keys, values })
    }

    /// Records copies of the first `len` positions of each head into a cache of another capacity.
    pub(crate) fn copy_to(
        &self,
        to: &LayerCache,
        encoder: &mut wgpu::CommandEncoder,
        shape: KvShape,
        len: u32,
        capacities: [u32; 2],
    ) {
        let row = u64::from(shape.head_dim) * 4;
        let [from_head, to_head] = capacities.map(|capacity| u64::from(capacity) * row);
        for head in 0..u64::from(shape.kv_heads) {
            for (source, target) in [(&self.keys, &to.keys), (&self.values, &to.values)] {
                encoder.copy_buffer_to_buffer(
                    source,
                    head * from_head,
                    target,
                    head * to_head,
                    u64::from(len) * row,
                );
            }
        }
    }
}

/// A layer's keys and values as prefill left them: float32 `[kv_heads, capacity, head_dim]` each.
#[derive(Clone, Copy, Debug)]
pub struct KvSlices<'a> {
    /// Keys, rotated.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
}

impl KvSlices<'_> {
    /// The capacity that the slices have.
    ///
    /// # Errors
    ///
    /// The slices differ, are no whole number of positions, or hold fewer than `len`.
    pub(crate) fn capacity(&self, shape: KvShape, len: u32) -> Result<u32> {
        let position = shape.kv_heads as usize * shape.head_dim as usize;
        let whole = self.keys.len() == self.values.len() && self.keys.len().is_multiple_of(position);
        let capacity = self.keys.len() / position;
        if !whole || capacity < len as usize {
            let message = format!(
                "a KV cache of {} keys and {} values does not hold {len} positions of {} heads of {}",
                self.keys.len(),
                self.values.len(),
                shape.kv_heads,
                shape.head_dim
            );
            return Err(IgpuError::new(Kind::Request, message));
        }
        Ok(capacity as u32)
    }
}

/// The capacity to grow to, so that `needed` positions fit: at least double, at most the context.
pub(crate) fn grown(capacity: u32, needed: u32, context: u32) -> u32 {
    needed.max(capacity.saturating_mul(2)).min(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_double_up_to_the_context() {
        assert_eq!(grown(512, 513, 2048), 1024);
        assert_eq!(grown(512, 1500, 2048), 1500);
        assert_eq!(grown(1500, 1501, 2048), 2048);
    }

    #[test]
    fn slices_of_the_wrong_shape_are_refused() {
        let shape = KvShape {
            layers: 1,
            kv_heads: 2,
            head_dim: 4,
        };
        let floats = [0.0; 24];
        let slices = |n: usize, m: usize| KvSlices {
            keys: &floats[..n],
            values: &floats[..m],
        };
        assert_eq!(slices(24, 24).capacity(shape, 3).unwrap(), 3);
        assert!(slices(24, 24).capacity(shape, 4).unwrap_err().is_bad_request());
        assert!(slices(24, 16).capacity(shape, 1).unwrap_err().is_bad_request());
        assert!(slices(20, 20).capacity(shape, 1).unwrap_err().is_bad_request());
    }
}
