//! The decode engine: one token, one submission.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::{Context, DeviceOperator, DeviceStep, SetupTimes};
use crate::error::{IgpuError, Kind, Result};
use crate::in_place::InPlace;
use crate::kv::{KvSlices, LayerCache, grown};
use crate::memory::Budget;
use crate::plan::IgpuPlan;
use crate::program::{Binding, Grid, View};

/// Decodes token by token on the device.
///
/// One sequence at a time: [`import_kv`](Self::import_kv) or [`reset`](Self::reset) begins the next one, without
/// reallocation. All calls take the engine exclusively, so one thread at a time owns submission and waiting.
pub struct IgpuEngine {
    context: Arc<Context>,
    in_place: Option<InPlace>,
    steps: Vec<EngineStep>,
    layers: Vec<LayerCache>,
    readback: wgpu::Buffer,
    budget: Budget,
    /// Device bytes besides the KV cache.
    fixed_bytes: u64,
    len: u32,
    capacity: u32,
    n_growths: u64,
    encode_time: Duration,
}

struct EngineStep {
    /// Operator and step in the program.
    at: (usize, usize),
    device: DeviceStep,
    grid: Grid,
    /// Whether the step runs only for the greedy token.
    greedy_only: bool,
}

/// What a decoded token gives back.
enum Wanted {
    Logits,
    Greedy,
}

impl IgpuEngine {
    /// Binds operators to kernels; every kernel and every weight is there.
    pub(crate) fn new(
        context: Arc<Context>,
        operators: Vec<DeviceOperator>,
        plan: &IgpuPlan,
    ) -> Result<Self> {
        let program = Arc::clone(&context.program);
        let capacity = plan.kv_capacity;
        let mut steps = Vec::with_capacity(program.n_steps);
        let mut layers = Vec::new();
        for (i, (operator, device)) in program.operators.iter().zip(operators).enumerate() {
            let bound = context
                .bind_operator(operator, &device.layers)
                .map_err(|error| error.at_operator(&operator.name))?;
            for (j, (step, device)) in operator.steps.iter().zip(bound).enumerate() {
                let greedy_only = step.index == program.greedy_step;
                steps.push(EngineStep {
                    at: (i, j),
                    device,
                    grid: step.grid,
                    greedy_only,
                });
            }
            layers.extend(device.layers);
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let size = u64::from(program.logits.len.max(4)) * 4;
        let descriptor = wgpu::BufferDescriptor {
            label: Some("read back"),
            size,
            usage,
            mapped_at_creation: false,
        };
        let readback = context.gpu.checked(|device| device.create_buffer(&descriptor))?;
        context.gpu.check()?;
        Ok(Self {
            in_place: InPlace::new(&plan.folder, context.take_leases()),
            context,
            steps,
            layers,
            readback,
            budget: plan.budget,
            fixed_bytes: plan.device_bytes() - plan.kv_bytes(),
            len: 0,
            capacity,
            n_growths: 0,
            encode_time: Duration::ZERO,
        })
    }

    /// Positions in the cache.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The longest sequence.
    pub fn context_length(&self) -> usize {
        self.context.program.context_length as usize
    }

    /// Positions the cache has room for before it grows again.
    pub fn kv_capacity(&self) -> usize {
        self.capacity as usize
    }

    /// How often the cache grew. Further sequences up to the same length do not change it.
    pub fn n_kv_growths(&self) -> u64 {
        self.n_growths
    }

    /// Time the last token took to encode, without waiting for the device.
    pub fn encode_time(&self) -> Duration {
        self.encode_time
    }

    /// Where setting the engine up spent its time on the device.
    pub fn setup_times(&self) -> SetupTimes {
        self.context.times()
    }

    /// Whether kernels read weights where the model file is mapped, so that decoding needs the file.
    pub fn reads_mapping(&self) -> bool {
        self.in_place.is_some()
    }

    /// Dispatches per token.
    pub fn n_dispatches(&self) -> usize {
        self.steps.iter().filter(|step| !step.greedy_only).count()
    }

    /// Begins an empty sequence.
    pub fn reset(&mut self) {
        self.len = 0;
    }

    /// Begins a sequence whose first `len` positions prefill computed: one pair of slices per layer, each
    /// `[kv_heads, capacity, head_dim]` with any capacity of at least `len`.
    ///
    /// # Errors
    ///
    /// [`is_bad_request`](IgpuError::is_bad_request) when the slices do not fit the model or `len` the context; else
    /// as [`decode`](Self::decode).
    pub fn import_kv<'a>(
        &mut self,
        len: usize,
        layers: impl IntoIterator<Item = KvSlices<'a>>,
    ) -> Result<()> {
        let shape = self.context.program.kv;
        let context = self.context.program.context_length;
        let slices: Vec<_> = layers.into_iter().collect();
        if slices.len() != shape.layers {
            return Err(IgpuError::new(
                Kind::Request,
                format!(
                    "a KV cache of {} layers for a model of {}",
                    slices.len(),
                    shape.layers
                ),
            ));
        }
        if len > context as usize {
            return Err(IgpuError::new(
                Kind::Request,
                format!("{len} positions do not fit the context of {context}"),
            ));
        }
        let len = len as u32;
        let capacities = slices
            .iter()
            .map(|slices| slices.capacity(shape, len))
            .collect::<Result<Vec<_>>>()?;
        self.len = 0;
        self.reserve(len)?;
        let mut previous = None;
        for cache in &self.layers {
            let (slices, from) = (slices[cache.layer], capacities[cache.layer]);
            let submission = self
                .import_layer(cache, slices, from, len)
                .map_err(|error| error.at_operator(&self.cache_owner(cache.layer)))?;
            // One layer's staging is in flight while the next is written.
            if let Some(previous) = previous.replace(submission) {
                self.context.gpu.wait(&previous)?;
            }
        }
        if let Some(previous) = previous {
            self.context.gpu.wait(&previous)?;
        }
        self.len = len;
        Ok(())
    }

