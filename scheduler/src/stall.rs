//! Naming the node that has been silent for long, without ending it.

use std::fmt;
use std::time::Duration;

use crate::error::Site;
use crate::event::Phase;
use crate::sync::Arc;

/// A node that has been running for long: computing, blocked, or awaiting something. It goes on; the notice only names it.
#[derive(Clone, Debug)]
pub struct Stall {
    site: Site,
    running_for: Duration,
}

impl Stall {
    /// The node's name.
    pub fn node(&self) -> &str {
        &self.site.node
    }

    /// The lane it runs on.
    pub fn lane(&self) -> &str {
        &self.site.lane
    }

    /// The type of its operator.
    pub fn operator_type(&self) -> &str {
        &self.site.operator_type
    }

    /// Whether it reads or sets up.
    pub fn phase(&self) -> Phase {
        self.site.phase
    }

    /// For how long it has been seen running.
    pub fn running_for(&self) -> Duration {
        self.running_for
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site {
            node, lane, phase, ..
        } = &self.site;
        write!(
            f,
            "{node}: {phase} phase on lane {lane} has been running for {:.1?}",
            self.running_for
        )
    }
}

/// After how long, and whom to tell.
#[derive(Clone)]
#[cfg_attr(shuttle, allow(dead_code, reason = "there is no time to watch"))]
pub(crate) struct StallNotice {
    pub(crate) after: Duration,
    pub(crate) tell: Arc<dyn Fn(&Stall) + Send + Sync>,
}

impl fmt::Debug for StallNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StallNotice after {:?}", self.after)
    }
}

/// Watches a run until its last lane has closed. Each stay in a node is told once.
#[cfg(not(shuttle))]
pub(crate) fn watch(shared: &crate::executor::shared::Shared, notice: &StallNotice) {
    use std::time::Instant;
    let mut seen: Vec<(u64, Instant, bool)> = vec![(0, Instant::now(), true); shared.lanes.len()];
    let look_every = (notice.after / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
    while !shared.wait_closed_for(look_every) {
        for (lane, seen) in seen.iter_mut().enumerate() {
            let pulse = shared.pulse(lane);
            if pulse != seen.0 {
                *seen = (pulse, Instant::now(), false);
                continue;
            }
            let running_for = seen.1.elapsed();
            let Some(site) = shared
                .site_running(lane, pulse)
                .filter(|_| !seen.2 && running_for >= notice.after)
            else {
                continue;
            };
            seen.2 = true;
            let stall = Stall { site, running_for };
            tracing::warn!(target: "scheduler", node = stall.node(), lane = stall.lane(), "{stall}");
            (notice.tell)(&stall);
        }
    }
}
