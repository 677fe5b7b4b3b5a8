// Embedding lookup in a block-quantized table (GatherBlockQuantized): y = dequantize(table[token]).
//
//   weights, scales, zeros  as in quantized.wgsl, holding the rows from first_row on    y [size]

//!include floats
//!include state

struct Params {
    size: u32,
    blocks: u32,
    first_row: u32,
    rows: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> state: State;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
@group(0) @binding(4) var<storage, read> zeros: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

//!include quantized

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i >= params.size || state.token < params.first_row || state.token - params.first_row >= params.rows) {
        return;
    }
    let row = state.token - params.first_row;
    let block = i / BLOCK;
    let word = weights[row * params.blocks * WORDS_PER_BLOCK + i / VALUES_PER_WORD];
    let value = f32((word >> ((i % VALUES_PER_WORD) * BITS)) & VALUE_MASK);
    y[i] = (value - zero_at(row, block, params.blocks)) * scale_at(row, block, params.blocks);
}
