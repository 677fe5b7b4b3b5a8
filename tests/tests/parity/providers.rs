//! Execution providers by name, and the QNN compiler and emulator for real.

use runtime_npu::{Provider, ProviderPlugin};
use scheduler::InitMode;

use tests::npu::{engine, folder, load, options};

#[test]
fn a_provider_that_is_not_there_is_an_error_not_a_cpu_run() {
    let folder = folder("llama3-tiny-int4");
    for provider in [Provider::VitisAi, Provider::OpenVino, Provider::Qnn] {
        let mut options = options();
        options.provider = provider;
        options.plugin = Some(ProviderPlugin {
            library: "/nowhere/libprovider.so".into(),
            options: vec![],
        });
        let error = load(&folder, options, InitMode::Overlapped)
            .err()
            .expect("no such provider")
            .to_string();
        assert!(
            error.contains(provider.name()) && error.contains("/nowhere/libprovider.so"),
            "{error}"
        );
    }
}

#[test]
fn auto_takes_the_cpu_where_there_is_no_npu() {
    let folder = folder("llama3-tiny-int4");
    let mut options = options();
    options.provider = Provider::Auto;
    let engine = engine(&folder, options);
    assert!(
        engine
            .placements()
            .all(|(_, provider, _)| provider == "CPUExecutionProvider")
    );
}
