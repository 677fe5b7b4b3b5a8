// Streams words from one buffer to another: what the adapter's memory gives at best, for the benchmark.
//
//   source, sink  [n_vectors] of four words

struct Params {
    n_vectors: u32,
    groups_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> sink: array<vec4<u32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * params.groups_x + group.x) * WORKGROUP + lane;
    if (index < params.n_vectors) {
        sink[index] = source[index];
    }
}
