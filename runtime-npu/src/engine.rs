//! The prefill engine: runs prompts, and single tokens where no other engine decodes.

use std::sync::{Arc, Mutex};

use half::{bf16, f16};
use onnx_model::{DataType, Geometry, Operator};
use ort::sys::ONNXTensorElementDataType as ElementType;

use crate::error::{NpuError, Result};
use crate::kernel::{Kernel, Warmth};
use crate::kv::KvCache;
use crate::program::{Pieces, Program};
use crate::runtime::{OnnxRuntime, RunOptions};
use crate::value::{RawValue, byte_len};
use crate::workspace::{Reuse, Workspace};

/// Runs the operator graph of a decoder. Shared by reference between threads; sequences, each with its [`KvCache`], take turns
/// piece by piece.
pub struct NpuEngine {
    kernels: Vec<Kernel>,
    program: Program,
    operators: Vec<Operator>,
    geometry: Arc<Geometry>,
    chunk_tokens: usize,
    options: RunOptions,
    workspace: Mutex<Workspace>,
    runtime: OnnxRuntime,
}

/// Which positions' logits a pass computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    None,
    Last,
    All,
}

impl NpuEngine {
    /// `kernels` in the order of the program's steps.
    pub(crate) fn new(
        program: Program,
        kernels: Vec<Kernel>,
        operators: Vec<Operator>,
        geometry: Geometry,
        chunk_tokens: usize,
        runtime: OnnxRuntime,
    ) -> Result<Self> {
        assert_eq!(kernels.len(), program.steps.len(), "kernels and steps");
        runtime.start_threads();
        Ok(Self {
            options: RunOptions::new(&runtime)
                .map_err(|e| NpuError::runtime("cannot create run options", e))?,
            workspace: Mutex::new(Workspace::new(&program)),
            kernels,
            chunk_tokens: match program.pieces {
                Pieces::Several => chunk_tokens.max(1),
                Pieces::One => usize::MAX,
            },
            program,
            operators,
            geometry: Arc::new(geometry),
            runtime,
        })
    }

    /// The decoder's dimensions.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// ONNX Runtime, for the report.
    pub fn runtime(&self) -> &OnnxRuntime {
        &self.runtime
    }

    /// Per operator, in the order in which they run: what it is, the execution provider that it runs on, and whether it was run
    /// before it counted as ready.
    pub fn placements(&self) -> impl Iterator<Item = (&Operator, &'static str, Warmth)> {
        let steps = self.program.steps.iter().zip(&self.kernels);
        steps.flat_map(|(step, kernel)| {
            let operators = step.operators.iter().map(|id| &self.operators[id.index()]);
            operators.map(|operator| (operator, kernel.provider(), kernel.warmth()))
        })
    }

    /// How many sessions the operators have together; some share one.
    pub fn n_sessions(&self) -> usize {
        self.kernels.len()
    }

    /// An empty KV cache for one sequence of at most `capacity` positions.
    ///
    /// # Errors
    /// The capacity is zero or more than the model's context.
    pub fn new_cache(&self, capacity: usize) -> Result<KvCache> {
        KvCache::new(&self.geometry, capacity)
    }

    /// Runs `tokens` after what the cache holds, and returns the logits of the last one, `[vocab]`.
    ///
    /// # Errors
    /// The tokens do not fit into the cache or are not the model's, which is found before any work; or ONNX Runtime fails, and
    /// then the cache holds what the pieces before hold.
    pub fn prefill(&self, cache: &mut KvCache, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(cache, tokens)?;
        let (before, last) = tokens.split_at(tokens.len() - last_piece(tokens.len(), self.chunk_tokens));
        for piece in before.chunks(self.chunk_tokens) {
            self.pass(cache, piece, Wanted::None)?;
        }
        self.pass(cache, last, Wanted::Last)
    }

    /// As [`NpuEngine::prefill`], with the logits of every position, `[tokens, vocab]`.
    ///
    /// # Errors
    /// As [`NpuEngine::prefill`].
    pub fn prefill_all_logits(&self, cache: &mut KvCache, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(cache, tokens)?;
        let mut logits = Vec::new();
        for piece in tokens.chunks(self.chunk_tokens) {
            logits.extend(self.pass(cache, piece, Wanted::All)?);
        }
        Ok(logits)
    }

