//! Engines that are dropped, and initializations that fail, leave nothing behind. In a process of its own, to count threads and
//! memory.
#![cfg(target_os = "linux")]

use std::path::Path;

use onnx_model::ModelFolder;
use runtime_npu::{NpuOptions, NpuPlan, Provider, ProviderPlugin};
use scheduler::{InitGraph, InitMode};

/// Anonymous memory that the C library may keep for later.
const SLACK_BYTES: u64 = 6 << 20;

fn options() -> NpuOptions {
    NpuOptions::new(examples::setup::library(&()).expect("the ONNX Runtime library"))
}

fn load(
    folder: &ModelFolder,
    options: NpuOptions,
) -> Result<runtime_npu::NpuEngine, Box<dyn std::error::Error>> {
    let mut graph = InitGraph::new();
    let setup = NpuPlan::new(folder, options)?.add_to(&mut graph);
    let run = graph.start(InitMode::Overlapped)?;
    let engine = setup.finish(&mut run.ready().wait()?)?;
    run.join();
    Ok(engine)
}

fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn engines_and_failures_leave_no_thread_and_no_memory() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let folder = ModelFolder::open(models.join("llama3-tiny-int4")).unwrap();
    let use_one = || {
        let engine = load(&folder, options()).unwrap();
        let mut cache = engine.new_cache(64).unwrap();
        engine.prefill(&mut cache, &[1; 40]).unwrap();
        engine.decode(&mut cache, 2).unwrap();
    };
    let fail_one = || {
        let mut options = options();
        options.provider = Provider::Qnn;
        options.plugin = Some(ProviderPlugin {
            library: "/nowhere/provider.so".into(),
            options: vec![],
        });
        let error = load(&folder, options).err().unwrap().to_string();
        assert!(error.contains("/nowhere/provider.so"), "{error}");
    };
    // What the library and the C library keep for good is there after a few rounds.
    for _ in 0..4 {
        use_one();
        fail_one();
    }
    let (threads, memory) = (status("Threads:"), status("RssAnon:") * 1024);
    for _ in 0..20 {
        use_one();
        fail_one();
    }
    assert_eq!(status("Threads:"), threads, "threads left behind");
    let grown = (status("RssAnon:") * 1024).saturating_sub(memory);
    // Twenty leaked engines would be twenty times the model's 4 MB.
    assert!(grown < SLACK_BYTES, "{grown} bytes left behind");
}
