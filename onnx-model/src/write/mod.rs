//! Writing ONNX: single operators as models of their own, and whole decoder folders.

mod submodel;

pub use submodel::{AttributeOverride, Submodel, SubmodelOptions, WeightPlacement, submodel};
