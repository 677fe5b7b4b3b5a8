// What the two matrix-vector kernels share: y[row] = sum over k of weight[row, k] * x[k].
//
//   x  [k] float32, from x_offset       y  [rows] float32, from y_offset

struct Params {
    rows: u32,
    k: u32,
    blocks: u32,
    x_offset: u32,
    y_offset: u32,
    // Workgroups lie in a grid of this width, since one dimension holds only 65535.
    groups_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
@group(0) @binding(4) var<storage, read> zeros: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
