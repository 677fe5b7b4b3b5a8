//! Two copies, for devices with memory of their own.

use std::collections::VecDeque;

use super::{CHUNK_BYTES, padded_len};
use crate::device::Gpu;
use crate::error::Result;

/// Chunks that may be on their way at once.
const CHUNKS_IN_FLIGHT: usize = 2;

/// Copies chunk by chunk through staging memory, with few chunks in flight.
pub(super) fn staged(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    let buffer = gpu.checked(|device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: padded_len(bytes),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    })?;
    let mut in_flight = VecDeque::new();
    for (i, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
        let offset = (i * CHUNK_BYTES) as u64;
        let whole = chunk.len() / 4 * 4;
        gpu.checked(|_| {
            if whole > 0 {
                gpu.queue.write_buffer(&buffer, offset, &chunk[..whole]);
            }
            if whole < chunk.len() {
                let mut word = [0; 4];
                word[..chunk.len() - whole].copy_from_slice(&chunk[whole..]);
                gpu.queue.write_buffer(&buffer, offset + whole as u64, &word);
            }
        })?;
        in_flight.push_back(gpu.submit([])?);
        if in_flight.len() > CHUNKS_IN_FLIGHT {
            gpu.wait(&in_flight.pop_front().expect("not empty"))?;
        }
    }
    if bytes.len() >= CHUNK_BYTES {
        // Small uploads need no wait: their staging is released by whoever polls next.
        in_flight
            .drain(..)
            .try_for_each(|submission| gpu.wait(&submission))?;
    }
    Ok(buffer)
}
