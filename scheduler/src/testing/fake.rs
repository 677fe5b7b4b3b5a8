//! An operator type whose nodes do what a [`Script`] says and whose values and lane states are counted.

use super::script::{Call, Script, What};
use crate::event::Phase;
use crate::operator::{BoxError, OperatorType};
use std::fmt;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::task::Poll;

/// A fake operator type. Its host and device values depend on everything they should, so that two runs can be compared.
pub struct FakeType {
    name: String,
    /// Device values depend on how many nodes the lane set up before: only a lane in FIFO order gives the same in every mode.
    is_order_sensitive: bool,
    script: Script,
}

impl FakeType {
    /// A type with this name, whose nodes do what `script` says.
    pub fn new(name: impl Into<String>, script: &Script) -> FakeType {
        FakeType {
            name: name.into(),
            is_order_sensitive: true,
            script: script.clone(),
        }
    }

    /// Makes device values independent of the order on the lane: for lanes in ready order and for striped ones.
    pub fn order_insensitive(self) -> FakeType {
        FakeType {
            is_order_sensitive: false,
            ..self
        }
    }
}

/// What the host lane reads a fake operator from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeSource {
    /// The node's index, as scripts and plans call it.
    pub node: usize,
    /// Staging bytes of the read.
    pub bytes: u64,
    /// How many times the device part awaits before it finishes.
    pub n_awaits: u8,
}

/// A value whose making, cloning and dropping is in the script's log.
pub struct FakeValue {
    /// Which part of which node made it.
    pub call: Call,
    /// What it holds: a hash of everything it was made from.
    pub content: u64,
    n_awaits: u8,
    script: Script,
}

impl FakeValue {
    /// A value made by a part of a node.
    pub fn new(call: Call, content: u64, script: &Script) -> FakeValue {
        FakeValue::with_awaits(call, content, 0, script)
    }

    fn with_awaits(call: Call, content: u64, n_awaits: u8, script: &Script) -> FakeValue {
        script.note(What::Made(call));
        FakeValue {
            call,
            content,
            n_awaits,
            script: script.clone(),
        }
    }
}

impl Clone for FakeValue {
    fn clone(&self) -> FakeValue {
        FakeValue::with_awaits(self.call, self.content, self.n_awaits, &self.script)
    }
}

impl Drop for FakeValue {
    fn drop(&mut self) {
        self.script.note(What::Dropped(self.call));
    }
}

impl fmt::Debug for FakeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeValue({:?}, {:x})", self.call, self.content)
    }
}

/// State of a fake lane: not `Send`, and its opening, use and drop are in the script's log.
pub struct FakeLane {
    /// As [`What`] counts them.
    number: usize,
    n_set_up: u64,
    script: Script,
    /// Makes the type stay on its thread.
    _not_send: Rc<()>,
}

impl FakeLane {
    /// Runs the device part of a node: enters it, awaits as often as asked, and gives a value made from `input` and, on
    /// order-sensitive lanes, from what the lane did before.
    ///
    /// # Errors
    ///
    /// What the script says.
    pub async fn run(
        &mut self,
        node: usize,
        n_awaits: u8,
        input: u64,
        is_order_sensitive: bool,
    ) -> Result<FakeValue, BoxError> {
        let call = (node, Phase::Device);
        self.script.note(What::Used(self.number, call));
        self.script.enter_awaiting(call).await?;
        for _ in 0..n_awaits {
            yield_once().await;
        }
        self.script.note(What::Used(self.number, call));
        self.n_set_up += 1;
        let before = if is_order_sensitive { self.n_set_up } else { 0 };
        Ok(FakeValue::new(
            call,
            content(&(node, input, before)),
            &self.script,
        ))
    }
}

impl Drop for FakeLane {
    fn drop(&mut self) {
        self.script.note(What::Closed(self.number));
    }
}

impl OperatorType for FakeType {
    type Source = FakeSource;
    type Host = FakeValue;
    type Device = FakeValue;
    type Lane = FakeLane;

    fn name(&self) -> &str {
        &self.name
    }

    fn host_bytes(&self, source: &FakeSource) -> u64 {
        source.bytes
    }

    fn open(&self) -> Result<FakeLane, BoxError> {
        Ok(FakeLane {
            number: self.script.note_opened(),
            n_set_up: 0,
            script: self.script.clone(),
            _not_send: Rc::new(()),
        })
    }

    fn read(&self, source: &FakeSource) -> Result<FakeValue, BoxError> {
        let call = (source.node, Phase::Host);
        self.script.enter_blocking(call)?;
        Ok(FakeValue::with_awaits(
            call,
            content(&source.node),
            source.n_awaits,
            &self.script,
        ))
    }

    async fn setup(&self, lane: &mut FakeLane, host: FakeValue) -> Result<FakeValue, BoxError> {
        lane.run(host.call.0, host.n_awaits, host.content, self.is_order_sensitive)
            .await
    }
}

/// A hash that is the same in every run.
pub fn content(from: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    from.hash(&mut hasher);
    hasher.finish()
}

/// Awaits once; works with any executor.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|task| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
