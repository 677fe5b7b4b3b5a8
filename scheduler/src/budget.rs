//! The staging budget: how many bytes of host values may wait for device setup.
//!
//! The host lane asks before it reads; whoever finishes with a value gives its bytes back. Admission is first in, first
//! out, since there is one host lane.
//!
//! # Why this never deadlocks
//!
//! The host lane waits only while some staged value can be released without a further read. A value used by its own
//! operator alone always can: everything its device node waits for was submitted before it, so all reads that need
//! to precede have. A value that later operators share may have a user that sits behind a read still to come; such a
//! value is not waited for, and if nothing else is staged the next one is admitted over the budget. So is a single value larger
//! than the budget, when nothing is staged.

use crate::graph::topology::Topology;
use crate::ready::Pos;
use crate::signal::Signal;
use crate::sync::{Arc, Mutex, lock};

/// One host value with a size.
struct Value {
    pos: Pos,
    bytes: u64,
    /// How many host nodes must have finished before its last user can.
    needs: u32,
    users_left: u32,
    is_staged: bool,
}

struct State {
    values: Vec<Value>,
    used_bytes: u64,
    /// Staged values that are released without a further read, whatever is read next.
    n_plain: usize,
    /// Indices of staged values that operators share.
    shared: Vec<usize>,
    /// The host lane, if it waits.
    waiting: Option<Arc<Signal>>,
    /// A stamp not before the last release.
    stamp: u64,
}

pub(crate) struct Budget {
    limit_bytes: u64,
    state: Mutex<State>,
    /// By lane: which value (by index) the node at a place uses. Sorted by place.
    users: Vec<Vec<(Pos, u32)>>,
}

/// What the host lane may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Read; this many bytes are charged now.
    Read { charged_bytes: u64 },
    /// Wait for a release.
    Full,
}

/// How a full budget is dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Wait until the value fits.
    UntilItFits,
    /// Wait until everything that can be released is.
    UntilDrained,
    /// Do not wait.
    None,
}

impl Budget {
    /// `shares` are pairs (node, host node whose value it uses too), beside each operator's own device node.
    pub(crate) fn new(limit_bytes: u64, topology: &Topology, shares: &[(u32, u32)]) -> Self {
        let index_of = |pos| {
            topology
                .host_bytes
                .binary_search_by_key(&pos, |(pos, _)| *pos)
                .ok()
        };
        let value = |&(pos, bytes)| Value {
            pos,
            bytes,
            needs: pos + 1,
            users_left: 0,
            is_staged: false,
        };
        let mut values: Vec<Value> = topology.host_bytes.iter().map(value).collect();
        let mut users = vec![Vec::new(); topology.lanes.len()];
        let mut add_user = |node: u32, host: u32, needs: u32, values: &mut Vec<Value>| {
            let Some(index) = index_of(topology.nodes[host as usize].pos) else {
                return;
            };
            let entry = topology.nodes[node as usize];
            users[entry.lane() as usize].push((entry.pos, index as u32));
            values[index].users_left += 1;
            values[index].needs = values[index].needs.max(needs);
        };
        for (id, entry) in topology.nodes.iter().enumerate() {
            if entry.follows_own_host() {
                add_user(id as u32, id as u32 - 1, 0, &mut values);
            }
        }
        if !shares.is_empty() {
            let needs = topology.host_needs();
            for &(node, host) in shares {
                add_user(node, host, needs[node as usize], &mut values);
            }
        }
        for users in &mut users {
            users.sort_unstable();
        }
        let state = State {
            values,
            used_bytes: 0,
            n_plain: 0,
            shared: Vec::new(),
            waiting: None,
            stamp: 0,
        };
        Budget {
            limit_bytes,
            state: Mutex::new(state),
            users,
        }
    }

    /// Asks to read the host node at `pos`.
    pub(crate) fn admit(&self, pos: Pos, patience: Patience, stamp: &mut u64) -> Admission {
        let mut state = lock(&self.state);
        let Ok(index) = state.values.binary_search_by_key(&pos, |value| value.pos) else {
            return Admission::Read { charged_bytes: 0 };
        };
        let bytes = state.values[index].bytes;
        let fits = state.used_bytes.saturating_add(bytes) <= self.limit_bytes;
        if !fits && patience != Patience::None && state.some_can_be_released(pos) {
            return Admission::Full;
        }
        state.used_bytes += bytes;
        let value = &mut state.values[index];
        value.is_staged = true;
        if value.needs > pos + 1 {
            state.shared.push(index);
        } else {
            state.n_plain += 1;
        }
        *stamp = state.stamp;
        Admission::Read { charged_bytes: bytes }
    }

    /// Asks for a wake-up at the next release, while the host node at `pos` must wait. False if it need not.
    pub(crate) fn wait(&self, pos: Pos, patience: Patience, signal: &Arc<Signal>) -> bool {
        let mut state = lock(&self.state);
        let bytes = match state.values.binary_search_by_key(&pos, |value| value.pos) {
            Ok(index) => state.values[index].bytes,
            Err(_) => 0,
        };
        let fits = state.used_bytes.saturating_add(bytes) <= self.limit_bytes;
        let must_wait = state.some_can_be_released(pos) && (!fits || patience == Patience::UntilDrained);
        state.waiting = must_wait.then(|| signal.clone());
        must_wait
    }

    /// The node at `pos` of `lane` is through with its host values. Calls `released` for each that this was the last user of.
    pub(crate) fn release(&self, lane: u32, pos: Pos, stamp: u64, mut released: impl FnMut(Pos, u64)) {
        let users = &self.users[lane as usize];
        let from = users.partition_point(|(at, _)| *at < pos);
        let mine = users[from..].iter().take_while(|(at, _)| *at == pos);
        let mut woken = None;
        for (_, index) in mine {
            let mut state = lock(&self.state);
            if let Some((pos, bytes)) = state.user_done(*index as usize) {
                state.stamp = state.stamp.max(stamp);
                woken = state.waiting.take().or(woken);
                drop(state);
                released(pos, bytes);
            }
        }
        if let Some(signal) = woken {
            signal.wake();
        }
    }
}

impl State {
    /// Whether a staged value can be released without reading the host node at `next` or a later one.
    fn some_can_be_released(&self, next: Pos) -> bool {
        self.n_plain > 0 || self.shared.iter().any(|index| self.values[*index].needs <= next)
    }

    fn user_done(&mut self, index: usize) -> Option<(Pos, u64)> {
        let value = &mut self.values[index];
        value.users_left -= 1;
        if value.users_left > 0 || !value.is_staged {
            return None;
        }
        value.is_staged = false;
        let (pos, bytes) = (value.pos, value.bytes);
        if value.needs > pos + 1 {
            self.shared.retain(|shared| *shared != index);
        } else {
            self.n_plain -= 1;
        }
        self.used_bytes -= bytes;
        Some((pos, bytes))
    }
}
