//! Memory is budgeted before it is taken.

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuOptions, IgpuPlan, UploadPath};
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
    let copying = IgpuOptions {
        upload: Some(UploadPath::Staged),
        ..IgpuOptions::default()
    };
    let Some(fits) = plan(copying.clone(), "the memory budget") else {
        return;
    };
    let needed = fits.expect("the fixture fits this machine").device_bytes();
    let with = |bytes| {
        let options = IgpuOptions {
            memory_budget_bytes: Some(bytes),
            ..copying.clone()
        };
        plan(options, "").expect("an adapter")
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

/// What a plan of this folder takes with weights copied and with weights in place; `None`, said in one line, where there is no such
/// path.
fn copied_and_in_place(folder: &ModelFolder) -> Option<[IgpuPlan; 2]> {
    let plans = [UploadPath::Staged, UploadPath::Imported].map(|path| {
        let options = IgpuOptions {
            upload: Some(path),
            ..IgpuOptions::default()
        };
        IgpuPlan::new(folder, options)
    });
    match plans {
        [Ok(copied), Ok(in_place)] => Some([copied, in_place]),
        [Err(error), _] | [_, Err(error)] if error.is_no_adapter() || error.is_unsupported_feature() => {
            eprintln!("not exercised: the memory of weights in place: {error}");
            None
        }
        [Err(error), _] | [_, Err(error)] => panic!("{error}"),
    }
}

#[test]
fn weights_in_place_take_no_device_memory() {
    // Norms of 512 bytes in the second lie where not every device can read them.
    for (name, misplaced) in [("llama3-tiny-int4", 0), ("qwen3-tiny-int4", 512)] {
        let folder = folder(name);
        let leased = folder.weight_files().all(|file| file.lease().is_some());
        let Some([copied, in_place]) = copied_and_in_place(&folder) else {
            return;
        };
        let weights = copied.weight_bytes();
        assert!(weights > 1 << 20 && in_place.weight_bytes() == weights, "{name}");
        let expected = match leased {
            true => weights - misplaced,
            false => 0,
        };
        assert_eq!(
            copied.device_bytes() - in_place.device_bytes(),
            expected,
            "{name}"
        );
        let budget = IgpuOptions {
            upload: Some(UploadPath::Imported),
            memory_budget_bytes: Some(in_place.device_bytes()),
            ..IgpuOptions::default()
        };
        let plan = IgpuPlan::new(&folder, budget).expect("fits to the byte");
        plan.load(InitMode::Serial).expect("loads");
    }
}

#[test]
fn weights_count_where_the_file_has_no_lease() {
    let original = folder("llama3-tiny-int4");
    let dir = tempfile::tempdir().expect("a directory");
    for file in ["genai_config.json", "model.onnx", "model.onnx.data"] {
        std::fs::copy(original.dir().join(file), dir.path().join(file)).expect("copies");
    }
    let folder = ModelFolder::open(dir.path()).expect("opens");
    let writer = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("model.onnx.data"))
        .expect("opens");
    let Some([copied, in_place]) = copied_and_in_place(&folder) else {
        return;
    };
    assert_eq!(copied.device_bytes(), in_place.device_bytes());
    drop(writer);
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
