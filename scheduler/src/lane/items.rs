//! A lane's list, as runs of equal kind.

use crate::ready::Pos;

/// A stretch of a lane's list: nodes of one kind, numbered consecutively within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch<K> {
    start: Pos,
    kind: K,
    first: u32,
}

/// A node of a lane's list: of which kind, and which one of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item<K> {
    pub(crate) kind: K,
    pub(crate) index: u32,
}

/// A lane's list. Most lanes hold operators only and need one stretch; a host lane needs one per change of type.
#[derive(Debug)]
pub(crate) struct Items<K> {
    stretches: Vec<Stretch<K>>,
    len: u32,
}

impl<K: Copy + PartialEq> Items<K> {
    pub(crate) fn new() -> Self {
        Items {
            stretches: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn push(&mut self, item: Item<K>) {
        let pos = self.len;
        self.len += 1;
        if let Some(last) = self.stretches.last()
            && last.kind == item.kind
            && last.first + (pos - last.start) == item.index
        {
            return;
        }
        self.stretches.push(Stretch {
            start: pos,
            kind: item.kind,
            first: item.index,
        });
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The item at `pos`, and the end of its stretch. `hint` makes walking in order cheap: keep it between calls.
    pub(crate) fn at(&self, pos: Pos, hint: &mut usize) -> (Item<K>, Pos) {
        let fits = |i: usize| {
            self.stretches.get(i).is_some_and(|s| s.start <= pos)
                && self.stretches.get(i + 1).is_none_or(|next| pos < next.start)
        };
        if !fits(*hint) {
            *hint += 1;
            if !fits(*hint) {
                *hint = self.stretches.partition_point(|s| s.start <= pos) - 1;
            }
        }
        let stretch = self.stretches[*hint];
        let end = self.stretches.get(*hint + 1).map_or(self.len, |next| next.start);
        (
            Item {
                kind: stretch.kind,
                index: stretch.first + (pos - stretch.start),
            },
            end,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_forwards_backwards_and_at_random() {
        let list: Vec<_> = ["a", "a", "b", "a", "a", "a", "b"].to_vec();
        let mut items = Items::new();
        let (mut a, mut b) = (0, 0);
        let mut want = Vec::new();
        for kind in list {
            let counter = if kind == "a" { &mut a } else { &mut b };
            let item = Item {
                kind,
                index: *counter,
            };
            *counter += 1;
            items.push(item);
            want.push(item);
        }
        assert_eq!(items.stretches.len(), 4);
        let mut hint = 0;
        for pos in (0..7).chain((0..7).rev()).chain([3, 0, 6, 2]) {
            assert_eq!(items.at(pos, &mut hint).0, want[pos as usize], "at {pos}");
        }
        assert_eq!(items.at(3, &mut hint).1, 6);
        assert_eq!(items.at(6, &mut hint).1, 7);
    }
}
