// SkipSimplifiedLayerNormalization: sum = x + skip; y = sum / sqrt(mean(sum^2) + epsilon) * weight.
//
//   x, skip [size] from their offsets    weight [size]    y, sum [size] from 0

struct Params {
    size: u32,
    epsilon: f32,
    x_offset: u32,
    skip_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> skip: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> sum: array<f32>;

//!include reduce

@compute @workgroup_size(WORKGROUP)
fn main(at: Invocation) {
    var squares = 0.0;
    for (var i = at.lane; i < params.size; i += WORKGROUP) {
        let value = x[params.x_offset + i] + skip[params.skip_offset + i];
        sum[i] = value;
        squares += value * value;
    }
    let mean = workgroup_sum(squares, at) / f32(params.size);
    let inverse = inverseSqrt(mean + params.epsilon);
    // Each invocation reads back only what it wrote itself.
    for (var i = at.lane; i < params.size; i += WORKGROUP) {
        y[i] = sum[i] * inverse * weight[i];
    }
}
