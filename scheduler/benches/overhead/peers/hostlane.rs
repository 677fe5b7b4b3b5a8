//! The scheduler itself: operators with typed values for the mission's shapes, plain nodes for the others.

use super::Round;
use crate::shape::Shape;
use scheduler::{BoxError, InitGraph, InitMode, LaneThreads, NodeId, OperatorType, RunOptions};
use std::hint::black_box;
use std::time::Instant;

/// An operator type that does nothing with a value.
struct Empty;

impl OperatorType for Empty {
    type Source = usize;
    type Host = usize;
    type Device = usize;
    type Lane = ();

    fn name(&self) -> &str {
        "Empty"
    }
    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }
    fn read(&self, source: &usize) -> Result<usize, BoxError> {
        Ok(black_box(*source))
    }
    async fn setup(&self, _: &mut (), host: usize) -> Result<usize, BoxError> {
        Ok(black_box(host))
    }
}

pub fn overlapped(shape: &Shape) -> Round {
    round(shape, InitMode::Overlapped, RunOptions::new())
}

/// On lane threads that earlier rounds have left parked.
pub fn warm(shape: &Shape) -> Round {
    thread_local!(static THREADS: LaneThreads = LaneThreads::new());
    let threads = THREADS.with(LaneThreads::clone);
    if threads.n_parked() < shape.n_lanes {
        // Start them: this round is not the one that is measured.
        round(shape, InitMode::Overlapped, RunOptions::new().threads(&threads));
    }
    round(shape, InitMode::Overlapped, RunOptions::new().threads(&threads))
}

pub fn recorded(shape: &Shape) -> Round {
    round(shape, InitMode::Overlapped, RunOptions::new().record())
}

pub fn inline(shape: &Shape) -> Round {
    round(shape, InitMode::Inline, RunOptions::new())
}

fn round(shape: &Shape, mode: InitMode, options: RunOptions) -> Round {
    let begin = Instant::now();
    let graph = if shape.is_mission {
        operators(shape)
    } else {
        plain_nodes(shape)
    };
    let build = begin.elapsed();

    let begin = Instant::now();
    let run = graph.start_with(mode, options).expect("a valid graph");
    run.ready().wait().expect("nothing fails");
    let elapsed = begin.elapsed();
    run.join();
    Round {
        build,
        run: elapsed,
        ..Round::default()
    }
}

fn operators(shape: &Shape) -> InitGraph {
    let mut graph = InitGraph::new();
    let lanes: Vec<_> = (1..shape.n_lanes).map(|_| graph.lane(Empty)).collect();
    for device in (1..shape.n_nodes()).step_by(2) {
        graph.operator(&lanes[shape.lane(device) - 1], "operator", device);
    }
    graph
}

fn plain_nodes(shape: &Shape) -> InitGraph {
    let mut graph = InitGraph::new();
    let lanes: Vec<_> = (1..shape.n_lanes).map(|_| graph.lane(Empty)).collect();
    for index in 0..shape.n_nodes() {
        let id = match shape.lane(index) {
            0 => graph
                .read("node", (), move |()| {
                    black_box(index);
                    Ok(())
                })
                .id(),
            lane => graph
                .node(&lanes[lane - 1], "node", (), async move |_: &mut (), ()| {
                    black_box(index);
                    Ok(())
                })
                .id(),
        };
        for on in shape.deps(index) {
            graph.after(id, NodeId::from_index(*on as usize));
        }
    }
    graph
}
