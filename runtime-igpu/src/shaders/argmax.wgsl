// The greedy token: the index of the largest logit, the lowest index among equals. One workgroup.
//
//   logits [size] from offset    best [2]: index, and the logit's bits

struct Params {
    size: u32,
    offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> best: array<u32>;

var<workgroup> values: array<f32, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32) {
    var value = -3.4e38;
    var index = 0xffffffffu;
    for (var i = lane; i < params.size; i += WORKGROUP) {
        let logit = logits[params.offset + i];
        if (logit > value || index == 0xffffffffu) {
            value = logit;
            index = i;
        }
    }
    values[lane] = value;
    indices[lane] = index;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            let other = lane + half;
            let later = indices[other] < indices[lane];
            if (values[other] > values[lane] || (values[other] == values[lane] && later)) {
                values[lane] = values[other];
                indices[lane] = indices[other];
            }
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        best[0] = indices[0];
        best[1] = bitcast<u32>(values[0]);
    }
}
