// The gate of an MLP in one pass: y = activation(gate) * up.
//
//   gate [size] from gate_offset    up [size] from up_offset    y [size]

//!include activations

struct Params {
    size: u32,
    gate_offset: u32,
    up_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.size) {
        y[id.x] = activate(gate[params.gate_offset + id.x]) * up[params.up_offset + id.x];
    }
}
