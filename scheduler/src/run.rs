//! The handle of a run, and the values of one that succeeded.

use std::any::Any;
use std::fmt;

use crate::barrier::Barrier;
use crate::error::InitError;
use crate::event::{BarrierId, NodeId, RunRecord};
use crate::executor::shared::Shared;
use crate::graph::refs::{HasValue, NodeRef, Place};
use crate::mode::InitMode;
use crate::progress::{LaneProgress, Progress, ProgressStream};
use crate::slot::Slot;
use crate::status::Status;
use crate::sync::{Arc, thread};
use crate::trace::Trace;

/// A run of an [`InitGraph`](crate::InitGraph).
///
/// Dropping it cancels what has not finished and waits for the run's threads, so that nothing is left behind; a
/// node that blocks without awaiting is waited for. [`detach`](Run::detach) lets the run go on instead.
#[must_use = "dropping a run cancels it"]
pub struct Run {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
    detached: bool,
}

impl Run {
    pub(crate) fn new(shared: Arc<Shared>, threads: Vec<thread::JoinHandle<()>>) -> Self {
        Run {
            shared,
            threads,
            detached: false,
        }
    }

    /// The barrier over everything.
    pub fn ready(&self) -> Barrier {
        Barrier::new(self.shared.clone(), 0)
    }

    /// A barrier over part of the graph, as [`InitGraph::barrier`](crate::InitGraph::barrier) made it.
    ///
    /// # Panics
    /// If the barrier is of another graph that has more of them.
    pub fn barrier(&self, id: BarrierId) -> Barrier {
        assert!(
            id.index() < self.shared.barriers.len(),
            "{id:?} is a barrier of another graph"
        );
        Barrier::new(self.shared.clone(), id.0)
    }

    /// Cancels the run, unless it has ended: no node starts any more, a node that awaits is dropped at its await point, every
    /// pending barrier settles with an error, and values nobody took are dropped. Returns at once.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Where the operator or plain node of this name is, now. Nothing if the graph has none; the last one if it has several.
    ///
    /// Any thread may ask. The first question builds an index of names; lanes pay nothing.
    pub fn status(&self, name: &str) -> Option<Status> {
        self.shared.status(name)
    }

    /// How far the run has come, now.
    pub fn progress_now(&self) -> Progress {
        self.shared.progress()
    }

    /// How far the run has come, as it comes along.
    pub fn progress(&self) -> ProgressStream {
        ProgressStream::new(self.shared.clone())
    }

    /// How far each lane has come, now; the host lane is the first. Looks at every node, so it is for display, not for polling.
    pub fn lane_progress(&self) -> Vec<LaneProgress> {
        self.shared.lane_progress()
    }

    /// The mode the run was started in.
    pub fn mode(&self) -> InitMode {
        self.shared.rules.mode
    }

    /// Lets the run go on without a handle. Barriers and values stay usable.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Blocks until every lane of the run has closed, whatever the outcome, and no thread of it is left.
    pub fn join(mut self) {
        self.join_threads();
    }

    /// Whether every lane has closed: all threads of the run are through.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// What happened, for a run that records ([`RunOptions::record`](crate::RunOptions::record)); without, a record
    /// of the graph with no events. Blocks until every lane has closed.
    pub fn record(&self) -> RunRecord {
        let events = self.shared.events();
        let topology = &self.shared.topology;
        RunRecord {
            mode: self.shared.rules.mode,
            lanes: topology.lane_infos(),
            nodes: topology.node_infos(),
            barriers: topology.barrier_infos(),
            events,
            staging_budget_bytes: self.shared.rules.staging_budget_bytes,
        }
    }

    /// What happened, ready to be asked; see [`record`](Run::record).
    pub fn trace(&self) -> Trace {
        Trace::new(self.record())
    }

