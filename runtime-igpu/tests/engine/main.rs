//! The decode engine on the machine's own adapter, against stock ONNX Runtime's outputs for the shared folders.

mod common;
mod init;
mod kinds;
mod kv_cache;
mod parity;
mod splits;
mod uploads;
