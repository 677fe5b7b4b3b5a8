// Puts the stretches of attention_partial.wgsl together: a softmax over all positions. An invocation per value.
//
//   partials [heads, max_stretches, HEAD_DIM + 4]    y [heads, HEAD_DIM]

//!include state

struct Params {
    heads: u32,
    max_stretches: u32,
    window: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> state: State;
@group(0) @binding(2) var<storage, read> partials: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x / HEAD_DIM;
    let d = id.x % HEAD_DIM;
    if (head >= params.heads) {
        return;
    }
    var length = state.position + 1u;
    if (params.window != 0u) {
        length = min(length, params.window);
    }
    let n = (length + STRETCH - 1u) / STRETCH;
    let first = head * params.max_stretches * (HEAD_DIM + 4u);
    var largest = -3.4e38;
    for (var i = 0u; i < n; i++) {
        largest = max(largest, partials[first + i * (HEAD_DIM + 4u) + HEAD_DIM]);
    }
    var value = 0.0;
    var sum = 0.0;
    for (var i = 0u; i < n; i++) {
        let row = first + i * (HEAD_DIM + 4u);
        let weight = exp(partials[row + HEAD_DIM] - largest);
        value += weight * partials[row + d];
        sum += weight * partials[row + HEAD_DIM + 1u];
    }
    y[id.x] = value / sum;
}
