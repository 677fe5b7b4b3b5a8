//! The protocols that the random graphs of `guarantees` do not reach: intake, quota, progress, waiters that come and go. Each body
//! runs on real threads many times, and with `--cfg shuttle` under random and PCT schedules.

mod intake;
mod waiting;

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// Runs a body under many schedules.
#[cfg(not(shuttle))]
fn explore(body: impl Fn() + Send + Sync + 'static) {
    for _ in 0..100 {
        body();
    }
}

#[cfg(shuttle)]
fn explore(body: impl Fn() + Send + Sync + 'static) {
    // Beside a thread that does nothing: PCT refuses a body with no concurrency in it, and Inline has none of its own.
    let body = std::sync::Arc::new(move || {
        let other = thread::spawn(thread::yield_now);
        body();
        other.join().unwrap();
    });
    let again = body.clone();
    shuttle::check_random(move || body(), 400);
    shuttle::check_pct(move || again(), 400, 3);
}

/// Lets another thread go first, perhaps.
async fn pause() {
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut is_first, false) {
            let waker = cx.waker().clone();
            thread::spawn(move || waker.wake());
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    })
    .await
}
