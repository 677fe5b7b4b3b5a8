//! The peer that the engine is compared with: one stock session over the whole graph.

use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use onnx_model::proto::{AttributeProto, AttributeType, ModelProto};
use onnx_model::{Geometry, ModelFolder, ValueInfo};
use ort::sys::OrtValue;
use prost::Message;

use crate::engine::{Inputs, to_f32};
use crate::error::{NpuError, Result};
use crate::kernel::Kernel;
use crate::kv::KvCache;
use crate::options::AccuracyLevel;
use crate::program::Names;
use crate::runtime::{OnnxRuntime, RunOptions};
use crate::session::{Session, SessionOptions};
use crate::value::{self, RawValue, byte_len};

/// A stock session over the whole graph, run as onnxruntime-genai runs it: KV cache in place, options and names made once. For
/// parity tests and benchmarks; it loads the model as it is, on one thread, all of it before anything can run.
pub struct WholeModelSession {
    kernel: Kernel,
    inputs: Vec<Role>,
    outputs: Vec<Role>,
    input_dtype: onnx_model::DataType,
    geometry: Arc<Geometry>,
    options: RunOptions,
}

/// What an input or output of the graph is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    InputIds,
    AttentionMask,
    PositionIds,
    /// Index in the cache's values.
    Kv(usize),
    Logits,
}

/// Where a stock session's threads come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockThreads {
    /// A pool of its own with so many threads, as without any environment-wide pool.
    Own(usize),
    /// The environment's pool, which the engine uses too.
    Shared,
}

impl WholeModelSession {
    /// Opens the folder's graph with stock settings.
    ///
    /// # Errors
    /// ONNX Runtime cannot load the model, or it has inputs that are not a decoder's.
    pub fn open(runtime: &OnnxRuntime, folder: &ModelFolder, threads: StockThreads) -> Result<Self> {
        let session =
            stock_options(runtime, threads).and_then(|options| options.create_from_file(folder.graph_path()));
        Self::over(runtime, folder, session)
    }

    /// As [`WholeModelSession::open`], with another accuracy level on every MatMulNBits.
    ///
    /// # Errors
    /// As [`WholeModelSession::open`].
    pub fn with_accuracy_level(
        runtime: &OnnxRuntime,
        folder: &ModelFolder,
        threads: StockThreads,
        level: AccuracyLevel,
    ) -> Result<Self> {
        let path = folder.graph_path();
        let bytes = std::fs::read(path)
            .map_err(|e| NpuError::unsupported(format!("cannot read {}: {e}", path.display())))?;
        let mut model = ModelProto::decode(bytes.as_slice())
            .map_err(|e| NpuError::unsupported(format!("cannot decode {}: {e}", path.display())))?;
        set_accuracy_level(&mut model, level);
        let session = stock_options(runtime, threads)
            .and_then(|options| options.weights_folder(path.parent().unwrap_or(Path::new(""))))
            .and_then(|options| options.create_from_bytes(&model.encode_to_vec()));
        Self::over(runtime, folder, session)
    }

    fn over(runtime: &OnnxRuntime, folder: &ModelFolder, session: ort::Result<Session>) -> Result<Self> {
        let session = session.map_err(|e| NpuError::runtime("cannot load the whole model", e))?;
        let names = Names::of(folder);
        let role = |name: &str| -> Result<Role> {
            let kv = names
                .past
                .iter()
                .position(|past| past == names.in_place(name))
                .map(Role::Kv);
            let input = [
                (Some(&names.input_ids), Role::InputIds),
                (Some(&names.attention_mask), Role::AttentionMask),
                (names.position_ids.as_ref(), Role::PositionIds),
                (Some(&names.logits), Role::Logits),
            ];
            let role = kv.or(input
                .into_iter()
                .find(|(known, _)| known.is_some_and(|k| k == name))
                .map(|(_, role)| role));
            role.ok_or_else(|| {
                NpuError::unsupported(format!("'{name}' is not an input or output of a decoder"))
            })
        };
        let values = |values: &[ValueInfo]| {
            values
                .iter()
                .map(|value| value.name.clone())
                .collect::<Vec<String>>()
        };
        let (input_names, output_names) = (values(&folder.graph().inputs), values(&folder.graph().outputs));
        Ok(Self {
            inputs: input_names.iter().map(|name| role(name)).collect::<Result<_>>()?,
            outputs: output_names
                .iter()
                .map(|name| role(name))
                .collect::<Result<_>>()?,
            kernel: Kernel::of_session(session, &input_names, &output_names, None),
            input_dtype: folder
                .value_type(&names.input_ids)
                .unwrap_or(onnx_model::DataType::Int64),
            geometry: Arc::new(folder.geometry().clone()),
            options: RunOptions::new(runtime)
                .map_err(|e| NpuError::runtime("cannot create run options", e))?,
        })
    }

