//! A countable resource that nodes hold: device contexts, say.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::graph::topology::Name;
use crate::sync::{Arc, Mutex, lock};

/// A resource of which a device has only so many: hardware contexts, queues, mappings.
///
/// Some drivers answer one context too many with silent garbage. A node that needs one takes a [`Permit`] first, inside
/// [`setup`](crate::OperatorType::setup), and keeps it for as long as it keeps the resource: for the length of the call, in the
/// lane's state, or in its device value.
///
/// Waiting is first in, first out, and a lane that waits does nothing else. So a quota that values hold until the run is over must be large
/// enough for all of them; where it may not be, use [`try_acquire`](Quota::try_acquire), whose error says who
/// holds what. The stall notice names a node that waits here for long.
///
/// ```
/// use scheduler::Quota;
///
/// let contexts = Quota::new("NPU contexts", 2);
/// let (a, b) = (contexts.try_acquire("q_proj")?, contexts.try_acquire("k_proj")?);
/// let refused = contexts.try_acquire("v_proj").unwrap_err();
/// assert_eq!(refused.to_string(), "v_proj: all 2 NPU contexts are taken, by q_proj, k_proj");
/// drop(a);
/// assert_eq!(contexts.n_free(), 1);
/// # drop(b);
/// # Ok::<(), scheduler::QuotaError>(())
/// ```
#[derive(Clone)]
pub struct Quota(Arc<Inner>);

struct Inner {
    what: Name,
    n_total: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who holds a permit, by the permit's key. Invariant: never more than `n_total`.
    holders: Vec<(u64, Name)>,
    /// Who waits, the first to be served first.
    queue: VecDeque<Waiting>,
    next_key: u64,
}

struct Waiting {
    key: u64,
    waker: Waker,
}

impl Quota {
    /// A quota of `n_total` of something, named in the plural as messages are to show it.
    pub fn new(what: impl Into<Name>, n_total: usize) -> Self {
        Quota(Arc::new(Inner {
            what: what.into(),
            n_total,
            state: Mutex::default(),
        }))
    }

    /// How many there are in all.
    pub fn n_total(&self) -> usize {
        self.0.n_total
    }

    /// How many are free now.
    pub fn n_free(&self) -> usize {
        self.0.n_total - lock(&self.0.state).holders.len()
    }

    /// Who holds one now, in the order they got it.
    pub fn holders(&self) -> Vec<String> {
        lock(&self.0.state)
            .holders
            .iter()
            .map(|(_, name)| name.to_string())
            .collect()
    }

    /// Takes one for `holder`, if one is free and nobody waits for it.
    ///
    /// # Errors
    /// If all are taken, or waited for.
    pub fn try_acquire(&self, holder: impl Into<Name>) -> Result<Permit, QuotaError> {
        let holder = holder.into();
        let mut state = lock(&self.0.state);
        if state.holders.len() < self.0.n_total && state.queue.is_empty() {
            return Ok(self.permit(&mut state, holder));
        }
        let holders = state.holders.iter().map(|(_, name)| name.to_string()).collect();
        Err(QuotaError {
            holder,
            what: self.0.what.clone(),
            n_total: self.0.n_total,
            holders,
        })
    }

    /// Waits for one for `holder`.
    ///
    /// # Cancel safety
    /// A future that is dropped leaves the queue; the next in line is served.
    pub fn acquire(&self, holder: impl Into<Name>) -> Acquire {
        Acquire {
            quota: self.clone(),
            holder: holder.into(),
            key: None,
        }
    }

    fn permit(&self, state: &mut State, holder: Name) -> Permit {
        state.next_key += 1;
        let key = state.next_key;
        state.holders.push((key, holder));
        Permit {
            quota: self.clone(),
            key,
        }
    }

    /// Wakes the first in line, if it can be served. Called without the lock.
    fn wake_first(&self) {
        let waker = {
            let state = lock(&self.0.state);
            let is_free = state.holders.len() < self.0.n_total;
            state
                .queue
                .front()
                .filter(|_| is_free)
                .map(|first| first.waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Quota({}: {} of {} free)",
            self.0.what,
            self.n_free(),
            self.0.n_total
        )
    }
}

/// One of a [`Quota`], given back when dropped.
#[must_use = "a permit is given back when it is dropped"]
pub struct Permit {
    quota: Quota,
    key: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.quota.0.state)
            .holders
            .retain(|(key, _)| *key != self.key);
        self.quota.wake_first();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.quota.0.what)
    }
}

/// The future that [`Quota::acquire`] gives.
#[must_use = "a future does nothing until it is awaited"]
pub struct Acquire {
    quota: Quota,
    holder: Name,
    /// The place in the queue, once there is one.
    key: Option<u64>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        let waker = task.waker().clone();
        let mut state = lock(&this.quota.0.state);
        let is_first = match this.key {
            Some(key) => state.queue.front().is_some_and(|first| first.key == key),
            None => state.queue.is_empty(),
        };
        if is_first && state.holders.len() < this.quota.0.n_total {
            if this.key.take().is_some() {
                state.queue.pop_front();
            }
            let permit = this.quota.permit(&mut state, this.holder.clone());
            drop(state);
            // With more than one free, the next in line need not wait for a permit to come back.
            this.quota.wake_first();
            return Poll::Ready(permit);
        }
        match this
            .key
            .and_then(|key| state.queue.iter_mut().find(|waiting| waiting.key == key))
        {
            Some(waiting) => {
                let replaced = std::mem::replace(&mut waiting.waker, waker);
                drop(state);
                drop(replaced);
            }
            None => {
                state.next_key += 1;
                let key = state.next_key;
                state.queue.push_back(Waiting { key, waker });
                this.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let left = {
            let mut state = lock(&self.quota.0.state);
            let at = state.queue.iter().position(|waiting| waiting.key == key);
            at.and_then(|at| state.queue.remove(at))
        };
        drop(left);
        // A wake-up that was meant for this one goes to the next.
        self.quota.wake_first();
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acquire({} for {})", self.quota.0.what, self.holder)
    }
}

/// Nothing of a [`Quota`] was free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    holder: Name,
    what: Name,
    n_total: usize,
    holders: Vec<String>,
}

impl QuotaError {
    /// Who holds one.
    pub fn holders(&self) -> &[String] {
        &self.holders
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holder, n_total, what) = (&self.holder, self.n_total, &self.what);
        write!(
            f,
            "{holder}: all {n_total} {what} are taken, by {}",
            self.holders.join(", ")
        )
    }
}

impl std::error::Error for QuotaError {}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::pin::pin;

    fn poll(future: Pin<&mut Acquire>) -> Option<Permit> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn permits_are_served_first_in_first_out_also_past_one_that_left() {
        let quota = Quota::new("contexts", 1);
        let held = quota.try_acquire("held").unwrap();
        let mut first = Box::pin(quota.acquire("first"));
        let mut second = pin!(quota.acquire("second"));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        drop(held);
        assert!(
            quota.try_acquire("pusher").is_err(),
            "the free one is the first's"
        );
        assert!(poll(second.as_mut()).is_none());
        drop(first);
        let second = poll(second.as_mut()).unwrap();
        assert_eq!(quota.holders(), ["second"]);
        drop(second);
        assert_eq!(quota.n_free(), 1);
    }
}
