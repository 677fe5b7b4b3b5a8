//! The scheduler's own share: what a graph costs whose nodes do nothing.

use std::time::Duration;

use anyhow::Result;
use scheduler::{BoxError, InitGraph, Lane, NodeId, OperatorType, Phase, RunOptions, Trace};

use crate::usage::Usage;

/// How long a node of the twin sleeps: long enough for every lane that waits for it to give up spinning and be parked, as in a
/// real run.
const NAP: Duration = Duration::from_micros(200);

/// CPU time, in milliseconds, that the scheduler takes for a graph like the one that ran: one with the same lanes, nodes and edges,
/// built, started in the same mode, recorded and joined, whose nodes only sleep; less what as many sleeps cost without it.
pub(crate) fn scheduler_ms(trace: &Trace) -> Result<f64> {
    let start = Usage::now().cpu_s;
    let run = twin(trace).start_with(trace.mode(), RunOptions::new().record())?;
    run.ready().wait()?;
    run.join();
    let scheduled = Usage::now().cpu_s;
    trace.nodes().iter().for_each(|_| std::thread::sleep(NAP));
    let slept = Usage::now().cpu_s;
    Ok(((scheduled - start) - (slept - scheduled)).max(0.0) * 1e3)
}

/// A graph with the lanes, nodes and edges of a run, whose nodes only sleep.
fn twin(trace: &Trace) -> InitGraph {
    let mut graph = InitGraph::new();
    // The host lane comes with the graph. Stripes become lanes of their own, so that every node stays on its own.
    let lanes: Vec<Lane<Napper>> = trace.lanes()[1..]
        .iter()
        .map(|lane| graph.lane(Napper(lane.name.clone())))
        .collect();
    let mut nodes: Vec<NodeId> = Vec::new();
    for node in trace.nodes() {
        let name = node.name.clone();
        let id = match node.phase {
            Phase::Host => graph.read(name, (), |()| nap()).id(),
            Phase::Device | Phase::Open => {
                let lane = &lanes[node.lane.index() - 1];
                graph.node(lane, name, (), async |(), ()| nap()).id()
            }
        };
        for dep in &node.deps {
            graph.after(id, nodes[dep.index()]);
        }
        nodes.push(id);
    }
    graph
}

fn nap() -> Result<(), BoxError> {
    std::thread::sleep(NAP);
    Ok(())
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
            let run = twin(&original)
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
    fn threads_cost_something() {
        // Starting and joining a thread per lane, for one; measured, so not to be zero.
        let of = |mode| scheduler_ms(&trace(mode)).unwrap();
        assert!((0..5).any(|_| of(InitMode::Overlapped) > 0.0));
    }
}
