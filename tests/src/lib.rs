//! Cross-crate tests: parity with stock ONNX Runtime, faults, embedding. This library holds what they share.

mod fixtures;
pub mod npu;
mod process;
mod stock;

pub use fixtures::{FIXTURES, fixture, library, onnx_runtime, vulkan};
pub use process::{Ran, alone, binary, generate, in_company, run, threads_left};
pub use stock::{Choice, Stock, check_tokens};
