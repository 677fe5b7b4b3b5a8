//! Prefill engine: the operators of a decoder as lanes on ONNX Runtime execution providers.
//!
//! An [`NpuPlan`] checks a model folder and puts every operator of it into an init graph: read on the host lane, set up on the
//! lane of its type. What comes out of the graph is an [`NpuEngine`], which runs prompts and, where no other engine does, decodes.
//! An operator's kernel is a small ONNX Runtime session over the operator's own nodes, on the best execution provider that is
//! there; its weights are used where the model file is mapped, and copied only by the provider that packs them. On the CPU
//! the operators of an attention block share a session, and a norm runs in that of the product that reads it.
//!
//! It is not a wrapper of ONNX Runtime: it has no API for other models than onnxruntime-genai decoder folders, does not sample,
//! and knows no text.
//!
//! ```no_run
//! use onnx_model::ModelFolder;
//! use runtime_npu::{LibrarySearch, NpuOptions, NpuPlan};
//! use scheduler::{InitGraph, InitMode};
//!
//! let folder = ModelFolder::open("model")?;
//! let library = LibrarySearch::from_environment(|name| std::env::var_os(name));
//!
//! let mut graph = InitGraph::new();
//! let setup = NpuPlan::new(&folder, NpuOptions::new(library))?.add_to(&mut graph);
//! let run = graph.start(InitMode::Overlapped)?;
//! let engine = setup.finish(&mut run.ready().wait()?)?;
//!
//! let mut cache = engine.new_cache(64)?;
//! let logits = engine.prefill(&mut cache, &[1, 2, 3])?;
//! # let _ = logits;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! - *operator type*: [`NpuOperatorType`], one for each [`OperatorKind`](onnx_model::OperatorKind); each is a lane, the heavy ones
//!   striped over several threads;
//! - *kernel*: [`Kernel`], what device setup makes of an operator;
//! - *piece*: the part of a prompt that is run at once ([`NpuOptions::chunk_tokens`]).
//!
//! # What is guaranteed
//!
//! - Every init mode gives the same kernels, bit for bit.
//! - A kernel has been run once before its node is finished, so the first request pays for nothing. [`NpuEngine::placements`] says
//!   so, and where each operator runs.
//! - A provider that was asked for by name runs the operators that it takes, or setup fails; nothing falls back silently.
//! - A request that does not fit is refused before any work. A pass that fails leaves the cache at the length that it had.
//! - Dropping the engine frees every session and its weights. The ONNX Runtime library stays loaded until the process ends.
//!
//! Not guaranteed: that several sequences run at the same time (they take turns, piece by piece), and equality with stock ONNX
//! Runtime to the last bit at accuracy level 4 or for float16 models, where stock fuses what is apart here.
//!
//! # An operator type of one's own
//!
//! The operator types here are thin: `read` takes the operator's data from the folder, `setup` creates a session. See
//! [`scheduler::OperatorType`] for the trait, and `scheduler::testing` for testing another one.
//!
//! The minimum supported Rust version is that of the workspace, 1.92. The ONNX Runtime library is found at run time
//! ([`LibrarySearch`]); version [`MIN_VERSION`] or newer.

mod options;
mod plan;

mod operator_type;

mod dequantize;
mod draft;
mod form;
mod joint;
mod kernel;
mod lane;
mod names;
mod pieces;
mod provider;
mod quick_gelu;
mod shapes;

mod engine;
mod kv;
mod program;
mod workspace;

#[cfg(target_os = "linux")]
mod allocator;
mod library;
mod runtime;
mod session;
mod value;

mod error;
mod whole_model;

pub use engine::NpuEngine;
pub use error::{NpuError, Result};
pub use kernel::{Kernel, Warmth};
pub use kv::KvCache;
pub use lane::{NpuLane, OperatorSource};
pub use library::{LibrarySearch, MIN_VERSION};
pub use operator_type::NpuOperatorType;
pub use options::{AccuracyLevel, NpuOptions, Prefault, Provider, ProviderPlugin};
pub use plan::{NpuPlan, NpuSetup};
pub use provider::ResolvedProvider;
pub use runtime::OnnxRuntime;
pub use whole_model::{StockThreads, WholeModelSession};
