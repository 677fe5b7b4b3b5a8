//! The runtime over both engines against stock ONNX Runtime on the same folders, and its promises to requests.

mod command;
mod parity;
mod requests;
mod staging;
