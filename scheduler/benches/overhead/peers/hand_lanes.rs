//! What one writes by hand: a thread and a crossbeam channel per lane, atomic counters per node.

use super::{Round, counted::CountedGraph};
use crate::shape::Shape;
use crossbeam_channel::{Sender, unbounded};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Asks a lane to end.
const STOP: u32 = u32::MAX;

pub fn round(shape: &Shape) -> Round {
    let begin = Instant::now();
    let graph = CountedGraph::new(shape);
    let build = begin.elapsed();

    let mut start = Duration::ZERO;
    let mut run = Duration::ZERO;
    let (senders, receivers): (Vec<Sender<u32>>, Vec<_>) = (0..shape.n_lanes).map(|_| unbounded()).unzip();
    let (done, is_done) = unbounded();
    let started = Barrier::new(shape.n_lanes + 1);
    let (graph, senders, started) = (&graph, &senders, &started);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for receiver in receivers {
            let done = done.clone();
            scope.spawn(move || {
                started.wait();
                for node in receiver.iter().take_while(|&node| node != STOP) {
                    let send = |node| {
                        senders[graph.lane(node)]
                            .send(node)
                            .expect("lanes outlive the run")
                    };
                    if graph.run(node, send) {
                        done.send(()).expect("the caller waits for the last node");
                    }
                }
            });
        }
        started.wait();
        start = begin.elapsed();
        settle();

        let begin = Instant::now();
        for &root in graph.roots() {
            senders[graph.lane(root)]
                .send(root)
                .expect("lanes outlive the run");
        }
        is_done.recv().expect("the last node reports");
        run = begin.elapsed();
        for sender in senders {
            sender.send(STOP).expect("lanes outlive the run");
        }
    });
    Round { build, start, run }
}

/// Gives warm threads time to park, so that every peer starts a run from the same state.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(1));
}
