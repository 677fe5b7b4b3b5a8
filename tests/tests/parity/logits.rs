//! Prefill logits of every position.

use runtime_npu::AccuracyLevel;

use crate::fixtures::{MODELS, at_level, cases, engine, folder, largest_difference, stock};

/// Float activations on both sides; what differs is where sums are cut.
const TOLERANCE: f32 = 1e-4;

#[test]
fn every_position_of_every_prompt_equals_the_whole_model() {
    for model in MODELS {
        let folder = folder(model);
        let (engine, stock) = (
            engine(&folder, at_level(AccuracyLevel::Float32)),
            stock(&folder, Some(AccuracyLevel::Float32)),
        );
        for (i, case) in cases(model).iter().enumerate() {
            let n = case.prompt.len();
            let expected = stock.run(&mut stock.new_cache(n).unwrap(), &case.prompt).unwrap();
            let all = engine
                .prefill_all_logits(&mut engine.new_cache(n).unwrap(), &case.prompt)
                .unwrap();
            let difference = largest_difference(&all, &expected);
            assert!(difference <= TOLERANCE, "{model} prompt {i}: {difference}");

            let last = engine
                .prefill(&mut engine.new_cache(n).unwrap(), &case.prompt)
                .unwrap();
            let difference = largest_difference(&last, &expected[expected.len() - last.len()..]);
            assert!(
                difference <= TOLERANCE,
                "{model} prompt {i}, last position only: {difference}"
            );
        }
    }
}

#[test]
fn a_prompt_in_pieces_equals_the_prompt_at_once() {
    let folder = folder("qwen3-tiny-int4");
    let case = &cases("qwen3-tiny-int4")[4];
    let n = case.prompt.len();
    let stock = stock(&folder, Some(AccuracyLevel::Float32));
    let expected = stock.run(&mut stock.new_cache(n).unwrap(), &case.prompt).unwrap();
    for chunk_tokens in [1, 7, n - 1, n, n + 1] {
        let mut options = at_level(AccuracyLevel::Float32);
        options.chunk_tokens = chunk_tokens;
        let engine = engine(&folder, options);
        let all = engine
            .prefill_all_logits(&mut engine.new_cache(n).unwrap(), &case.prompt)
            .unwrap();
        let difference = largest_difference(&all, &expected);
        assert!(difference <= TOLERANCE, "pieces of {chunk_tokens}: {difference}");
        let last = engine
            .prefill(&mut engine.new_cache(n).unwrap(), &case.prompt)
            .unwrap();
        let difference = largest_difference(&last, &expected[expected.len() - last.len()..]);
        assert!(
            difference <= TOLERANCE,
            "pieces of {chunk_tokens}, last position only: {difference}"
        );
    }
}

#[test]
fn cache_holds_what_the_whole_model_writes() {
    for model in MODELS {
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
