//! The KV cache: imported, grown, used by one sequence after the other.

use runtime_igpu::{IgpuEngine, IgpuOptions, KvSlices};

use crate::common::{argmax, cases, engine, folder, prefill};

const FIXTURE: &str = "qwen3-tiny-int4";

fn open(kv_capacity: u32, what: &str) -> Option<IgpuEngine> {
    engine(
        &folder(FIXTURE),
        IgpuOptions {
            kv_capacity,
            ..IgpuOptions::default()
        },
        what,
    )
}

#[test]
fn a_sequence_goes_on_from_an_imported_cache() {
    let what = "import of a KV cache";
    let (Some(mut source), Some(mut target)) = (open(64, what), open(16, what)) else {
        return;
    };
    for case in &cases(FIXTURE)[..2] {
        let mut expected = prefill(&mut source, &case.prompt);
        let exported = source.export_kv().expect("exports");
        let slices = exported.iter().map(|(keys, values)| KvSlices { keys, values });
        target.import_kv(case.prompt.len(), slices).expect("imports");
        assert_eq!(target.len(), case.prompt.len());
        for _ in 0..8 {
            let token = argmax(&expected);
            expected = source.decode(token).expect("decodes");
            assert_eq!(target.decode(token).expect("decodes"), expected, "bit for bit");
        }
    }
}

#[test]
fn slices_may_have_room_to_spare() {
    let Some(mut engine) = open(64, "import of a KV cache with room to spare") else {
        return;
    };
    let prompt = &cases(FIXTURE)[0].prompt;
    let logits = prefill(&mut engine, prompt);
    let exported = engine.export_kv().expect("exports");
    let expected = engine.decode(argmax(&logits)).expect("decodes");
    // The same positions in slices of a larger capacity, garbage behind them.
    let (len, capacity) = (prompt.len(), prompt.len() + 7);
    let widen = |floats: &Vec<f32>| -> Vec<f32> {
        let heads = 2;
        let row = floats.len() / heads / len;
        let spare = vec![f32::NAN; (capacity - len) * row];
        floats
            .chunks(len * row)
            .flat_map(|head| [head, &spare].concat())
            .collect()
    };
    let wide: Vec<_> = exported
        .iter()
        .map(|(keys, values)| (widen(keys), widen(values)))
        .collect();
    let slices = wide.iter().map(|(keys, values)| KvSlices { keys, values });
    engine.import_kv(len, slices).expect("imports");
    assert_eq!(engine.decode(argmax(&logits)).expect("decodes"), expected);
}

#[test]
fn the_cache_grows_without_a_trace_in_the_logits() {
    let what = "growth of the KV cache";
    let (Some(mut small), Some(mut large)) = (open(3, what), open(512, what)) else {
        return;
    };
    let case = &cases(FIXTURE)[1];
    let tokens = [&case.prompt[..], &case.ids[..]].concat();
    for &token in &tokens {
        assert_eq!(
            small.decode(token).expect("decodes"),
            large.decode(token).expect("decodes")
        );
    }
    // 3, 6, 12, 24, 48, 96
    assert_eq!(tokens.len(), 79);
    assert_eq!((small.n_kv_growths(), small.kv_capacity()), (5, 96));
    assert_eq!(large.n_kv_growths(), 0);
}

#[test]
fn sequences_follow_each_other_without_reallocation() {
    let Some(mut engine) = open(4, "sequences one after the other") else {
        return;
    };
    let all = cases(FIXTURE);
    let longest = all.iter().map(|case| case.prompt.len()).max().expect("cases") as u32;
    let first: Vec<_> = all
        .iter()
        .map(|case| prefill(&mut engine, &case.prompt))
        .collect();
    let growths = engine.n_kv_growths();
    assert!(engine.kv_capacity() >= longest as usize);
    for (case, expected) in all.iter().zip(&first) {
        assert_eq!(
            &prefill(&mut engine, &case.prompt),
            expected,
            "nothing of the sequence before is left"
        );
    }
    assert_eq!(engine.n_kv_growths(), growths);
}

#[test]
fn the_greedy_token_is_the_largest_logit() {
    let Some(mut engine) = open(64, "the greedy token") else {
        return;
    };
    let case = &cases(FIXTURE)[2];
    prefill(&mut engine, &case.prompt[..case.prompt.len() - 1]);
    let exported = engine.export_kv().expect("exports");
    let last = case.prompt[case.prompt.len() - 1];
    let mut token = engine.decode_greedy(last).expect("decodes");
    let mut greedy = vec![token];
    for _ in 0..8 {
        token = engine.decode_greedy(token).expect("decodes");
        greedy.push(token);
    }
    let slices = exported.iter().map(|(keys, values)| KvSlices { keys, values });
    engine.import_kv(case.prompt.len() - 1, slices).expect("imports");
    let mut logits = engine.decode(last).expect("decodes");
    for expected in greedy {
        assert_eq!(argmax(&logits), expected);
        logits = engine.decode(expected).expect("decodes");
    }
}

#[test]
fn requests_that_do_not_fit_are_refused_and_change_nothing() {
    let options = IgpuOptions {
        context_length: Some(6),
        kv_capacity: 2,
        ..IgpuOptions::default()
    };
    let Some(mut engine) = engine(&folder(FIXTURE), options, "requests that do not fit") else {
        return;
    };
    let vocab = folder(FIXTURE).geometry().vocab as u32;
    assert!(engine.decode(vocab).unwrap_err().is_bad_request());
    assert!(engine.is_empty());
    let expected = engine.decode(5).expect("decodes");
    for token in 0..5 {
        engine.decode(token).expect("decodes");
    }
    let error = engine.decode(5).unwrap_err();
    assert!(
        error.is_bad_request() && error.to_string().contains("context"),
        "{error}"
    );
    assert_eq!((engine.len(), engine.kv_capacity()), (6, 6));
    let short = [0.0; 8];
    let layers = folder(FIXTURE).geometry().layers;
    let bad = engine.import_kv(
        1,
        (0..layers).map(|_| KvSlices {
            keys: &short,
            values: &short,
        }),
    );
    assert!(bad.unwrap_err().is_bad_request());
    assert!(engine.import_kv(1, []).unwrap_err().is_bad_request());
    engine.reset();
    assert_eq!(engine.decode(5).expect("decodes"), expected);
}

#[test]
fn the_engine_may_move_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<IgpuEngine>();
    check::<runtime_igpu::IgpuPlan>();
    check::<runtime_igpu::IgpuError>();
}
