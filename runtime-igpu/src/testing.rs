//! Runs one kernel on the machine's adapter, for kernel tests against CPU references.

use std::time::{Duration, Instant};

use crate::adapter::IgpuAdapter;
use crate::device::Gpu;
use crate::kernel::Kernel;
use crate::options::IgpuOptions;
use crate::shader::{Access, KernelSpec};

/// An open device for kernel tests.
pub(crate) struct Rig {
    pub(crate) gpu: Gpu,
}

impl Rig {
    /// Opens the default adapter; without any, says in one line that `what` was not exercised.
    pub(crate) fn open(what: &str) -> Option<Self> {
        let options = IgpuOptions::default();
        match IgpuAdapter::find(&options) {
            Ok(adapter) => Some(Self { gpu: Gpu::open(&adapter, options.stall_timeout).expect("the adapter opens") }),
            Err(error) if error.is_no_adapter() => {
                eprintln!("not exercised: {what}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs a kernel once. `reads` and `writes` (initial contents) fill the shader's bindings in order; gives the written buffers.
    pub(crate) fn run(&self, spec: &KernelSpec, params: &[u32], state: [u32; 2], reads: &[&[u8]], writes: &[&[f32]], grid: [u32; 3]) -> Vec<Vec<f32>> {
        self.timed(spec, params, state, reads, writes, grid, 1).0
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn timed(&self, spec: &KernelSpec, params: &[u32], state: [u32; 2], reads: &[&[u8]], writes: &[&[f32]], grid: [u32; 3], n: u32) -> (Vec<Vec<f32>>, Duration) {
        let text = std::env::var("WGSL").ok().filter(|_| spec.shader != crate::shader::Shader::Copy).map(|p| { let mut t = String::new(); for (n, v) in &spec.constants { t += &format!("const {n}: u32 = {v}u;\n"); } t + &std::fs::read_to_string(p).unwrap() }).unwrap_or_else(|| spec.compose(self.gpu.has_subgroups));
        let kernel = Kernel::compile(&self.gpu, spec, &text).expect("the kernel compiles");
        let mut params = params.to_vec();
        params.resize(crate::kernel::PARAMS_BYTES as usize / 4, 0);
        let mut uniforms = [bytemuck::cast_slice::<u32, u8>(&params), bytemuck::cast_slice(&state)].into_iter();
        let (mut reads, mut writes) = (reads.iter(), writes.iter());
        let mut written = Vec::new();
        let mut buffers = Vec::new();
        for &access in spec.shader.bindings() {
            let (usage, bytes) = match access {
                Access::Uniform => (wgpu::BufferUsages::UNIFORM, uniforms.next().expect("a uniform")),
                Access::Read => (wgpu::BufferUsages::STORAGE, *reads.next().expect("a read buffer")),
                Access::Write => (wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC, bytemuck::cast_slice(writes.next().expect("a written buffer"))),
            };
            let size = bytes.len().next_multiple_of(4).max(64) as u64;
            let buffer = self.gpu.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage: usage | wgpu::BufferUsages::COPY_DST, mapped_at_creation: false });
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            self.gpu.queue.write_buffer(&buffer, 0, &padded);
            if access == Access::Write {
                written.push((buffer.clone(), bytes.len() as u64));
            }
            buffers.push(buffer);
        }
        let bind_group = self.gpu.checked(|device| kernel.bind(device, buffers.iter().map(wgpu::Buffer::as_entire_binding))).expect("bindings fit");
        let mut best = Duration::MAX;
        for _ in 0..n {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&kernel.pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
            drop(pass);
            let started = Instant::now();
            let submission = self.gpu.submit([encoder.finish()]).expect("submits");
            self.gpu.wait(&submission).expect("finishes");
            best = best.min(started.elapsed());
        }
        (written.iter().map(|(buffer, bytes)| self.fetch(buffer, *bytes)).collect(), best)
    }

    fn fetch(&self, buffer: &wgpu::Buffer, bytes: u64) -> Vec<f32> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = self.gpu.device.create_buffer(&wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false });
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, bytes);
        let submission = self.gpu.submit([encoder.finish()]).expect("submits");
        let view = self.gpu.read(&staging, bytes, &submission).expect("reads back");
        bytemuck::pod_collect_to_vec(&view)
    }
}

/// Small deterministic noise in [-1, 1].
pub(crate) fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Deterministic bytes.
pub(crate) fn noise_bytes(seed: u64, n: usize) -> Vec<u8> {
    noise(seed, n).into_iter().map(|x| (x * 4096.0) as i32 as u8).collect()
}
