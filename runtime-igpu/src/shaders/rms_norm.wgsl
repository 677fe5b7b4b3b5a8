// SimplifiedLayerNormalization: y = x / sqrt(mean(x^2) + epsilon) * weight, over `size` values, a workgroup per row.
//
//   x [rows, size] from x_offset    weight [size]    y [rows, size] from y_offset

struct Params {
    size: u32,
    epsilon: f32,
    x_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

//!include reduce

@compute @workgroup_size(WORKGROUP)
fn main(at: Invocation) {
    let row = at.group.x * params.size;
    var squares = 0.0;
    for (var i = at.lane; i < params.size; i += WORKGROUP) {
        let value = x[params.x_offset + row + i];
        squares += value * value;
    }
    let mean = workgroup_sum(squares, at) / f32(params.size);
    let inverse = inverseSqrt(mean + params.epsilon);
    for (var i = at.lane; i < params.size; i += WORKGROUP) {
        y[params.y_offset + row + i] = x[params.x_offset + row + i] * inverse * weight[i];
    }
}
