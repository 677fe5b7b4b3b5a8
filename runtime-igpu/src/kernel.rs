//! A compiled kernel: pipeline, bind group layout, and the warm-up dispatch that makes the driver finish its work.

use std::time::{Duration, Instant};

use crate::device::Gpu;
use crate::error::{IgpuError, Kind, Result};
use crate::shader::{Access, KernelSpec};

/// A kernel that is compiled and has run once.
pub(crate) struct Kernel {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    pub(crate) spec: KernelSpec,
    /// Time to create the pipeline, and time of the warm-up dispatch.
    pub(crate) times: [Duration; 2],
}

/// Bytes of a step's parameters; every shader's `Params` fits.
pub(crate) const PARAMS_BYTES: u64 = 64;

impl Kernel {
    /// Compiles a kernel and dispatches it once on empty work.
    ///
    /// Some drivers compile at the first dispatch, not at pipeline creation; without that dispatch the kernel
    /// would count as ready and the first token would pay.
    pub(crate) fn compile(gpu: &Gpu, spec: &KernelSpec, text: &str) -> Result<Self> {
        let label = spec.label();
        let started = Instant::now();
        Self::create(gpu, spec, text, &label)
            .and_then(|mut kernel| {
                let created = started.elapsed();
                kernel.warm_up(gpu)?;
                kernel.times = [created, started.elapsed() - created];
                Ok(kernel)
            })
            .map_err(|error| {
                let message = format!("kernel {label}: {error}");
                if error.is_device_lost() || error.is_out_of_memory() || error.is_stalled() {
                    error
                } else {
                    IgpuError::new(Kind::Shader, message).caused_by(error)
                }
            })
    }

    fn create(gpu: &Gpu, spec: &KernelSpec, text: &str, label: &str) -> Result<Self> {
        let entries: Vec<_> = spec
            .shader
            .bindings()
            .iter()
            .zip(0..)
            .map(|(&access, i)| layout_entry(i, access))
            .collect();
        gpu.checked(|device| {
            let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(label),
                entries: &entries,
            });
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(label),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(label),
                source: wgpu::ShaderSource::Wgsl(text.into()),
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(label),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    // Kernels write workgroup memory before they read it.
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            });
            Self {
                pipeline,
                layout,
                spec: spec.clone(),
                times: [Duration::ZERO; 2],
            }
        })
    }

    /// One dispatch over zeroed parameters, which every kernel takes as no work.
    fn warm_up(&self, gpu: &Gpu) -> Result<()> {
        let commands = gpu.checked(|device| {
            let buffers: Vec<_> = self
                .spec
                .shader
                .bindings()
                .iter()
                .map(|&access| dummy(device, access))
                .collect();
            let bind_group = self.bind(device, buffers.iter().map(wgpu::Buffer::as_entire_binding));
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
            drop(pass);
            encoder.finish()
        })?;
        gpu.wait(&gpu.submit([commands])?)
    }

    /// A bind group over these resources, in the order of the shader's bindings.
    pub(crate) fn bind<'a>(
        &self,
        device: &wgpu::Device,
        resources: impl IntoIterator<Item = wgpu::BindingResource<'a>>,
    ) -> wgpu::BindGroup {
        let entries: Vec<_> = (0..)
            .zip(resources)
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.layout,
            entries: &entries,
        })
    }
}

fn dummy(device: &wgpu::Device, access: Access) -> wgpu::Buffer {
    let usage = match access {
        Access::Uniform => wgpu::BufferUsages::UNIFORM,
        Access::Read | Access::Write => wgpu::BufferUsages::STORAGE,
    };
    device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4096,
        usage,
        mapped_at_creation: false,
    })
}

fn layout_entry(binding: u32, access: Access) -> wgpu::BindGroupLayoutEntry {
    let ty = match access {
        Access::Uniform => wgpu::BufferBindingType::Uniform,
        Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
        Access::Write => wgpu::BufferBindingType::Storage { read_only: false },
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}
