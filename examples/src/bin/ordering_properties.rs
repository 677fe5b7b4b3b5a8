//! Property-testing the order in which things happen on your own lane.
//!
//!     cargo run -p examples --bin ordering_properties
//!
//! In a real crate the two properties are `#[test]`s with proptest's macro. Here they run in `main`, so that they can be watched:
//! the first holds in every schedule; the second is what an author might wrongly take for granted, and proptest finds and
//! shrinks a graph in which it does not hold.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use scheduler::testing::{GraphSpec, Size, check_guarantees, graphs, modes};
use scheduler::{BoxError, InitMode, OperatorType, RunOptions};
use std::sync::{Arc, Mutex};

/// An operator type whose kernels are registered with a device, one handle after the other.
struct Registered {
    /// What the imaginary device was asked to do, in order: (lane, operator).
    journal: Arc<Mutex<Vec<(usize, usize)>>>,
    lane: usize,
}

impl OperatorType for Registered {
    type Source = usize;
    type Host = usize;
    /// The handle that the lane gave out: 0, 1, 2 and so on.
    type Device = usize;
    type Lane = usize;

    fn name(&self) -> &str {
        "Registered"
    }

    fn open(&self) -> Result<usize, BoxError> {
        Ok(0)
    }

    fn read(&self, operator: &usize) -> Result<usize, BoxError> {
        Ok(*operator)
    }

    async fn setup(&self, next_handle: &mut usize, operator: usize) -> Result<usize, BoxError> {
        self.journal
            .lock()
            .expect("nobody panics while holding it")
            .push((self.lane, operator));
        *next_handle += 1;
        Ok(*next_handle - 1)
    }
}

/// Runs a graph of `Registered` operators; gives the device's journal.
fn run(spec: &GraphSpec, mode: InitMode) -> Result<Vec<(usize, usize)>, TestCaseError> {
    let journal = Arc::new(Mutex::new(Vec::new()));
    let built = spec.build(
        |lane| Registered {
            journal: journal.clone(),
            lane,
        },
        |operator| operator,
    );
    let run = built.graph.start_with(mode, RunOptions::new().record())?;
    run.ready().wait()?;
    // Every guarantee that leaves a mark in a trace, G1 to G13.
    check_guarantees(&run.trace())?;
    let journal = journal.lock().expect("nobody panics while holding it").clone();
    Ok(journal)
}

/// Holds: on each lane, operators are registered in the order they were added.
fn lanes_keep_their_order(spec: &GraphSpec, mode: InitMode) -> Result<(), TestCaseError> {
    let journal = run(spec, mode)?;
    for lane in 0..spec.lanes.len() {
        let on_lane: Vec<usize> = journal
            .iter()
            .filter(|entry| entry.0 == lane)
            .map(|entry| entry.1)
            .collect();
        prop_assert!(on_lane.is_sorted(), "lane {} registered {:?}", lane, on_lane);
    }
    Ok(())
}

/// Does not hold: nothing orders operators of different lanes unless an edge does.
fn everything_keeps_its_order(spec: &GraphSpec, mode: InitMode) -> Result<(), TestCaseError> {
    let journal = run(spec, mode)?;
    prop_assert!(
        journal.iter().map(|entry| entry.1).is_sorted(),
        "the device saw {:?}",
        journal
    );
    Ok(())
}

fn check(
    property: fn(&GraphSpec, InitMode) -> Result<(), TestCaseError>,
) -> Result<(), TestError<(GraphSpec, InitMode)>> {
    let config = Config {
        cases: 256,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let cases = (
        graphs(Size::default()).prop_filter("each lane is one thread in FIFO order", is_plain),
        modes(),
    );
    TestRunner::new(config).run(&cases, |(spec, mode)| property(&spec, mode))
}

fn is_plain(spec: &GraphSpec) -> bool {
    spec.lanes.iter().all(|lane| lane.is_ordered())
}

fn main() {
    check(lanes_keep_their_order).expect("FIFO lanes keep their order in every mode");
    println!("256 random graphs: every lane kept its order, every guarantee held");

    match check(everything_keeps_its_order) {
        Err(TestError::Fail(reason, (spec, mode))) => {
            println!("across lanes there is no order: {reason}");
            println!(
                "smallest graph found, in mode {mode}: {} lanes, {} operators",
                spec.lanes.len(),
                spec.nodes.len()
            );
        }
        other => panic!(
            "Serial sets up lanes in submission order, but lanes with threads of their own do not: {other:?}"
        ),
    }
}
