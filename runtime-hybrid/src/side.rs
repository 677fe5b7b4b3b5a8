//! One side of the request path: whether its engine serves yet, for whoever waits for it or asks.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::Shared;
use scheduler::{Barrier, Ready};

use crate::error::{Error, Result};
use crate::report::Placement;

/// An engine that has come to serve.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) at: Instant,
    pub(crate) engine: String,
    pub(crate) placements: Vec<Placement>,
}

impl Opened {
    pub(crate) fn now(engine: String, placements: Vec<Placement>) -> Self {
        Self {
            at: Instant::now(),
            engine,
            placements,
        }
    }
}

/// How it went, once it has: an engine can still fail to be put together when its barrier has resolved.
type Outcome = Arc<OnceLock<Result<Opened>>>;

/// What the runtime keeps of a side.
#[derive(Clone)]
pub(crate) struct Side {
    outcome: Outcome,
    settled: Shared<oneshot::Receiver<()>>,
}

/// What the thread that serves gets: its barrier, and where it says how it went.
pub(crate) struct Opening {
    barrier: Barrier,
    outcome: Outcome,
    /// Let go of when the outcome is known.
    _settled: oneshot::Sender<()>,
}

impl Side {
    /// A side behind `barrier`, and the end of it for the thread that serves.
    pub(crate) fn new(barrier: Barrier) -> (Self, Opening) {
        let (sender, receiver) = oneshot::channel();
        let outcome = Outcome::default();
        let side = Self {
            outcome: outcome.clone(),
            settled: receiver.shared(),
        };
        let opening = Opening {
            barrier,
            outcome,
            _settled: sender,
        };
        (side, opening)
    }

    /// The engine, if it serves by now.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.outcome.get()?.as_ref().ok()
    }

    /// Resolves when the engine serves.
    pub(crate) async fn ready(&self) -> Result<()> {
        // Nothing is ever sent: the other end goes when the outcome is known.
        let _ = self.settled.clone().await;
        match self.outcome.get() {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::engine("serving", "panicked while it was put together")),
        }
    }
}

impl Opening {
    /// Waits for the barrier and puts the engine together, on the thread that then serves.
    pub(crate) fn open<T>(self, assemble: impl FnOnce(&mut Ready) -> Result<(T, Opened)>) -> Result<T> {
        let ready = self.barrier.wait().map_err(Error::init);
        let (outcome, opened) = match ready.and_then(|mut ready| assemble(&mut ready)) {
            Ok((engine, opened)) => (Ok(engine), Ok(opened)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        // Each side opens once.
        let _ = self.outcome.set(opened);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use scheduler::{InitGraph, InitMode};

    use super::*;

    #[test]
    fn it_is_ready_when_its_engine_is_not_when_its_barrier_is() {
        let run = InitGraph::new().start(InitMode::Inline).unwrap();
        run.ready().wait().unwrap();
        let (side, opening) = Side::new(run.ready());
        assert!(side.opened().is_none() && side.ready().now_or_never().is_none());
        let engine = opening.open(|_| Ok((7, Opened::now("engine".into(), Vec::new()))));
        assert_eq!(engine.unwrap(), 7);
        block_on(side.ready()).unwrap();
        assert_eq!(side.opened().unwrap().engine, "engine");
    }

    #[test]
    fn an_engine_that_cannot_be_put_together_is_everybodys_error() {
        let run = InitGraph::new().start(InitMode::Inline).unwrap();
        let (side, opening) = Side::new(run.ready());
        let failed = opening.open::<()>(|_| Err(Error::engine("NPU", "the weights shrank")));
        for error in [failed.unwrap_err(), block_on(side.ready()).unwrap_err()] {
            assert!(error.to_string().contains("NPU"), "{error}");
        }
        assert!(side.opened().is_none());

        let (side, opening) = Side::new(run.ready());
        drop(opening);
        assert!(
            block_on(side.ready())
                .unwrap_err()
                .to_string()
                .contains("serving")
        );
    }
}
