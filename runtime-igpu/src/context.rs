//! What all operators share on an open device: kernels, weights, slots, parameters, state.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use onnx_model::{Lease, OperatorData, Tensor};

use crate::adapter::IgpuAdapter;
use crate::device::Gpu;
use crate::error::{IgpuError, Kind, Result};
use crate::kernel::Kernel;
use crate::kv::LayerCache;
use crate::options::{IgpuOptions, UploadPath};
use crate::program::{Binding, Encoding, OperatorProgram, Program, Step, WeightId, WeightSpec, model_error};
use crate::upload::{Placed, place, upload};

/// Bytes between two steps' parameters: the largest alignment any device asks for.
const PARAMS_STRIDE: u64 = 256;
/// Bytes of the state: token, position, capacity.
const STATE_BYTES: u64 = 16;

/// An open device with the buffers that all operators share.
pub(crate) struct Context {
    pub(crate) gpu: Gpu,
    pub(crate) program: Arc<Program>,
    pub(crate) state: wgpu::Buffer,
    params: wgpu::Buffer,
    slots: Vec<wgpu::Buffer>,
    upload: UploadPath,
    kernels: DashMap<usize, Arc<Kernel>>,
    weights: DashMap<WeightId, Arc<[wgpu::Buffer]>>,
    /// On the files that kernels read weights of where they are mapped.
    leases: Mutex<Vec<Arc<Lease>>>,
    times: Mutex<SetupTimes>,
}

/// Where device setup spent its time, summed over lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetupTimes {
    /// Opening the device and allocating what operators share.
    pub device_open: Duration,
    /// Compiling kernels, as far as pipeline creation does.
    pub pipelines: Duration,
    /// Warm-up dispatches, in which some drivers compile.
    pub warm_up: Duration,
    /// Allocating and uploading weights.
    pub upload: Duration,
    /// Allocating KV caches.
    pub caches: Duration,
    /// Parameters and bind groups.
    pub bind: Duration,
}

/// An operator's memory on the device: its weights are up, its caches allocated.
#[derive(Clone)]
pub(crate) struct DeviceOperator {
    pub(crate) layers: Vec<LayerCache>,
}

/// A step that can be dispatched.
pub(crate) struct DeviceStep {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) bind_group: wgpu::BindGroup,
}

