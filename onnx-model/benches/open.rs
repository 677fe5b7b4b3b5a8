//! How long does it take to open a model folder and read its operators, as the host lane does?
//!
//! `cargo bench -p onnx-model --bench open [-- --json] [-- DIR]`; without DIR, a folder of Qwen3-4B's size whose weight
//! file is sparse.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use onnx_model::ModelFolder;
use onnx_model::write::{SubmodelOptions, submodel};

/// Medians of this many rounds.
const ROUNDS: usize = 31;

/// What is measured, in order.
const STEPS: [&str; 4] = ["open", "operators", "read", "submodels"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let made = support::qwen3_4b::qwen3_4b();
    let dir = args
        .iter()
        .find(|a| !a.starts_with('-'))
        .map_or(made.path(""), PathBuf::from);
    let rounds: Vec<[Duration; 4]> = (0..ROUNDS).map(|_| round(&dir)).collect();
    let folder = ModelFolder::open(&dir).unwrap();
    let operators = folder.operators().unwrap().len();
    let weight_bytes: u64 = folder.weight_files().map(|f| f.len()).sum();
    let medians = [0, 1, 2, 3].map(|step| {
        let mut of_step: Vec<u64> = rounds.iter().map(|r| r[step].as_micros() as u64).collect();
        of_step.sort_unstable();
        of_step[ROUNDS / 2]
    });
    if args.iter().any(|a| a == "--json") {
        let steps: Vec<String> = STEPS
            .iter()
            .zip(medians)
            .map(|(step, us)| format!("\"{step}_us\": {us}"))
            .collect();
        println!(
            "{{\"operators\": {operators}, \"weight_bytes\": {weight_bytes}, {}}}",
            steps.join(", ")
        );
    } else {
        println!("{operators} operators, {weight_bytes} bytes of weights");
        for (step, us) in STEPS.iter().zip(medians) {
            println!("{step:<10} {us:>7} us");
        }
    }
}

fn round(dir: &PathBuf) -> [Duration; 4] {
    let start = Instant::now();
    let folder = ModelFolder::open(dir).unwrap();
    let opened = start.elapsed();
    let operators = folder.operators().unwrap();
    let grouped = start.elapsed();
    let data: Vec<_> = operators.iter().map(|o| folder.read(o).unwrap()).collect();
    let read = start.elapsed();
    let options = SubmodelOptions::default();
    let models: Vec<_> = data.iter().map(|d| submodel(d, &options)).collect();
    let written = start.elapsed();
    drop(models);
    [opened, grouped - opened, read - grouped, written - read]
}
