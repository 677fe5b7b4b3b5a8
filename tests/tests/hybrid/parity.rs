//! Greedy tokens equal stock ONNX Runtime's at accuracy level 1, in every init mode.

use std::path::Path;

use onnx_model::ModelFolder;
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

fn stock_choices(dir: &Path) -> Vec<(Vec<u32>, Vec<Choice>)> {
    let folder = ModelFolder::open(dir).unwrap();
    let mut stock = Stock::load(onnx_runtime().environment(), &folder, Some(1)).unwrap();
    let prompts = prompts(&folder).into_iter();
    prompts
        .map(|prompt| (prompt.clone(), stock.greedy(&prompt, N_TOKENS).unwrap()))
        .collect()
}

#[track_caller]
fn check_folder(dir: &Path) {
    let _company = in_company();
    let expected = stock_choices(dir);
    for engines in engines() {
        let mut first_mode: Option<Vec<Vec<u32>>> = None;
        for init in InitMode::ALL {
            let what = format!("{} {engines} {init}", dir.display());
            let runtime = HybridRuntime::load(dir, options(init, engines)).unwrap();
            let running: Vec<_> = expected
                .iter()
                .map(|(prompt, _)| {
                    Request::tokens(prompt.clone())
                        .max_tokens(N_TOKENS)
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
            assert!(n_compared > N_TOKENS, "{what}: nearly everything was a near tie");
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
fn smollm2() {
    check_folder(&examples::setup::default_model(&()).expect("the default model"));
}
