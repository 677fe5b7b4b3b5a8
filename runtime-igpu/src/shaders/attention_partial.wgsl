// Attention of one query over one stretch of the cache: a workgroup per query head and stretch of STRETCH positions.
//
// The softmax is left open: each stretch gives its largest score, its sum of exponentials and its weighted values;
// attention_combine.wgsl puts the stretches together. So an invocation's work does not grow with the context.
//
//   query [heads, HEAD_DIM]    keys, values [kv_heads, capacity, HEAD_DIM]
//   partials [heads, max_stretches, HEAD_DIM + 4]: weighted values, largest score, sum of exponentials, padding
//
// All in vectors of four floats. With TOUCH, each cache line of the stretch is loaded in order first, as matvec_blocks.wgsl
// does and for the same reason: on CPU adapters that saves a quarter of the time. window 0: all positions up to the new one are seen; else only the last `window`.

//!include state

struct Params {
    group_size: u32,
    max_stretches: u32,
    window: u32,
    scale: f32,
    softcap: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> state: State;
@group(0) @binding(2) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> partials: array<vec4<f32>>;

//!include reduce

const VECTORS: u32 = HEAD_DIM / 4u;

var<workgroup> weights: array<f32, STRETCH>;

// Vectors of four floats in a cache line.
const LINE_VECTORS: u32 = 4u;

// Loads a float of each cache line of a stretch's keys and values; the result has to be used, or the loads go.
fn touch(first: u32, end: u32, lane: u32) -> f32 {
    var touched = 0.0;
    for (var i = first + lane * LINE_VECTORS; i < end; i += WORKGROUP * LINE_VECTORS) {
        touched = max(touched, max(keys[i].x, values[i].x));
    }
    return touched;
}

@compute @workgroup_size(WORKGROUP)
fn main(at: Invocation) {
    let head = at.group.x;
    let stretch = at.group.y;
    let length = state.position + 1u;
    var begin = 0u;
    if (params.window != 0u && length > params.window) {
        begin = length - params.window;
    }
    let start = begin + stretch * STRETCH;
    let n = min(STRETCH, max(length, start) - start);
    let cache = ((head / params.group_size) * state.capacity + start) * VECTORS;

    var touched = 0.0;
    if (TOUCH == 1u) {
        touched = touch(cache, cache + n * VECTORS, at.lane);
    }
    var q: array<vec4<f32>, VECTORS>;
    for (var d = 0u; d < VECTORS; d++) {
        q[d] = query[head * VECTORS + d];
    }
    var largest = -3.4e38;
    for (var i = at.lane; i < n; i += WORKGROUP) {
        var products = vec4<f32>();
        for (var d = 0u; d < VECTORS; d++) {
            products += q[d] * keys[cache + i * VECTORS + d];
        }
        var score = dot(products, vec4<f32>(1.0)) * params.scale;
        if (params.softcap > 0.0) {
            score = params.softcap * tanh(clamp(score / params.softcap, -15.0, 15.0));
        }
        weights[i] = score;
        largest = max(largest, score);
    }
    largest = workgroup_max(largest, at);
    var sum = 0.0;
    for (var i = at.lane; i < n; i += WORKGROUP) {
        let weight = exp(weights[i] - largest);
        weights[i] = weight;
        sum += weight;
    }
    // The barriers inside also publish the weights.
    sum = workgroup_sum(sum, at);

    let out = (head * params.max_stretches + stretch) * (VECTORS + 1u);
    for (var d = at.lane; d < VECTORS; d += WORKGROUP) {
        var value = vec4<f32>();
        for (var i = 0u; i < n; i++) {
            value += weights[i] * values[cache + i * VECTORS + d];
        }
        partials[out + d] = value;
    }
    // Never so, which no compiler can know: there is room for one stretch at least.
    if (params.max_stretches == 0u && touched == 1.0) {
        partials[0] = vec4<f32>();
    }
    if (at.lane == 0u) {
        partials[out + VECTORS] = vec4<f32>(largest, sum, 0.0, 0.0);
    }
}
