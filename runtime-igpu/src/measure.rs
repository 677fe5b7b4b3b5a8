//! What an adapter gives at best: streaming rate, the quantized matrix-vector product, uploads.

use std::time::{Duration, Instant};

use crate::adapter::IgpuAdapter;
use crate::device::Gpu;
use crate::error::Result;
use crate::kernel::{Kernel, PARAMS_BYTES};
use crate::ops::MatvecChoice;
use crate::options::{IgpuOptions, MatvecShape, UploadPath};
use crate::shader::{Access, KernelSpec, Shader};
use crate::upload::upload;

/// An open device to measure.
///
/// ```no_run
/// # use runtime_igpu::{IgpuOptions, Probe};
/// let probe = Probe::open(&IgpuOptions::default())?;
/// let copy = probe.copy(64 << 20)?;
/// let time = copy.run()?;
/// println!("{:.1} GB/s", copy.bytes() as f64 / time.as_secs_f64() / 1e9);
/// # Ok::<(), runtime_igpu::IgpuError>(())
/// ```
pub struct Probe {
    adapter: IgpuAdapter,
    gpu: Gpu,
    shape: MatvecShape,
    path: UploadPath,
}

/// A dispatch that is ready to be timed.
pub struct Timed<'a> {
    gpu: &'a Gpu,
    kernel: Kernel,
    bind_group: wgpu::BindGroup,
    grid: [u32; 3],
    bytes: u64,
}

impl Probe {
    /// Opens the adapter that the options choose.
    ///
    /// # Errors
    ///
    /// As [`IgpuAdapter::find`], or the device cannot be opened.
    pub fn open(options: &IgpuOptions) -> Result<Self> {
        let adapter = IgpuAdapter::find(options)?;
        let gpu = Gpu::open(&adapter, options)?;
        Ok(Self {
            shape: adapter.matvec_shape(options),
            path: adapter.upload_path(options),
            adapter,
            gpu,
        })
    }

    /// The adapter.
    pub fn adapter(&self) -> &IgpuAdapter {
        &self.adapter
    }

    /// The kernel shape that the options or the adapter choose.
    pub fn matvec_shape(&self) -> MatvecShape {
        self.shape
    }

    /// The upload path that the options or the adapter choose.
    pub fn upload_path(&self) -> UploadPath {
        self.path
    }

