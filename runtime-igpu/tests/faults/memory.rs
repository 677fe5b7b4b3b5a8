//! Memory is budgeted before it is taken.

use runtime_igpu::{IgpuOptions, IgpuPlan};
use scheduler::InitMode;

use crate::common::folder;

fn plan(options: IgpuOptions, what: &str) -> Option<runtime_igpu::Result<IgpuPlan>> {
    match IgpuPlan::new(&folder("llama3-tiny-int4"), options) {
        Err(error) if error.is_no_adapter() => {
            eprintln!("not exercised: {what}: {error}");
            None
        }
        planned => Some(planned),
    }
}

#[test]
fn a_model_over_the_budget_is_refused_before_anything_is_allocated() {
    let Some(fits) = plan(IgpuOptions::default(), "the memory budget") else {
        return;
    };
    let needed = fits.expect("the fixture fits this machine").device_bytes();
    let with = |bytes| {
        plan(
            IgpuOptions {
                memory_budget_bytes: Some(bytes),
                ..IgpuOptions::default()
            },
            "",
        )
        .expect("an adapter")
    };
    assert!(with(needed).is_ok());
    let error = with(needed - 1).err().expect("one byte is missing");
    assert!(error.is_out_of_memory(), "{error:?}");
    assert_eq!(
        error.operator(),
        Some("lm_head"),
        "the last operator passes the budget"
    );
    let error = with(1 << 20).err().expect("most is missing");
    assert_eq!(
        error.operator(),
        Some("embed_tokens"),
        "the first operator already does"
    );
}

#[test]
fn a_cache_that_may_not_grow_leaves_the_sequence_as_it_was() {
    let base = IgpuOptions {
        kv_capacity: 4,
        ..IgpuOptions::default()
    };
    let Some(planned) = plan(base.clone(), "the memory budget of a growing cache") else {
        return;
    };
    let budget = planned.expect("plans").device_bytes();
    let options = IgpuOptions {
        memory_budget_bytes: Some(budget),
        ..base
    };
    let planned = plan(options, "").expect("an adapter").expect("fits to the byte");
    let mut engine = planned.load(InitMode::Serial).expect("loads");
    let first: Vec<_> = (0..4)
        .map(|token| engine.decode(token).expect("decodes"))
        .collect();
    let error = engine.decode(4).expect_err("the cache may not grow");
    assert!(error.is_out_of_memory(), "{error:?}");
    assert_eq!(
        error.operator(),
        Some("layers.2.attn"),
        "four caches of 4 positions leave room for two of 8"
    );
    assert_eq!(
        (engine.len(), engine.kv_capacity(), engine.n_kv_growths()),
        (4, 4, 0)
    );
    engine.reset();
    for (token, expected) in (0..4).zip(first) {
        assert_eq!(engine.decode(token).expect("decodes"), expected);
    }
}
