//! What the host lane reads: owned sources for a host lane of its own, borrowed ones for the calling thread.

use super::InitGraph;
use super::deps::{Deps, Inbox};
use super::host::{Reads, ThisThread, guarded, read_into};
use super::refs::{Lane, NodeRef, Operator};
use super::topology::Name;
use crate::operator::{BoxError, OperatorType};
use crate::slot::Slot;
use crate::sync::Arc;

impl InitGraph {
    /// An empty graph whose host lane has a thread of its own.
    pub fn new() -> Self {
        Self::empty()
    }

    /// Adds an operator: a host node that reads `source`, a device node that sets up what was read, and the edge between them.
    ///
    /// # Panics
    /// If the lane is of another graph.
    pub fn operator<T: OperatorType>(
        &mut self,
        lane: &Lane<T>,
        name: impl Into<Name>,
        source: T::Source,
    ) -> Operator<T>
    where
        T::Source: Sized + Send + 'static,
    {
        let lane = self.deal(lane);
        let typed = self.typed::<T>(lane);
        let core = &typed.core;
        let bytes = core.operator_type.host_bytes(&source);
        let fresh = match self.host.reads_of(lane) {
            Some(_) => None,
            None => Some(self.typed::<T>(lane).core.clone()),
        };
        let reads = self.host.reads_of(lane);
        if let Some(core) = fresh {
            *reads = Some(Box::new(Reads::<T>::new(core)));
        }
        let reads = reads
            .as_mut()
            .and_then(|reads| reads.as_any_mut().downcast_mut::<Reads<T>>());
        reads.expect("a lane's sources are of its type").push(source);
        let index = self.typed::<T>(lane).push_operator();
        let pos = self.host.push_operator(lane, index);
        self.push_pair(lane, index, pos, bytes, name.into())
    }

    /// Adds a plain node to the host lane: a closure that reads something no operator type covers, or what several share.
    ///
    /// # Panics
    /// If a dependency is of another graph.
    pub fn read<D: Deps, V: Send + 'static>(
        &mut self,
        name: impl Into<Name>,
        deps: D,
        read: impl FnOnce(D::Values) -> Result<V, BoxError> + Send + 'static,
    ) -> NodeRef<V> {
        let (inbox, deps) = self.subscribe(deps);
        let slot = Arc::new(Slot::new());
        let out = slot.clone();
        let job = Box::new(move |pos, cx: &mut _| run_read(read, inbox, &out, pos, cx));
        self.push_host_plain(name.into(), deps, job, slot)
    }
}

impl<'s> InitGraph<ThisThread<'s>> {
    /// An empty graph whose host lane is the thread that will call [`start`](InitGraph::start). Sources are
    /// borrowed, and may be unsized or not `Send`.
    pub fn on_this_thread() -> Self {
        Self::empty()
    }

    /// Adds an operator that is read from a borrowed source; else as on a graph with a host lane of its own.
    ///
    /// # Panics
    /// If the lane is of another graph.
    pub fn operator<T: OperatorType>(
        &mut self,
        lane: &Lane<T>,
        name: impl Into<Name>,
        source: &'s T::Source,
    ) -> Operator<T> {
        let lane = self.deal(lane);
        let typed = self.typed::<T>(lane);
        let core = typed.core.clone();
        let index = typed.push_operator();
        let bytes = core.operator_type.host_bytes(source);
        let job = Box::new(move |pos, cx: &mut _| {
            read_into(&core, index, pos, cx, |operator_type: &T| {
                operator_type.read(source)
            })
        });
        let pos = self.host.push_borrowed(lane, index, job);
        self.push_pair(lane, index, pos, bytes, name.into())
    }

    /// Adds a plain node to the host lane; its closure may borrow and need not be `Send`.
    ///
    /// # Panics
    /// If a dependency is of another graph.
    pub fn read<D: Deps, V: Send + 'static>(
        &mut self,
        name: impl Into<Name>,
        deps: D,
        read: impl FnOnce(D::Values) -> Result<V, BoxError> + 's,
    ) -> NodeRef<V> {
        let (inbox, deps) = self.subscribe(deps);
        let slot = Arc::new(Slot::new());
        let out = slot.clone();
        let job = Box::new(move |pos, cx: &mut _| run_read(read, inbox, &out, pos, cx));
        self.push_host_plain(name.into(), deps, job, slot)
    }
}

/// Runs a plain host node.
fn run_read<I: Inbox, V: Send + 'static>(
    read: impl FnOnce(I::Values) -> Result<V, BoxError>,
    inbox: I,
    out: &Slot<V>,
    pos: crate::ready::Pos,
    cx: &mut crate::executor::context::Cx,
) -> Result<(), crate::error::Fault> {
    let value = guarded(|| read(inbox.open()))?;
    cx.tap(pos, &value)?;
    let _ = out.put(value);
    Ok(())
}
