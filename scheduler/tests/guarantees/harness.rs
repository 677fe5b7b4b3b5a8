//! Runs of random graphs with fake operators, and what is left to look at afterwards.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use scheduler::testing::{
    Built, Entry, FakeNode, Fault, FaultPlan, GraphSpec, Guarantee, Script, Size, check_guarantees, faults,
    graphs, modes,
};
use scheduler::{FailurePolicy, InitError, InitMode, Run, RunOptions, Trace};
use std::sync::Arc;

#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(shuttle))]
pub use std::thread;

/// A graph, how to run it, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Case {
    pub spec: GraphSpec,
    pub mode: InitMode,
    pub policy: FailurePolicy,
    pub plan: FaultPlan,
}

/// Small graphs under shuttle, where every step of every thread is a choice.
pub fn size() -> Size {
    if cfg!(shuttle) {
        Size {
            n_lanes: 1..3,
            n_nodes: 0..6,
            n_barriers: 0..2,
        }
    } else {
        Size::default()
    }
}

/// Every kind of fault. Shuttle reports any panic as a failed schedule, so panics are left to the threads.
pub fn every_fault() -> &'static [Fault] {
    if cfg!(shuttle) {
        &[Fault::Fail, Fault::Stall, Fault::Cancel]
    } else {
        &Fault::ALL
    }
}

/// Random cases with up to two faults of the given kinds; without kinds, nothing goes wrong.
pub fn cases(kinds: &'static [Fault]) -> impl Strategy<Value = Case> {
    let policy = prop_oneof![Just(FailurePolicy::FailFast), Just(FailurePolicy::CollectAll)];
    (graphs(size()), modes(), policy).prop_flat_map(move |(spec, mode, policy)| {
        faults(&spec, kinds, 2).prop_map(move |plan| Case {
            spec: spec.clone(),
            mode,
            policy,
            plan,
        })
    })
}

/// Keeps planned panics, which the run catches, out of the test's output.
pub fn silence_planned_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic
                .payload_as_str()
                .is_some_and(|text| text.starts_with("planned panic"))
            {
                print(panic);
            }
        }));
    });
}

/// A run in progress.
pub struct Started {
    pub run: Arc<Run>,
    pub script: Script,
    pub nodes: Vec<FakeNode>,
    pub barriers: Vec<scheduler::BarrierId>,
}

pub fn start(case: &Case, script: Script) -> Started {
    silence_planned_panics();
    let Built {
        graph,
        nodes,
        barriers,
    } = case.spec.build_fake(&script);
    let mut options = RunOptions::new().record().failure_policy(case.policy);
    if let Some(bytes) = case.spec.budget_bytes {
        options = options.staging_budget_bytes(bytes);
    }
    let run = Arc::new(
        graph
            .start_with(case.mode, options)
            .expect("edges go to earlier nodes"),
    );
    let weak = Arc::downgrade(&run);
    script.on_cancel(move || {
        if let Some(run) = weak.upgrade() {
            run.cancel();
        }
    });
    Started {
        run,
        script,
        nodes,
        barriers,
    }
}

/// A run that is over, its values and threads gone.
pub struct Finished {
    pub trace: Trace,
    /// The content of each node's value, or why there are none.
    pub outcome: Result<Vec<u64>, InitError>,
    /// How each barrier of the spec settled.
    pub barriers: Vec<Result<(), InitError>>,
    pub nodes: Vec<FakeNode>,
    pub script: Script,
    /// What happened to values and lane states, up to the drop of the last one.
    pub log: Vec<Entry>,
}

/// Runs a case to its end. A node that stalls is noticed, the run cancelled, and then the node released.
pub fn run(case: &Case) -> Finished {
    let Started {
        run,
        script,
        nodes,
        barriers,
    } = start(case, Script::new(case.plan.clone()));
    let ready = run.ready();
    while !ready.is_settled() {
        if !script.waiting().is_empty() {
            run.cancel();
            script.release();
        }
        thread::yield_now();
    }
    // A stalled node may be entered after another one has failed the run.
    script.release();
    let outcome = ready.wait().map(|mut ready| {
        let content = |node: &FakeNode| ready.take(node.device()).content;
        nodes.iter().map(content).collect()
    });
    let barriers = barriers
        .iter()
        .map(|&id| run.barrier(id).wait().map(drop))
        .collect();
    let trace = run.trace();
    drop((run, ready));
    let log = script.log();
    Finished {
        trace,
        outcome,
        barriers,
        nodes,
        script,
        log,
    }
}

impl Finished {
    /// Fails if the trace breaks this guarantee.
    pub fn upholds(&self, guarantee: Guarantee) -> Result<(), TestCaseError> {
        match check_guarantees(&self.trace) {
            Err(violations) if violations.contains(guarantee) => Err(TestCaseError::fail(format!(
                "{violations}\n{}",
                self.trace.timeline(100)
            ))),
            _ => Ok(()),
        }
    }
}
