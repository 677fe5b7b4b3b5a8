//! What a constructor keeps.

use std::fmt;

use super::core::Core;
use crate::error::InitError;
use crate::graph::topology::Name;
use crate::slot::Slot;
use crate::sync::{Arc, OnceLock, thread};

/// A value on its way: made by a lane, rolled back by it on failure, and moved to where readers find it after the barrier.
struct HandleCell<V> {
    core: Arc<Core>,
    name: Name,
    /// Filled by the lane.
    made: Arc<Slot<V>>,
    /// Filled by the first reader after the barrier. From then on nobody moves the value.
    ready: OnceLock<V>,
}

/// An operator taken by an [`Intake`](crate::Intake): its device value, once the sealed intake is ready.
///
/// Cloning gives another handle to the same value.
pub struct Handle<V>(Arc<HandleCell<V>>);

impl<V> Handle<V> {
    /// A handle to the value that a lane will put into `made`.
    pub(super) fn new(core: Arc<Core>, name: Name, made: Arc<Slot<V>>) -> Self {
        Handle(Arc::new(HandleCell {
            core,
            name,
            made,
            ready: OnceLock::new(),
        }))
    }

    /// The device value. One atomic load, once it has been asked for before.
    ///
    /// # Errors
    /// If the sealed intake has not settled yet: wait for it first. If it has failed.
    #[inline]
    pub fn get(&self) -> Result<&V, InitError> {
        match self.0.ready.get() {
            Some(value) => Ok(value),
            None => self.get_first(),
        }
    }

    #[cold]
    fn get_first(&self) -> Result<&V, InitError> {
        let name = &self.0.name;
        match self.0.core.barrier.outcome() {
            None => Err(InitError::misuse(format!(
                "{name}: used before its barrier: seal the intake and wait for it first"
            ))),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => loop {
                if let Some(value) = self.0.made.take() {
                    let _ = self.0.ready.set(value);
                }
                match self.0.ready.get() {
                    Some(value) => return Ok(value),
                    // Another thread has it in its hands.
                    None => thread::yield_now(),
                }
            },
        }
    }

    /// The operator's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl<V> Clone for Handle<V> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<V> fmt::Debug for Handle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.0.name)
    }
}
