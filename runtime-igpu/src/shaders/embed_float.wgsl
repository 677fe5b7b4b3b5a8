// Embedding lookup in a float table: y = table[token], where the part of the table bound here holds that row.
//
//   table [rows, size] of TABLE_TYPE, holding the rows from first_row on    y [size]

//!include floats
//!include state

struct Params {
    size: u32,
    first_row: u32,
    rows: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> state: State;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i >= params.size || state.token < params.first_row || state.token - params.first_row >= params.rows) {
        return;
    }
    let index = (state.token - params.first_row) * params.size + i;
    if (TABLE_TYPE == FLOAT32) {
        y[i] = decode_float(table[index], TABLE_TYPE, 0u);
    } else {
        y[i] = decode_float(table[index / 2u], TABLE_TYPE, index % 2u);
    }
}
