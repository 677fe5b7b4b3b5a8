//! Where an operator is, by name, for any thread to ask while the run goes on.

use std::collections::HashMap;

use crate::executor::shared::Shared;
use crate::ready::Pos;
use crate::sync::Ordering;

/// Where an operator or a plain node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nothing of it has started.
    Waiting,
    /// Its host node is running.
    Reading,
    /// Its host value waits for device setup.
    Staged,
    /// Its device node is running. For a plain node: it is running.
    SettingUp,
    /// It is through.
    Done,
    /// It is what failed.
    Failed,
    /// It will never run: something it depends on failed, or the run was stopped.
    Abandoned,
}

/// Names to nodes: of an operator the device node. Where several have one name, the last.
pub(crate) fn index_names(shared: &Shared) -> HashMap<String, u32> {
    let topology = &shared.topology;
    let ids = 0..topology.nodes.len() as u32;
    ids.map(|id| (topology.name(id).to_string(), id)).collect()
}

pub(crate) fn status_of(shared: &Shared, node: u32) -> Status {
    let topology = &shared.topology;
    let own_host = topology.nodes[node as usize].follows_own_host().then(|| node - 1);
    let is_failed = |id| shared.is_root(id);
    if is_failed(node) || own_host.is_some_and(is_failed) {
        return Status::Failed;
    }
    match stage_of(shared, node) {
        Stage::Done => return Status::Done,
        Stage::Running => return Status::SettingUp,
        Stage::Waiting => {}
    }
    let entry = topology.nodes[node as usize];
    if shared.is_stopped() || (shared.has_failures() && shared.is_doomed(entry.lane(), entry.pos)) {
        return Status::Abandoned;
    }
    match own_host.map(|host| stage_of(shared, host)) {
        Some(Stage::Done) => Status::Staged,
        Some(Stage::Running) => Status::Reading,
        Some(Stage::Waiting) | None => Status::Waiting,
    }
}

enum Stage {
    Waiting,
    Running,
    Done,
}

fn stage_of(shared: &Shared, node: u32) -> Stage {
    let entry = shared.topology.nodes[node as usize];
    let lane = &shared.lanes[entry.lane() as usize];
    let pulse = lane.pulse.load(Ordering::Relaxed);
    let (at, is_running) = ((pulse / 2) as Pos, pulse & 1 == 1);
    let is_done = match &lane.ready {
        Some(ready) => ready.is_done(entry.pos),
        None => entry.pos < at,
    };
    if is_done {
        Stage::Done
    } else if is_running && at == entry.pos {
        Stage::Running
    } else {
        Stage::Waiting
    }
}
