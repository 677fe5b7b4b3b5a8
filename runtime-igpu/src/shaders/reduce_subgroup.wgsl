// Sum and maximum over a workgroup: first inside each subgroup, then over the subgroups through workgroup memory.
// Right for every subgroup size, also where the last subgroup is not full.
// Every invocation of the workgroup has to call them; every one gets the result.

struct Invocation {
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
}

// With subgroups of one invocation there are as many as invocations.
var<workgroup> reduce_cells: array<f32, WORKGROUP>;

fn workgroup_sum(value: f32, at: Invocation) -> f32 {
    let part = subgroupAdd(value);
    if (at.subgroup_lane == 0u) {
        reduce_cells[at.subgroup] = part;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < at.n_subgroups; i++) {
        total += reduce_cells[i];
    }
    workgroupBarrier();
    return total;
}

fn workgroup_max(value: f32, at: Invocation) -> f32 {
    let part = subgroupMax(value);
    if (at.subgroup_lane == 0u) {
        reduce_cells[at.subgroup] = part;
    }
    workgroupBarrier();
    var largest = reduce_cells[0];
    for (var i = 1u; i < at.n_subgroups; i++) {
        largest = max(largest, reduce_cells[i]);
    }
    workgroupBarrier();
    return largest;
}