    fn join_threads(&mut self) {
        // A node that drops its own run must not wait for itself.
        if self.shared.has_thread(thread::current().id()) {
            self.threads.clear();
            return;
        }
        for handle in self.threads.drain(..) {
            // Panics of user code were caught; what is left is a broken promise of this crate.
            if let Err(panic) = handle.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
        // Threads that the run has borrowed go on after it.
        self.shared.wait_closed(|_| ());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.detached {
            self.shared.cancel();
            self.join_threads();
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("mode", &self.mode())
            .field("ready", &self.ready())
            .finish()
    }
}

/// The values behind a barrier that has settled with success.
///
/// Values are taken out, each once. Behind a barrier over part of the graph, only the values it covers can be
/// taken; if the run fails later, what was not taken by then is dropped with the rest.
pub struct Ready {
    shared: Arc<Shared>,
    barrier: u32,
}

impl Ready {
    pub(crate) fn new(shared: Arc<Shared>, barrier: u32) -> Self {
        Ready { shared, barrier }
    }

    /// Takes the value of a node, or the device value of an operator.
    ///
    /// # Panics
    /// Where [`try_take`](Ready::try_take) gives an error.
    #[track_caller]
    pub fn take<R: HasValue>(&mut self, of: R) -> R::Value {
        match self.try_take(of) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes the value of a node, or the device value of an operator.
    ///
    /// # Errors
    /// If the node is of another graph, not covered by this barrier, its value was taken before or handed on by its nature
    /// (an operator's host value goes to its setup), or rolled back since because the run failed.
    pub fn try_take<R: HasValue>(&mut self, of: R) -> Result<R::Value, InitError> {
        let node = of.node();
        self.with_slot(node, |slot| slot.take())?
            .ok_or_else(|| self.why_empty(node.id))
    }

    /// A clone of the value of a node, or of the device value of an operator, which stays where it is.
    ///
    /// # Errors
    /// As [`try_take`](Ready::try_take).
    pub fn get<R: HasValue>(&self, of: R) -> Result<R::Value, InitError>
    where
        R::Value: Clone,
    {
        let node = of.node();
        self.with_slot(node, |slot| slot.get())?
            .ok_or_else(|| self.why_empty(node.id))
    }

    fn with_slot<V: 'static, R>(
        &self,
        node: NodeRef<V>,
        with: impl FnOnce(&Slot<V>) -> R,
    ) -> Result<R, InitError> {
        let topology = &self.shared.topology;
        if node.graph != topology.graph {
            return Err(InitError::misuse("the node is of another graph than the run"));
        }
        let covers = topology.barriers[self.barrier as usize].covers.as_deref();
        if covers.is_some_and(|covers| covers.binary_search(&node.id.0).is_err()) {
            let (name, barrier) = (
                topology.name(node.id.0),
                &topology.barriers[self.barrier as usize].name,
            );
            return Err(InitError::misuse(format!(
                "{name}: barrier {barrier:?} does not cover this node"
            )));
        }
        let slot: &dyn Any = match node.place {
            Place::Device { lane, index } => {
                let devices = self.shared.stores[lane as usize].devices.as_ref();
                devices.expect("a device lane has device values").slot(index)
            }
            Place::Plain { lane, index } => self.shared.stores[lane as usize].plains.outlet(index).slot(),
            Place::Host { .. } => {
                let name = topology.name(node.id.0);
                return Err(InitError::misuse(format!(
                    "{name}: the host value went to the operator's setup"
                )));
            }
        };
        Ok(with(
            slot.downcast_ref()
                .expect("a typed reference knows its node's type"),
        ))
    }

    fn why_empty(&self, node: NodeId) -> InitError {
        let name = self.shared.topology.name(node.0);
        match self.shared.barriers[0].outcome() {
            Some(Err(_)) => InitError::rolled_back(name.to_string()),
            _ => InitError::misuse(format!("{name}: its value was taken before")),
        }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.shared.topology.barriers[self.barrier as usize].name;
        f.debug_struct("Ready").field("barrier", name).finish()
    }
}
