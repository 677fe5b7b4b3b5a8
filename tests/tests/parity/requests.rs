//! Requests that do not fit, and several sequences at once.

use runtime_npu::NpuError;

use tests::npu::{cases, engine, folder, generate, options};

const MODEL: &str = "llama3-tiny-int4";

#[test]
fn a_prompt_too_long_is_refused_before_any_work() {
    let folder = folder(MODEL);
    let engine = engine(&folder, options());
    let mut cache = engine.new_cache(4).unwrap();
    let error = engine.prefill(&mut cache, &[1, 2, 3, 4, 5]).unwrap_err();
    assert!(
        error.is_request() && error.to_string().contains("4 positions"),
        "{error}"
    );
    assert_eq!(cache.len(), 0);

    engine.prefill(&mut cache, &[1, 2, 3]).unwrap();
    engine.decode(&mut cache, 4).unwrap();
    assert!(engine.decode(&mut cache, 5).unwrap_err().is_request());
    assert_eq!(cache.len(), 4);
    cache.truncate(3);
    engine.decode(&mut cache, 5).unwrap();
}

#[test]
fn more_context_than_the_model_has_is_refused() {
    let folder = folder(MODEL);
    let engine = engine(&folder, options());
    let context = folder.geometry().context_length;
    assert!(engine.new_cache(context).is_ok());
    for capacity in [0, context + 1] {
        let error = engine.new_cache(capacity).unwrap_err();
        assert!(
            error.is_request() && error.to_string().contains(&context.to_string()),
            "{error}"
        );
    }
}

#[test]
fn unknown_tokens_and_foreign_caches_are_refused() {
    let folder = folder(MODEL);
    let (engine, other) = (engine(&folder, options()), engine(&folder, options()));
    let mut cache = engine.new_cache(8).unwrap();
    let vocab = folder.geometry().vocab as u32;
    let refused: [NpuError; 4] = [
        engine.prefill(&mut cache, &[0, vocab]).unwrap_err(),
        engine.decode(&mut cache, u32::MAX).unwrap_err(),
        engine.prefill(&mut cache, &[]).unwrap_err(),
        other.prefill(&mut cache, &[1]).unwrap_err(),
    ];
    assert!(refused.iter().all(NpuError::is_request), "{refused:?}");
    assert_eq!(cache.len(), 0);
}

#[test]
fn sequences_on_several_threads_do_not_disturb_each_other() {
    let folder = folder(MODEL);
    let engine = engine(&folder, options());
    let cases = cases(MODEL);
    let alone: Vec<Vec<f32>> = cases
        .iter()
        .map(|case| {
            generate(
                &engine,
                &mut engine.new_cache(case.prompt.len() + 12).unwrap(),
                &case.prompt,
                12,
            )
        })
        .collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .map(|case| {
                let engine = &engine;
                scope.spawn(move || {
                    generate(
                        engine,
                        &mut engine.new_cache(case.prompt.len() + 12).unwrap(),
                        &case.prompt,
                        12,
                    )
                })
            })
            .collect();
        for (thread, alone) in threads.into_iter().zip(&alone) {
            assert!(
                thread.join().unwrap() == *alone,
                "a sequence among others differs from itself alone"
            );
        }
    });
}

#[test]
fn engines_are_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<runtime_npu::NpuEngine>();
    check::<runtime_npu::KvCache>();
    check::<NpuError>();
}
