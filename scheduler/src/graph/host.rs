//! The host lane's half of a graph: the sources, and the closures that read.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Fault;
use crate::executor::context::Cx;
use crate::lane::BoundLane;
use crate::lane::items::{Item, Items};
use crate::lane::plain::Outlet;
use crate::lane::typed::{HostStore, LaneCore};
use crate::operator::OperatorType;
use crate::ready::Pos;
use crate::sync::Arc;

/// Where a graph's host lane runs, as a type: [`OwnThread`] or [`ThisThread`].
pub trait HostLane: sealed::Sealed {
    #[doc(hidden)]
    type Reads: ?Sized + ReadHalf;
    #[doc(hidden)]
    type Job: ?Sized + HostJob;
}

/// The host lane has a thread of its own, so sources are `Send` and owned.
pub enum OwnThread {}

/// The host lane is the thread that starts the run, so sources may be borrowed for `'s` and need not be `Send`.
pub struct ThisThread<'s>(PhantomData<&'s ()>);

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OwnThread {}
    impl Sealed for super::ThisThread<'_> {}
}

impl HostLane for OwnThread {
    type Reads = dyn ReadHalf + Send;
    type Job = dyn HostJob + Send;
}

impl<'s> HostLane for ThisThread<'s> {
    type Reads = dyn ReadHalf + Send;
    type Job = dyn HostJob + 's;
}

/// The sources of one lane's operators, in order.
#[doc(hidden)]
#[allow(
    private_interfaces,
    reason = "nobody outside can name or implement this: HostLane is sealed"
)]
pub trait ReadHalf {
    /// Reads the operator at `index`, which is the next one that has a source.
    fn read(&mut self, index: u32, pos: Pos, cx: &mut Cx) -> Result<(), Fault>;
    /// Drops the next source unread.
    fn skip(&mut self);
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Something else the host lane does once.
#[doc(hidden)]
#[allow(
    private_interfaces,
    reason = "nobody outside can name or implement this: HostLane is sealed"
)]
pub trait HostJob {
    fn run(self: Box<Self>, pos: Pos, cx: &mut Cx) -> Result<(), Fault>;
}

impl<F: FnOnce(Pos, &mut Cx) -> Result<(), Fault>> HostJob for F {
    fn run(self: Box<Self>, pos: Pos, cx: &mut Cx) -> Result<(), Fault> {
        self(pos, cx)
    }
}

/// Sources kept by value in one vector per lane.
pub(crate) struct Reads<T: OperatorType>
where
    T::Source: Sized,
{
    core: Arc<LaneCore<T>>,
    sources: std::collections::VecDeque<T::Source>,
}

impl<T: OperatorType> Reads<T>
where
    T::Source: Sized,
{
    pub(crate) fn new(core: Arc<LaneCore<T>>) -> Self {
        Reads {
            core,
            sources: Default::default(),
        }
    }

    pub(crate) fn push(&mut self, source: T::Source) {
        self.sources.push_back(source);
    }
}

impl<T: OperatorType> ReadHalf for Reads<T>
where
    T::Source: Sized + 'static,
{
    fn read(&mut self, index: u32, pos: Pos, cx: &mut Cx) -> Result<(), Fault> {
        let source = self.sources.pop_front().expect("one source per operator");
        read_into(&self.core, index, pos, cx, move |operator_type| {
            let host = operator_type.read(&source);
            drop(source);
            host
        })
    }

    fn skip(&mut self) {
        drop(self.sources.pop_front());
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Reads with panics caught and puts the host value where the lane finds it.
#[inline]
pub(crate) fn read_into<T: OperatorType>(
    core: &LaneCore<T>,
    index: u32,
    pos: Pos,
    cx: &mut Cx,
    read: impl FnOnce(&T) -> Result<T::Host, crate::operator::BoxError>,
) -> Result<(), Fault> {
    let host = guarded(|| read(&core.operator_type))?;
    cx.tap(pos, &host)?;
    let _ = core.hosts.slots()[index as usize].put(host);
    Ok(())
}

/// Runs user code that may fail or panic.
#[inline]
pub(crate) fn guarded<V>(code: impl FnOnce() -> Result<V, crate::operator::BoxError>) -> Result<V, Fault> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Fault::Error(error)),
        Err(payload) => Err(Fault::from_panic(payload)),
    }
}

/// What a node of the host lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostItem {
    /// An operator of this lane, read from the lane's sources.
    Operator(u32),
    /// An operator of this lane, read by a closure over a borrowed source.
    Borrowed(u32),
    /// A plain node.
    Plain,
}

