//! Lanes: the typed half, which knows an operator type, and the erased half, which the executors drive.
//!
//! A lane keeps its operators in typed vectors and its runner is compiled per operator type, so a node costs no
//! box and no dynamic call of its own; the lane as a whole is erased once.

pub(crate) mod items;
pub(crate) mod plain;
pub(crate) mod typed;

use std::any::Any;

use crate::error::Fault;
use crate::executor::context::Cx;
use crate::ready::Pos;

/// A lane on its way to the thread that will run it.
pub(crate) trait UnboundLane: Send {
    /// Allocates the slots for the lane's values; the list is complete.
    fn freeze(&mut self);
    /// Binds the lane to the calling thread.
    fn bind(self: Box<Self>) -> Box<dyn BoundLane>;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A lane on the thread that runs it, with the state that stays there.
pub(crate) trait BoundLane {
    /// Opens the state.
    fn open(&mut self) -> Result<(), Fault>;
    /// Runs the nodes from `from` up to `to`, which may all start now, and returns the place of the first one that is not
    /// through. Stops early when the run wants attention, but never before the first node.
    fn run(&mut self, from: Pos, to: Pos, cx: &mut Cx) -> Pos;
    /// Passes over the node at `pos`, which is next in the list and will never run.
    fn skip(&mut self, pos: Pos);
    /// Drops what the node at `pos` left behind and nobody took: its value, or its closure if it never ran. True if there was a value.
    fn discard(&mut self, pos: Pos) -> bool;
    /// Drops the state.
    fn close(&mut self);
}
