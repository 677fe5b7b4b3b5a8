//! An operator's kernel: one ONNX Runtime session over its nodes and those of operators that share it, run once so that it is
//! really ready.

use std::path::Path;
use std::ptr::{self, NonNull};

use onnx_model::{DataType, OperatorId, TensorBytes};
use ort::ortsys;
use ort::sys::{GraphOptimizationLevel, OrtRunOptions, OrtValue};

use crate::names::Names;
use crate::options::Provider;
use crate::pieces;
use crate::provider::ResolvedProvider;
use crate::runtime::OnnxRuntime;
use crate::session::{Session, SessionOptions};
use crate::shapes::WarmInput;
use crate::value::{RawValue, byte_len, element_type};

/// A ready kernel: what the device-setup node of an operator makes.
pub struct Kernel {
    session: Session,
    inputs: Names,
    outputs: Names,
    operator: Option<OperatorId>,
    provider: &'static str,
    warm: Warmth,
    rows: Rows,
    /// The weights that the session reads in place. Declared last, so dropped after the session.
    weights: Vec<TensorBytes>,
}

/// Whether a kernel has been run before it counted as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// It has.
    Warm,
    /// The shape of an input is not known before the operators before it have run, so it has not.
    Cold,
}

/// What a session is created over. `M` is bytes, or a model that is still being written.
pub(crate) struct KernelSource<M = Vec<u8>> {
    /// The model, without its weights.
    pub(crate) model: M,
    /// Weights that the model declares and does not hold.
    pub(crate) weights: Vec<Weight>,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    /// What ONNX Runtime has to do to the graph first.
    pub(crate) rewriting: Rewriting,
    pub(crate) rows: Rows,
    /// Inputs of the warm-up run, if the shapes of all are known.
    pub(crate) warm_inputs: Option<Vec<WarmInput>>,
}

impl KernelSource {
    /// Leaves the model's weights where they are, although the provider has its own: somebody else reads them.
    pub(crate) fn keep_weights(&mut self) {
        for weight in &mut self.weights {
            weight.packed = Packed::No;
        }
    }
}

/// What ONNX Runtime has to do to an operator's graph before it is efficient, the more the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rewriting {
    /// Nothing: the grouping already is what fusion would look for. Weights are used where they are, without a copy.
    None,
    /// Nodes over constants are to be computed once, not in every run: a transposed table, half-precision weights that the CPU
    /// provider multiplies as float32. The optimizer has to see the weights, which costs a copy while the session is created.
    Folding,
    /// As `Folding`, and dequantization is to be fused into products.
    Fusion,
}

/// Whether the provider makes its own copy of a weight, so that the model's is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    /// It reads it where it is: a table, a norm's weight.
    No,
    /// It packs it for its products, or the compiler takes it.
    ByProvider,
}

/// How many positions a kernel takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// As many as come.
    Any,
    /// So many, in one input and one output of rank 3: fewer are padded, more are run in pieces.
    Fixed(usize),
}

/// A weight that a session reads in place.
#[derive(Clone)]
pub(crate) struct Weight {
    pub(crate) name: String,
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<i64>,
    pub(crate) bytes: TensorBytes,
    pub(crate) packed: Packed,
}

impl Kernel {
    /// Creates the session, which packs the weights, and runs it once.
    pub(crate) fn create(
        runtime: &OnnxRuntime,
        provider: &ResolvedProvider,
        weights_file: &Path,
        operator: OperatorId,
        source: KernelSource,
    ) -> ort::Result<Self> {
        let KernelSource {
            model,
            weights,
            inputs,
            outputs,
            rewriting,
            rows,
            warm_inputs,
        } = source;
        let mut options = provider.apply(session_options(runtime, weights_file, rewriting)?)?;
        // The session keeps its own reference to each tensor; the memory they are over is kept by the kernel.
        let values = weights
            .iter()
            .map(|weight| add_weight(&mut options, weight, rewriting))
            .collect::<ort::Result<Vec<_>>>()?;
        let session = {
            let _alone = provider.compiling();
            options.create_from_bytes(&model)?
        };
        drop(values);
        let mut kernel = Self::of_session(session, &inputs, &outputs, Some(operator));
        kernel.rows = rows;
        kernel.provider = provider.execution_provider();
        kernel.weights = weights.iter().map(|weight| weight.bytes.clone()).collect();
        if let Some(warm_inputs) = warm_inputs {
            kernel.warm_up(&warm_inputs)?;
            kernel.warm = Warmth::Warm;
        }
        weights
            .iter()
            .filter(|weight| weight.packed == Packed::ByProvider)
            .for_each(|weight| weight.bytes.release());
        Ok(kernel)
    }

    /// A kernel over any session, whose inputs and outputs are these; of one operator or, if none is named, of a whole model.
    pub(crate) fn of_session(
        session: Session,
        inputs: &[String],
        outputs: &[String],
        operator: Option<OperatorId>,
    ) -> Self {
        Self {
            session,
            inputs: Names::new(inputs),
            outputs: Names::new(outputs),
            operator,
            provider: Provider::Cpu.execution_provider(),
            warm: Warmth::Cold,
            rows: Rows::Any,
            weights: Vec::new(),
        }
    }

