//! What can be wrong with the files themselves.

use std::fs;
use std::path::Path;

use onnx_model::{Error, FolderOptions, LinkPolicy, ModelFolder, WeightAccess};
use prost::Message;

use crate::support::*;

/// The error of a tiny folder after `breaking` changed something in it.
#[track_caller]
fn broken(breaking: impl FnOnce(&Folder)) -> Error {
    let folder = Folder::tiny();
    folder.open().expect("good before it is broken");
    breaking(&folder);
    folder.open().expect_err("broken")
}

#[track_caller]
fn check(error: &Error, file: &str, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(
        error.file().and_then(Path::file_name).and_then(|n| n.to_str()),
        Some(file),
        "{text}"
    );
    for word in words {
        assert!(text.contains(word), "{text:?} should say {word:?}");
    }
}

#[test]
fn missing_folder() {
    let error = ModelFolder::open("/no/such/folder").unwrap_err();
    assert!(error.is_io());
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

#[test]
fn missing_files() {
    for file in ["genai_config.json", "model.onnx", "model.onnx.data"] {
        let error = broken(|f| fs::remove_file(f.path(file)).unwrap());
        assert!(error.is_io(), "{error}");
        check(&error, file, &["No such file"]);
    }
    let error = broken(|f| fs::remove_file(f.path("model.onnx.data")).unwrap());
    assert_eq!(error.tensor(), Some("embed"));
}

#[test]
fn truncated_data() {
    let error = broken(|f| fs::write(f.path("model.onnx.data"), [0; 1000]).unwrap());
    assert!(error.is_out_of_range());
    assert_eq!(error.tensor(), Some("scales"));
    check(
        &error,
        "model.onnx.data",
        &["192 bytes at 896", "has 1000 bytes", "truncated"],
    );
    let error = broken(|f| fs::write(f.path("model.onnx.data"), []).unwrap());
    check(&error, "model.onnx.data", &["has 0 bytes"]);
}

#[test]
fn empty_and_random_graph_files() {
    let error = broken(|f| fs::write(f.path("model.onnx"), []).unwrap());
    assert!(error.is_malformed());
    check(&error, "model.onnx", &["empty"]);
    let mut state = 1u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(100_000)
    .collect();
    let error = broken(|f| fs::write(f.path("model.onnx"), random).unwrap());
    assert!(error.is_malformed());
    check(&error, "model.onnx", &["not an ONNX model"]);
    let error = broken(|f| fs::write(f.path("model.onnx"), "a text file").unwrap());
    check(&error, "model.onnx", &["not an ONNX model"]);
}

#[test]
fn a_graph_file_cut_anywhere() {
    let bytes = encode(tiny_graph());
    let folder = Folder::tiny();
    // Cut after a complete field, a message is valid without what follows; then a later check must object.
    for len in 0..bytes.len() {
        let opened = ModelFolder::open_with_graph(folder.path(""), &bytes[..len], FolderOptions::default());
        check(&opened.expect_err("broken"), "model.onnx", &[]);
    }
}

#[test]
fn unusable_configs() {
    let error = broken(|f| fs::write(f.path("genai_config.json"), "{").unwrap());
    check(&error, "genai_config.json", &["line 1"]);
    for (from, to, word) in [
        (
            "\"num_hidden_layers\": 1",
            "\"num_hidden_layers\": 0",
            "num_hidden_layers = 0",
        ),
        (
            "\"num_hidden_layers\": 1",
            "\"num_hidden_layers\": 2",
            "does not have",
        ),
        (
            "\"num_hidden_layers\": 1",
            "\"num_hidden_layers\": 9999999999",
            "num_hidden_layers",
        ),
        (
            "\"num_hidden_layers\": 1",
            "\"num_hidden_layers\": -1",
            "invalid value",
        ),
        (
            "\"num_key_value_heads\": 1",
            "\"num_key_value_heads\": 2",
            "multiple",
        ),
        (
            "\"decoder\": {",
            "\"decoder\": {\"filename\": \"../model.onnx\",",
            "leaves the model folder",
        ),
        (
            "\"decoder\": {",
            "\"decoder\": {\"filename\": \"/model.onnx\",",
            "absolute",
        ),
        (
            "\"decoder\": {",
            "\"decoder\": {\"outputs\": {\"logits\": \"nope\"},",
            "does not have",
        ),
    ] {
        let config = TINY_CONFIG.replace(from, to);
        assert_ne!(config, TINY_CONFIG);
        let error = broken(|f| fs::write(f.path("genai_config.json"), config).unwrap());
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.file().is_some(), "{error}");
    }
}

/// The error for a graph whose first initializer is placed so.
#[track_caller]
fn placed(place: &[(&str, &str)]) -> Error {
    let mut graph = tiny_graph();
    graph.initializer[0] = external("embed", onnx_model::DataType::Float32, &[8, 16], place);
    let error = Folder::new(&encode(graph), TINY_DATA).open().expect_err("broken");
    assert_eq!(error.tensor(), Some("embed"), "{error}");
    check(&error, "model.onnx", &[]);
    error
}

#[test]
fn paths_that_leave_the_folder() {
    for path in [
        "/etc/passwd",
        "../model.onnx.data",
        "a/../../model.onnx.data",
        "..",
        "C:\\weights",
        "c:weights",
        "\\\\server\\share",
        "..\\x",
        "",
        "a\0b",
    ] {
        let error = placed(&[("location", path), ("offset", "0"), ("length", "512")]);
        assert!(error.is_unsafe_path(), "{path}: {error}");
    }
    let error = placed(&[("offset", "0"), ("length", "512")]);
    assert!(
        error.is_malformed() && error.to_string().contains("name no file"),
        "{error}"
    );
}

