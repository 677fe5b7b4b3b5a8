//! What drives a property: threads with many cases, or shuttle with fewer cases and many schedules each.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::fmt::Debug;

pub type Property = Result<(), TestCaseError>;

/// Cases per property; `HOSTLANE_CASES` asks for another number.
#[cfg(not(shuttle))]
const CASES: u32 = 256;
#[cfg(shuttle)]
const CASES: u32 = 30;

/// Checks a property on random cases.
#[track_caller]
pub fn check<C: Debug + Clone + Send + Sync + 'static>(
    cases: impl Strategy<Value = C>,
    property: impl Fn(&C) -> Property + Send + Sync + 'static,
) {
    let seed = number("HOSTLANE_SEED").unwrap_or_else(random_seed);
    let config = Config {
        cases: number("HOSTLANE_CASES").map_or(CASES, |cases| cases as u32),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(failure) = run(&mut runner, cases, property) {
        panic!("{failure}\nrun it again with HOSTLANE_SEED={seed}");
    }
}

#[cfg(not(shuttle))]
fn run<C: Debug + Clone + Send + Sync + 'static>(
    runner: &mut TestRunner,
    cases: impl Strategy<Value = C>,
    property: impl Fn(&C) -> Property + Send + Sync + 'static,
) -> Result<(), String> {
    runner
        .run(&cases, |case| property(&case))
        .map_err(|failure| failure.to_string())
}

/// Each case under random schedules and under PCT, which finds bugs of a given depth with a known probability. Shuttle prints
/// the schedule of a failure.
#[cfg(shuttle)]
fn run<C: Debug + Clone + Send + Sync + 'static>(
    runner: &mut TestRunner,
    cases: impl Strategy<Value = C>,
    property: impl Fn(&C) -> Property + Send + Sync + 'static,
) -> Result<(), String> {
    use proptest::strategy::ValueTree;

    /// Bugs of this many ordering constraints are looked for.
    const PCT_DEPTH: usize = 3;
    let n_schedules = number("HOSTLANE_SCHEDULES").unwrap_or(100) as usize;
    let property = std::sync::Arc::new(property);
    for _ in 0..runner.config().cases {
        let case = cases
            .new_tree(runner)
            .map_err(|reason| reason.to_string())?
            .current();
        let body = {
            let property = property.clone();
            let case = case.clone();
            move || {
                // PCT refuses a body without concurrency, and an inline intake has none of its own.
                let other = shuttle::thread::spawn(shuttle::thread::yield_now);
                if let Err(failure) = property(&case) {
                    panic!("{failure}");
                }
                other.join().expect("it only yields");
            }
        };
        let _case = PrintOnPanic(case);
        shuttle::check_random(body.clone(), n_schedules / 2);
        shuttle::check_pct(body, n_schedules / 2, PCT_DEPTH);
    }
    Ok(())
}

#[cfg(shuttle)]
struct PrintOnPanic<C: Debug>(C);

#[cfg(shuttle)]
impl<C: Debug> Drop for PrintOnPanic<C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case: {:#?}", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
    )
}

fn random_seed() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.expect("after 1970").as_nanos() as u64
}
