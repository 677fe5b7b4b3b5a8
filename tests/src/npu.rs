//! The prefill engine over the fixtures, the whole-model session beside it, and the reference outputs.

use std::path::Path;

use onnx_model::ModelFolder;
use runtime_npu::{
    AccuracyLevel, KvCache, NpuEngine, NpuOptions, NpuPlan, OnnxRuntime, StockThreads, WholeModelSession,
};
use scheduler::{InitGraph, InitMode};
use serde_json::Value;

use crate::{fixture, library};

/// Threads of every run in these tests: more than one, so that sharing the work is tested too.
pub const N_THREADS: usize = 2;

/// A fixture, opened.
///
/// # Panics
/// As everything here: if it does not work, which is the test's failure.
pub fn folder(name: &str) -> ModelFolder {
    ModelFolder::open(fixture(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Options of every engine in these tests.
pub fn options() -> NpuOptions {
    let mut options = NpuOptions::new(library());
    options.n_threads = N_THREADS;
    options
}

/// The same at another accuracy level than the model's own.
pub fn at_level(level: AccuracyLevel) -> NpuOptions {
    let mut options = options();
    options.accuracy_level = Some(level);
    options
}

/// An engine, loaded in one of the modes.
///
/// # Errors
/// As of the engine.
pub fn load(
    folder: &ModelFolder,
    options: NpuOptions,
    mode: InitMode,
) -> Result<NpuEngine, Box<dyn std::error::Error>> {
    let mut graph = InitGraph::new();
    let setup = NpuPlan::new(folder, options)?.add_to(&mut graph);
    let run = graph.start(mode)?;
    Ok(setup.finish(&mut run.ready().wait()?)?)
}

/// An engine.
pub fn engine(folder: &ModelFolder, options: NpuOptions) -> NpuEngine {
    load(folder, options, InitMode::Overlapped).unwrap_or_else(|e| panic!("{}: {e}", folder.dir().display()))
}

/// A whole-model session, at the model's own accuracy level or another.
pub fn stock(folder: &ModelFolder, level: Option<AccuracyLevel>) -> WholeModelSession {
    let options = options();
    let runtime = OnnxRuntime::load(&options.library, options.n_threads).unwrap_or_else(|e| panic!("{e}"));
    let threads = StockThreads::Own(N_THREADS);
    let session = match level {
        None => WholeModelSession::open(&runtime, folder, threads),
        Some(level) => WholeModelSession::with_accuracy_level(&runtime, folder, threads, level),
    };
    session.unwrap_or_else(|e| panic!("{}: {e}", folder.dir().display()))
}

/// One prompt of the reference outputs.
#[derive(Debug)]
pub struct Case {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    case: Value,
}

impl Case {
    /// Greedy tokens of one of the reference runs, each with the margin of its logit over the next one.
    pub fn tokens(&self, run: &str) -> Vec<(u32, f64)> {
        let margins = self.case[format!("{run}_margins")]
            .as_array()
            .expect("margins")
            .iter();
        numbers(&self.case[format!("{run}_ids")])
            .into_iter()
            .zip(margins.map(|m| m.as_f64().expect("a number")))
            .collect()
    }
}

/// The reference outputs of a fixture.
pub fn cases(model: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/refs/{model}.json"));
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let refs: Value = serde_json::from_slice(&text).expect("reference outputs");
    let cases = refs["cases"].as_array().expect("cases").iter();
    cases
        .map(|case| Case {
            prompt: numbers(&case["prompt_ids"]),
            case: case.clone(),
        })
        .collect()
}

fn numbers(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .expect("numbers")
        .iter()
        .map(|n| n.as_u64().expect("a token") as u32)
        .collect()
}

/// A prompt of tokens that every model has.
pub fn prompt(folder: &ModelFolder, n_tokens: usize) -> Vec<u32> {
    let vocab = folder.geometry().vocab as u32;
    (0..n_tokens as u32).map(|i| (i * 37 + 11) % vocab).collect()
}

/// The largest absolute difference of two values in the same place; infinite if one is not a number.
pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "as many logits");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |most, d| {
        if d.is_nan() { f32::INFINITY } else { most.max(d) }
    })
}

/// The token with the largest logit.
pub fn argmax(logits: &[f32]) -> u32 {
    logits
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map_or(0, |(i, _)| i as u32)
}

/// A prompt, then greedy tokens; all logits that came out.
pub fn generate(engine: &NpuEngine, cache: &mut KvCache, prompt: &[u32], n_tokens: usize) -> Vec<f32> {
    let mut all = engine.prefill_all_logits(cache, prompt).expect("prefill");
    let mut last = all[all.len() - engine.geometry().vocab..].to_vec();
    for _ in 0..n_tokens {
        last = engine.decode(cache, argmax(&last)).expect("decode");
        all.extend(&last);
    }
    all
}
