// y = a op b, element by element; an operand of one value, or shorter than the result, repeats.
//
//   a [a_size] from a_offset    b [b_size] from b_offset    y [size]

struct Params {
    size: u32,
    a_offset: u32,
    a_size: u32,
    b_offset: u32,
    b_size: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

const ADD: u32 = 0u;
const SUB: u32 = 1u;
const MUL: u32 = 2u;
const DIV: u32 = 3u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.size) {
        return;
    }
    let left = a[params.a_offset + id.x % params.a_size];
    let right = b[params.b_offset + id.x % params.b_size];
    if (OPERATION == ADD) {
        y[id.x] = left + right;
    } else if (OPERATION == SUB) {
        y[id.x] = left - right;
    } else if (OPERATION == MUL) {
        y[id.x] = left * right;
    } else {
        y[id.x] = left / right;
    }
}
