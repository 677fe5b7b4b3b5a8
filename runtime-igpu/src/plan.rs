//! From model folder and adapter to a program, before any device is opened.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use onnx_model::ModelFolder;

use crate::adapter::IgpuAdapter;
use crate::error::{IgpuError, Kind, Result};
use crate::memory::Budget;
use crate::options::{IgpuOptions, UploadPath};
use crate::program::{Binding, CompileOptions, Compiler, Encoding, Program, WeightSpec};
use crate::upload::stays_in_place;

/// A decoder compiled for an adapter; nothing is on the device yet.
#[derive(Clone)]
pub struct IgpuPlan {
    pub(crate) folder: ModelFolder,
    pub(crate) adapter: IgpuAdapter,
    pub(crate) options: IgpuOptions,
    pub(crate) program: Arc<Program>,
    pub(crate) budget: Budget,
    pub(crate) kv_capacity: u32,
    /// Whether reading an operator makes its weights resident.
    pub(crate) prefaults: bool,
    device_bytes: u64,
}

impl IgpuPlan {
    /// Finds the adapter and compiles the model for it. Opens no device and touches no weight.
    ///
    /// # Errors
    ///
    /// [`is_no_adapter`](IgpuError::is_no_adapter), [`is_unsupported_model`](IgpuError::is_unsupported_model) and the other
    /// kinds of refusal, naming operator and node where one is at fault. A caller with another engine goes on without this one.
    pub fn new(folder: &ModelFolder, options: IgpuOptions) -> Result<Self> {
        let adapter = IgpuAdapter::find(&options)?;
        Self::on_adapter(folder, adapter, options)
    }

    /// As [`new`](Self::new), on an adapter found before.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn on_adapter(folder: &ModelFolder, adapter: IgpuAdapter, options: IgpuOptions) -> Result<Self> {
        adapter.check(&options)?;
        let limits = &adapter.limits;
        let max_binding_bytes = limits
            .max_storage_buffer_binding_size
            .min(limits.max_buffer_size)
            .min(options.max_binding_bytes.unwrap_or(u64::MAX));
        let compile = CompileOptions {
            matvec: adapter.matvec_shape(&options),
            narrow_workgroup: adapter.narrow_workgroup(),
            max_binding_bytes,
            max_groups: adapter.limits.max_compute_workgroups_per_dimension,
            context_length: context_length(folder, &options, max_binding_bytes)?,
        };
        let program = Compiler::compile(folder, compile)?;
        let kv_capacity = options.kv_capacity.clamp(1, program.context_length);
        let budget = Budget::of(&adapter, &options);
        let reads_mapping = adapter.upload_path(&options) == UploadPath::Imported
            && folder.weight_files().all(|file| file.lease().is_some());
        let sizes = program.operators.iter().map(|operator| {
            let weights = operator.uploads.iter().map(|id| &program.weights[id.0]);
            let weights: u64 = match reads_mapping {
                true => weights.map(|weight| copied_bytes(folder, weight)).sum(),
                false => weights.map(WeightSpec::bytes).sum(),
            };
            (
                operator.name.as_str(),
                weights + 2 * operator.layers.len() as u64 * program.kv.bytes(kv_capacity),
            )
        });
        let values: u64 = program.slots.iter().sum();
        let device_bytes = budget.check(std::iter::once(("values", values)).chain(sizes))?;
        Ok(Self {
            folder: folder.clone(),
            adapter,
            options,
            program: Arc::new(program),
            budget,
            kv_capacity,
            prefaults: true,
            device_bytes,
        })
    }

    /// The adapter.
    pub fn adapter(&self) -> &IgpuAdapter {
        &self.adapter
    }

    /// Whether kernels are to read weights where the model file is mapped
    /// ([`UploadPath::Imported`](crate::UploadPath::Imported)), so that nobody else should give its pages back.
    pub fn reads_mapping(&self) -> bool {
        self.adapter.upload_path(&self.options) == UploadPath::Imported
    }

    /// The same plan for a process in which somebody else has made the weights resident: reading an operator touches no page.
    pub fn without_prefault(mut self) -> Self {
        self.prefaults = false;
        self
    }

    /// Device memory the engine takes when set up: copied weights, KV cache and intermediate values.
    ///
    /// Weights that kernels read where the model file is mapped take none. Where they are is decided as each is set up; here those
    /// count whose place in the file is not one that every device can read, and all where no file can be
    /// [leased](onnx_model::Lease) now. Kernels, parameters and what the driver itself takes do not count.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Bytes of the weights as kernels read them, be it in device memory or in place.
    pub fn weight_bytes(&self) -> u64 {
        let uploads = self
            .program
            .operators
            .iter()
            .flat_map(|operator| &operator.uploads);
        uploads.map(|id| self.program.weights[id.0].bytes()).sum()
    }

    /// Device memory of the KV cache as it is first allocated.
    pub(crate) fn kv_bytes(&self) -> u64 {
        2 * self.program.kv.layers as u64 * self.program.kv.bytes(self.kv_capacity)
    }

    /// Bytes of quantized weights that one token streams through the matrix-vector kernels.
    pub fn matmul_bytes(&self) -> u64 {
        let program = &self.program;
        let mut streamed = BTreeSet::new();
        for step in program.operators.iter().flat_map(|operator| &operator.steps) {
            if program.kernels[step.kernel].shader.is_matvec() {
                streamed.extend(step.bindings.iter().filter_map(|binding| match binding {
                    Binding::Weight(id, _) => Some(*id),
                    _ => None,
                }));
            }
        }
        streamed.iter().map(|id| program.weights[id.0].bytes()).sum()
    }

    /// The longest sequence.
    pub fn context_length(&self) -> usize {
        self.program.context_length as usize
    }

    /// Names of the distinct kernels.
    pub fn kernels(&self) -> Vec<String> {
        self.program
            .kernels
            .iter()
            .map(crate::shader::KernelSpec::label)
            .collect()
    }
}

/// Bytes of the parts of a weight that do not stay where they are mapped.
fn copied_bytes(folder: &ModelFolder, weight: &WeightSpec) -> u64 {
    let home = match weight.encoding {
        Encoding::Raw => folder.tensor(&weight.tensor).ok(),
        Encoding::Float32 => None,
    };
    let stays = |part: &Range<u64>| {
        home.as_ref()
            .is_some_and(|home| stays_in_place(&home.bytes, part))
    };
    let copied = weight.parts.iter().filter(|part| !stays(part));
    copied.map(|part| part.end - part.start).sum()
}

/// The context the caller asks for, else as much of the model's as one layer's cache fits into a binding.
fn context_length(folder: &ModelFolder, options: &IgpuOptions, max_binding_bytes: u64) -> Result<u32> {
    let geometry = folder.geometry();
    let position_bytes = geometry.kv_heads as u64 * geometry.head_dim as u64 * 4;
    let fitting = max_binding_bytes / position_bytes;
    let model = geometry.context_length as u64;
    match options.context_length {
        None => Ok(model.min(fitting) as u32),
        Some(0) => Err(IgpuError::new(Kind::Request, "a context of no positions")),
        Some(asked) if u64::from(asked) > model => Err(IgpuError::new(
            Kind::Limit,
            format!("a context of {asked} positions, the model has {model}"),
        )),
        Some(asked) if u64::from(asked) > fitting => {
            let message = format!(
                "a context of {asked} positions, a binding of {max_binding_bytes} bytes holds {fitting}"
            );
            Err(IgpuError::new(Kind::Limit, message))
        }
        Some(asked) => Ok(asked),
    }
}