impl Context {
    /// Opens the device and allocates the shared buffers.
    pub(crate) fn open(adapter: &IgpuAdapter, options: &IgpuOptions, program: Arc<Program>) -> Result<Self> {
        let started = Instant::now();
        let gpu = Gpu::open(adapter, options)?;
        let buffer = |size: u64, usage| {
            let descriptor = wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            };
            gpu.checked(|device| device.create_buffer(&descriptor))
        };
        let uniform = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let state = buffer(STATE_BYTES, uniform)?;
        let params = buffer(program.n_steps as u64 * PARAMS_STRIDE, uniform)?;
        let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let slots = program
            .slots
            .iter()
            .map(|&bytes| buffer(bytes, storage))
            .collect::<Result<_>>()?;
        Ok(Self {
            state,
            params,
            slots,
            upload: adapter.upload_path(options),
            kernels: DashMap::new(),
            weights: DashMap::new(),
            leases: Mutex::default(),
            times: Mutex::new(SetupTimes {
                device_open: started.elapsed(),
                ..SetupTimes::default()
            }),
            program,
            gpu,
        })
    }

    /// Makes a kernel available to the operators that come after.
    pub(crate) fn add_kernel(&self, index: usize, text: &str) -> Result<()> {
        let kernel = Kernel::compile(&self.gpu, &self.program.kernels[index], text)?;
        self.record(|times| {
            times.pipelines += kernel.times[0];
            times.warm_up += kernel.times[1];
        });
        self.kernels.insert(index, Arc::new(kernel));
        Ok(())
    }

    /// Where device setup spent its time so far.
    pub(crate) fn times(&self) -> SetupTimes {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, add: impl FnOnce(&mut SetupTimes)) {
        add(&mut self.times.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn keep(&self, lease: Arc<Lease>) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if !leases.iter().any(|held| Arc::ptr_eq(held, &lease)) {
            leases.push(lease);
        }
    }

    /// Gives up the leases on the files that kernels read in place, to whoever runs kernels from now on.
    pub(crate) fn take_leases(&self) -> Vec<Arc<Lease>> {
        std::mem::take(&mut self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn slot(&self, slot: usize) -> &wgpu::Buffer {
        &self.slots[slot]
    }

    /// Uploads an operator's weights and allocates its caches.
    pub(crate) fn set_up(
        &self,
        operator: &OperatorProgram,
        data: &OperatorData,
        kv_capacity: u32,
    ) -> Result<DeviceOperator> {
        let started = Instant::now();
        self.upload(operator, data)?;
        let uploaded = started.elapsed();
        let cache = |&layer: &usize| LayerCache::new(&self.gpu, self.program.kv, layer, kv_capacity);
        let layers = operator.layers.iter().map(cache).collect::<Result<_>>()?;
        self.gpu.check()?;
        self.record(|times| {
            times.upload += uploaded;
            times.caches += started.elapsed() - uploaded;
        });
        Ok(DeviceOperator { layers })
    }

    /// Writes the parameters of an operator's steps and binds them; kernels and weights have to be there.
    pub(crate) fn bind_operator(
        &self,
        operator: &OperatorProgram,
        layers: &[LayerCache],
    ) -> Result<Vec<DeviceStep>> {
        let started = Instant::now();
        let steps = operator
            .steps
            .iter()
            .map(|step| self.prepare(step, layers))
            .collect::<Result<_>>()?;
        self.gpu.check()?;
        self.record(|times| times.bind += started.elapsed());
        Ok(steps)
    }

    fn upload(&self, operator: &OperatorProgram, data: &OperatorData) -> Result<()> {
        for &id in &operator.uploads {
            let spec = &self.program.weights[id.0];
            let tensor = data.tensor(&spec.tensor).ok_or_else(|| {
                IgpuError::new(Kind::Model, format!("constant {} was not read", spec.tensor))
            })?;
            let buffers = self.upload_weight(spec, tensor)?;
            self.weights.insert(id, buffers);
        }
        Ok(())
    }

    fn upload_weight(&self, spec: &WeightSpec, tensor: &Tensor) -> Result<Arc<[wgpu::Buffer]>> {
        match spec.encoding {
            Encoding::Raw => self.place_weight(spec, tensor),
            Encoding::Float32 => {
                let converted = tensor.to_f32().map_err(model_error)?;
                let bytes: &[u8] = bytemuck::cast_slice(&converted);
                spec.parts
                    .iter()
                    .map(|part| {
                        upload(
                            &self.gpu,
                            self.upload,
                            &spec.tensor,
                            &bytes[range(spec, part, bytes.len())?],
                        )
                    })
                    .collect()
            }
        }
    }

    fn place_weight(&self, spec: &WeightSpec, tensor: &Tensor) -> Result<Arc<[wgpu::Buffer]>> {
        let mut in_place = false;
        let buffers = spec.parts.iter().map(|part| {
            let part = range(spec, part, tensor.bytes.len())?;
            match place(&self.gpu, self.upload, &spec.tensor, &tensor.bytes, part)? {
                Placed::InPlace(buffer, lease) => {
                    in_place = true;
                    self.keep(lease);
                    Ok(buffer)
                }
                Placed::Copied(buffer) => Ok(buffer),
            }
        });
        let buffers = buffers.collect::<Result<_>>()?;
        if !in_place {
            // Its pages need not count as this process's memory any longer.
            tensor.bytes.release();
        }
        Ok(buffers)
    }

    fn prepare(&self, step: &Step, layers: &[LayerCache]) -> Result<DeviceStep> {
        let offset = step.index as u64 * PARAMS_STRIDE;
        self.gpu.checked(|_| {
            self.gpu
                .queue
                .write_buffer(&self.params, offset, bytemuck::cast_slice(&step.params))
        })?;
        self.bind(step, layers)
    }

    /// A bind group for a step; `layers` holds the caches that it may name.
    pub(crate) fn bind(&self, step: &Step, layers: &[LayerCache]) -> Result<DeviceStep> {
        let kernel = self
            .kernels
            .get(&step.kernel)
            .map(|kernel| Arc::clone(&kernel))
            .ok_or_else(|| {
                IgpuError::new(Kind::Internal, "the operator was set up before its kernel")
                    .at_node(&step.node)
            })?;
        let buffers = step
            .bindings
            .iter()
            .map(|binding| self.resolve(step, *binding, layers))
            .collect::<Result<Vec<_>>>()?;
        let bind_group = self
            .gpu
            .checked(|device| {
                let resources = step
                    .bindings
                    .iter()
                    .zip(&buffers)
                    .map(|(binding, buffer)| match binding {
                        Binding::Params => wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                            buffer,
                            offset: step.index as u64 * PARAMS_STRIDE,
                            size: wgpu::BufferSize::new(crate::kernel::PARAMS_BYTES),
                        }),
                        _ => buffer.as_entire_binding(),
                    });
                kernel.bind(device, resources)
            })
            .map_err(|error| error.at_node(&step.node))?;
        Ok(DeviceStep { kernel, bind_group })
    }

    fn resolve(&self, step: &Step, binding: Binding, layers: &[LayerCache]) -> Result<wgpu::Buffer> {
        let missing = |what: &str| {
            IgpuError::new(Kind::Internal, format!("the operator was set up before {what}"))
                .at_node(&step.node)
        };
        let cache = |layer: usize| {
            layers
                .iter()
                .find(|cache| cache.layer == layer)
                .ok_or_else(|| missing("its cache"))
        };
        Ok(match binding {
            Binding::Params => self.params.clone(),
            Binding::State => self.state.clone(),
            Binding::Slot(slot) => self.slots[slot].clone(),
            Binding::Weight(id, part) => {
                let parts = self
                    .weights
                    .get(&id)
                    .ok_or_else(|| missing("a weight it shares"))?;
                parts[part].clone()
            }
            Binding::Keys(layer) => cache(layer)?.keys.clone(),
            Binding::Values(layer) => cache(layer)?.values.clone(),
        })
    }
}

/// A part of a constant that was read with `len` bytes.
fn range(spec: &WeightSpec, part: &Range<u64>, len: usize) -> Result<Range<usize>> {
    if part.start > part.end || part.end > len as u64 {
        let message = format!("constant {} ends before its shape says", spec.tensor);
        return Err(IgpuError::new(Kind::Model, message));
    }
    Ok(part.start as usize..part.end as usize)
}
