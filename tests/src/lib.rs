//! Cross-crate tests: parity with stock ONNX Runtime, faults, embedding.