    /// Runs over `inputs`. An entry of `outputs` that holds a value is written in place; an empty one receives a new value.
    ///
    /// # Safety
    /// The pointers are live values. No other run writes to the inputs, or touches the outputs, meanwhile.
    pub(crate) unsafe fn run(
        &self,
        options: *const OrtRunOptions,
        inputs: &[*const OrtValue],
        outputs: &mut [*mut OrtValue],
    ) -> ort::Result<()> {
        match (self.rows, inputs, &mut *outputs) {
            (Rows::Fixed(rows), [input], [output]) => {
                // SAFETY: as promised by the caller.
                unsafe { pieces::run(self, options, *input, output, rows) }
            }
            // SAFETY: as promised by the caller.
            _ => unsafe { self.run_whole(options, inputs, outputs) },
        }
    }

    /// Runs once over exactly these values.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    pub(crate) unsafe fn run_whole(
        &self,
        options: *const OrtRunOptions,
        inputs: &[*const OrtValue],
        outputs: &mut [*mut OrtValue],
    ) -> ort::Result<()> {
        assert_eq!(inputs.len(), self.inputs.pointers().len(), "kernel input count");
        assert_eq!(
            outputs.len(),
            self.outputs.pointers().len(),
            "kernel output count"
        );
        ortsys![unsafe Run(
            self.session.as_ptr(),
            options,
            self.inputs.pointers().as_ptr(),
            inputs.as_ptr(),
            inputs.len(),
            self.outputs.pointers().as_ptr(),
            outputs.len(),
            outputs.as_mut_ptr()
        )?];
        Ok(())
    }

    /// The operator it computes.
    pub fn operator(&self) -> Option<OperatorId> {
        self.operator
    }

    /// ONNX Runtime's name of the execution provider that it runs on.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Whether it was run before it counted as ready.
    pub fn warmth(&self) -> Warmth {
        self.warm
    }

    fn warm_up(&self, inputs: &[WarmInput]) -> ort::Result<()> {
        let memory: Vec<Vec<u64>> = inputs.iter().map(elements).collect();
        let values = (inputs.iter().zip(&memory))
            .map(|(input, words)| {
                // SAFETY: `elements` made at least so many bytes, and `memory` outlives the values.
                let bytes =
                    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), n_bytes(input)) };
                RawValue::over(bytes, element_type(input.dtype), &input.shape)
            })
            .collect::<ort::Result<Vec<_>>>()?;
        let inputs: Vec<*const OrtValue> = values.iter().map(|value| value.as_ptr().cast_const()).collect();
        let mut outputs = vec![ptr::null_mut(); self.outputs.pointers().len()];
        // SAFETY: the inputs are alive and nobody else knows them; every output is a new value.
        unsafe { self.run_whole(ptr::null(), &inputs, &mut outputs)? };
        outputs
            .into_iter()
            .filter_map(NonNull::new)
            .for_each(|output| drop(RawValue::from_run(output)));
        Ok(())
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("operator", &self.operator)
            .field("provider", &self.provider)
            .field("n_weights", &self.weights.len())
            .finish_non_exhaustive()
    }
}

/// Settings that every kernel has in common.
fn session_options<'r>(
    runtime: &'r OnnxRuntime,
    weights_file: &Path,
    rewriting: Rewriting,
) -> ort::Result<SessionOptions<'r>> {
    let optimization = match rewriting {
        Rewriting::None => GraphOptimizationLevel::ORT_DISABLE_ALL,
        Rewriting::Folding => GraphOptimizationLevel::ORT_ENABLE_BASIC,
        Rewriting::Fusion => GraphOptimizationLevel::ORT_ENABLE_ALL,
    };
    // Weights are declared as lying in a file of this folder, which is checked, and then supplied from memory.
    let folder = weights_file.parent().unwrap_or(Path::new(""));
    SessionOptions::new(runtime)?
        .lean()?
        .optimization(optimization)?
        .weights_folder(folder)
}

/// Hands a weight to the session: shared, so that it is used where it is, or injected, so that optimizers see it.
fn add_weight<'w>(
    options: &mut SessionOptions<'_>,
    weight: &'w Weight,
    rewriting: Rewriting,
) -> ort::Result<RawValue<'w>> {
    let value = RawValue::over(&weight.bytes, element_type(weight.dtype), &weight.shape)?;
    // SAFETY: the kernel holds the weights' memory, and drops its session first.
    unsafe {
        match rewriting {
            Rewriting::None => options.share_weight(&weight.name, value.as_ptr())?,
            Rewriting::Folding | Rewriting::Fusion => options.inject_weight(&weight.name, value.as_ptr())?,
        }
    }
    Ok(value)
}

fn n_bytes(input: &WarmInput) -> usize {
    byte_len(element_type(input.dtype), &input.shape)
}

/// Memory for the elements, at least a word even if there are none.
fn elements(input: &WarmInput) -> Vec<u64> {
    let mut words = vec![0u64; n_bytes(input).div_ceil(8).max(1)];
    if input.fill != 0 {
        let size = byte_len(element_type(input.dtype), &[]);
        let word = (0..8 / size).fold(0u64, |word, i| word | u64::from(input.fill) << (8 * size * i));
        words.fill(word);
    }
    words
}
