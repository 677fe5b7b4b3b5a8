use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::support::{Deed, Diary, kind, source};
use scheduler::{InitGraph, InitMode};

#[test]
fn a_partial_barrier_opens_while_the_rest_goes_on() {
    for mode in [InitMode::TwoPhase, InitMode::Overlapped] {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let (a, b) = (graph.lane(kind("A", &diary)), graph.lane(kind("B", &diary)));
        let x = graph.operator(&a, "x", source("x", Deed::Work));
        let y = graph.operator(&a, "y", source("y", Deed::Work));
        let z = graph.operator(&b, "z", source("z", Deed::Never));
        let prefill = graph.barrier("prefill", [x, y]);
        let run = graph.start(mode).unwrap();
        let mut ready = run.barrier(prefill).wait().unwrap();
        assert_eq!(ready.take(x).name, "device x");
        assert!(!run.ready().is_settled());
        let error = ready.try_take(z).unwrap_err();
        assert!(
            error.is_misuse() && error.to_string().contains("does not cover"),
            "{error}"
        );
        run.cancel();
        assert!(run.ready().wait().unwrap_err().is_cancelled());
        // The barrier has settled with success and stays so; what was not taken in time is gone.
        let mut ready = run.barrier(prefill).wait().unwrap();
        run.join();
        assert!(ready.try_take(y).unwrap_err().is_rolled_back());
    }
}

#[test]
fn a_barrier_over_nothing_is_ready() {
    let mut graph = InitGraph::new();
    let none = graph.barrier::<scheduler::NodeId>("none", []);
    graph
        .start(InitMode::Inline)
        .unwrap()
        .barrier(none)
        .wait()
        .unwrap();
}

#[test]
fn every_waiter_is_told_whenever_and_however_it_waits() {
    let mut graph = InitGraph::new();
    let open = Arc::new(AtomicBool::new(false));
    let gate = open.clone();
    graph.read("gate", (), move |()| {
        while !gate.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let run = graph.start(InitMode::Overlapped).unwrap();
    std::thread::scope(|s| {
        for _ in 0..3 {
            let barrier = run.ready();
            s.spawn(move || barrier.wait().unwrap());
            let barrier = run.ready();
            s.spawn(move || futures::executor::block_on(barrier).unwrap());
        }
        open.store(true, Ordering::Release);
    });
    run.ready().wait().unwrap();
    futures::executor::block_on(run.ready()).unwrap();
}

struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_dropped_waiter_takes_nobody_along() {
    let mut graph = InitGraph::new();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    graph.read("gate", (), move |()| Ok(receive.recv()?));
    let run = graph.start(InitMode::Overlapped).unwrap();
    let wakes: Vec<_> = (0..4)
        .map(|_| Arc::new(CountWakes(AtomicUsize::new(0))))
        .collect();
    let mut waiters: Vec<_> = wakes.iter().map(|_| Some(Box::pin(run.ready()))).collect();
    for (waiter, wake) in waiters.iter_mut().zip(&wakes) {
        let waker = Waker::from(wake.clone());
        let waiter = waiter.as_mut().unwrap();
        assert!(
            waiter
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert!(
            waiter
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    // The first to register, and the last, go away.
    waiters[0] = None;
    waiters[3] = None;
    send.send(()).unwrap();
    run.ready().wait().unwrap();
    run.join();
    assert_eq!(
        wakes
            .iter()
            .map(|w| w.0.load(Ordering::Relaxed))
            .collect::<Vec<_>>(),
        [0, 1, 1, 0]
    );
    for waiter in waiters.into_iter().flatten() {
        let mut waiter = pin!(waiter);
        assert!(matches!(
            waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Ok(_))
        ));
    }
}

#[test]
fn nothing_stops_when_all_waiters_are_dropped() {
    let diary = Diary::default();
    let mut graph = InitGraph::new();
    let lane = graph.lane(kind("A", &diary));
    graph.operator(&lane, "x", source("x", Deed::Await));
    let run = graph.start(InitMode::Overlapped).unwrap();
    drop(run.ready());
    let late = run.ready();
    run.detach();
    late.wait().unwrap();
    assert_eq!(diary.lines_with("done"), ["done x 1"]);
}

#[test]
fn a_node_that_waits_for_its_own_run_is_told_so() {
    let mut graph = InitGraph::new();
    let (send, receive) = std::sync::mpsc::channel::<scheduler::Barrier>();
    graph.read("waits", (), move |()| {
        let barrier = receive.recv()?;
        let timed = barrier
            .wait_timeout(std::time::Duration::MAX)
            .expect("an answer at once");
        assert!(timed.unwrap_err().is_misuse());
        barrier.wait().map(drop).map_err(Into::into)
    });
    let run = graph.start(InitMode::Overlapped).unwrap();
    send.send(run.ready()).unwrap();
    let error = run.ready().wait().unwrap_err();
    assert_eq!(error.node(), Some("waits"));
    assert!(
        error
            .to_string()
            .contains("waits for the whole run, and so for itself"),
        "{error}"
    );
}
