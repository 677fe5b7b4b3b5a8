//! How many threads this process has.

use std::time::{Duration, Instant};

/// A joined thread stays in the kernel's list for an instant after the join; longer than this means it is left.
const LINGER: Duration = Duration::from_secs(10);

/// Fails unless the process comes back to `n` threads.
#[track_caller]
pub fn assert_back_to(n: usize, what: &str) {
    let deadline = Instant::now() + LINGER;
    while count() != n {
        assert!(
            Instant::now() < deadline,
            "{what}: {} threads instead of {n}",
            count()
        );
        std::thread::yield_now();
    }
}

/// Threads of this process, as the kernel lists them.
#[cfg(target_os = "linux")]
pub fn count() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("Linux lists a process's threads")
        .count()
}

/// Threads of this process.
#[cfg(target_os = "macos")]
pub fn count() -> usize {
    let output = std::process::Command::new("ps")
        .args(["-M", "-p", &std::process::id().to_string()])
        .output();
    String::from_utf8_lossy(&output.expect("ps lists a process's threads").stdout)
        .lines()
        .count()
        - 1
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn count() -> usize {
    panic!("this test counts threads and does not know how on this system")
}
