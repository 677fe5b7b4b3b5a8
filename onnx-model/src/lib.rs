//! Reads and writes onnxruntime-genai model folders as plain data: graph, attributes, memory-mapped tensors, operators.