    /// Runs one token and returns its logits, `[vocab]`.
    ///
    /// # Errors
    /// As [`NpuEngine::prefill`].
    pub fn decode(&self, cache: &mut KvCache, token: u32) -> Result<Vec<f32>> {
        self.check(cache, &[token])?;
        self.pass(cache, &[token], Wanted::Last)
    }

    fn check(&self, cache: &KvCache, tokens: &[u32]) -> Result<()> {
        if !cache.belongs_to(&self.geometry) {
            return Err(NpuError::request("this KV cache was made by another engine"));
        }
        if tokens.is_empty() {
            return Err(NpuError::request("there are no tokens to run"));
        }
        let (len, capacity, context) = (cache.len(), cache.capacity(), self.geometry.context_length);
        if tokens.len() > capacity - len {
            return Err(NpuError::request(format!(
                "{} tokens after {len} do not fit into a KV cache of {capacity} positions; the model allows up to {context}",
                tokens.len()
            )));
        }
        match tokens
            .iter()
            .find(|&&token| token as usize >= self.geometry.vocab)
        {
            Some(token) => Err(NpuError::request(format!(
                "token {token} is not one of the model's {}",
                self.geometry.vocab
            ))),
            None => Ok(()),
        }
    }

    /// One pass of the program over a piece of a sequence.
    fn pass(&self, cache: &mut KvCache, tokens: &[u32], wanted: Wanted) -> Result<Vec<f32>> {
        let mut workspace = self
            .workspace
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = self.run(&mut workspace, cache, tokens, wanted);
        let keep = result.is_ok() && tokens.len() == 1 && wanted != Wanted::None;
        workspace
            .finish(&self.program, keep)
            .map_err(|e| NpuError::runtime("cannot keep values for the next token", e))?;
        let logits = result?;
        cache.grow_by(tokens.len());
        Ok(logits)
    }

    fn run(
        &self,
        workspace: &mut Workspace,
        cache: &mut KvCache,
        tokens: &[u32],
        wanted: Wanted,
    ) -> Result<Vec<f32>> {
        let inputs = Inputs::new(self.program.input_dtype, cache.len(), tokens);
        let values = inputs
            .values()
            .map_err(|e| NpuError::runtime("cannot create the graph's inputs", e))?;
        workspace.set(self.program.input_ids, &values[0]);
        for (slot, value) in [self.program.attention_mask, self.program.position_ids]
            .into_iter()
            .zip(&values[1..])
        {
            if let Some(slot) = slot {
                workspace.set(slot, value);
            }
        }
        self.program
            .kv
            .iter()
            .zip(cache.values())
            .for_each(|(slot, value)| workspace.set(*slot, value));

        let Program { head, steps, .. } = &self.program;
        let reuse = if tokens.len() == 1 {
            Reuse::Bind
        } else {
            Reuse::Free
        };
        let failed = |(step, error): (usize, ort::Error)| {
            NpuError::runtime("cannot be run", error).at_operator(&steps[step].operator(&self.operators).name)
        };
        workspace
            .run(&self.program, &self.kernels, 0..*head, reuse, &self.options)
            .map_err(failed)?;
        if wanted == Wanted::None {
            return Ok(Vec::new());
        }
        let rows = (wanted == Wanted::Last && tokens.len() > 1)
            .then(|| self.last_rows(workspace, tokens.len()))
            .transpose();
        let rows = rows.map_err(|e| NpuError::runtime("cannot take the last position", e))?;
        workspace
            .run(
                &self.program,
                &self.kernels,
                *head..steps.len(),
                reuse,
                &self.options,
            )
            .map_err(failed)?;
        drop(rows);
        self.logits(workspace, wanted)
            .map_err(|e| NpuError::runtime("cannot read the logits", e))
    }

