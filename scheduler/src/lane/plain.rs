//! Plain nodes: a closure on a lane, outside any operator.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Fault;
use crate::executor::context::Cx;
use crate::graph::deps::Inbox;
use crate::operator::BoxError;
use crate::ready::Pos;
use crate::slot::Slot;
use crate::sync::{Arc, OnceLock};

/// Where a node's value waits to be taken.
pub(crate) trait Outlet: Send + Sync {
    /// The `Slot<V>` itself.
    fn slot(&self) -> &dyn Any;
    /// Drops the value if it is there.
    fn discard(&self) -> bool;
}

impl<V: Send + 'static> Outlet for Slot<V> {
    fn slot(&self) -> &dyn Any {
        self
    }

    fn discard(&self) -> bool {
        self.take().is_some()
    }
}

/// A plain node as a lane with state `L` sees it.
pub(crate) trait PlainNode<L>: Outlet {
    fn run(&self, lane: &mut L, pos: Pos, cx: &mut Cx) -> Result<(), Fault>;
    /// Drops the closure if it never ran, and the value if nobody took it.
    fn discard_all(&self) -> bool;
}

/// A lane's plain nodes, complete when the graph is.
pub(crate) struct Plains<L>(OnceLock<Vec<Box<dyn PlainNode<L>>>>);

impl<L> Plains<L> {
    pub(crate) fn new() -> Self {
        Plains(OnceLock::new())
    }

    pub(crate) fn set(&self, nodes: Vec<Box<dyn PlainNode<L>>>) {
        if self.0.set(nodes).is_err() {
            unreachable!("a lane is frozen once");
        }
    }

    pub(crate) fn nodes(&self) -> &[Box<dyn PlainNode<L>>] {
        self.0.get().expect("the graph has been started")
    }
}

/// The values of a lane's plain nodes, whatever the lane's state.
pub(crate) trait PlainStore: Send + Sync {
    fn outlet(&self, index: u32) -> &dyn Outlet;
}

impl<L> PlainStore for Plains<L> {
    fn outlet(&self, index: u32) -> &dyn Outlet {
        &*self.nodes()[index as usize]
    }
}

impl PlainStore for Vec<Arc<dyn Outlet>> {
    fn outlet(&self, index: u32) -> &dyn Outlet {
        &*self[index as usize]
    }
}

/// A plain node: one allocation for the closure, what it waits for, and what it gives.
pub(crate) struct PlainCell<F, I, V> {
    body: Slot<(F, I)>,
    out: Slot<V>,
}

impl<F, I, V> PlainCell<F, I, V> {
    pub(crate) fn new(body: F, inbox: I) -> Self {
        PlainCell {
            body: Slot::full((body, inbox)),
            out: Slot::new(),
        }
    }
}

impl<F, I, V> Outlet for PlainCell<F, I, V>
where
    F: Send + 'static,
    I: Send + 'static,
    V: Send + 'static,
{
    fn slot(&self) -> &dyn Any {
        &self.out
    }

    fn discard(&self) -> bool {
        self.out.take().is_some()
    }
}

impl<L, F, I, V> PlainNode<L> for PlainCell<F, I, V>
where
    F: AsyncFnOnce(&mut L, I::Values) -> Result<V, BoxError> + Send + 'static,
    I: Inbox,
    V: Send + 'static,
{
    fn run(&self, lane: &mut L, pos: Pos, cx: &mut Cx) -> Result<(), Fault> {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (body, inbox) = self.body.take().expect("a node runs once");
            cx.drive(body(lane, inbox.open()))
        }));
        let value = flatten(outcome)?;
        cx.tap(pos, &value)?;
        let _ = self.out.put(value);
        Ok(())
    }

    fn discard_all(&self) -> bool {
        drop(self.body.take());
        Outlet::discard(self)
    }
}

/// What a guarded, driven node came to.
pub(crate) fn flatten<V>(
    outcome: std::thread::Result<Result<Result<V, BoxError>, Fault>>,
) -> Result<V, Fault> {
    match outcome {
        Ok(Ok(Ok(value))) => Ok(value),
        Ok(Ok(Err(error))) => Err(Fault::Error(error)),
        Ok(Err(stopped)) => Err(stopped),
        Err(payload) => Err(Fault::from_panic(payload)),
    }
}
