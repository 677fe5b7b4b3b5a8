//! The device goes away.

use runtime_igpu::IgpuOptions;

use crate::common::{cases, engine, folder, prefill};

#[test]
fn a_lost_device_is_an_error_and_a_new_load_works() {
    let folder = folder("llama3-tiny-int4");
    let Some(mut first) = engine(&folder, IgpuOptions::default(), "loss of the device") else {
        return;
    };
    let prompt = &cases("llama3-tiny-int4")[0].prompt;
    let expected = prefill(&mut first, prompt);
    first.lose_device();
    for _ in 0..2 {
        let error = first.decode(1).expect_err("the device is gone");
        assert!(error.is_device_lost(), "{error:?}");
        assert_eq!(
            error.operator(),
            Some("lm_head"),
            "the operator that was waited for"
        );
        assert!(
            first
                .decode_greedy(1)
                .expect_err("it stays gone")
                .is_device_lost()
        );
    }
    assert!(first.export_kv().expect_err("it stays gone").is_device_lost());
    drop(first);
    let mut second = engine(&folder, IgpuOptions::default(), "loss of the device").expect("loads again");
    assert_eq!(prefill(&mut second, prompt), expected);
}

#[test]
fn loss_during_growth_and_import_is_an_error_too() {
    let folder = folder("llama3-tiny-int4");
    let options = IgpuOptions {
        kv_capacity: 2,
        ..IgpuOptions::default()
    };
    let Some(mut engine) = engine(&folder, options, "loss of the device during growth") else {
        return;
    };
    engine.decode(1).expect("decodes");
    engine.decode(2).expect("decodes");
    let exported = engine.export_kv().expect("exports");
    engine.lose_device();
    assert!(
        engine
            .decode(3)
            .expect_err("the cache cannot grow")
            .is_device_lost()
    );
    let slices = exported
        .iter()
        .map(|(keys, values)| runtime_igpu::KvSlices { keys, values });
    let error = engine.import_kv(2, slices).expect_err("nothing can be imported");
    assert!(error.is_device_lost(), "{error:?}");
    assert_eq!(error.operator(), Some("layers.0.attn"));
}
