//! Decode engine: the operators of a decoder as lanes on wgpu compute.

mod adapter;
mod context;
mod device;
mod engine;
mod error;
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

pub use adapter::IgpuAdapter;
pub use context::SetupTimes;
pub use engine::IgpuEngine;
pub use error::{IgpuError, Result};
pub use kv::KvSlices;
pub use measure::{Probe, Timed};
pub use nodes::IgpuNodes;
pub use options::{AdapterChoice, IgpuOptions, MatvecShape, UploadPath};
pub use plan::IgpuPlan;
