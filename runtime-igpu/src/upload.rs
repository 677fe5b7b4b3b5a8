//! Weights to device buffers, without a second whole copy on the way.

use std::collections::VecDeque;

use crate::device::Gpu;
use crate::error::{IgpuError, Kind, Result};
use crate::options::UploadPath;

/// Bytes per staged chunk.
const CHUNK_BYTES: usize = 4 << 20;
/// Chunks that may be on their way at once.
const CHUNKS_IN_FLIGHT: usize = 2;

/// A read-only storage buffer that holds `bytes`, padded to whole 16-byte vectors.
pub(crate) fn upload(gpu: &Gpu, path: UploadPath, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    match path {
        UploadPath::Mapped => mapped(gpu, label, bytes),
        UploadPath::Staged => staged(gpu, label, bytes),
    }
}

fn padded_len(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).next_multiple_of(16).max(16)
}

/// One copy, from the model's mapping into the device's own memory.
fn mapped(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    let buffer = gpu.checked(|device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: padded_len(bytes),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: true,
        })
    })?;
    // After a loss, creation seems to succeed; only now does the driver tell.
    gpu.reclaim()?;
    let mut view = buffer.get_mapped_range_mut(..).map_err(|error| {
        IgpuError::new(
            Kind::Memory,
            format!("cannot map a new buffer of {} bytes: {error}", bytes.len()),
        )
    })?;
    view.slice(..bytes.len()).copy_from_slice(bytes);
    drop(view);
    gpu.checked(|_| buffer.unmap())?;
    Ok(buffer)
}

/// Two copies, chunk by chunk, with few chunks in flight.
fn staged(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
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
