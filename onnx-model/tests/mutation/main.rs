//! 100,000 mutated graphs of the four fixtures: no panic, no hang, memory bounded. Half are mutated as bytes, half as
//! structures, which get past the decoder and try the checks behind it.
//!
//! Each graph is opened over the real weights, taken apart into operators, read, prefaulted and written again as
//! sub-models. A mutation that goes through all of it must give a valid partition. The seed of a failing input is
//! printed, and `HOSTLANE_MUTATION_SEED` repeats it alone.

#[path = "../support/counting.rs"]
mod counting;
#[path = "../support/mod.rs"]
mod support;

mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use mutate::Random;
use onnx_model::proto::ModelProto;
use onnx_model::write::{SubmodelOptions, submodel};
use onnx_model::{FolderOptions, ModelFolder};
use prost::Message;
use support::*;

/// Per fixture, so 100,000 in all.
const MUTATIONS: u64 = 25_000;

/// Most live memory above that of the unbroken graph while an input is worked on: this many bytes per byte of graph,
/// and the weight file once, since unaligned weights are copied.
const PEAK_PER_BYTE: u64 = 16;

/// Everything that is done with a graph; whether it went through.
fn exercise(dir: &Path, bytes: &[u8]) -> bool {
    let Ok(folder) = ModelFolder::open_with_graph(dir, bytes, FolderOptions::default()) else {
        return false;
    };
    let operators = folder.operators().expect("a checked graph can be taken apart");
    check_partition(folder.graph(), operators);
    let mut all_read = true;
    for operator in operators {
        match folder.read(operator) {
            Ok(data) => {
                // One is enough: faulting all weights in would be most of the time spent here.
                if operator.id.index() == operators.len() / 2 {
                    data.prefault().expect("ranges were checked");
                }
                let model = submodel(&data, &SubmodelOptions::default());
                assert!(!model.bytes.is_empty());
            }
            Err(error) => {
                assert!(error.file().is_some(), "{error}");
                all_read = false;
            }
        }
    }
    folder.summary().expect("as operators");
    all_read
}

fn mutate_fixture(name: &str, number: u64) {
    let dir = fixture_dir(name);
    let original = std::fs::read(dir.join("model.onnx")).unwrap();
    let run = |bytes: &[u8]| {
        let live = counting::live();
        let (passed, peak) = counting::peak(|| exercise(&dir, bytes));
        assert_eq!(counting::live(), live, "memory is left behind");
        (passed, peak)
    };
    let model = ModelProto::decode(original.as_slice()).unwrap();
    // Once unmeasured, for what is made once per thread.
    exercise(&dir, &original);
    let (passed, baseline) = run(&original);
    assert!(passed);
    let weights = std::fs::metadata(dir.join("model.onnx.data")).unwrap().len();
    let bound = baseline as u64 + PEAK_PER_BYTE * original.len() as u64 + weights;
    let seeds: Vec<u64> = match std::env::var("HOSTLANE_MUTATION_SEED") {
        Ok(seed) => vec![seed.parse().expect("a seed")],
        Err(_) => (0..MUTATIONS).map(|i| number * MUTATIONS + i).collect(),
    };
    let (mut n_passed, mut highest) = (0, 0);
    for &seed in &seeds {
        let (mut bytes, mut random) = (original.clone(), Random(seed));
        if seed % 2 == 0 {
            mutate::bytes(&mut bytes, &mut random);
        } else {
            let mut model = model.clone();
            mutate::structure(&mut model, &mut random);
            bytes = model.encode_to_vec();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&bytes)));
        let (passed, peak) = outcome.unwrap_or_else(|_| panic!("{name}: seed {seed} panicked"));
        assert!(
            peak as u64 <= bound,
            "{name}: seed {seed} needed {peak} bytes, {baseline} without mutation"
        );
        n_passed += usize::from(passed);
        highest = highest.max(peak);
    }
    println!(
        "{name}: {} mutations, {n_passed} still valid, peak {highest} bytes ({baseline} unbroken)",
        seeds.len()
    );
    if seeds.len() > 1 {
        assert!(
            (1..seeds.len()).contains(&n_passed),
            "mutations should neither all pass nor all fail"
        );
    }
}

#[test]
fn qwen3() {
    mutate_fixture(FIXTURES[0], 0);
}

#[test]
fn qwen3_asymmetric() {
    mutate_fixture(FIXTURES[1], 1);
}

#[test]
fn llama3() {
    mutate_fixture(FIXTURES[2], 2);
}

#[test]
fn phi3() {
    mutate_fixture(FIXTURES[3], 3);
}
