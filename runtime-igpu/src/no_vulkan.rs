//! Stands for `vulkan.rs` on systems where this crate does not reach below the graphics library.

use std::ops::Range;

use onnx_model::TensorBytes;

use crate::error::{IgpuError, Kind, Result};

/// There is none.
pub(crate) enum Vulkan {}

pub(crate) fn can_import(_: &wgpu::Adapter) -> bool {
    false
}

pub(crate) fn open(_: &wgpu::Adapter, _: &wgpu::DeviceDescriptor<'_>) -> Result<(wgpu::Device, wgpu::Queue)> {
    Err(IgpuError::new(Kind::Feature, "not on this system"))
}

impl Vulkan {
    pub(crate) fn of(_: &wgpu::Device) -> Option<Self> {
        None
    }

    pub(crate) fn import(
        &self,
        _: &wgpu::Device,
        _: &str,
        _: &TensorBytes,
        _: Range<usize>,
    ) -> Option<wgpu::Buffer> {
        match *self {}
    }

    pub(crate) fn filled(&self, _: &wgpu::Device, _: &str, _: u64, _: &[u8]) -> Option<wgpu::Buffer> {
        match *self {}
    }
}
