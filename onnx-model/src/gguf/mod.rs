//! GGUF, the file format of llama.cpp: a checked reader, and conversion to an onnxruntime-genai folder.

mod convert;
mod exact;
mod file;
mod source;
mod tensor_type;
mod tokenizer;
mod value;

pub use convert::{ConvertMode, convert};
pub use file::{GgufFile, TensorInfo};
pub use tensor_type::TensorType;
pub use value::Value;
