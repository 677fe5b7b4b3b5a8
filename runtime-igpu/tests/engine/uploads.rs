//! However weights reach the device, results are the same; what is read in place needs its file.

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuOptions, IgpuPlan, UploadPath};
use scheduler::InitMode;

use crate::common::{FIXTURES, cases, engine, folder, prefill};

fn by(path: UploadPath) -> IgpuOptions {
    IgpuOptions {
        upload: Some(path),
        ..IgpuOptions::default()
    }
}

/// A plan on this path; `None`, said in one line, where the machine has no adapter or no leases for it.
fn plan(folder: &ModelFolder, path: UploadPath) -> Option<IgpuPlan> {
    if path == UploadPath::Imported && !folder.weight_files().all(|file| file.lease().is_some()) {
        eprintln!(
            "not exercised: the {path:?} upload path: no lease on {}",
            folder.dir().display()
        );
        return None;
    }
    match IgpuPlan::new(folder, by(path)) {
        Ok(plan) => Some(plan),
        Err(error) if error.is_no_adapter() || error.is_unsupported_feature() => {
            eprintln!("not exercised: the {path:?} upload path: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_upload_path_gives_the_same_logits() {
    for name in FIXTURES {
        let folder = folder(name);
        let Some(mut staged) = engine(&folder, by(UploadPath::Staged), "upload paths") else {
            return;
        };
        let prompt = &cases(name)[0].prompt;
        let expected = prefill(&mut staged, prompt);
        assert!(!staged.reads_mapping());
        for path in [UploadPath::Mapped, UploadPath::Imported] {
            let Some(plan) = plan(&folder, path) else {
                continue;
            };
            let mut engine = plan.load(InitMode::Overlapped).expect("loads");
            assert_eq!(engine.reads_mapping(), path == UploadPath::Imported, "{name}");
            assert_eq!(
                prefill(&mut engine, prompt),
                expected,
                "{name}, {path:?}, bit for bit"
            );
        }
    }
}

/// A driver's threads do not survive a page that is gone, so whoever takes one away is kept waiting until nobody reads it.
#[test]
fn who_shrinks_a_file_that_is_read_in_place_waits_for_the_next_token() {
    let original = folder(FIXTURES[0]);
    let dir = tempfile::tempdir().expect("a directory");
    for file in ["genai_config.json", "model.onnx", "model.onnx.data"] {
        std::fs::copy(original.dir().join(file), dir.path().join(file)).expect("copies");
    }
    let folder = ModelFolder::open(dir.path()).expect("opens");
    let plans = [UploadPath::Imported, UploadPath::Mapped].map(|path| plan(&folder, path));
    let [Some(in_place), Some(copied)] = plans else {
        return;
    };
    let [mut in_place, mut copied] =
        [in_place, copied].map(|plan| plan.load(InitMode::Overlapped).expect("loads"));
    let expected = in_place.decode(1).expect("decodes");
    std::thread::scope(|scope| {
        let data = dir.path().join("model.onnx.data");
        let shrinks = scope.spawn(move || {
            let file = std::fs::OpenOptions::new().write(true).open(data);
            file.and_then(|file| file.set_len(4096)).expect("shrinks");
        });
        let mut n_decoded = 1;
        let error = loop {
            match in_place.decode(2) {
                Ok(_) => n_decoded += 1,
                Err(error) => break error,
            }
            // The writer may be slow to come; the context must not be full before.
            if n_decoded == 100 {
                in_place.reset();
                n_decoded = 0;
            }
        };
        assert!(error.to_string().contains("model.onnx.data"), "{error}");
        assert_eq!(
            in_place.len(),
            n_decoded,
            "the token that failed is not part of the sequence"
        );
        shrinks.join().expect("shrinks");
    });
    assert!(in_place.decode(2).is_err(), "the weights do not come back");
    assert_eq!(copied.decode(1).expect("has its own weights"), expected);
}
