//! Runs one kernel on the machine's adapter, for kernel tests against CPU references.

use crate::adapter::IgpuAdapter;
use crate::device::Gpu;
use crate::kernel::{Kernel, PARAMS_BYTES};
use crate::options::IgpuOptions;
use crate::shader::{Access, KernelSpec};

/// An open device for kernel tests.
pub(crate) struct Rig {
    pub(crate) gpu: Gpu,
    /// Whether kernels reduce through subgroups, where the device has them.
    pub(crate) subgroups: bool,
    pub(crate) subgroup_size: u32,
}

/// One run of a kernel: contents of its bindings, by kind, in the shader's order.
pub(crate) struct Run<'a> {
    pub(crate) spec: &'a KernelSpec,
    pub(crate) params: &'a [u32],
    /// Token, position, capacity.
    pub(crate) state: [u32; 3],
    pub(crate) reads: &'a [&'a [u8]],
    /// Initial contents of written buffers.
    pub(crate) writes: &'a [&'a [f32]],
    pub(crate) grid: [u32; 3],
}

impl Rig {
    /// Opens the default adapter; without any, says in one line that `what` was not exercised.
    pub(crate) fn open(what: &str) -> Option<Self> {
        let options = IgpuOptions::default();
        match IgpuAdapter::find(&options) {
            Ok(adapter) => {
                let gpu = Gpu::open(&adapter, &options).expect("the adapter opens");
                Some(Self {
                    subgroups: gpu.has_subgroups,
                    subgroup_size: adapter.info.subgroup_min_size,
                    gpu,
                })
            }
            Err(error) if error.is_no_adapter() => {
                eprintln!("not exercised: {what}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`Rig::open`], on an adapter of CPU type; with another, says why it takes one.
    pub(crate) fn open_cpu(what: &str, why: &str) -> Option<Self> {
        let rig = Self::open(what)?;
        let is_cpu = rig.gpu.device.adapter_info().device_type == wgpu::DeviceType::Cpu;
        if !is_cpu {
            eprintln!("not exercised: {what}: {why}");
        }
        is_cpu.then_some(rig)
    }

    /// Runs a kernel once and gives the written buffers.
    pub(crate) fn run(&self, run: &Run) -> Vec<Vec<f32>> {
        let text = run.spec.compose(self.subgroups);
        let kernel = Kernel::compile(&self.gpu, run.spec, &text).expect("the kernel compiles");
        let mut params = run.params.to_vec();
        params.resize(PARAMS_BYTES as usize / 4, 0);
        let [token, position, capacity] = run.state;
        let state = [token, position, capacity, 0];
        let mut uniforms = [
            bytemuck::cast_slice::<u32, u8>(&params),
            bytemuck::cast_slice(&state),
        ]
        .into_iter();
        let (mut reads, mut writes) = (run.reads.iter(), run.writes.iter());
        let mut written = Vec::new();
        let mut buffers = Vec::new();
        for &access in run.spec.shader.bindings() {
            let (usage, bytes) = match access {
                Access::Uniform => (wgpu::BufferUsages::UNIFORM, uniforms.next().expect("a uniform")),
                Access::Read => (wgpu::BufferUsages::STORAGE, *reads.next().expect("a read buffer")),
                Access::Write => {
                    let initial = writes.next().expect("a written buffer");
                    (
                        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
                        bytemuck::cast_slice(initial),
                    )
                }
            };
            let buffer = self.buffer(bytes, usage);
            if access == Access::Write {
                written.push((buffer.clone(), bytes.len() as u64));
            }
            buffers.push(buffer);
        }
        let bind = |device: &_| kernel.bind(device, buffers.iter().map(wgpu::Buffer::as_entire_binding));
        let bind_group = self.gpu.checked(bind).expect("the bindings fit");
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&kernel.pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(run.grid[0], run.grid[1], run.grid[2]);
        drop(pass);
        let submission = self.gpu.submit([encoder.finish()]).expect("submits");
        self.gpu.wait(&submission).expect("finishes");
        written
            .iter()
            .map(|(buffer, bytes)| self.fetch(buffer, *bytes))
            .collect()
    }

    /// The bytes of a weight, copied out by a kernel, since a weight's buffer is for kernels only.
    pub(crate) fn copy_out(&self, weight: &wgpu::Buffer) -> Vec<u8> {
        let vectors = (weight.size() / 16) as u32;
        let spec = KernelSpec::new(crate::shader::Shader::Copy, [("WORKGROUP", 64)]);
        let kernel =
            Kernel::compile(&self.gpu, &spec, &spec.compose(self.subgroups)).expect("the kernel compiles");
        let mut params = vec![0u32; PARAMS_BYTES as usize / 4];
        let groups = vectors.div_ceil(64);
        params[..2].copy_from_slice(&[vectors, groups.min(4096)]);
        let params = self.buffer(bytemuck::cast_slice(&params), wgpu::BufferUsages::UNIFORM);
        let sink = self.buffer(
            &vec![0; weight.size() as usize],
            wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        );
        let buffers = [&params, weight, &sink];
        let bind = |device: &_| kernel.bind(device, buffers.map(wgpu::Buffer::as_entire_binding));
        let bind_group = self.gpu.checked(bind).expect("the bindings fit");
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&kernel.pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(groups.min(4096), groups.div_ceil(4096), 1);
        drop(pass);
        let submission = self.gpu.submit([encoder.finish()]).expect("submits");
        self.gpu.wait(&submission).expect("finishes");
        bytemuck::cast_slice(&self.fetch(&sink, weight.size())).to_vec()
    }

    fn buffer(&self, bytes: &[u8], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(16).max(64), 0);
        let buffer = self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: padded.len() as u64,
            usage: usage | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.gpu.queue.write_buffer(&buffer, 0, &padded);
        buffer
    }

    fn fetch(&self, buffer: &wgpu::Buffer, bytes: u64) -> Vec<f32> {
        let staging = self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, bytes);
        let submission = self.gpu.submit([encoder.finish()]).expect("submits");
        let view = self.gpu.read(&staging, bytes, &submission).expect("reads back");
        bytemuck::pod_collect_to_vec(&view)
    }
}

/// What a child process prints, which must succeed.
pub(crate) fn printed_by(command: &mut std::process::Command) -> String {
    let child = command.output().expect("the child starts");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(child.status.success(), "{text}");
    text
}

/// Deterministic noise in [-1, 1).
pub(crate) fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Deterministic bytes.
pub(crate) fn noise_bytes(seed: u64, n: usize) -> Vec<u8> {
    noise(seed, n)
        .into_iter()
        .map(|x| (x * 4096.0) as i32 as u8)
        .collect()
}

/// Asserts that values agree within `tolerance` of the reference's largest magnitude.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-30, |largest: f64, x| largest.max(x.abs()));
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs() / scale;
        assert!(
            error <= tolerance,
            "{what}: element {i} is {got}, {want} was expected"
        );
    }
}

/// Floats as bytes.
pub(crate) fn bytes(floats: &[f32]) -> &[u8] {
    bytemuck::cast_slice(floats)
}

/// Floats as doubles, for references.
pub(crate) fn doubles(floats: &[f32]) -> Vec<f64> {
    floats.iter().map(|&x| f64::from(x)).collect()
}
