//! Walks the operators' nodes and collects steps.

use std::collections::HashMap;

use onnx_model::{DataType, Graph, ModelFolder, Node};

use super::{
    Binding, Encoding, Grid, KvShape, OperatorProgram, Program, Step, Value, View, WeightId, WeightSpec,
    slots,
};
use crate::error::{IgpuError, Kind, Result};
use crate::kernel::PARAMS_BYTES;
use crate::ops;
use crate::options::MatvecShape;
use crate::shader::{KernelSpec, Shader};

/// What compilation needs to know of the device and the caller's wishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileOptions {
    pub(crate) matvec: MatvecShape,
    /// Invocations of a workgroup as wide as a vector register.
    pub(crate) narrow_workgroup: u32,
    /// Largest binding in bytes.
    pub(crate) max_binding_bytes: u64,
    /// Most workgroups along one dimension.
    pub(crate) max_groups: u32,
    /// Longest sequence.
    pub(crate) context_length: u32,
}

/// A constant's type and shape; its bytes stay untouched.
#[derive(Clone, Debug)]
pub(crate) struct ConstantInfo {
    pub(crate) name: String,
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<u64>,
}

impl ConstantInfo {
    /// Number of elements.
    pub(crate) fn len(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Collects steps operator by operator, node by node.
pub(crate) struct Compiler<'a> {
    pub(crate) folder: &'a ModelFolder,
    pub(crate) options: CompileOptions,
    pub(crate) kv: Option<KvShape>,
    values: HashMap<String, Value>,
    /// Elements of each base value.
    lens: Vec<u32>,
    kernels: Vec<KernelSpec>,
    weights: Vec<WeightSpec>,
    /// The operator that uploads each weight.
    operators: Vec<OperatorProgram>,
    n_steps: usize,
    node: String,
}

impl<'a> Compiler<'a> {
    /// Compiles the whole model.
    ///
    /// # Errors
    ///
    /// [`IgpuError::is_unsupported_model`], [`IgpuError::is_invalid_model`] or [`IgpuError::is_over_limit`], with operator and node.
    pub(crate) fn compile(folder: &'a ModelFolder, options: CompileOptions) -> Result<Program> {
        let operators = folder.operators().map_err(model_error)?;
        let mut compiler = Compiler {
            folder,
            options,
            kv: None,
            values: HashMap::new(),
            lens: Vec::new(),
            kernels: Vec::new(),
            weights: Vec::new(),
            operators: Vec::new(),
            n_steps: 0,
            node: String::new(),
        };
        compiler.name_inputs();
        for operator in operators {
            compiler.operators.push(OperatorProgram {
                id: operator.id,
                name: operator.name.clone(),
                kind: operator.kind,
                steps: Vec::new(),
                uploads: Vec::new(),
                layers: Vec::new(),
            });
            for &id in &operator.nodes {
                let node = compiler.graph().node(id);
                compiler.node = node.label();
                ops::compile_node(&mut compiler, node)
                    .map_err(|error| error.at_node(&node.label()).at_operator(&operator.name))?;
            }
        }
        compiler.finish()
    }

    fn finish(mut self) -> Result<Program> {
        let outputs = &self.folder.config().model.decoder.outputs;
        let name = outputs.logits.clone();
        let logits = self.data(&name).map_err(|error| error.at_operator("lm_head"))?;
        let vocab = self.folder.geometry().vocab as u32;
        if logits.len < vocab {
            let message = format!("logits have {} elements, the vocabulary {vocab}", logits.len);
            return Err(IgpuError::new(Kind::Model, message));
        }
        let Some(kv) = self.kv else {
            return Err(IgpuError::new(
                Kind::Unsupported,
                "the model has no GroupQueryAttention: not a decoder this engine knows",
            ));
        };
        let greedy = self.new_value(2);
        let greedy_step = self.n_steps;
        let bindings = vec![
            Binding::Params,
            Binding::Slot(logits.base),
            Binding::Slot(greedy.base),
        ];
        let spec = KernelSpec::new(Shader::Argmax, [("WORKGROUP", ARGMAX_WORKGROUP)]);
        self.emit(spec, vec![vocab, logits.offset], bindings, Grid::Fixed([1, 1, 1]));
        let (slots, slot_of) = slots::assign(&mut self.operators, &self.lens, &[logits.base, greedy.base]);
        Ok(Program {
            operators: self.operators,
            kernels: self.kernels,
            weights: self.weights,
            slots,
            n_steps: self.n_steps,
            logits: View {
                base: slot_of[logits.base],
                len: vocab,
                ..logits
            },
            greedy: View {
                base: slot_of[greedy.base],
                ..greedy
            },
            greedy_step,
            kv,
            context_length: self.options.context_length,
        })
    }