    /// An empty KV cache for one sequence.
    ///
    /// # Errors
    /// The capacity is zero or more than the model's context.
    pub fn new_cache(&self, capacity: usize) -> Result<KvCache> {
        KvCache::new(&self.geometry, capacity)
    }

    /// Runs `tokens` after what the cache holds in one pass, and returns the logits of every position, `[tokens, vocab]`.
    ///
    /// # Errors
    /// The tokens do not fit, or ONNX Runtime fails.
    pub fn run(&self, cache: &mut KvCache, tokens: &[u32]) -> Result<Vec<f32>> {
        if !cache.belongs_to(&self.geometry)
            || tokens.is_empty()
            || tokens.len() > cache.capacity() - cache.len()
        {
            return Err(NpuError::request(format!(
                "{} tokens do not fit into {cache:?}",
                tokens.len()
            )));
        }
        let logits = self
            .pass(cache, tokens)
            .map_err(|e| NpuError::runtime("the whole model cannot be run", e))?;
        cache.grow_by(tokens.len());
        Ok(logits)
    }

    fn pass(&self, cache: &mut KvCache, tokens: &[u32]) -> ort::Result<Vec<f32>> {
        let memory = Inputs::new(self.input_dtype, cache.len(), tokens);
        let [ids, mask, positions] = memory.values()?;
        let input = |role: &Role| match role {
            Role::InputIds => ids.as_ptr(),
            Role::AttentionMask => mask.as_ptr(),
            Role::PositionIds => positions.as_ptr(),
            Role::Kv(index) => cache.values()[*index].as_ptr(),
            Role::Logits => ptr::null_mut(),
        };
        let inputs: Vec<*const OrtValue> = self.inputs.iter().map(|role| input(role).cast_const()).collect();
        let in_place = |role: &Role| match role {
            Role::Kv(index) => cache.values()[*index].as_ptr(),
            _ => ptr::null_mut(),
        };
        let mut outputs: Vec<*mut OrtValue> = self.outputs.iter().map(in_place).collect();
        // SAFETY: all inputs live until the end of this call; the cache is borrowed mutably, and attention appends in place.
        unsafe { self.kernel.run(self.options.as_ptr(), &inputs, &mut outputs)? };
        let made = self
            .outputs
            .iter()
            .zip(outputs)
            .filter(|(role, _)| **role == Role::Logits);
        let logits: Vec<RawValue<'static>> = made
            .filter_map(|(_, value)| NonNull::new(value))
            .map(RawValue::from_run)
            .collect();
        let logits = logits
            .first()
            .ok_or_else(|| ort::Error::new("the graph has no logits"))?;
        let (element, shape) = logits.describe()?;
        let n_bytes = byte_len(element, &shape);
        // SAFETY: the tensor has this type and shape, and lives until after the copy.
        let bytes =
            unsafe { std::slice::from_raw_parts(value::data(logits.as_ptr())?.cast_const(), n_bytes) };
        to_f32(bytes, element).ok_or_else(|| ort::Error::new("the logits are not floats"))
    }
}

fn stock_options(runtime: &OnnxRuntime, threads: StockThreads) -> ort::Result<SessionOptions<'_>> {
    match threads {
        StockThreads::Own(n) => SessionOptions::with_own_threads(runtime, n),
        StockThreads::Shared => SessionOptions::new(runtime),
    }
}

fn set_accuracy_level(model: &mut ModelProto, level: AccuracyLevel) {
    let nodes = model.graph.iter_mut().flat_map(|graph| graph.node.iter_mut());
    for node in nodes.filter(|node| node.op_type.as_deref() == Some("MatMulNBits")) {
        node.attribute
            .retain(|attribute| attribute.name.as_deref() != Some("accuracy_level"));
        node.attribute.push(AttributeProto {
            name: Some("accuracy_level".into()),
            i: Some(level as i64),
            r#type: Some(AttributeType::Int as i32),
            ..AttributeProto::default()
        });
    }
}
