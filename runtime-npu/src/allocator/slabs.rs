//! Slabs of address space, and what is cut from them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::pages::{self, BLOCK};

/// Address space of a slab. It holds no memory but what was populated.
const SLAB: usize = 1 << 30;

/// All slabs, by address. A slab goes back to the system with the last of its cuts.
pub(super) struct Slabs(BTreeMap<usize, Slab>);

struct Slab {
    len: usize,
    /// Bytes cut so far, from the front. What is given back is not cut again.
    cut: usize,
    n_cuts: usize,
}

/// Memory for a buffer.
pub(super) struct Cut {
    pub(super) start: usize,
    /// The blocks that are in use now and were not before: for the caller to populate.
    pub(super) blocks: Range<usize>,
}

impl Slabs {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Cuts `n_bytes`, unless the system has no room for a slab.
    pub(super) fn cut(&mut self, n_bytes: usize) -> Option<Cut> {
        let with_room = (self.0.iter()).find(|(_, slab)| slab.len - slab.cut >= n_bytes);
        let first = match with_room {
            Some((&first, _)) => first,
            None => {
                let len = n_bytes.max(SLAB).checked_next_multiple_of(BLOCK)?;
                let first = pages::map(len)?;
                let (cut, n_cuts) = (0, 0);
                self.0.insert(first, Slab { len, cut, n_cuts });
                first
            }
        };
        let slab = self.0.get_mut(&first)?;
        let start = first + slab.cut;
        slab.cut += n_bytes;
        slab.n_cuts += 1;
        Some(Cut {
            start,
            blocks: start.next_multiple_of(BLOCK)..(start + n_bytes).next_multiple_of(BLOCK),
        })
    }

    /// Gives a cut's memory back to the system.
    ///
    /// # Panics
    /// It lies in no slab.
    pub(super) fn give_back(&mut self, start: usize, n_bytes: usize) {
        let below = self.0.range_mut(..=start).next_back();
        let (&first, slab) = below.expect("a cut lies in a slab");
        slab.n_cuts -= 1;
        if slab.n_cuts > 0 {
            pages::discard(start..start + n_bytes);
        } else {
            let len = slab.len;
            self.0.remove(&first);
            // SAFETY: the slab is ours, whole, and nothing in it is in use.
            unsafe { pages::unmap(first, len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of the test's own, whose pages need not have been populated.
    fn bytes<'a>(cut: &Cut, n_bytes: usize) -> &'a mut [u8] {
        // SAFETY: just cut, by this test.
        unsafe { std::slice::from_raw_parts_mut(cut.start as *mut u8, n_bytes) }
    }

    #[test]
    fn cuts_do_not_overlap_and_each_block_is_populated_for_one_of_them() {
        let mut slabs = Slabs::new();
        let sizes = [200_000, 3 * BLOCK + 64, 131_072, BLOCK, 5_000_000];
        let cuts = sizes.map(|size| slabs.cut(size).unwrap());
        for (i, (cut, &size)) in cuts.iter().zip(&sizes).enumerate() {
            bytes(cut, size).fill(i as u8);
        }
        for (i, (cut, &size)) in cuts.iter().zip(&sizes).enumerate() {
            assert!(
                bytes(cut, size).iter().all(|&b| b == i as u8),
                "{i} was overwritten"
            );
        }
        assert_eq!(cuts[0].blocks.start, cuts[0].start);
        assert!(
            cuts.windows(2)
                .all(|pair| pair[0].blocks.end == pair[1].blocks.start)
        );
        assert!(cuts[4].blocks.end >= cuts[4].start + sizes[4]);
        for (cut, size) in cuts.iter().zip(sizes) {
            slabs.give_back(cut.start, size);
        }
    }

    #[test]
    fn giving_one_back_leaves_its_neighbours_and_the_last_takes_the_slab_along() {
        const SIZE: usize = 1_000_000;
        let mut slabs = Slabs::new();
        let [a, b, c] = [1, 2, 3].map(|byte| {
            let cut = slabs.cut(SIZE).unwrap();
            bytes(&cut, SIZE).fill(byte);
            cut
        });
        slabs.give_back(b.start, SIZE);
        assert!(bytes(&a, SIZE).iter().all(|&b| b == 1));
        assert!(bytes(&c, SIZE).iter().all(|&b| b == 3));
        slabs.give_back(a.start, SIZE);
        assert_eq!(slabs.0.len(), 1);
        slabs.give_back(c.start, SIZE);
        assert!(slabs.0.is_empty());
    }

    #[test]
    fn more_than_a_slab_gets_one_of_its_own_and_the_impossible_none() {
        let mut slabs = Slabs::new();
        let large = slabs.cut(SLAB + 64).unwrap();
        assert_eq!(large.blocks.len(), SLAB + BLOCK);
        assert!(slabs.cut(usize::MAX - 63).is_none());
        assert!(slabs.cut(usize::MAX / 2).is_none());
        slabs.give_back(large.start, SLAB + 64);
        assert!(slabs.0.is_empty());
    }
}
