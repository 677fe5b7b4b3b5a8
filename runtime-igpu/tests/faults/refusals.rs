//! Models that the engine has no kernel for are refused at plan time, by operator and node.

use std::path::Path;

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuError, IgpuOptions, IgpuPlan};

use crate::common::folder;

/// A copy of a fixture whose graph has one name replaced by another of the same length.
fn patched(from: &str, to: &str) -> (tempfile::TempDir, ModelFolder) {
    assert_eq!(from.len(), to.len(), "protobuf strings keep their length");
    let original = folder("llama3-tiny-int4");
    let dir = tempfile::tempdir().expect("a directory");
    for file in ["genai_config.json", "model.onnx.data"] {
        std::fs::copy(original.dir().join(file), dir.path().join(file)).expect("copies");
    }
    patch(
        &original.dir().join("model.onnx"),
        &dir.path().join("model.onnx"),
        from.as_bytes(),
        to.as_bytes(),
    );
    let opened = ModelFolder::open(dir.path()).expect("the patched folder opens");
    (dir, opened)
}

fn patch(source: &Path, target: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(source).expect("reads");
    let places: Vec<_> = (0..bytes.len() - from.len())
        .filter(|&i| bytes[i..].starts_with(from))
        .collect();
    assert!(!places.is_empty(), "nothing to patch");
    for place in places {
        bytes[place..place + from.len()].copy_from_slice(to);
    }
    std::fs::write(target, bytes).expect("writes");
}

fn refusal(from: &str, to: &str) -> Option<IgpuError> {
    let (_dir, folder) = patched(from, to);
    match IgpuPlan::new(&folder, IgpuOptions::default()) {
        Ok(_) => panic!("{to} has no kernel"),
        Err(error) if error.is_no_adapter() => {
            eprintln!("not exercised: refusal of {to}: {error}");
            None
        }
        Err(error) => Some(error),
    }
}

#[test]
fn an_unknown_node_type() {
    let Some(error) = refusal("GroupQueryAttention", "GroupQueryAttentioX") else {
        return;
    };
    assert!(error.is_unsupported_model(), "{error:?}");
    assert_eq!(error.node(), Some("/model/layers.0/attn/GroupQueryAttentioX"));
    assert!(error.operator().is_some(), "{error:?}");
    assert!(
        error.to_string().contains("no kernel for GroupQueryAttentioX"),
        "{error}"
    );
}

#[test]
fn an_unknown_attribute() {
    let Some(error) = refusal("local_window_size", "local_window_sizX") else {
        return;
    };
    assert!(error.is_unsupported_model(), "{error:?}");
    assert_eq!(error.operator(), Some("layers.0.attn"));
    assert_eq!(error.node(), Some("/model/layers.0/attn/GroupQueryAttention"));
    assert!(error.to_string().contains("local_window_sizX"), "{error}");
}
