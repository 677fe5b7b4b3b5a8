// Matrix-vector product for adapters of CPU type: a narrow workgroup, as wide as a vector register, owns ROWS rows.
//
// An invocation takes VALUES values at a time, one 16-byte load of weights, and keeps the inputs for them in registers
// across all ROWS rows: on such adapters a load costs as much as several multiplications, whatever its width.
//
// Its loads come too far apart for the core to have several on their way to memory at once. So the rows, which lie
// together, are touched first, one load per cache line, line after line as prefetchers like it; the product then finds
// them in the cache. On lavapipe that halves the time.
//
// Needs: BLOCK a multiple of VALUES, k a multiple of BLOCK, x_offset a multiple of 4.

//!include floats
//!include matvec_bindings
//!include quantized

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

// 16-byte vectors and words in a cache line.
const LINE_VECTORS: u32 = 4u;
const LINE_WORDS: u32 = 16u;

// Each row's partial sums, one per invocation. Few enough for plain sums, which need one barrier in all.
var<workgroup> partials: array<f32, ROWS * WORKGROUP>;

// Loads a word of each cache line of rows `first` to `end`; the result has to be used, or the loads go.
fn touch(first: u32, end: u32, loads: u32, lane: u32) -> u32 {
    var touched = 0u;
    for (var i = first * loads + lane * LINE_VECTORS; i < end * loads; i += WORKGROUP * LINE_VECTORS) {
        touched ^= weights[i].x;
    }
    let scale_word = select(params.blocks, params.blocks / 2u, SCALE_TYPE != FLOAT32);
    for (var i = first * scale_word + lane * LINE_WORDS; i < end * scale_word; i += WORKGROUP * LINE_WORDS) {
        touched ^= scales[i];
    }
    return touched;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = (group.y * params.groups_x + group.x) * ROWS;
    let loads = params.blocks * (BLOCK / VALUES);
    let touched = touch(first, min(first + ROWS, params.rows), loads, lane);
    var sums: array<f32, ROWS>;
    for (var load = lane; load < loads && first < params.rows; load += WORKGROUP) {
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
        partials[r * WORKGROUP + lane] = sums[r];
    }
    workgroupBarrier();
    for (var row = first + lane; row < min(first + ROWS, params.rows); row += WORKGROUP) {
        var total = 0.0;
        for (var i = 0u; i < WORKGROUP; i++) {
            total += partials[(row - first) * WORKGROUP + i];
        }
        y[params.y_offset + row] = total;
    }
    // Never so, which no compiler can know: there is no workgroup without rows.
    if (params.rows == 0u && touched == 1u) {
        y[0] = 0.0;
    }
}
