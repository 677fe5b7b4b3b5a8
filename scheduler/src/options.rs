//! How a run is to go, apart from its graph and its mode.

use std::time::Duration;

use crate::mode::FailurePolicy;
use crate::stall::{Stall, StallNotice};
use crate::sync::Arc;
use crate::threads::LaneThreads;

/// Options of a run. The default: fail fast, record nothing, no staging budget.
///
/// ```
/// use scheduler::{FailurePolicy, InitGraph, InitMode, RunOptions};
///
/// let options = RunOptions::new().failure_policy(FailurePolicy::CollectAll).record().staging_budget_bytes(64 << 20);
/// let run = InitGraph::new().start_with(InitMode::Serial, options)?;
/// run.ready().wait()?;
/// # Ok::<(), scheduler::InitError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub(crate) policy: FailurePolicy,
    pub(crate) record: bool,
    pub(crate) staging_budget_bytes: Option<u64>,
    pub(crate) threads: ThreadOptions,
}

/// Where a run's threads come from and what they are called.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadOptions {
    pub(crate) prefix: Option<String>,
    pub(crate) pool: Option<LaneThreads>,
    pub(crate) pinning: Pinning,
    pub(crate) stall: Option<StallNotice>,
}

/// Whether threads are bound to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pinning {
    #[default]
    Free,
    OneCoreEach,
}

impl RunOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to do when a node fails.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Record events, so that [`Run::trace`](crate::Run::trace) has something to show. Costs about 20 ns and 32 bytes per node.
    pub fn record(mut self) -> Self {
        self.record = true;
        self
    }

    /// Let host values that wait for device setup hold at most this many bytes, as
    /// [`OperatorType::host_bytes`](crate::OperatorType::host_bytes) counts them. One value is always admitted.
    pub fn staging_budget_bytes(mut self, bytes: u64) -> Self {
        self.staging_budget_bytes = Some(bytes);
        self
    }

    /// Tell when a node has been running for `after`, once for each such node. The node goes on. The notice is also a `tracing` event, and comes from a
    /// thread of its own, which ends with the run.
    pub fn stall_notice(mut self, after: Duration, tell: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.threads.stall = Some(StallNotice {
            after,
            tell: Arc::new(tell),
        });
        self
    }

    /// Name the run's threads `<prefix>-<lane>`. The default prefix is `init`.
    pub fn thread_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.threads.prefix = Some(prefix.into());
        self
    }

    /// Take the run's threads from here, and leave them here parked when it is over. Such threads keep the names that
    /// the run gave them for which they were started.
    pub fn threads(mut self, threads: &LaneThreads) -> Self {
        self.threads.pool = Some(threads.clone());
        self
    }

    /// Pin each of the run's threads to a core, in turn, the host lane first. Where the system does not allow it, threads stay free.
    pub fn pin_to_cores(mut self) -> Self {
        self.threads.pinning = Pinning::OneCoreEach;
        self
    }
}
