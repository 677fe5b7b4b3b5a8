//! Files that are not a usable ONNX Runtime library, each a clear error. In a process of its own, since a process loads one library.

use std::path::PathBuf;
use std::process::Command;

use runtime_npu::{LibrarySearch, OnnxRuntime};

fn error(library: PathBuf) -> String {
    let error = OnnxRuntime::load(&LibrarySearch::exactly(&library), 1)
        .err()
        .expect("should not load");
    assert!(error.is_library(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&*library.to_string_lossy()) && text.contains("1.24"),
        "{text}"
    );
    text
}

#[test]
fn a_text_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libonnxruntime.so");
    std::fs::write(&path, "not a library").unwrap();
    let text = error(path);
    assert!(text.contains("failed to load"), "{text}");
}

/// Libraries written for this test, in Rust.
fn compile(source: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (
        folder.path().join("lib.rs"),
        folder.path().join("libonnxruntime.so"),
    );
    std::fs::write(&from, source).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let status = Command::new(rustc)
        .args([
            "--edition",
            "2021",
            "--crate-type",
            "cdylib",
            "-C",
            "panic=abort",
            "-o",
        ])
        .args([&to, &from])
        .status()
        .expect("rustc runs");
    assert!(status.success(), "the library for this test cannot be compiled");
    (folder, to)
}

#[test]
fn a_library_of_something_else() {
    let (_folder, path) = compile("#[no_mangle] pub extern \"C\" fn something_else() {}");
    let text = error(path);
    assert!(text.contains("OrtGetApiBase"), "{text}");
}

#[test]
fn an_onnx_runtime_too_old() {
    let (_folder, path) = compile(
        r#"
        use std::ffi::{c_char, c_void};
        extern "C" fn api(_: u32) -> *const c_void { std::ptr::null() }
        extern "C" fn version() -> *const c_char { b"1.10.0\0".as_ptr().cast() }
        #[repr(C)] pub struct Base { api: extern "C" fn(u32) -> *const c_void, version: extern "C" fn() -> *const c_char }
        static BASE: Base = Base { api, version };
        #[no_mangle] pub extern "C" fn OrtGetApiBase() -> *const Base { &BASE }
        "#,
    );
    let text = error(path);
    assert!(text.contains("1.10.0"), "{text}");
}
