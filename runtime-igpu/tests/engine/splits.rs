//! Weights larger than a binding are split, and nothing in the results tells.

use runtime_igpu::{IgpuOptions, IgpuPlan};
use scheduler::InitMode;

use crate::common::{FIXTURES, cases, engine, folder, prefill};

#[test]
fn split_weights_give_the_same_logits() {
    for name in FIXTURES {
        let folder = folder(name);
        let what = format!("split bindings of {name}");
        let Some(mut whole) = engine(&folder, IgpuOptions::default(), &what) else {
            return;
        };
        // Small enough to split embedding and lm_head into many parts, large enough for a norm or a rotary table.
        let context_length = Some(128);
        let options = IgpuOptions {
            max_binding_bytes: Some(140_000),
            context_length,
            ..IgpuOptions::default()
        };
        let split = IgpuPlan::new(&folder, options.clone()).expect("plans");
        let mut split = split.load(InitMode::Overlapped).expect("loads");
        assert!(split.n_dispatches() > whole.n_dispatches(), "{name} is split");
        let prompt = &cases(name)[0].prompt;
        assert_eq!(prefill(&mut split, prompt), prefill(&mut whole, prompt), "{name}");
    }
}

#[test]
fn what_cannot_be_split_is_refused_by_name() {
    let folder = folder("llama3-tiny-int4");
    let options = IgpuOptions {
        max_binding_bytes: Some(4096),
        context_length: Some(8),
        ..IgpuOptions::default()
    };
    match IgpuPlan::new(&folder, options) {
        Ok(_) => panic!("64 rows of 1024 bytes do not fit 4096 bytes"),
        Err(error) if error.is_no_adapter() => {
            eprintln!("not exercised: bindings too small to split: {error}")
        }
        Err(error) => {
            assert!(error.is_over_limit(), "{error}");
            assert_eq!(error.operator(), Some("embed_tokens"));
        }
    }
}
