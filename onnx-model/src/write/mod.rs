//! Writing ONNX: single operators as models of their own, and whole decoder folders.

mod config;
mod data_file;
mod decoder;
mod graph;
mod interface;
mod layer;
mod matrix;
mod spec;
mod staged;
mod submodel;

pub(crate) use config::pretty;
pub use decoder::{WriteProgress, write_decoder};
pub use matrix::{Quantization, QuantizedMatrix, Quantizer, Scheme, ZeroPoints};
pub use spec::{DecoderSpec, Linear, Llama3Scaling, Norm, Rope, WeightSource};
pub use staged::StagedFolder;
pub use submodel::{AttributeOverride, Submodel, SubmodelOptions, WeightPlacement, submodel};