    /// A kernel that copies `bytes` from one buffer to another. [`Timed::bytes`] counts them once.
    ///
    /// # Errors
    ///
    /// The device does not hold the buffers.
    pub fn copy(&self, bytes: u64) -> Result<Timed<'_>> {
        let vectors = (bytes / 16) as u32;
        let groups = vectors.div_ceil(COPY_WORKGROUP);
        let width = groups.min(self.adapter.limits.max_compute_workgroups_per_dimension);
        let spec = KernelSpec::new(Shader::Copy, [("WORKGROUP", COPY_WORKGROUP)]);
        let sizes = [PARAMS_BYTES, bytes, bytes];
        self.timed(
            spec,
            &[vectors, width],
            &sizes,
            [width, groups.div_ceil(width), 1],
            bytes,
        )
    }

    /// A 4-bit MatMulNBits in blocks of 32 without zero points, `[n, k]` times `[k]`, with the kernel that the engine
    /// would choose. [`Timed::bytes`] counts weights and scales.
    ///
    /// # Errors
    ///
    /// The device does not hold the buffers.
    pub fn matvec(&self, k: u32, n: u32) -> Result<Timed<'_>> {
        let blocks = k / 32;
        let constants = vec![("BITS", 4), ("BLOCK", 32), ("SCALE_TYPE", 0), ("ZERO_TYPE", 0)];
        let choice = MatvecChoice {
            k: k.into(),
            x_offset: 0,
            bits: 4,
            block_size: 32,
        };
        let (spec, rows) = choice.kernel(self.shape, self.adapter.narrow_workgroup(), constants);
        let groups = n.div_ceil(rows);
        let width = groups.min(self.adapter.limits.max_compute_workgroups_per_dimension);
        let cells = u64::from(n) * u64::from(blocks);
        let sizes = [
            PARAMS_BYTES,
            u64::from(k) * 4,
            cells * 16,
            cells * 4,
            64,
            u64::from(n) * 4,
        ];
        let params = [n, k, blocks, 0, 0, width];
        self.timed(
            spec,
            &params,
            &sizes,
            [width, groups.div_ceil(width), 1],
            cells * 20,
        )
    }

    /// Uploads `bytes` as a weight is uploaded, and waits until they are there.
    ///
    /// # Errors
    ///
    /// The device does not hold them.
    pub fn upload(&self, bytes: &[u8]) -> Result<Duration> {
        let started = Instant::now();
        let buffer = upload(&self.gpu, self.path, "measured upload", bytes)?;
        self.gpu.wait(&self.gpu.submit([])?)?;
        let time = started.elapsed();
        drop(buffer);
        self.gpu.reclaim()?;
        Ok(time)
    }

    fn timed(
        &self,
        spec: KernelSpec,
        params: &[u32],
        sizes: &[u64],
        grid: [u32; 3],
        bytes: u64,
    ) -> Result<Timed<'_>> {
        let gpu = &self.gpu;
        let kernel = Kernel::compile(gpu, &spec, &spec.compose(gpu.has_subgroups))?;
        let mut padded = params.to_vec();
        padded.resize(PARAMS_BYTES as usize / 4, 0);
        let bind_group = gpu.checked(|device| {
            let buffers: Vec<_> = spec
                .shader
                .bindings()
                .iter()
                .zip(sizes)
                .map(|(access, &size)| {
                    let usage = if *access == Access::Uniform {
                        wgpu::BufferUsages::UNIFORM
                    } else {
                        wgpu::BufferUsages::STORAGE
                    };
                    let usage = usage | wgpu::BufferUsages::COPY_DST;
                    device.create_buffer(&wgpu::BufferDescriptor {
                        label: None,
                        size,
                        usage,
                        mapped_at_creation: false,
                    })
                })
                .collect();
            gpu.queue
                .write_buffer(&buffers[0], 0, bytemuck::cast_slice(&padded));
            // Touch every page: memory that was never written reads faster than memory can.
            let chunk = vec![0x5a; 1 << 20];
            for buffer in &buffers[1..] {
                for offset in (0..buffer.size()).step_by(chunk.len()) {
                    let len = (buffer.size() - offset).min(chunk.len() as u64) as usize;
                    gpu.queue.write_buffer(buffer, offset, &chunk[..len]);
                }
            }
            kernel.bind(device, buffers.iter().map(wgpu::Buffer::as_entire_binding))
        })?;
        let timed = Timed {
            gpu,
            kernel,
            bind_group,
            grid,
            bytes,
        };
        timed.run()?;
        Ok(timed)
    }
}

/// Invocations per workgroup of the copy kernel.
const COPY_WORKGROUP: u32 = 64;

impl Timed<'_> {
    /// Bytes that one run streams.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The kernel's name and constants.
    pub fn kernel(&self) -> String {
        self.kernel.spec.label()
    }

    /// Runs once, from submission to completion.
    ///
    /// # Errors
    ///
    /// The device was lost.
    pub fn run(&self) -> Result<Duration> {
        let commands = self.gpu.checked(|device| {
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.kernel.pipeline);
            pass.set_bind_group(0, &self.bind_group, &[]);
            pass.dispatch_workgroups(self.grid[0], self.grid[1], self.grid[2]);
            drop(pass);
            encoder.finish()
        })?;
        let started = Instant::now();
        self.gpu.wait(&self.gpu.submit([commands])?)?;
        Ok(started.elapsed())
    }
}
