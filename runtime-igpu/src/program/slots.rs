//! Lays values out in slots: a slot is reused once its value is no longer read.
//!
//! The steps run in order, so a value lives from the first step that binds it to the last. Values that meet in one step
//! never share a slot.

use super::{Binding, OperatorProgram};

/// Gives each base value a slot and rewrites the steps' bindings from base values to slots.
///
/// `lens` are the base values' elements; `kept` are read after the last step. Returns the slots' bytes and each base's slot.
pub(crate) fn assign(
    operators: &mut [OperatorProgram],
    lens: &[u32],
    kept: &[usize],
) -> (Vec<u64>, Vec<usize>) {
    let mut last = vec![None; lens.len()];
    for step in operators.iter().flat_map(|operator| &operator.steps) {
        for base in bases(&step.bindings) {
            last[base] = Some(step.index);
        }
    }
    for &base in kept {
        last[base] = Some(usize::MAX);
    }
    let mut slots: Vec<u64> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut slot_of = vec![usize::MAX; lens.len()];
    for step in operators.iter_mut().flat_map(|operator| &mut operator.steps) {
        let mut ending = Vec::new();
        for base in bases(&step.bindings).collect::<Vec<_>>() {
            if slot_of[base] == usize::MAX {
                let bytes = u64::from(lens[base]) * 4;
                slot_of[base] = take(&mut slots, &mut free, bytes);
            }
            if last[base] == Some(step.index) && !ending.contains(&slot_of[base]) {
                ending.push(slot_of[base]);
            }
        }
        for binding in &mut step.bindings {
            if let Binding::Slot(base) = binding {
                *base = slot_of[*base];
            }
        }
        free.append(&mut ending);
    }
    (slots, slot_of)
}

fn bases(bindings: &[Binding]) -> impl Iterator<Item = usize> + '_ {
    bindings.iter().filter_map(|binding| match binding {
        Binding::Slot(base) => Some(*base),
        _ => None,
    })
}

/// A free slot that is large enough, the smallest such; else a new one.
fn take(slots: &mut Vec<u64>, free: &mut Vec<usize>, bytes: u64) -> usize {
    let fitting = (0..free.len())
        .filter(|&i| slots[free[i]] >= bytes)
        .min_by_key(|&i| slots[free[i]]);
    match fitting {
        Some(i) => free.swap_remove(i),
        None => {
            slots.push(bytes.next_multiple_of(16).max(16));
            slots.len() - 1
        }
    }
}
