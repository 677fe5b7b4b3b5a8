//! Reads and writes onnxruntime-genai model folders as plain data: graph, attributes, memory-mapped tensors, operators.

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
mod mapping;
mod operators;
mod order;
mod parse;
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
pub use mapping::Mapping;
pub use operators::{Operator, OperatorId, OperatorKind};
pub use summary::{KindSummary, NodeTypeSummary, OperatorSummary, QuantizationSummary, Summary, TypeSummary};
pub use tensor::{Element, Tensor, TensorBytes};