    /// Lets the head see only the last position of those inputs that have one row per token.
    fn last_rows(&self, workspace: &mut Workspace, n_tokens: usize) -> ort::Result<Vec<RawValue<'static>>> {
        let mut rows = Vec::new();
        for &slot in &self.program.steps[self.program.head].inputs {
            let Some((element, shape, data)) = workspace.describe(slot)? else {
                continue;
            };
            if shape.len() == 3 && shape[1] == n_tokens as i64 {
                let n_bytes = byte_len(element, &shape[2..]);
                // SAFETY: the last row of a tensor that stays alive until the pass ends; nobody writes to it.
                let row = unsafe {
                    RawValue::over_raw(
                        data.add(n_bytes * (n_tokens - 1)).cast(),
                        n_bytes,
                        element,
                        &[1, 1, shape[2]],
                    )?
                };
                workspace.set(slot, &row);
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn logits(&self, workspace: &Workspace, wanted: Wanted) -> ort::Result<Vec<f32>> {
        let (element, shape, data) = workspace
            .describe(self.program.logits)?
            .ok_or_else(|| ort::Error::new("there are none"))?;
        // SAFETY: ONNX Runtime reports this type and shape for the tensor, which is alive until the pass ends.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast_const(), byte_len(element, &shape)) };
        let bytes = match wanted {
            // A graph that prunes its head gives one row whatever it is fed; any other gives the rows that it was fed.
            Wanted::Last => {
                &bytes[bytes.len() - byte_len(element, &shape[shape.len().saturating_sub(1)..])..]
            }
            _ => bytes,
        };
        to_f32(bytes, element).ok_or_else(|| ort::Error::new("they are not floats"))
    }
}

/// `None` if they are not floats.
pub(crate) fn to_f32(bytes: &[u8], element: ElementType) -> Option<Vec<f32>> {
    let halves = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    Some(match element {
        ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT => bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 => {
            halves.map(|bits| f16::from_bits(bits).to_f32()).collect()
        }
        ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 => {
            halves.map(|bits| bf16::from_bits(bits).to_f32()).collect()
        }
        _ => return None,
    })
}

/// Tokens in the last piece of a prompt.
fn last_piece(n_tokens: usize, chunk: usize) -> usize {
    match n_tokens % chunk {
        0 => n_tokens.min(chunk),
        rest => rest,
    }
}

/// Memory of the graph's inputs for one pass.
pub(crate) struct Inputs {
    ids: Ids,
    /// Ones for every position so far and of this pass.
    mask: Vec<i64>,
    positions: Vec<i64>,
}

enum Ids {
    Int64(Vec<i64>),
    Int32(Vec<i32>),
}

impl Inputs {
    pub(crate) fn new(dtype: DataType, past: usize, tokens: &[u32]) -> Self {
        let total = past + tokens.len();
        Self {
            ids: match dtype {
                DataType::Int32 => Ids::Int32(tokens.iter().map(|&token| token as i32).collect()),
                _ => Ids::Int64(tokens.iter().map(|&token| token.into()).collect()),
            },
            mask: vec![1; total],
            positions: (past as i64..total as i64).collect(),
        }
    }

    /// Token ids, attention mask, position ids.
    pub(crate) fn values(&self) -> ort::Result<[RawValue<'_>; 3]> {
        let n = self.positions.len() as i64;
        let ids = match &self.ids {
            Ids::Int64(ids) => RawValue::over_slice(ids, &[1, n])?,
            Ids::Int32(ids) => RawValue::over_slice(ids, &[1, n])?,
        };
        let mask = RawValue::over_slice(&self.mask, &[1, self.mask.len() as i64])?;
        Ok([ids, mask, RawValue::over_slice(&self.positions, &[1, n])?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        for (n, chunk, last) in [(1, 4, 1), (4, 4, 4), (5, 4, 1), (8, 4, 4), (3, 4, 3)] {
            assert_eq!(last_piece(n, chunk), last, "{n} tokens by {chunk}");
        }
    }

    #[test]
    fn logits_of_half_types() {
        let half = f16::from_f32(1.5).to_le_bytes();
        assert_eq!(
            to_f32(&half, ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16).unwrap(),
            [1.5]
        );
        let brain = bf16::from_f32(-2.0).to_le_bytes();
        assert_eq!(
            to_f32(&brain, ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16).unwrap(),
            [-2.0]
        );
        assert_eq!(
            to_f32(&[1], ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8),
            None
        );
    }
}
