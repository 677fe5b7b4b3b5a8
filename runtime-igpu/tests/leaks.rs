//! Loading and letting go leaves nothing allocated. Alone in its process, since the allocator's counters are the whole process's.
//!
//! What stays resident is another matter: glibc hands freed memory back late, and more of its arenas come into use as threads
//! come and go. `examples/load.rs` shows both.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuOptions, IgpuPlan, UploadPath};
use scheduler::InitMode;

/// Bytes that the process has allocated and not freed.
fn allocated() -> usize {
    // SAFETY: only reads the allocator's own counters.
    let counters = unsafe { libc::mallinfo2() };
    counters.uordblks + counters.hblkhd
}

#[test]
fn repeated_loads_allocate_nothing_that_stays() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/models/qwen3-tiny-int4"
    );
    let load = |path| {
        let folder = ModelFolder::open(folder).expect("the fixture opens");
        let options = IgpuOptions {
            upload: Some(path),
            ..IgpuOptions::default()
        };
        match IgpuPlan::new(&folder, options) {
            Ok(plan) => plan
                .load(InitMode::Overlapped)
                .and_then(|mut engine| engine.decode_greedy(1))
                .map(|_| true)
                .expect("loads and decodes"),
            Err(error) if error.is_no_adapter() || error.is_unsupported_feature() => {
                eprintln!("not exercised: repeated loads on the {path:?} path: {error}");
                false
            }
            Err(error) => panic!("{error}"),
        }
    };
    for path in [UploadPath::Imported, UploadPath::Mapped, UploadPath::Staged] {
        // Drivers and libraries keep some things for good, once.
        let loaded = (0..6).all(|_| load(path));
        if !loaded {
            continue;
        }
        let before = allocated();
        (0..8).for_each(|_| assert!(load(path)));
        let grown = allocated().saturating_sub(before);
        println!(
            "{path:?}: {} bytes in use, grown by {grown} in 8 loads",
            allocated()
        );
        // An engine of this model holds more than a megabyte; 60 loads in one process grow by some hundred bytes each, and less and less.
        assert!(grown < 64 << 10, "{path:?}: {grown} bytes more after 8 loads");
    }
}