/// The host lane: where its list says what to read next. It has no state to open.
pub(crate) struct HostHalf<H: HostLane> {
    items: Items<HostItem>,
    /// Sources by lane.
    reads: Vec<Option<Box<H::Reads>>>,
    /// Closures in the order of the list; each runs once.
    jobs: Vec<Option<Box<H::Job>>>,
    next_job: usize,
    /// Host values by lane, and the values of plain nodes: for the rollback.
    pub(crate) stores: Vec<Option<Arc<dyn HostStore>>>,
    outlets: Vec<Arc<dyn Outlet>>,
    frozen_outlets: Arc<Vec<Arc<dyn Outlet>>>,
    hint: usize,
}

impl<H: HostLane> HostHalf<H> {
    pub(crate) fn new() -> Self {
        HostHalf {
            items: Items::new(),
            reads: Vec::new(),
            jobs: Vec::new(),
            next_job: 0,
            stores: Vec::new(),
            outlets: Vec::new(),
            frozen_outlets: Arc::default(),
            hint: 0,
        }
    }

    /// Makes room for one more lane.
    pub(crate) fn add_lane(&mut self, store: Option<Arc<dyn HostStore>>) {
        self.reads.push(None);
        self.stores.push(store);
    }

    pub(crate) fn reads_of(&mut self, lane: u32) -> &mut Option<Box<H::Reads>> {
        &mut self.reads[lane as usize]
    }

    /// Adds a read of the operator at `index` of `lane`, whose source was put with its lane's others.
    pub(crate) fn push_operator(&mut self, lane: u32, index: u32) -> Pos {
        self.push(HostItem::Operator(lane), index)
    }

    /// Adds a read of the operator at `index` of `lane` by a closure.
    pub(crate) fn push_borrowed(&mut self, lane: u32, index: u32, job: Box<H::Job>) -> Pos {
        self.jobs.push(Some(job));
        self.push(HostItem::Borrowed(lane), index)
    }

    /// Adds a plain node and returns its place and its index among the plain nodes.
    pub(crate) fn push_plain(&mut self, job: Box<H::Job>, outlet: Arc<dyn Outlet>) -> (Pos, u32) {
        let index = self.outlets.len() as u32;
        self.jobs.push(Some(job));
        self.outlets.push(outlet);
        (self.push(HostItem::Plain, index), index)
    }

    fn push(&mut self, kind: HostItem, index: u32) -> Pos {
        let pos = self.items.len();
        self.items.push(Item { kind, index });
        pos
    }

    /// The list is complete: gives the values of its plain nodes to share.
    pub(crate) fn freeze(&mut self) -> Arc<Vec<Arc<dyn Outlet>>> {
        self.frozen_outlets = Arc::new(std::mem::take(&mut self.outlets));
        self.frozen_outlets.clone()
    }

    pub(crate) fn len(&self) -> u32 {
        self.items.len()
    }

    /// Reads the node that is next. Jobs are kept in list order, so the next job is the next node's.
    fn read(&mut self, item: Item<HostItem>, pos: Pos, cx: &mut Cx) -> Result<(), Fault> {
        if let HostItem::Operator(lane) = item.kind {
            let reads = self.reads[lane as usize]
                .as_mut()
                .expect("an operator has a source");
            return reads.read(item.index, pos, cx);
        }
        let job = self.jobs[self.next_job].take().expect("a node runs once");
        self.next_job += 1;
        job.run(pos, cx)
    }
}

impl<H: HostLane> BoundLane for HostHalf<H> {
    fn open(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn run(&mut self, from: Pos, to: Pos, cx: &mut Cx) -> Pos {
        let mut pos = from;
        while pos < to {
            if !cx.admit(pos) {
                break;
            }
            let (item, _) = self.items.at(pos, &mut self.hint);
            cx.begin(pos);
            let span = cx.span(pos);
            let outcome = self.read(item, pos, cx);
            drop(span);
            match outcome {
                Ok(()) => cx.finish(pos),
                Err(fault) => cx.fail(pos, fault),
            }
            pos += 1;
            if cx.wants_attention() {
                break;
            }
        }
        pos
    }

    fn skip(&mut self, pos: Pos) {
        let (item, _) = self.items.at(pos, &mut self.hint);
        match item.kind {
            HostItem::Operator(lane) => {
                self.reads[lane as usize]
                    .as_mut()
                    .expect("an operator has a source")
                    .skip();
            }
            HostItem::Borrowed(_) | HostItem::Plain => {
                drop(self.jobs[self.next_job].take());
                self.next_job += 1;
            }
        }
    }

    fn discard(&mut self, pos: Pos) -> bool {
        let (item, _) = self.items.at(pos, &mut self.hint);
        match item.kind {
            HostItem::Operator(lane) | HostItem::Borrowed(lane) => self.stores[lane as usize]
                .as_ref()
                .is_some_and(|store| store.discard_host(item.index)),
            HostItem::Plain => self.frozen_outlets[item.index as usize].discard(),
        }
    }

    fn close(&mut self) {}
}
