//! How far a run has come, as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::Stream;

use crate::executor::shared::Shared;
use crate::sync::{Arc, Mutex, lock};

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Nodes that are through: finished, or failed or skipped in a run that collects all failures.
    pub nodes_done: u64,
    /// Nodes in all; an operator is two.
    pub nodes_total: u64,
    /// Bytes of host values that have been read, as [`OperatorType::host_bytes`](crate::OperatorType::host_bytes) counts them.
    pub bytes_read: u64,
    /// Bytes of host values in all.
    pub bytes_total: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{} nodes, {}/{} bytes",
            self.nodes_done, self.nodes_total, self.bytes_read, self.bytes_total
        )
    }
}

/// How far one lane has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneProgress {
    /// The lane's name, as traces show it.
    pub name: String,
    /// Its share of the run's progress. Of a device lane, bytes are those of the host values that it sets up.
    pub progress: Progress,
}

/// Progress as it is made: a snapshot when there is news and the last one has been looked at. The last item is the state
/// when the run settled; then the stream ends.
///
/// A run that nobody watches pays nothing for this; one that is watched wakes the watcher at most once per look.
///
/// ```
/// use futures::StreamExt;
/// use scheduler::{InitGraph, InitMode};
///
/// let mut graph = InitGraph::new();
/// for i in 0..10 {
///     graph.read(format!("part {i}"), (), |()| Ok(()));
/// }
/// let run = graph.start(InitMode::Overlapped)?;
/// let last = futures::executor::block_on(run.progress().fold(None, async |_, progress| Some(progress)));
/// assert_eq!(last.unwrap().to_string(), "10/10 nodes, 0/0 bytes");
/// # Ok::<(), scheduler::InitError>(())
/// ```
pub struct ProgressStream {
    shared: Arc<Shared>,
    key: u64,
    last: Option<Progress>,
    has_ended: bool,
}

/// Who watches a run. Only looked at when the run's attention word says that somebody does.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<List>);

#[derive(Default)]
struct List {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Watchers {
    fn new_key(&self) -> u64 {
        let mut list = lock(&self.0);
        list.next += 1;
        list.next
    }

    fn put(&self, key: u64, waker: Waker) {
        let mut list = lock(&self.0);
        let found = list.wakers.iter().position(|(known, _)| *known == key);
        let old = found.map(|i| list.wakers.swap_remove(i));
        list.wakers.push((key, waker));
        drop(list);
        drop(old);
    }

    fn forget(&self, key: u64) {
        let mut list = lock(&self.0);
        let found = list.wakers.iter().position(|(known, _)| *known == key);
        let old = found.map(|i| list.wakers.swap_remove(i));
        drop(list);
        drop(old);
    }

    /// Wakes all who wait for news, once each.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut lock(&self.0).wakers);
        for (_, waker) in wakers {
            waker.wake();
        }
    }
}

impl ProgressStream {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let key = shared.watchers.new_key();
        ProgressStream {
            shared,
            key,
            last: None,
            has_ended: false,
        }
    }
}

impl Stream for ProgressStream {
    type Item = Progress;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Progress>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        // First registered, then looked: what happens in between wakes, what happened before is seen.
        this.shared.watchers.put(this.key, task.waker().clone());
        this.shared.set_watched();
        this.has_ended = this.shared.barriers[0].is_settled();
        let now = this.shared.progress();
        if this.has_ended || this.last != Some(now) {
            this.last = Some(now);
            return Poll::Ready(Some(now));
        }
        Poll::Pending
    }
}

impl Drop for ProgressStream {
    fn drop(&mut self) {
        self.shared.watchers.forget(self.key);
    }
}

impl fmt::Debug for ProgressStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressStream")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
