//! Greedy tokens against the reference runs.

use runtime_npu::NpuOptions;

use runtime_npu::AccuracyLevel;
use tests::FIXTURES;
use tests::npu::{argmax, at_level, cases, engine, folder, options};

/// Steps in which the two largest logits were closer than the tolerance, and the engine took the other.
#[derive(Default, Debug, PartialEq, Eq)]
struct Counted {
    steps: usize,
    near_ties: usize,
}

/// Feeds the reference's tokens, so that each step is judged alone.
fn compare(model: &str, run: &str, options: NpuOptions, near_tie: f64) -> Counted {
    let folder = folder(model);
    let engine = engine(&folder, options);
    let mut counted = Counted::default();
    for (i, case) in cases(model).iter().enumerate() {
        let tokens = case.tokens(run);
        let mut cache = engine.new_cache(case.prompt.len() + tokens.len()).unwrap();
        let mut logits = engine.prefill(&mut cache, &case.prompt).unwrap();
        for (step, &(token, margin)) in tokens.iter().enumerate() {
            counted.steps += 1;
            let ours = argmax(&logits);
            if ours != token {
                assert!(
                    margin < near_tie,
                    "{model} prompt {i} step {step}: {ours} instead of {token}, margin {margin}"
                );
                counted.near_ties += 1;
            }
            logits = engine.decode(&mut cache, token).unwrap();
        }
    }
    println!(
        "{model} {run}: {} steps, {} near ties taken the other way",
        counted.steps, counted.near_ties
    );
    counted
}

#[test]
fn float_activations() {
    for model in FIXTURES {
        let counted = compare(model, "acc1", at_level(AccuracyLevel::Float32), 1e-3);
        assert_eq!(counted.steps, 5 * 48, "{model}");
        assert!(counted.near_ties <= 2, "{model}: {counted:?}");
    }
}

#[test]
fn the_models_own_int8_activations() {
    for model in FIXTURES {
        let counted = compare(model, "ort", options(), 0.02);
        assert_eq!(counted.steps, 5 * 48, "{model}");
        // The references are of ONNX Runtime 1.32; another version rounds int8 activations a little differently.
        assert!(counted.near_ties <= counted.steps / 20, "{model}: {counted:?}");
    }
}
