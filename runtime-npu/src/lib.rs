//! Prefill engine: the operators of a decoder as lanes on ONNX Runtime execution providers.
