//! Stock ONNX Runtime with the heavy nodes of a decoder as custom operators written in Rust.
//!
//! ONNX Runtime calls the constructor of each custom operator while it creates a session, one after the other, on one
//! thread. The constructors here do in two halves what the inline path does in one go: they read attributes and
//! constants on the spot (that thread is the host lane), and hand the rest to an [`Intake`](scheduler::Intake). Before
//! the first run the program waits for the intake's barrier; the operators compute the same either way.

mod matmul;
mod model;
mod operator;

pub use matmul::{MatMulNBits, MatMulNBitsKernel, MatMulNBitsWeights};
pub use model::{DOMAIN, Embedded, Stock};
