// Sum and maximum over a workgroup, through workgroup memory: right on every adapter.
// Every invocation of the workgroup has to call them; every one gets the result.

struct Invocation {
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
}

var<workgroup> reduce_cells: array<f32, WORKGROUP>;

fn workgroup_sum(value: f32, at: Invocation) -> f32 {
    reduce_cells[at.lane] = value;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if (at.lane < half) {
            reduce_cells[at.lane] += reduce_cells[at.lane + half];
        }
        workgroupBarrier();
    }
    let total = reduce_cells[0];
    workgroupBarrier();
    return total;
}

fn workgroup_max(value: f32, at: Invocation) -> f32 {
    reduce_cells[at.lane] = value;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if (at.lane < half) {
            reduce_cells[at.lane] = max(reduce_cells[at.lane], reduce_cells[at.lane + half]);
        }
        workgroupBarrier();
    }
    let largest = reduce_cells[0];
    workgroupBarrier();
    return largest;
}
