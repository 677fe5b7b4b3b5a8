//! A tokio task and channel per lane on the multi-thread runtime: serialized lanes without pinned threads.

use super::{Round, counted::CountedGraph};
use crate::shape::Shape;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

const STOP: u32 = u32::MAX;

pub fn round(shape: &Shape) -> Round {
    let runtime = runtime();
    let begin = Instant::now();
    let graph = Arc::new(CountedGraph::new(shape));
    let build = begin.elapsed();

    let begin = Instant::now();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shape.n_lanes)
        .map(|_| mpsc::unbounded_channel::<u32>())
        .unzip();
    let senders = Arc::new(senders);
    let (done, is_done) = oneshot::channel();
    let done = Arc::new(std::sync::Mutex::new(Some(done)));
    let lanes: Vec<_> = receivers
        .into_iter()
        .map(|mut receiver| {
            let (graph, senders, done) = (Arc::clone(&graph), Arc::clone(&senders), Arc::clone(&done));
            runtime.spawn(async move {
                while let Some(node) = receiver.recv().await {
                    if node == STOP {
                        break;
                    }
                    let send = |node| {
                        senders[graph.lane(node)]
                            .send(node)
                            .expect("lanes outlive the run")
                    };
                    if graph.run(node, send) {
                        let done = done
                            .lock()
                            .expect("no panic while held")
                            .take()
                            .expect("one node is the last");
                        done.send(()).expect("the caller waits for the last node");
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1));
    let start = begin.elapsed() - Duration::from_millis(1);

    let begin = Instant::now();
    for &root in graph.roots() {
        senders[graph.lane(root)]
            .send(root)
            .expect("lanes outlive the run");
    }
    runtime.block_on(is_done).expect("the last node reports");
    let run = begin.elapsed();
    for sender in senders.iter() {
        sender.send(STOP).expect("lanes outlive the run");
    }
    for lane in lanes {
        runtime.block_on(lane).expect("lanes do not panic");
    }
    Round { build, start, run }
}

/// The multi-thread runtime that all tokio-based peers share: started once, as in a warm process.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().build().expect("a runtime starts"))
}
