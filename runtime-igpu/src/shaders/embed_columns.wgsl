// Embedding lookup in the transpose of a float table, as tied weights have it: y[i] = table[i, token].
//
//   table [rows, columns] of TABLE_TYPE, holding the rows from first_row on    y [size]

//!include floats
//!include state

struct Params {
    columns: u32,
    first_row: u32,
    rows: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> state: State;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.rows || state.token >= params.columns) {
        return;
    }
    let index = id.x * params.columns + state.token;
    if (TABLE_TYPE == FLOAT32) {
        y[params.first_row + id.x] = decode_float(table[index], TABLE_TYPE, 0u);
    } else {
        y[params.first_row + id.x] = decode_float(table[index / 2u], TABLE_TYPE, index % 2u);
    }
}
