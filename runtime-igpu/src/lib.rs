//! Decode engine: the operators of a decoder as lanes on wgpu compute.
