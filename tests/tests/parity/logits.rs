//! Prefill logits of every position.

use runtime_npu::{AccuracyLevel, NpuEngine, WholeModelSession};
use tests::FIXTURES;
use tests::npu::{at_level, cases, engine, folder, largest_difference, stock};

/// Float activations on both sides; what differs is where sums are cut.
const TOLERANCE: f32 = 1e-4;

/// The logits of every position, and of the last one alone, are `expected`.
#[track_caller]
fn check(engine: &NpuEngine, prompt: &[u32], expected: &[f32], what: &str) {
    let cache = || engine.new_cache(prompt.len()).unwrap();
    let all = engine.prefill_all_logits(&mut cache(), prompt).unwrap();
    let difference = largest_difference(&all, expected);
    assert!(difference <= TOLERANCE, "{what}: {difference}");

    let last = engine.prefill(&mut cache(), prompt).unwrap();
    let difference = largest_difference(&last, &expected[expected.len() - last.len()..]);
    assert!(
        difference <= TOLERANCE,
        "{what}, last position only: {difference}"
    );
}

fn expected(stock: &WholeModelSession, prompt: &[u32]) -> Vec<f32> {
    stock
        .run(&mut stock.new_cache(prompt.len()).unwrap(), prompt)
        .unwrap()
}

#[test]
fn every_position_of_every_prompt_equals_the_whole_model() {
    for model in FIXTURES {
        let folder = folder(model);
        let engine = engine(&folder, at_level(AccuracyLevel::Float32));
        let stock = stock(&folder, Some(AccuracyLevel::Float32));
        for (i, case) in cases(model).iter().enumerate() {
            let expected = expected(&stock, &case.prompt);
            check(&engine, &case.prompt, &expected, &format!("{model} prompt {i}"));
        }
    }
}

#[test]
fn a_prompt_in_pieces_equals_the_prompt_at_once() {
    let folder = folder("qwen3-tiny-int4");
    let prompt = &cases("qwen3-tiny-int4")[4].prompt;
    let n = prompt.len();
    let expected = expected(&stock(&folder, Some(AccuracyLevel::Float32)), prompt);
    for chunk_tokens in [1, 7, n - 1, n, n + 1] {
        let mut options = at_level(AccuracyLevel::Float32);
        options.chunk_tokens = chunk_tokens;
        let engine = engine(&folder, options);
        check(&engine, prompt, &expected, &format!("pieces of {chunk_tokens}"));
    }
}

#[test]
fn cache_holds_what_the_whole_model_writes() {
    for model in FIXTURES {
        let folder = folder(model);
        let (engine, stock) = (
            engine(&folder, at_level(AccuracyLevel::Float32)),
            stock(&folder, Some(AccuracyLevel::Float32)),
        );
        let prompt = &cases(model)[0].prompt;
        let (mut ours, mut theirs) = (
            engine.new_cache(prompt.len() + 3).unwrap(),
            stock.new_cache(prompt.len() + 3).unwrap(),
        );
        engine.prefill(&mut ours, prompt).unwrap();
        stock.run(&mut theirs, prompt).unwrap();
        assert_eq!((ours.len(), ours.capacity()), (prompt.len(), prompt.len() + 3));
        for layer in 0..folder.geometry().layers {
            let ((k, v), (k2, v2)) = (ours.layer(layer), theirs.layer(layer));
            assert!(
                k.iter().any(|&x| x != 0.0) && v.iter().any(|&x| x != 0.0),
                "{model} layer {layer} is empty"
            );
            assert!(
                largest_difference(&k, &k2) <= TOLERANCE,
                "{model} layer {layer} keys"
            );
            assert!(
                largest_difference(&v, &v2) <= TOLERANCE,
                "{model} layer {layer} values"
            );
        }
    }
}