#[test]
fn ranges_that_make_no_sense() {
    let max = u64::MAX.to_string();
    for (offset, length, word) in [
        (max.as_str(), "512", "overflows"),
        ("18446744073709551616", "512", "is not a number of bytes"),
        ("-1", "512", "is not a number of bytes"),
        ("1e3", "512", "is not a number of bytes"),
        ("0", "511", "needs 512"),
        ("0", "0", "needs 512"),
        ("0", max.as_str(), "needs 512"),
        ("0", "", "is not a number of bytes"),
    ] {
        let error = placed(&[
            ("location", "model.onnx.data"),
            ("offset", offset),
            ("length", length),
        ]);
        assert!(
            error.is_out_of_range() && error.to_string().contains(word),
            "{offset} {length}: {error}"
        );
    }
    let error = placed(&[
        ("location", "model.onnx.data"),
        ("offset", "0"),
        ("offset", "8"),
        ("length", "512"),
    ]);
    assert!(error.to_string().contains("'offset' twice"), "{error}");
}

#[test]
fn a_range_behind_the_end() {
    let mut graph = tiny_graph();
    let place = [
        ("location", "model.onnx.data"),
        ("offset", "18446744073709551000"),
        ("length", "512"),
    ];
    graph.initializer[0] = external("embed", onnx_model::DataType::Float32, &[8, 16], &place);
    let error = Folder::new(&encode(graph), TINY_DATA).open().unwrap_err();
    assert!(error.is_out_of_range());
    check(&error, "model.onnx.data", &["embed", "18446744073709551000"]);
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder() {
    for file in ["model.onnx.data", "model.onnx", "genai_config.json"] {
        let outside = tempfile::tempdir().unwrap();
        let folder = Folder::tiny();
        let target = outside.path().join("elsewhere");
        fs::rename(folder.path(file), &target).unwrap();
        std::os::unix::fs::symlink(&target, folder.path(file)).unwrap();
        let error = folder.open().unwrap_err();
        assert!(error.is_unsafe_path(), "{error}");
        check(
            &error,
            file,
            &["leads out of the model folder", "LinkPolicy::Anywhere"],
        );
        let trusting = FolderOptions {
            links: LinkPolicy::Anywhere,
            ..Default::default()
        };
        ModelFolder::open_with(folder.path(""), trusting)
            .unwrap()
            .tensor("embed")
            .unwrap();
    }
    // A link inside the folder is fine; the folder itself may be reached through one.
    let folder = Folder::tiny();
    fs::rename(folder.path("model.onnx.data"), folder.path("blob")).unwrap();
    std::os::unix::fs::symlink("blob", folder.path("model.onnx.data")).unwrap();
    folder.open().unwrap();
    let link = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path(""), link.path().join("model")).unwrap();
    ModelFolder::open(link.path().join("model")).unwrap();
    // A circle of links is an error of the system, not a hang.
    fs::remove_file(folder.path("model.onnx.data")).unwrap();
    std::os::unix::fs::symlink("model.onnx.data", folder.path("model.onnx.data")).unwrap();
    assert!(folder.open().unwrap_err().is_io());
}

#[cfg(unix)]
#[test]
fn things_that_are_no_files() {
    let error = broken(|f| {
        fs::remove_file(f.path("model.onnx.data")).unwrap();
        fs::create_dir(f.path("model.onnx.data")).unwrap();
    });
    check(&error, "model.onnx.data", &["not a regular file"]);
    let error = broken(|f| {
        fs::remove_file(f.path("model.onnx")).unwrap();
        let path =
            std::ffi::CString::new(f.path("model.onnx").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a valid path.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    });
    check(&error, "model.onnx", &["not a regular file"]);
}

#[test]
fn unaligned_weights_are_copied_not_refused() {
    let mut graph = tiny_graph();
    let place = [
        ("location", "model.onnx.data"),
        ("offset", "3"),
        ("length", "512"),
    ];
    graph.initializer[0] = external("embed", onnx_model::DataType::Float32, &[8, 16], &place);
    let folder = Folder::new(&encode(graph), TINY_DATA).open().unwrap();
    let tensor = folder.tensor("embed").unwrap();
    assert_eq!(tensor.bytes.mapping_offset(), None);
    assert_eq!(tensor.as_slice::<f32>().unwrap().len(), 128);
    assert_eq!(folder.tensor("head").unwrap().bytes.mapping_offset(), Some(1088));
}

#[test]
fn read_access_copies_weights() {
    let folder = Folder::tiny();
    let options = FolderOptions {
        weights: WeightAccess::Read,
        ..Default::default()
    };
    let opened = ModelFolder::open_with(folder.path(""), options).unwrap();
    let tensor = opened.tensor("embed").unwrap();
    assert_eq!(tensor.bytes.mapping_offset(), None);
    fs::write(folder.path("model.onnx.data"), []).unwrap();
    assert!(tensor.bytes.iter().all(|&b| b == 1));
    let error = opened.tensor("head").unwrap_err();
    assert!(error.is_changed());
    check(&error, "model.onnx.data", &["head", "shrank from 1600 to 0"]);
}

#[test]
fn a_model_without_a_graph() {
    let model = ModelProto {
        graph: None,
        ..model(tiny_graph())
    };
    let error = broken(|f| fs::write(f.path("model.onnx"), model.encode_to_vec()).unwrap());
    check(&error, "model.onnx", &["no graph"]);
}

use onnx_model::proto::ModelProto;
