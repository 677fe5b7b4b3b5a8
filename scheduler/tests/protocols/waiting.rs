use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use futures::StreamExt;
use scheduler::{BoxError, InitGraph, InitMode, OperatorType, Quota, Run};

use crate::{explore, pause, thread};

/// Holds one of a quota while it is set up, and looks how many are held.
struct Holder {
    quota: Quota,
    held: Arc<AtomicUsize>,
}

impl OperatorType for Holder {
    type Source = ();
    type Host = ();
    type Device = ();
    type Lane = ();

    fn name(&self) -> &str {
        "Holder"
    }
    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }
    fn read(&self, _: &()) -> Result<(), BoxError> {
        Ok(())
    }
    async fn setup(&self, _: &mut (), _: ()) -> Result<(), BoxError> {
        let _permit = self.quota.acquire("a node").await;
        assert!(self.held.fetch_add(1, Ordering::Relaxed) < self.quota.n_total());
        pause().await;
        self.held.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

fn holders(n_lanes: usize, n_total: usize, n_nodes: usize, mode: InitMode) -> (Run, Quota) {
    let quota = Quota::new("contexts", n_total);
    let mut graph = InitGraph::new();
    let lane = graph.striped_lane(
        Holder {
            quota: quota.clone(),
            held: Arc::default(),
        },
        n_lanes,
    );
    for _ in 0..n_nodes {
        graph.operator(&lane, "holder", ());
    }
    (graph.start(mode).unwrap(), quota)
}

#[test]
fn a_quota_is_never_exceeded_and_everybody_gets_a_turn() {
    for n_total in [1, 2] {
        explore(move || {
            let (run, quota) = holders(3, n_total, 5, InitMode::Overlapped);
            run.ready().wait().unwrap();
            run.join();
            assert_eq!(quota.n_free(), n_total);
        });
    }
}

#[test]
fn a_quota_is_whole_again_whenever_the_run_is_cancelled() {
    explore(|| {
        let (run, quota) = holders(3, 1, 5, InitMode::Overlapped);
        run.cancel();
        run.join();
        assert_eq!(quota.n_free(), 1);
        assert!(
            quota.try_acquire("the test").is_ok(),
            "nobody is left in the queue"
        );
    });
}

#[test]
fn a_progress_stream_ends_with_everything_done() {
    for mode in InitMode::ALL {
        explore(move || {
            let (run, _) = holders(2, 2, 4, mode);
            let mut progress = run.progress();
            let mut last = 0;
            while let Some(now) = block_on(progress.next()) {
                assert!(now.nodes_done >= last);
                last = now.nodes_done;
            }
            assert_eq!(last, 8);
        });
    }
}

#[test]
fn waiters_that_leave_take_no_wake_up_with_them() {
    explore(|| {
        let (run, _) = holders(2, 2, 3, InitMode::Overlapped);
        let stays: Vec<_> = [run.ready(), run.ready()]
            .map(|barrier| thread::spawn(move || block_on(barrier).is_ok()))
            .into();
        let leaves = run.ready();
        let leaver = thread::spawn(move || {
            let mut leaves = pin!(leaves);
            let _ = leaves.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        });
        leaver.join().unwrap();
        for waiter in stays {
            assert!(waiter.join().unwrap());
        }
        run.ready().wait().unwrap();
    });
}

#[cfg(not(shuttle))]
fn block_on<F: Future>(future: F) -> F::Output {
    futures::executor::block_on(future)
}

#[cfg(shuttle)]
fn block_on<F: Future>(future: F) -> F::Output {
    shuttle::future::block_on(future)
}
