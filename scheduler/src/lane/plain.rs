//! Plain nodes: a closure on a lane, outside any operator.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Fault;
use crate::executor::context::Cx;
use crate::graph::deps::Inbox;
use crate::operator::BoxError;
use crate::ready::Pos;
use crate::slot::Slot;

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
pub(crate) trait PlainNode<L>: Send + Sync {
    fn run(&self, lane: &mut L, pos: Pos, cx: &mut Cx) -> Result<(), Fault>;
    /// Drops the closure if it never ran, and the value if nobody took it.
    fn discard(&self) -> bool;
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

    fn discard(&self) -> bool {
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
