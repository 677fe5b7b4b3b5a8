//! The prefill engine gives what a whole-model stock ONNX Runtime session gives.

mod greedy;
mod init_modes;
mod kinds;
mod logits;
mod providers;
mod requests;
