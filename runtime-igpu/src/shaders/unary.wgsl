// y = f(x), element by element.
//
//   x [size] from x_offset    y [size]

//!include activations

struct Params {
    size: u32,
    x_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < params.size) {
        y[id.x] = activate(x[params.x_offset + id.x]);
    }
}
