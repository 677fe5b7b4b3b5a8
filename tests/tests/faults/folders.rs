//! What is wrong with a model folder is said by `load` or by the first request that needs it, naming the file.

use std::path::Path;

use onnx_model::ModelFolder;
use runtime_hybrid::{Engines, HybridOptions, HybridRuntime, Request};
use runtime_npu::{NpuOptions, NpuPlan, Provider};
use scheduler::{InitGraph, InitMode};
use tests::{fixture, library};

fn options() -> HybridOptions {
    HybridOptions {
        init: InitMode::Overlapped,
        engines: Engines::NpuOnly,
        npu: NpuOptions::new(library()),
        ..HybridOptions::default()
    }
}

/// A copy of a fixture, changed.
fn changed(change: impl FnOnce(&Path)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("llama3-tiny-int4")).unwrap().flatten() {
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    change(dir.path());
    dir
}

#[track_caller]
fn check_load(change: impl FnOnce(&Path), parts: &[&str]) {
    let dir = changed(change);
    let error = HybridRuntime::load(dir.path(), options())
        .unwrap_err()
        .to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn a_broken_folder_does_not_load() {
    let error = HybridRuntime::load("/nowhere/at/all", options())
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nowhere/at/all"), "{error}");
    check_load(
        |dir| std::fs::remove_file(dir.join("genai_config.json")).unwrap(),
        &["genai_config.json"],
    );
    check_load(
        |dir| std::fs::write(dir.join("genai_config.json"), "{").unwrap(),
        &["genai_config.json"],
    );
    check_load(
        |dir| std::fs::remove_file(dir.join("model.onnx")).unwrap(),
        &["model.onnx"],
    );
    check_load(
        |dir| std::fs::write(dir.join("model.onnx"), b"not a graph").unwrap(),
        &["model.onnx"],
    );
    check_load(
        |dir| std::fs::remove_file(dir.join("model.onnx.data")).unwrap(),
        &["model.onnx.data"],
    );
    check_load(
        |dir| {
            std::fs::OpenOptions::new()
                .write(true)
                .open(dir.join("model.onnx.data"))
                .unwrap()
                .set_len(1000)
                .unwrap()
        },
        &["model.onnx.data", "1000 bytes"],
    );
}

#[test]
fn without_a_tokenizer_tokens_are_served_and_text_is_refused() {
    let dir = changed(|dir| std::fs::remove_file(dir.join("tokenizer.json")).unwrap());
    let runtime = HybridRuntime::load(dir.path(), options()).unwrap();
    let error = runtime
        .generate(Request::text("hello").max_tokens(2))
        .wait()
        .unwrap_err()
        .to_string();
    assert!(error.contains("tokenizer.json"), "{error}");
    let answer = runtime
        .generate(Request::tokens(vec![1, 2]).max_tokens(2))
        .wait()
        .unwrap();
    assert_eq!((answer.tokens.len(), answer.text.as_str()), (2, ""));
}

#[test]
fn without_a_template_text_is_served_and_chat_is_refused() {
    let dir = changed(|dir| std::fs::remove_file(dir.join("chat_template.jinja")).unwrap());
    let runtime = HybridRuntime::load(dir.path(), options()).unwrap();
    let error = runtime
        .generate(Request::chat("hello").max_tokens(2))
        .wait()
        .unwrap_err();
    assert!(
        error.is_invalid_request() && error.to_string().contains("chat template"),
        "{error}"
    );
    assert_eq!(
        runtime
            .generate(Request::text("hello").max_tokens(2))
            .wait()
            .unwrap()
            .tokens
            .len(),
        2
    );
}

#[test]
fn inline_reports_a_failed_start_from_load_itself() {
    let mut options = options();
    options.init = InitMode::Inline;
    options.npu.provider = Provider::VitisAi;
    let error = HybridRuntime::load(fixture("llama3-tiny-int4"), options).unwrap_err();
    assert!(
        error.init_error().is_some() && error.to_string().contains("vitisai"),
        "{error}"
    );
}

#[test]
fn weights_that_shrink_while_operators_are_set_up_are_an_error_not_zeros() {
    let dir = changed(|_| {});
    let folder = ModelFolder::open(dir.path()).unwrap();
    let mut graph = InitGraph::new();
    let plan = NpuPlan::new(&folder, NpuOptions::new(library())).unwrap();
    let setup = plan.add_to(&mut graph);
    let run = graph.start(InitMode::Overlapped).unwrap();
    let mut ready = run.ready().wait().unwrap();

    let weights = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("model.onnx.data"));
    weights.unwrap().set_len(4096).unwrap();
    let error = setup.finish(&mut ready).err().expect("the weights are gone");
    assert!(error.to_string().contains("model.onnx.data"), "{error}");
}
