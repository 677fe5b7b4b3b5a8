// Matrix-vector product for adapters of CPU type: a narrow workgroup, as wide as a vector register, owns ROWS rows.
//
// An invocation takes VALUES values at a time, one 16-byte load of weights, and keeps the inputs for them in registers
// across all ROWS rows: on such adapters a load costs as much as several multiplications, whatever its width.
//
// Needs: BLOCK a multiple of VALUES, k a multiple of BLOCK, x_offset a multiple of 4.

//!include floats
//!include matvec_bindings
//!include quantized
//!include reduce

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weights: array<vec4<u32>>;

// Values in one 16-byte load, and the vectors of four inputs that go with them.
const VALUES: u32 = 4u * VALUES_PER_WORD;
const VECTORS: u32 = VALUES / 4u;

// Four neighbouring values of a word. Signed, since converting unsigned integers is slow on most CPUs.
fn four(word: u32, shift: u32) -> vec4<f32> {
    let shifts = vec4<u32>(shift, shift + BITS, shift + 2u * BITS, shift + 3u * BITS);
    return vec4<f32>(vec4<i32>((vec4<u32>(word) >> shifts) & vec4<u32>(VALUE_MASK)));
}

@compute @workgroup_size(WORKGROUP)
fn main(at: Invocation) {
    let first = (at.group.y * params.groups_x + at.group.x) * ROWS;
    let loads = params.blocks * (BLOCK / VALUES);
    var sums: array<f32, ROWS>;
    for (var load = at.lane; load < loads && first < params.rows; load += WORKGROUP) {
        var xs: array<vec4<f32>, VECTORS>;
        var x_sum = vec4<f32>();
        for (var i = 0u; i < VECTORS; i++) {
            xs[i] = x[params.x_offset / 4u + load * VECTORS + i];
            x_sum += xs[i];
        }
        let x_total = dot(x_sum, vec4<f32>(1.0));
        let block = load / (BLOCK / VALUES);
        for (var r = 0u; r < ROWS; r++) {
            let row = min(first + r, params.rows - 1u);
            let words = weights[row * loads + load];
            var products = vec4<f32>();
            for (var i = 0u; i < VECTORS; i++) {
                let first_value = i * 4u;
                products += four(words[first_value / VALUES_PER_WORD], (first_value % VALUES_PER_WORD) * BITS) * xs[i];
            }
            let total = dot(products, vec4<f32>(1.0)) - zero_at(row, block, params.blocks) * x_total;
            sums[r] += scale_at(row, block, params.blocks) * total;
        }
    }
    for (var r = 0u; r < ROWS; r++) {
        let total = workgroup_sum(sums[r], at);
        if (at.lane == 0u && first + r < params.rows) {
            y[params.y_offset + first + r] = total;
        }
    }
}
