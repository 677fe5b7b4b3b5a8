//! The scheduler's own share: what a graph costs whose nodes do nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use scheduler::{BoxError, InitGraph, Lane, NodeId, OperatorType, Phase, RunOptions, Trace};

use crate::usage::thread_cpu_ns;

/// How long a node of the twin sleeps: long enough for every lane that waits for it to give up spinning and be parked, as in a
/// real run.
const NAP: Duration = Duration::from_micros(200);

/// CPU time, in milliseconds, that the scheduler takes for a graph like the one that ran: one with the same lanes, nodes and edges,
/// started in the same mode and recorded, whose nodes only sleep. It is what the lanes' threads use outside their nodes: starting,
/// handing over, parking and waking.
pub(crate) fn scheduler_ms(trace: &Trace) -> Result<f64> {
    let clock = Clock::default();
    let graph = twin(trace, &clock);
    // In the modes of one thread this may be it.
    clock.leave();
    let run = graph.start_with(trace.mode(), RunOptions::new().record())?;
    run.ready().wait()?;
    run.join();
    Ok(clock.0.load(Ordering::Relaxed) as f64 / 1e6)
}

/// The CPU time that threads use outside nodes, in nanoseconds.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

thread_local! {
    /// The thread's CPU time when it last left a node; 0 for a thread that has only been started.
    static LEFT_NS: Cell<u64> = const { Cell::new(0) };
}

impl Clock {
    /// The thread goes into a node: what it used since it left one is the scheduler's.
    fn enter(&self) {
        let outside = thread_cpu_ns() - LEFT_NS.get();
        self.0.fetch_add(outside, Ordering::Relaxed);
    }

    fn leave(&self) {
        LEFT_NS.set(thread_cpu_ns());
    }

    fn nap(&self) -> Result<(), BoxError> {
        self.enter();
        std::thread::sleep(NAP);
        self.leave();
        Ok(())
    }
}

/// A graph with the lanes, nodes and edges of a run, whose nodes only sleep.
fn twin(trace: &Trace, clock: &Clock) -> InitGraph {
    let mut graph = InitGraph::new();
    // The host lane comes with the graph. Stripes become lanes of their own, so that every node stays on its own.
    let lanes: Vec<Lane<Napper>> = trace.lanes()[1..]
        .iter()
        .map(|lane| graph.lane(Napper(lane.name.clone())))
        .collect();
    let mut nodes: Vec<NodeId> = Vec::new();
    for node in trace.nodes() {
        let (name, clock) = (node.name.clone(), clock.clone());
        let id = match node.phase {
            Phase::Host => graph.read(name, (), move |()| clock.nap()).id(),
            Phase::Device | Phase::Open => {
                let lane = &lanes[node.lane.index() - 1];
                graph.node(lane, name, (), async move |(), ()| clock.nap()).id()
            }
        };
        for dep in &node.deps {
            graph.after(id, nodes[dep.index()]);
        }
        nodes.push(id);
    }
    graph
}

/// Stands for an operator type; has only plain nodes.
struct Napper(String);

impl OperatorType for Napper {
    type Source = ();
    type Host = ();
    type Device = ();
    type Lane = ();

    fn name(&self) -> &str {
        &self.0
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, (): &()) -> Result<(), BoxError> {
        Ok(())
    }

    async fn setup(&self, (): &mut (), (): ()) -> Result<(), BoxError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use scheduler::InitMode;

    use super::*;

    fn trace(mode: InitMode) -> Trace {
        let mut graph = InitGraph::new();
        let (wide, narrow) = (
            graph.striped_lane(Napper("wide".into()), 2),
            graph.lane(Napper("narrow".into())),
        );
        let mut last = None;
        for name in ["a", "b", "c", "d"] {
            let (first, second) = (graph.operator(&wide, name, ()), graph.operator(&narrow, name, ()));
            graph.after(second, first);
            if let Some(last) = last.replace(second) {
                graph.after(first, last);
            }
        }
        let run = graph.start_with(mode, RunOptions::new().record()).unwrap();
        run.ready().wait().unwrap();
        run.trace()
    }

    #[test]
    fn a_twin_has_the_same_lanes_nodes_and_edges() {
        for mode in InitMode::ALL {
            let original = trace(mode);
            let run = twin(&original, &Clock::default())
                .start_with(mode, RunOptions::new().record())
                .unwrap();
            run.ready().wait().unwrap();
            let twin = run.trace();
            let shape = |trace: &Trace| -> Vec<_> {
                let nodes = trace.nodes().iter();
                nodes
                    .map(|node| {
                        let (lane, mut deps) = (trace.lane(node.lane).name.clone(), node.deps.clone());
                        deps.sort_unstable();
                        (node.name.clone(), node.phase, lane, deps)
                    })
                    .collect()
            };
            assert_eq!(shape(&original), shape(&twin));
            assert_eq!(original.lanes().len(), twin.lanes().len());
        }
    }

    #[test]
    fn what_lanes_do_outside_nodes_is_counted_and_sleep_is_not() {
        for mode in InitMode::ALL {
            let trace = trace(mode);
            let cpu_ms = scheduler_ms(&trace).unwrap();
            assert!(cpu_ms > 0.0, "{mode}: {cpu_ms}");
            let clock = Clock::default();
            clock.leave();
            for _ in trace.nodes() {
                clock.nap().unwrap();
            }
            let naps_ms = NAP.as_secs_f64() * 1e3 * trace.nodes().len() as f64;
            let counted_ms = clock.0.load(Ordering::Relaxed) as f64 / 1e6;
            assert!(counted_ms < naps_ms, "{mode}: {counted_ms} of {naps_ms}");
        }
    }
}
