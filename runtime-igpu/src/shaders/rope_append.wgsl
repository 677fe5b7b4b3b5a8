// Before attention: rotates the new token's query and key, and appends key and value to the cache.
//
//   q [heads, HEAD_DIM] from q_offset    k, v [kv_heads, HEAD_DIM] from k_offset, v_offset
//   cosines, sines [positions, ROTARY / 2]
//   query [heads, HEAD_DIM]: the rotated query
//   keys, values [kv_heads, capacity, HEAD_DIM]: row `position` is written
//
// q, k and v may lie in one packed buffer. ROTARY 0 means that nothing is rotated. With INTERLEAVED the rotated pairs
// are neighbours, else a pair lies ROTARY / 2 apart. Values past ROTARY pass through. An invocation per value.

//!include state

struct Params {
    heads: u32,
    kv_heads: u32,
    q_offset: u32,
    k_offset: u32,
    v_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> state: State;
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> k: array<f32>;
@group(0) @binding(4) var<storage, read> v: array<f32>;
@group(0) @binding(5) var<storage, read> cosines: array<f32>;
@group(0) @binding(6) var<storage, read> sines: array<f32>;
@group(0) @binding(7) var<storage, read_write> query: array<f32>;
@group(0) @binding(8) var<storage, read_write> keys: array<f32>;
@group(0) @binding(9) var<storage, read_write> values: array<f32>;

// Where the other half of d's rotated pair is, and the sign of its sine term.
struct Pair {
    other: u32,
    angle: u32,
    sine_sign: f32,
}

fn pair_of(d: u32) -> Pair {
    if (INTERLEAVED == 1u) {
        let odd = d % 2u;
        return Pair(d + 1u - 2u * odd, d / 2u, f32(odd) * 2.0 - 1.0);
    }
    let half = ROTARY / 2u;
    if (d < half) {
        return Pair(d + half, d, -1.0);
    }
    return Pair(d - half, d - half, 1.0);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x / HEAD_DIM;
    let d = id.x % HEAD_DIM;
    if (head >= params.heads + 2u * params.kv_heads) {
        return;
    }
    if (head >= params.heads + params.kv_heads) {
        let kv_head = head - params.heads - params.kv_heads;
        let row = (kv_head * state.capacity + state.position) * HEAD_DIM;
        values[row + d] = v[params.v_offset + kv_head * HEAD_DIM + d];
        return;
    }
    var cosine = 1.0;
    var sine = 0.0;
    var other = d;
    if (d < ROTARY) {
        let pair = pair_of(d);
        let angle = state.position * (ROTARY / 2u) + pair.angle;
        cosine = cosines[angle];
        sine = sines[angle] * pair.sine_sign;
        other = pair.other;
    }
    if (head < params.heads) {
        let row = params.q_offset + head * HEAD_DIM;
        query[head * HEAD_DIM + d] = q[row + d] * cosine + q[row + other] * sine;
    } else {
        let kv_head = head - params.heads;
        let row = params.k_offset + kv_head * HEAD_DIM;
        let cache_row = (kv_head * state.capacity + state.position) * HEAD_DIM;
        keys[cache_row + d] = k[row + d] * cosine + k[row + other] * sine;
    }
}
