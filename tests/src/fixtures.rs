//! What tests run on: model folders, the ONNX Runtime library, a Vulkan driver.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use runtime_igpu::{IgpuAdapter, IgpuOptions};
use runtime_npu::{LibrarySearch, OnnxRuntime};

/// The small model folders of this repository.
pub const FIXTURES: [&str; 4] = [
    "qwen3-tiny-int4",
    "qwen3-tiny-int4-asym",
    "llama3-tiny-int4",
    "phi3-tiny-int4",
];

/// The folder of a fixture.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/models")
        .join(name)
}

/// Where the ONNX Runtime library is; fetched if this machine has none.
///
/// # Panics
///
/// There is none and it cannot be fetched: tests fail, they do not skip.
pub fn library() -> LibrarySearch {
    static LIBRARY: OnceLock<LibrarySearch> = OnceLock::new();
    LIBRARY
        .get_or_init(|| examples::setup::library(&()).expect("the ONNX Runtime library"))
        .clone()
}

/// ONNX Runtime itself.
///
/// # Panics
///
/// It cannot be loaded.
pub fn onnx_runtime() -> OnnxRuntime {
    OnnxRuntime::load(&library(), 2).expect("ONNX Runtime loads")
}

/// Whether this machine has a graphics driver. Says once, past the test harness's capture, what is not exercised without one.
pub fn vulkan() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| match IgpuAdapter::find(&IgpuOptions::default()) {
        Ok(_) => true,
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "NOT EXERCISED: decoding on the iGPU engine ({error})"
            );
            false
        }
    })
}
