//! Slabs of address space, and the buffers cut from them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::pages::{self, BLOCK};

/// Address space of a slab. It holds no memory but what was populated.
const SLAB: usize = 1 << 30;

/// All slabs, and all buffers cut from them. A slab goes back to the system with its last buffer.
pub(super) struct Slabs {
    /// By address.
    slabs: BTreeMap<usize, Slab>,
    /// Length by address.
    buffers: BTreeMap<usize, usize>,
}

struct Slab {
    len: usize,
    /// Cut so far, from the front. What is given back is not cut again.
    cut: usize,
    n_buffers: usize,
}

/// A new buffer.
pub(super) struct Cut {
    pub(super) buffer: usize,
    /// The blocks that are now in use and were not before: for the caller to populate.
    pub(super) blocks: Range<usize>,
}

impl Slabs {
    pub(super) const fn new() -> Self {
        Self {
            slabs: BTreeMap::new(),
            buffers: BTreeMap::new(),
        }
    }

    /// A new buffer, unless the system has no room for a slab.
    pub(super) fn cut(&mut self, size: usize, alignment: usize) -> Option<Cut> {
        let size = size.checked_next_multiple_of(alignment)?;
        let with_room = self.slabs.iter().find(|(_, slab)| slab.len - slab.cut >= size);
        let start = match with_room {
            Some((&start, _)) => start,
            None => {
                let len = size.max(SLAB).checked_next_multiple_of(BLOCK)?;
                let start = pages::map(len)?;
                let slab = Slab {
                    len,
                    cut: 0,
                    n_buffers: 0,
                };
                self.slabs.insert(start, slab);
                start
            }
        };
        let slab = self.slabs.get_mut(&start)?;
        let in_use = start + slab.cut.next_multiple_of(BLOCK);
        let buffer = start + slab.cut;
        slab.cut += size;
        slab.n_buffers += 1;
        self.buffers.insert(buffer, size);
        Some(Cut {
            buffer,
            blocks: in_use..start + slab.cut.next_multiple_of(BLOCK),
        })
    }

    /// Gives a buffer's memory back to the system. False if it was not cut from a slab.
    pub(super) fn give_back(&mut self, buffer: usize) -> bool {
        let Some(size) = self.buffers.remove(&buffer) else {
            return false;
        };
        let (&start, slab) = self
            .slabs
            .range_mut(..=buffer)
            .next_back()
            .expect("a buffer lies in a slab");
        slab.n_buffers -= 1;
        if slab.n_buffers > 0 {
            pages::discard(buffer..buffer + size);
        } else {
            let len = slab.len;
            self.slabs.remove(&start);
            // SAFETY: the slab is ours, whole, and no buffer in it is in use.
            unsafe { pages::unmap(start, len) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes and reads a buffer, whose pages need not have been populated.
    fn fill(buffer: usize, size: usize, byte: u8) {
        // SAFETY: a buffer of the test's own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer as *mut u8, size) };
        bytes.fill(byte);
    }

    fn is_filled(buffer: usize, size: usize, byte: u8) -> bool {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(buffer as *const u8, size) };
        bytes.iter().all(|&b| b == byte)
    }

    #[test]
    fn buffers_are_aligned_apart_and_each_block_is_populated_by_one_of_them() {
        let mut slabs = Slabs::new();
        let sizes = [200_000, 3 * BLOCK + 1, 131_072, BLOCK, 5_000_001];
        let cuts: Vec<Cut> = sizes.iter().map(|&size| slabs.cut(size, 64).unwrap()).collect();
        for (i, (cut, &size)) in cuts.iter().zip(&sizes).enumerate() {
            assert_eq!(cut.buffer % 64, 0);
            fill(cut.buffer, size, i as u8);
        }
        for (i, (cut, &size)) in cuts.iter().zip(&sizes).enumerate() {
            assert!(is_filled(cut.buffer, size, i as u8), "buffer {i} was overwritten");
        }
        assert!(
            cuts.windows(2)
                .all(|pair| pair[0].blocks.end == pair[1].blocks.start)
        );
        assert_eq!(cuts[0].blocks.start, cuts[0].buffer);
        let last = cuts.last().unwrap();
        assert!(last.blocks.end >= last.buffer + sizes[4]);
        assert!(cuts.iter().all(|cut| slabs.give_back(cut.buffer)));
    }

    #[test]
    fn giving_one_back_leaves_its_neighbours_and_the_last_takes_the_slab_along() {
        let mut slabs = Slabs::new();
        let [a, b, c] = [1, 2, 3].map(|byte| {
            let buffer = slabs.cut(1_000_000, 64).unwrap().buffer;
            fill(buffer, 1_000_000, byte);
            buffer
        });
        assert!(slabs.give_back(b));
        assert!(is_filled(a, 1_000_000, 1) && is_filled(c, 1_000_000, 3));
        assert!(!slabs.give_back(b), "given back twice");
        assert!(!slabs.give_back(a + 64), "not the start of a buffer");
        assert!(slabs.give_back(a) && slabs.give_back(c));
        assert!(slabs.slabs.is_empty() && slabs.buffers.is_empty());
    }

    #[test]
    fn a_buffer_larger_than_a_slab_gets_one_of_its_own_and_an_impossible_one_none() {
        let mut slabs = Slabs::new();
        let large = slabs.cut(SLAB + 1, 64).unwrap();
        assert_eq!(large.blocks.len(), SLAB + BLOCK);
        assert!(slabs.cut(usize::MAX - 10, 64).is_none());
        assert!(slabs.cut(1 << 60, 64).is_none());
        assert!(slabs.give_back(large.buffer));
        assert!(slabs.slabs.is_empty());
    }
}
