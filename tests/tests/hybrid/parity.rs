//! Greedy tokens equal stock ONNX Runtime's at accuracy level 1, in every init mode.

use std::path::Path;

use examples::provision::Provisioner;
use onnx_model::ModelFolder;
use onnx_model::gguf::ConvertMode;
use runtime_hybrid::{Engines, HybridOptions, HybridRuntime, Request};
use runtime_npu::{AccuracyLevel, NpuOptions};
use scheduler::InitMode;
use tests::{Choice, FIXTURES, Stock, check_tokens, fixture, in_company, library, onnx_runtime, vulkan};

const N_TOKENS: usize = 32;
/// Float arithmetic in another order may decide otherwise below this.
const NEAR_TIE: f32 = 1e-3;

fn options(init: InitMode, engines: Engines) -> HybridOptions {
    let mut npu = NpuOptions::new(library());
    npu.accuracy_level = Some(AccuracyLevel::Float32);
    HybridOptions {
        init,
        engines,
        npu,
        ..HybridOptions::default()
    }
}

fn prompts(folder: &ModelFolder) -> Vec<Vec<u32>> {
    let vocabulary = folder.geometry().vocab as u32;
    // One token, a few, and more than one attention block of 64.
    [1_u32, 9, 70]
        .map(|n| (0..n).map(|i| (i * i * 37 + i * 11 + 5) % vocabulary).collect())
        .to_vec()
}

fn engines() -> Vec<Engines> {
    if vulkan() {
        vec![Engines::NpuOnly, Engines::Hybrid]
    } else {
        vec![Engines::NpuOnly]
    }
}

fn stock_choices(dir: &Path, n_tokens: usize) -> Vec<(Vec<u32>, Vec<Choice>)> {
    let folder = ModelFolder::open(dir).unwrap();
    let mut stock = Stock::load(onnx_runtime().environment(), &folder, Some(1)).unwrap();
    let prompts = prompts(&folder).into_iter();
    prompts
        .map(|prompt| (prompt.clone(), stock.greedy(&prompt, n_tokens).unwrap()))
        .collect()
}

#[track_caller]
fn check_folder(dir: &Path) {
    check(dir, N_TOKENS, &InitMode::ALL);
}

#[track_caller]
fn check(dir: &Path, n_tokens: usize, modes: &[InitMode]) {
    let _company = in_company();
    let expected = stock_choices(dir, n_tokens);
    for engines in engines() {
        let mut first_mode: Option<Vec<Vec<u32>>> = None;
        for &init in modes {
            let what = format!("{} {engines} {init}", dir.display());
            let runtime = HybridRuntime::load(dir, options(init, engines)).unwrap();
            let running: Vec<_> = expected
                .iter()
                .map(|(prompt, _)| {
                    Request::tokens(prompt.clone())
                        .max_tokens(n_tokens)
                        .past_end_of_sequence()
                })
                .map(|request| runtime.generate(request))
                .collect();
            let tokens: Vec<Vec<u32>> = running
                .into_iter()
                .map(|answer| answer.wait().unwrap().tokens)
                .collect();
            let mut n_compared = 0;
            for (tokens, (_, choices)) in tokens.iter().zip(&expected) {
                n_compared += check_tokens(&what, tokens, choices, NEAR_TIE);
            }
            assert!(n_compared > n_tokens, "{what}: nearly everything was a near tie");
            match &first_mode {
                None => first_mode = Some(tokens),
                Some(first) => assert_eq!(*first, tokens, "{what} differs from inline"),
            }
        }
    }
}

#[test]
fn fixtures() {
    for name in FIXTURES {
        check_folder(&fixture(name));
    }
}

#[test]
fn smollm2_in_4_bit() {
    let provisioner = Provisioner::from_environment().expect("a cache folder");
    let folder = provisioner
        .smollm2(ConvertMode::Int4Symmetric, &())
        .unwrap_or_else(|error| panic!("{error}"));
    check_folder(&folder);
}

/// Short, since at accuracy level 1 ONNX Runtime unpacks 8-bit weights anew for every token: 4 tokens per second.
#[test]
fn the_default_model() {
    let folder = examples::setup::default_model(&()).expect("the default model");
    check(&folder, 6, &[InitMode::Inline, InitMode::Overlapped]);
}
