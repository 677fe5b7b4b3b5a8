//! What a lane does besides running its nodes: copies values, opens barriers, feeds ready-order lanes.

use crate::graph::deps::Tap;
use crate::ready::{LaneIndex, Pos};

/// What a lane does when a certain node of it is through, besides going on.
pub(crate) enum Action {
    /// Copy the node's value to a dependent.
    Tap(Tap),
    /// The last node that a barrier covers on this lane; on a ready-order lane, each that it covers.
    Mark(u32),
    /// A node of a ready-order lane that waits for this one.
    Feed { lane: LaneIndex, pos: Pos },
}

/// A lane's actions, by place. Invariant: sorted.
#[derive(Default)]
pub(crate) struct Actions {
    pub(super) list: Vec<(Pos, Action)>,
    pub(super) next: usize,
}

impl Actions {
    pub(crate) fn push(&mut self, pos: Pos, action: Action) {
        self.list.push((pos, action));
    }

    pub(crate) fn seal(&mut self) {
        self.list.sort_by_key(|(pos, _)| *pos);
    }

    /// Goes to the actions of the node at `pos`, which need not come in order.
    pub(super) fn seek(&mut self, pos: Pos) {
        self.next = self.list.partition_point(|(at, _)| *at < pos);
    }

    /// The next action, if it is one of the node at `pos`.
    pub(super) fn pop_at(&mut self, pos: Pos) -> Option<&Action> {
        let (at, action) = self.list.get(self.next)?;
        if *at != pos {
            return None;
        }
        self.next += 1;
        Some(action)
    }

    /// The place of the next node that has an action; a place no lane has if there is none.
    pub(super) fn next_pos(&self) -> Pos {
        self.list.get(self.next).map_or(Pos::MAX, |(pos, _)| *pos)
    }
}
