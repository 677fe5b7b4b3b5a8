//! The decoder as a list of dispatches, compiled from the graph's nodes at plan time.
//!
//! Each operator becomes steps; a step is one dispatch of one kernel over fixed bindings. Values are laid out in slots
//! that later values reuse. Nothing here touches a device: bindings name slots, weights and caches, not buffers.

mod compiler;
mod slots;
mod value;

pub(crate) use compiler::{CompileOptions, Compiler, ConstantInfo, model_error, required, unsupported};
pub(crate) use value::{Value, View};

use std::ops::Range;

use onnx_model::{OperatorId, OperatorKind};

use crate::shader::KernelSpec;

/// A decoder, ready to be given buffers.
#[derive(Debug)]
pub(crate) struct Program {
    /// One per operator of the model, in its order.
    pub(crate) operators: Vec<OperatorProgram>,
    /// Distinct kernels, in order of first use.
    pub(crate) kernels: Vec<KernelSpec>,
    /// Distinct weights, in order of first use.
    pub(crate) weights: Vec<WeightSpec>,
    /// Bytes of each slot.
    pub(crate) slots: Vec<u64>,
    /// Steps of all operators; each has its own place in the parameter buffer.
    pub(crate) n_steps: usize,
    /// Where the logits end up.
    pub(crate) logits: View,
    /// Where the greedy token ends up, and the step that finds it; it runs only when asked for.
    pub(crate) greedy: View,
    pub(crate) greedy_step: usize,
    /// Shape of each layer's KV cache.
    pub(crate) kv: KvShape,
    /// Longest sequence.
    pub(crate) context_length: u32,
}

/// One operator's dispatches and the weights it brings to the device.
#[derive(Debug)]
pub(crate) struct OperatorProgram {
    pub(crate) id: OperatorId,
    pub(crate) name: String,
    pub(crate) kind: OperatorKind,
    pub(crate) steps: Vec<Step>,
    /// Weights that this operator uploads: those it is the first to use.
    pub(crate) uploads: Vec<WeightId>,
    /// KV caches that this operator allocates.
    pub(crate) layers: Vec<usize>,
}

/// One dispatch.
#[derive(Debug)]
pub(crate) struct Step {
    /// The graph node it computes, for errors.
    pub(crate) node: String,
    /// Index among the program's kernels.
    pub(crate) kernel: usize,
    /// Index among all steps: its place in the parameter buffer.
    pub(crate) index: usize,
    pub(crate) params: Vec<u32>,
    /// In the order of the shader's bindings.
    pub(crate) bindings: Vec<Binding>,
    pub(crate) grid: Grid,
}

/// What a binding of a step is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// The step's own parameters.
    Params,
    /// Token and position.
    State,
    /// A value's slot.
    Slot(usize),
    /// Part of a weight.
    Weight(WeightId, usize),
    /// A layer's cached keys.
    Keys(usize),
    /// A layer's cached values.
    Values(usize),
}

/// How many workgroups a step dispatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grid {
    /// Always as many.
    Fixed([u32; 3]),
    /// One per query head and stretch of cache positions seen.
    Stretches {
        /// Query heads.
        heads: u32,
        /// Positions seen at most; 0 for all.
        window: u32,
    },
}

/// Cache positions that one workgroup of the attention kernel handles.
pub(crate) const STRETCH: u32 = 128;

impl Grid {
    /// Workgroups at this position.
    pub(crate) fn at(self, position: u32) -> [u32; 3] {
        match self {
            Grid::Fixed(grid) => grid,
            Grid::Stretches { heads, window } => {
                let length = position + 1;
                let seen = if window == 0 { length } else { length.min(window) };
                [heads, seen.div_ceil(STRETCH), 1]
            }
        }
    }
}

/// Index among a program's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WeightId(pub(crate) usize);

/// A constant that goes to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightSpec {
    /// The constant's name.
    pub(crate) tensor: String,
    pub(crate) encoding: Encoding,
    /// Byte ranges of the encoded constant, one buffer each, so that each fits a binding.
    pub(crate) parts: Vec<Range<u64>>,
}

impl WeightSpec {
    /// Device bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

/// How a constant lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    /// As in the model.
    Raw,
    /// Converted to float32; for small constants only.
    Float32,
}

/// Shape of one layer's cached keys, and of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub(crate) layers: usize,
    pub(crate) kv_heads: u32,
    pub(crate) head_dim: u32,
}

impl KvShape {
    /// Bytes of one layer's keys at this capacity.
    pub(crate) fn bytes(&self, capacity: u32) -> u64 {
        u64::from(self.kv_heads) * u64::from(self.head_dim) * u64::from(capacity) * 4
    }
}
