//! Reads and writes onnxruntime-genai model folders as plain data: graph, attributes, memory-mapped tensors, operators.
//!
//! It is a reader of decoder graphs and a writer of small ones. It is not a runtime: nothing here computes, loads a
//! native library or starts a thread.
//!
//! ```
//! use onnx_model::{ModelFolder, OperatorKind};
//!
//! let folder = ModelFolder::open("../tests/fixtures/models/qwen3-tiny-int4")?;
//! assert_eq!(folder.geometry().layers, 4);
//! for operator in folder.operators()? {
//!     if operator.kind == OperatorKind::Mlp {
//!         let data = folder.read(operator)?; // shares the mapped weights, touches none
//!         println!("{}: {} bytes in {} tensors", operator.name, operator.weight_bytes, data.tensors().len());
//!     }
//! }
//! # Ok::<(), onnx_model::Error>(())
//! ```
//!
//! # Terms
//!
//! - A *folder* holds `genai_config.json`, a graph file (`model.onnx`), weights (`model.onnx.data`) and a tokenizer.
//! - An *initializer* is a constant tensor of the graph; a *value* is whatever has a name in it.
//! - An [`Operator`] is a group of nodes that is set up and run as one: a norm, a projection, an attention, an MLP.
//!   [`ModelFolder::operators`] says how the graph is taken apart.
//! - [`OperatorData`] is an operator as owned data: nodes, constants, types. It is what a host lane hands to a device lane.
//! - A [sub-model](write::submodel) is one operator written as an ONNX model of its own.
//!
//! # Guarantees
//!
//! - *Lazy*: opening reads configuration and graph only. No weight page is touched before [`OperatorData::prefault`]
//!   or the first use of a tensor's bytes; no weight is copied, unless it lies unaligned or was asked to be.
//! - *Checked*: whatever bytes a folder holds, opening and reading it gives a result or an [`Error`] that names file,
//!   node and tensor; never a panic, never a hang. Offsets, lengths and shapes are checked before anything is
//!   allocated for them. Memory is at most 16 MiB and 64 bytes per byte of graph.
//! - *Contained*: paths in a model cannot leave its folder, neither by their text nor through links ([`LinkPolicy`]).
//! - *Ordered*: every value has one producer, nodes come in topological order, every input exists.
//! - *Partitioned*: every node but `Constant` ones is in exactly one operator, and no operators need each other's results.
//! - *Shrinking files*: see [`Mapping`]. Not guaranteed: that bytes overwritten in place are noticed.
//!
//! # Formats
//!
//! - ONNX, [`onnx.proto`](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) and its
//!   [external data](https://onnx.ai/onnx/repo-docs/ExternalData.html): the messages in [`proto`].
//! - Contrib operators and their weight layouts:
//!   [ONNX Runtime's documentation](https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md).
//! - `genai_config.json`: [its reference](https://onnxruntime.ai/docs/genai/reference/config.html).
//!
//! Operator sets: ai.onnx 7 to 28 and com.microsoft 1. Not read: model-local functions, sparse tensors, constant
//! strings, external data inside attributes, sequences and maps; each is refused with an error that says so.
//!
//! No features. MSRV: 1.92.

pub mod proto;

mod check;
mod config;
mod data;
mod dtype;
mod error;
mod folder;
mod geometry;
pub mod gguf;
mod graph;
mod lease;
mod mapping;
mod operators;
mod order;
mod parse;
mod prefault;
mod shrink_guard;
mod summary;
pub mod synth;
mod tensor;
mod types;
mod wire;
pub mod write;

pub use config::{
    DecoderConfig, GenaiConfig, InputNames, ModelConfig, OutputNames, SearchConfig, SlidingWindow, TokenIds,
    layer_name,
};
pub use data::OperatorData;
pub use dtype::DataType;
pub use error::{Error, Result};
pub use folder::{FolderOptions, LinkPolicy, ModelFolder, WeightAccess};
pub use geometry::Geometry;
pub use graph::{
    Attribute, AttributeValue, Dimension, ExternalRange, Graph, Initializer, InitializerData, Node, NodeId,
    OpsetImport, ValueInfo,
};
pub use lease::Lease;
pub use mapping::Mapping;
pub use operators::{Operator, OperatorId, OperatorKind};
pub use summary::{KindSummary, NodeTypeSummary, OperatorSummary, QuantizationSummary, Summary, TypeSummary};
pub use tensor::{Element, Tensor, TensorBytes};