    fn import_layer(
        &self,
        cache: &LayerCache,
        slices: KvSlices<'_>,
        from: u32,
        len: u32,
    ) -> Result<wgpu::SubmissionIndex> {
        let gpu = &self.context.gpu;
        let shape = self.context.program.kv;
        let row = shape.head_dim as usize;
        gpu.checked(|_| {
            for head in 0..shape.kv_heads as usize {
                let source = head * from as usize * row;
                let target = (head * self.capacity as usize * row * 4) as u64;
                let range = source..source + len as usize * row;
                if range.is_empty() {
                    continue;
                }
                gpu.queue.write_buffer(
                    &cache.keys,
                    target,
                    bytemuck::cast_slice(&slices.keys[range.clone()]),
                );
                gpu.queue
                    .write_buffer(&cache.values, target, bytemuck::cast_slice(&slices.values[range]));
            }
        })?;
        gpu.submit([])
    }

    /// Each layer's keys and values, `[kv_heads, len, head_dim]` each, so that the sequence can go on elsewhere.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn export_kv(&self) -> Result<Vec<(Vec<f32>, Vec<f32>)>> {
        let mut layers: Vec<_> = self.layers.iter().collect();
        layers.sort_by_key(|cache| cache.layer);
        let export = |cache: &&LayerCache| {
            self.export_layer(cache)
                .map_err(|error| error.at_operator(&self.cache_owner(cache.layer)))
        };
        layers.iter().map(export).collect()
    }

    fn export_layer(&self, cache: &LayerCache) -> Result<(Vec<f32>, Vec<f32>)> {
        let (gpu, shape) = (&self.context.gpu, self.context.program.kv);
        let bytes = shape.bytes(self.len);
        if bytes == 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor {
            label: Some("kv export"),
            size: 2 * bytes,
            usage,
            mapped_at_creation: false,
        };
        let (buffer, commands) = gpu.checked(|device| {
            let buffer = device.create_buffer(&descriptor);
            let mut encoder = device.create_command_encoder(&Default::default());
            let row = u64::from(shape.head_dim) * 4;
            let (from_head, to_head) = (u64::from(self.capacity) * row, u64::from(self.len) * row);
            for head in 0..u64::from(shape.kv_heads) {
                encoder.copy_buffer_to_buffer(
                    &cache.keys,
                    head * from_head,
                    &buffer,
                    head * to_head,
                    to_head,
                );
                encoder.copy_buffer_to_buffer(
                    &cache.values,
                    head * from_head,
                    &buffer,
                    bytes + head * to_head,
                    to_head,
                );
            }
            (buffer, encoder.finish())
        })?;
        let submission = gpu.submit([commands])?;
        let view = gpu.read(&buffer, 2 * bytes, &submission)?;
        let (keys, values) = view.split_at(bytes as usize);
        Ok((
            bytemuck::pod_collect_to_vec(keys),
            bytemuck::pod_collect_to_vec(values),
        ))
    }

    /// Decodes one token and gives the logits of the position after it.
    ///
    /// # Errors
    ///
    /// [`is_bad_request`](IgpuError::is_bad_request) for an unknown token or a full context,
    /// [`is_out_of_memory`](IgpuError::is_out_of_memory) when the cache cannot grow,
    /// [`is_device_lost`](IgpuError::is_device_lost) when the device went away: load again. Where kernels
    /// [read the mapping](Self::reads_mapping), somebody changes the model file: load again.
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>> {
        let bytes = self.run(token, Wanted::Logits)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Decodes one token and gives the most likely next one, found on the device.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn decode_greedy(&mut self, token: u32) -> Result<u32> {
        let bytes = self.run(token, Wanted::Greedy)?;
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        Ok(words[0])
    }

    fn run(&mut self, token: u32, wanted: Wanted) -> Result<Vec<u8>> {
        let program = Arc::clone(&self.context.program);
        let (position, context) = (self.len, program.context_length);
        if token >= program.logits.len {
            return Err(IgpuError::new(
                Kind::Request,
                format!("token {token} is not in the vocabulary of {}", program.logits.len),
            ));
        }
        if position >= context {
            return Err(IgpuError::new(
                Kind::Request,
                format!("the context of {context} positions is full"),
            ));
        }
        self.reserve(position + 1)?;
        if let Some(in_place) = &mut self.in_place {
            in_place.claim()?;
        }
        let result = match wanted {
            Wanted::Logits => program.logits,
            Wanted::Greedy => program.greedy,
        };
        let last = program
            .operators
            .last()
            .map_or("", |operator| operator.name.as_str());
        let bytes = self
            .submit_token(token, position, result, &wanted)
            .map_err(|error| error.at_operator(last))?;
        if let Some(in_place) = &mut self.in_place {
            in_place.verify()?;
        }
        self.len += 1;
        Ok(bytes)
    }

    fn submit_token(&mut self, token: u32, position: u32, result: View, wanted: &Wanted) -> Result<Vec<u8>> {
        let gpu = &self.context.gpu;
        let bytes = u64::from(result.len) * 4;
        let started = Instant::now();
        let state = [token, position, self.capacity, 0];
        let commands = gpu.checked(|device| {
            gpu.queue
                .write_buffer(&self.context.state, 0, bytemuck::cast_slice(&state));
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            let mut bound: Option<&Arc<crate::kernel::Kernel>> = None;
            for step in &self.steps {
                if step.greedy_only && matches!(wanted, Wanted::Logits) {
                    continue;
                }
                if !bound.is_some_and(|kernel| Arc::ptr_eq(kernel, &step.device.kernel)) {
                    pass.set_pipeline(&step.device.kernel.pipeline);
                    bound = Some(&step.device.kernel);
                }
                pass.set_bind_group(0, &step.device.bind_group, &[]);
                let [x, y, z] = step.grid.at(position);
                pass.dispatch_workgroups(x, y, z);
            }
            drop(pass);
            let source = self.context.slot(result.base);
            encoder.copy_buffer_to_buffer(source, u64::from(result.offset) * 4, &self.readback, 0, bytes);
            encoder.finish()
        })?;
        self.encode_time = started.elapsed();
        let submission = gpu.submit([commands])?;
        let view = gpu.read(&self.readback, bytes, &submission)?;
        let copied = view.to_vec();
        drop(view);
        gpu.checked(|_| self.readback.unmap())?;
        Ok(copied)
    }

    /// Grows the cache so that `needed` positions fit.
    fn reserve(&mut self, needed: u32) -> Result<()> {
        if needed <= self.capacity {
            return Ok(());
        }
        let program = Arc::clone(&self.context.program);
        let (shape, gpu) = (program.kv, &self.context.gpu);
        let capacity = grown(self.capacity, needed, program.context_length);
        let owners: Vec<_> = self
            .layers
            .iter()
            .map(|cache| self.cache_owner(cache.layer))
            .collect();
        let caches = owners
            .iter()
            .map(|name| (name.as_str(), 2 * shape.bytes(capacity)));
        self.budget
            .check(std::iter::once(("weights", self.fixed_bytes)).chain(caches))?;
        let mut layers = Vec::with_capacity(self.layers.len());
        for (cache, owner) in self.layers.iter().zip(&owners) {
            let named = |error: IgpuError| error.at_operator(owner);
            let larger = LayerCache::new(gpu, shape, cache.layer, capacity).map_err(named)?;
            if self.len > 0 {
                let commands = gpu.checked(|device| {
                    let mut encoder = device.create_command_encoder(&Default::default());
                    cache.copy_to(&larger, &mut encoder, shape, self.len, [self.capacity, capacity]);
                    encoder.finish()
                });
                let submission = gpu.submit([commands.map_err(named)?]).map_err(named)?;
                gpu.wait(&submission).map_err(named)?;
            }
            layers.push(larger);
        }
        let mut rebound = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            let (operator, index) = step.at;
            let operator = &program.operators[operator];
            let step = &operator.steps[index];
            if step
                .bindings
                .iter()
                .any(|binding| matches!(binding, Binding::Keys(_) | Binding::Values(_)))
            {
                rebound.push((
                    i,
                    self.context
                        .bind(step, &layers)
                        .map_err(|error| error.at_operator(&operator.name))?,
                ));
            }
        }
        for (i, device) in rebound {
            self.steps[i].device = device;
        }
        self.layers = layers;
        self.capacity = capacity;
        self.n_growths += 1;
        Ok(())
    }

    /// The operator that owns a layer's cache.
    fn cache_owner(&self, layer: usize) -> String {
        let owner = self
            .context
            .program
            .operators
            .iter()
            .find(|operator| operator.layers.contains(&layer));
        owner.map_or_else(|| format!("layers.{layer}"), |operator| operator.name.clone())
    }

    /// Takes the device away, as a driver reset would, so that fault handling can be tested.
    #[doc(hidden)]
    pub fn lose_device(&self) {
        self.context.gpu.lose();
    }
}
