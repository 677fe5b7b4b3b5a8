// Matrix-vector product with float weights, as MatMul has them: y[n] = sum over k of x[k] * weight[k, n].
//
//   weights [rows, columns] of WEIGHT_TYPE, holding the rows from first_row on
//   x [k] from x_offset    y [columns]
//
// An invocation per column, so that neighbours read neighbouring weights. Where the weights are split over several
// bindings, the parts after the first add to what is there.

//!include floats

struct Params {
    columns: u32,
    first_row: u32,
    rows: u32,
    x_offset: u32,
    groups_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let column = (group.y * params.groups_x + group.x) * WORKGROUP + lane;
    if (column >= params.columns) {
        return;
    }
    var sum = 0.0;
    if (params.first_row > 0u) {
        sum = y[column];
    }
    for (var row = 0u; row < params.rows; row++) {
        let index = row * params.columns + column;
        var weight = 0.0;
        if (WEIGHT_TYPE == FLOAT32) {
            weight = decode_float(weights[index], WEIGHT_TYPE, 0u);
        } else {
            weight = decode_float(weights[index / 2u], WEIGHT_TYPE, index % 2u);
        }
        sum += x[params.x_offset + params.first_row + row] * weight;
    }
    y[column] = sum;
}
