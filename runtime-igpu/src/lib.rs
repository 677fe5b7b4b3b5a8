//! Decode engine: the operators of a decoder as lanes on wgpu compute.
//!
//! Takes an onnxruntime-genai model folder, compiles its graph into dispatches of a few WGSL kernels, sets them up as
//! nodes of an init graph, and then decodes token by token: one token, one submission. It runs on any Vulkan, Metal or
//! DX12 adapter, on Mesa's lavapipe too.
//!
//! It does not read prompts fast: prefill belongs to another engine, whose KV cache is
//! [imported](IgpuEngine::import_kv). It samples nothing but the greedy token. It neither prints nor reads the
//! environment.
//!
//! ```no_run
//! use onnx_model::ModelFolder;
//! use runtime_igpu::{IgpuOptions, IgpuPlan};
//! use scheduler::InitMode;
//!
//! let folder = ModelFolder::open("model")?;
//! let plan = IgpuPlan::new(&folder, IgpuOptions::default())?;
//! let mut engine = plan.load(InitMode::Overlapped)?;
//! let mut token = 1;
//! for _ in 0..16 {
//!     token = engine.decode_greedy(token)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! As part of a larger init graph, with host reads shared with another engine and a barrier of its own:
//!
//! ```no_run
//! # use onnx_model::ModelFolder;
//! # use runtime_igpu::{IgpuOptions, IgpuPlan};
//! # use scheduler::{InitGraph, InitMode};
//! # let plan = IgpuPlan::new(&ModelFolder::open("model")?, IgpuOptions::default())?;
//! let mut graph = InitGraph::new();
//! let nodes = plan.add_to(&mut graph); // or plan.add_sharing(&mut graph, |id| other_engines_host_node(id))
//! let decode = graph.barrier("decode", nodes.barrier_nodes().to_vec());
//! let run = graph.start(InitMode::Overlapped)?;
//! let mut ready = run.barrier(decode).wait()?;
//! let engine = nodes.finish(&mut ready)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Terms
//!
//! - *plan*: the model compiled for an adapter; no device is open and no weight was touched.
//! - *step*: one dispatch of one kernel over fixed bindings. An operator is one or more steps.
//! - *kernel*: a WGSL file with constants. All operators whose constants are equal share one.
//! - *slot*: device memory for an intermediate value, reused when nobody reads the value any more.
//!
//! # How a model becomes steps
//!
//! Each node of each operator is compiled by its type ([`IgpuPlan::new`]). Reshape, Split and Cast are views and cost
//! nothing. An activation is put off until somebody asks for it, so that `x * sigmoid(x) * up` and `gelu(gate) * up`
//! become one dispatch. The arithmetic on the attention mask is recognised and stands for the engine's own position.
//! A node, attribute or type without a kernel is refused at plan time, by operator and node.
//!
//! All arithmetic is float32. Weights, scales and zero points stay on the device as the model has them: 4 or 8 bits in
//! blocks of 16 to 1024, packed or float zero points, float32, float16 or bfloat16 scales. Small float constants
//! become float32. Float matrices are read as they are.
//!
//! # Where weights are
//!
//! [`UploadPath`] says how they reach the device. An adapter of CPU type reads them where the model file is mapped: nothing is
//! copied, and what the kernels read is the page cache itself. Others have them copied into memory of their own.
//!
//! # Two shapes of kernels
//!
//! A GPU wants neighbouring invocations on neighbouring words; an adapter of CPU type wants few, wide loads whose lines
//! are in the cache already. [`MatvecShape`] says which; the adapter's type decides unless the caller does. Both give
//! right results for every subgroup size.
//!
//! # What goes wrong
//!
//! Every failure is an [`IgpuError`]: no adapter, a missing feature, a limit, an unsupported model, no memory, a broken
//! kernel, a lost device, a stalled one. It names operator and node where one is at fault. After a loss the engine is
//! of no use any more, but the process is, and a new load works. Memory is budgeted before it is taken.
//!
//! # Environment
//!
//! The drivers read variables that this crate does not: `NODEVICE_SELECT=1` silences a layer of Mesa,
//! `LP_NUM_THREADS=0` lets lavapipe run on one thread, which makes small dispatches cheaper and frees the other cores, but
//! halves the speed of large ones on two.
//! Mesa 22.3.6 stops loops after 65,535 iterations per invocation without a word; no kernel here comes near.

mod adapter;
mod context;
mod device;
mod engine;
mod error;
mod in_place;
mod kernel;
#[cfg(test)]
mod kernel_tests;
mod kv;
mod measure;
mod memory;
mod nodes;
mod operator;
mod ops;
mod options;
mod plan;
mod program;
mod shader;
#[cfg(test)]
mod testing;
mod upload;
#[cfg_attr(not(target_os = "linux"), path = "no_vulkan.rs")]
mod vulkan;

pub use adapter::IgpuAdapter;
pub use context::SetupTimes;
pub use engine::IgpuEngine;
pub use error::{IgpuError, Result};
pub use kv::KvSlices;
pub use measure::{Probe, Timed};
pub use nodes::IgpuNodes;
pub use options::{AdapterChoice, IgpuOptions, MatvecShape, UploadPath};
pub use plan::IgpuPlan;