    fn name_inputs(&mut self) {
        let config = self.folder.config();
        let inputs = &config.model.decoder.inputs;
        self.values.insert(inputs.input_ids.clone(), Value::Tokens);
        self.values.insert(inputs.attention_mask.clone(), Value::Mask);
        if let Some(name) = &inputs.position_ids {
            self.values.insert(name.clone(), Value::Position);
        }
        for layer in 0..self.folder.geometry().layers {
            for pattern in [&inputs.past_key_names, &inputs.past_value_names] {
                self.values
                    .insert(onnx_model::layer_name(pattern, layer), Value::Cache(layer));
            }
        }
    }

    pub(crate) fn graph(&self) -> &'a Graph {
        self.folder.graph()
    }

    /// What a name stands for.
    pub(crate) fn value(&self, name: &str) -> Result<Value> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if self.constant_info(name).is_some() {
            return Ok(Value::Constant(name.to_owned()));
        }
        Err(unsupported(format!(
            "value {name} comes from nowhere this engine knows"
        )))
    }

    /// Says what a name stands for from now on.
    pub(crate) fn define(&mut self, name: &str, value: Value) {
        if !name.is_empty() {
            self.values.insert(name.to_owned(), value);
        }
    }

    /// The floats that a name stands for, computed if that was put off.
    pub(crate) fn data(&mut self, name: &str) -> Result<View> {
        match self.value(name)? {
            Value::Data(view) => Ok(view),
            Value::Activated(activation, x) => {
                let view = ops::activation::unary(self, activation, x)?;
                self.define(name, Value::Data(view));
                Ok(view)
            }
            other => Err(unsupported(format!(
                "value {name} is {}, floats were expected",
                other.what()
            ))),
        }
    }

    /// The node's input at `position` as floats.
    pub(crate) fn input(&mut self, node: &Node, position: usize) -> Result<View> {
        let name = required(node, position)?;
        self.data(name)
    }

    /// The constant that a name stands for.
    pub(crate) fn constant(&self, name: &str) -> Result<ConstantInfo> {
        match self.value(name)? {
            Value::Constant(tensor) => self
                .constant_info(&tensor)
                .ok_or_else(|| IgpuError::new(Kind::Model, format!("no constant {tensor}"))),
            other => Err(unsupported(format!(
                "value {name} is {}, a constant was expected",
                other.what()
            ))),
        }
    }

    fn constant_info(&self, name: &str) -> Option<ConstantInfo> {
        let graph = self.folder.graph();
        let (dtype, shape) = match graph.initializer(name) {
            Some(initializer) => (initializer.dtype, initializer.shape.clone()),
            None => graph
                .constant(name)
                .map(|tensor| (tensor.dtype, tensor.shape.clone()))?,
        };
        Some(ConstantInfo {
            name: name.to_owned(),
            dtype,
            shape,
        })
    }

    /// The integers of a small constant.
    pub(crate) fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let info = self.constant(name)?;
        self.folder
            .tensor(&info.name)
            .and_then(|tensor| tensor.to_i64())
            .map_err(model_error)
    }

    /// A new value of `len` elements.
    pub(crate) fn new_value(&mut self, len: u32) -> View {
        self.lens.push(len);
        View {
            base: self.lens.len() - 1,
            offset: 0,
            len,
        }
    }

    /// A constant as float32 on the device.
    pub(crate) fn float_weight(&mut self, name: &str) -> Result<(Binding, u64)> {
        let info = self.constant(name)?;
        if !matches!(
            info.dtype,
            DataType::Float32 | DataType::Float16 | DataType::BFloat16
        ) {
            return Err(unsupported(format!(
                "constant {} is {}, floats were expected",
                info.name, info.dtype
            )));
        }
        let bytes = info.len() * 4;
        if bytes > self.options.max_binding_bytes {
            let limit = self.options.max_binding_bytes;
            return Err(IgpuError::new(
                Kind::Limit,
                format!(
                    "constant {} takes {bytes} bytes, a binding holds {limit}",
                    info.name
                ),
            ));
        }
        let encoding = if info.dtype == DataType::Float32 {
            Encoding::Raw
        } else {
            Encoding::Float32
        };
        let id = self.weight(WeightSpec {
            tensor: info.name.clone(),
            encoding,
            parts: std::iter::once(0..bytes).collect(),
        });
        Ok((Binding::Weight(id, 0), info.len()))
    }

    /// A constant of `rows` equal rows in the model's own layout, in parts of at most `rows_per_part` rows.
    pub(crate) fn raw_weight(
        &mut self,
        info: &ConstantInfo,
        rows: u64,
        rows_per_part: u64,
    ) -> Result<WeightId> {
        let bytes = info.dtype.byte_len(&info.shape).unwrap_or(u64::MAX);
        if rows == 0 || !bytes.is_multiple_of(rows) {
            return Err(IgpuError::new(
                Kind::Model,
                format!(
                    "constant {} of shape {:?} does not have {rows} rows",
                    info.name, info.shape
                ),
            ));
        }
        let row_bytes = bytes / rows;
        let starts = (0..rows).step_by(rows_per_part as usize);
        let parts = starts
            .map(|row| row * row_bytes..(row + rows_per_part).min(rows) * row_bytes)
            .collect();
        Ok(self.weight(WeightSpec {
            tensor: info.name.clone(),
            encoding: Encoding::Raw,
            parts,
        }))
    }

    /// Rows per part so that a part of the widest of these row sizes fits a binding, and parts of 4-byte words stay whole.
    pub(crate) fn rows_per_part(&self, rows: u64, widest_row_bytes: u64) -> Result<u64> {
        let fitting = self.options.max_binding_bytes / widest_row_bytes.max(1);
        if fitting >= rows {
            return Ok(rows);
        }
        // A multiple of 64 rows keeps every part's start on a word, also where a row is half a byte.
        match fitting / 64 * 64 {
            0 => {
                let limit = self.options.max_binding_bytes;
                Err(IgpuError::new(
                    Kind::Limit,
                    format!("64 rows of {widest_row_bytes} bytes do not fit a binding of {limit} bytes"),
                ))
            }
            fitting => Ok(fitting),
        }
    }

    fn weight(&mut self, spec: WeightSpec) -> WeightId {
        let operator = self.operators.last_mut().expect("compiling an operator");
        match self.weights.iter().position(|known| *known == spec) {
            Some(at) => WeightId(at),
            None => {
                self.weights.push(spec);
                let id = WeightId(self.weights.len() - 1);
                operator.uploads.push(id);
                id
            }
        }
    }

    /// The KV cache of a layer belongs to the operator that is being compiled.
    pub(crate) fn own_layer(&mut self, layer: usize) {
        self.operators
            .last_mut()
            .expect("compiling an operator")
            .layers
            .push(layer);
    }

    /// Adds a dispatch.
    pub(crate) fn emit(&mut self, spec: KernelSpec, params: Vec<u32>, bindings: Vec<Binding>, grid: Grid) {
        debug_assert_eq!(bindings.len(), spec.shader.bindings().len(), "{}", spec.label());
        debug_assert!(params.len() as u64 * 4 <= PARAMS_BYTES);
        let kernel = self
            .kernels
            .iter()
            .position(|known| *known == spec)
            .unwrap_or_else(|| {
                self.kernels.push(spec);
                self.kernels.len() - 1
            });
        let step = Step {
            node: self.node.clone(),
            kernel,
            index: self.n_steps,
            params,
            bindings,
            grid,
        };
        self.n_steps += 1;
        self.operators
            .last_mut()
            .expect("compiling an operator")
            .steps
            .push(step);
    }

    /// A kernel that handles `size` elements, one per invocation.
    pub(crate) fn emit_elementwise(
        &mut self,
        shader: Shader,
        constants: &[(&'static str, u32)],
        params: Vec<u32>,
        bindings: Vec<Binding>,
        size: u32,
    ) {
        let mut constants = constants.to_vec();
        constants.push(("WORKGROUP", ELEMENTWISE_WORKGROUP));
        let grid = Grid::Fixed([size.div_ceil(ELEMENTWISE_WORKGROUP), 1, 1]);
        self.emit(KernelSpec::new(shader, constants), params, bindings, grid);
    }

    /// A grid of `groups` workgroups, in rows of the width also returned.
    pub(crate) fn wide_grid(&self, groups: u32) -> (Grid, u32) {
        let width = groups.min(self.options.max_groups).max(1);
        (Grid::Fixed([width, groups.div_ceil(width), 1]), width)
    }
}

/// Invocations of the one workgroup that finds the largest logit.
const ARGMAX_WORKGROUP: u32 = 256;
/// Invocations in a workgroup of the kernels that take one element per invocation.
const ELEMENTWISE_WORKGROUP: u32 = 64;

/// A node's input that has to be there.
pub(crate) fn required(node: &Node, position: usize) -> Result<&str> {
    node.input(position).ok_or_else(|| {
        IgpuError::new(
            Kind::Model,
            format!("{} lacks its input {position}", node.op_type),
        )
    })
}

pub(crate) fn unsupported(message: impl Into<String>) -> IgpuError {
    IgpuError::new(Kind::Unsupported, message)
}

pub(crate) fn model_error(error: onnx_model::Error) -> IgpuError {
    IgpuError::new(Kind::Model, error.to_string()).caused_by(error)
}
