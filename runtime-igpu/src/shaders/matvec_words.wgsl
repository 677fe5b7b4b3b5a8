// Matrix-vector product for GPUs, and for every block size: a workgroup shares ROWS rows.
//
// An invocation takes one 32-bit word of weights at a time, so that neighbours read neighbouring words and reads
// coalesce; each input value is read once for all ROWS rows.

//!include floats
//!include matvec_bindings
//!include quantized
//!include reduce

@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;

// The input at k; past the end of a ragged last block it is zero.
fn x_at(k: u32) -> f32 {
    if (RAGGED == 1u) {
        return select(0.0, x[params.x_offset + min(k, params.k - 1u)], k < params.k);
    }
    return x[params.x_offset + k];
}

@compute @workgroup_size(WORKGROUP)
fn main(at: Invocation) {
    let first = (at.group.y * params.groups_x + at.group.x) * ROWS;
    let row_words = params.blocks * WORDS_PER_BLOCK;
    var sums: array<f32, ROWS>;
    for (var word = at.lane; word < row_words && first < params.rows; word += WORKGROUP) {
        let block = word / WORDS_PER_BLOCK;
        var xs: array<f32, VALUES_PER_WORD>;
        for (var i = 0u; i < VALUES_PER_WORD; i++) {
            xs[i] = x_at(word * VALUES_PER_WORD + i);
        }
        for (var r = 0u; r < ROWS; r++) {
            let row = min(first + r, params.rows - 1u);
            let bits = weights[row * row_words + word];
            let zero = zero_at(row, block, params.blocks);
            var total = 0.0;
            for (var i = 0u; i < VALUES_PER_WORD; i++) {
                total += (f32(i32((bits >> (i * BITS)) & VALUE_MASK)) - zero) * xs[i];
            }
            sums[r] += total * scale_at(row, block, params.blocks);
        }
    }
    for (var r = 0u; r < ROWS; r++) {
        let total = workgroup_sum(sums[r], at);
        if (at.lane == 0u && first + r < params.rows) {
            y[params.y_offset + first + r] = total;
        }
    }
}
