//! One copy, from the model's mapping into the device's own memory.

use super::padded_len;
use crate::device::Gpu;
use crate::error::{IgpuError, Kind, Result};

/// Copies into the device buffer itself. Where this crate can make the buffer, its memory is touched once; the graphics library
/// would zero it first.
pub(super) fn mapped(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    let filled = gpu.checked(|device| {
        let vulkan = gpu.vulkan.as_ref()?;
        vulkan.filled(device, label, padded_len(bytes), bytes)
    })?;
    // After a loss, creation seems to succeed; only now does the driver tell.
    gpu.reclaim()?;
    match filled {
        Some(buffer) => Ok(buffer),
        None => zeroed_and_mapped(gpu, label, bytes),
    }
}

fn zeroed_and_mapped(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    let buffer = gpu.checked(|device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: padded_len(bytes),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: true,
        })
    })?;
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
