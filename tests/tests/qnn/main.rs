//! The QNN execution provider for real: its compiler, and its emulator in place of an NPU.
//!
//! The provider comes from the PyPI wheel `onnxruntime-qnn`, fetched into the project's cache folder at first use.

use examples::provision::Provisioner;
use onnx_model::OperatorKind;
use runtime_npu::{AccuracyLevel, NpuOptions, Provider};
use scheduler::InitMode;

use tests::npu::{self, argmax, at_level, engine, folder, largest_difference, load, prompt};

/// The emulator takes milliseconds per row.
const N_TOKENS: usize = 6;

fn on_qnn() -> NpuOptions {
    Provisioner::from_environment()
        .and_then(|provisioner| provisioner.qnn(&()))
        .expect("the QNN execution provider");
    let mut options = at_level(AccuracyLevel::Float32);
    options.provider = Provider::Qnn;
    options.npu_rows = N_TOKENS;
    options
}

#[test]
fn products_run_on_the_npu_and_the_rest_on_the_cpu() {
    let folder = folder("llama3-tiny-int4");
    let on_npu = load(&folder, on_qnn(), InitMode::Overlapped).unwrap_or_else(|e| panic!("{e}"));
    for (operator, provider, _) in on_npu.placements() {
        let expected = match operator.kind {
            OperatorKind::MatMulNBits | OperatorKind::Mlp | OperatorKind::LmHead => "QNNExecutionProvider",
            _ => "CPUExecutionProvider",
        };
        assert_eq!(provider, expected, "{}", operator.name);
    }

    let on_cpu = engine(&folder, at_level(AccuracyLevel::Float32));
    let prompt = prompt(&folder, N_TOKENS);
    let (mut a, mut b) = (
        on_npu.new_cache(N_TOKENS + 1).unwrap(),
        on_cpu.new_cache(N_TOKENS + 1).unwrap(),
    );
    let expected = on_cpu.prefill_all_logits(&mut b, &prompt).unwrap();
    let logits = on_npu.prefill_all_logits(&mut a, &prompt).unwrap();
    let difference = largest_difference(&logits, &expected);
    let rms = (expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32).sqrt();
    println!("largest difference of a logit {difference:.2e}, root mean square of the logits {rms:.3}");
    // The NPU computes in float16 and not bit for bit as the CPU; if the two were equal, it would not have run there.
    assert!(
        difference > 0.0 && difference < 0.02 * rms,
        "{difference} of {rms}"
    );

    let token = argmax(&expected[expected.len() - folder.geometry().vocab..]);
    let difference = largest_difference(
        &on_npu.decode(&mut a, token).unwrap(),
        &on_cpu.decode(&mut b, token).unwrap(),
    );
    assert!(
        difference < 0.02 * rms,
        "one token after the prompt: {difference} of {rms}"
    );
}

#[test]
fn an_operator_that_the_provider_does_not_take_is_an_error() {
    let folder = folder("llama3-tiny-int4");
    let mut options = on_qnn();
    let backend = options
        .library
        .python_package_file("onnxruntime_qnn", "libQnnHtp.so");
    let library = options
        .library
        .python_package_file("onnxruntime_qnn", "libonnxruntime_providers_qnn.so");
    let (Some(_), Some(library)) = (backend, library) else {
        panic!("this test needs the Python package onnxruntime-qnn");
    };
    // Without its backend the provider takes nothing, and nothing falls back to the CPU.
    let no_backend = vec![("backend_path".to_string(), "/nowhere/libQnnHtp.so".to_string())];
    options.plugin = Some(runtime_npu::ProviderPlugin {
        library,
        options: no_backend,
    });
    let error = load(&folder, options, InitMode::Overlapped)
        .err()
        .expect("nothing to run on")
        .to_string();
    assert!(error.contains("QNNExecutionProvider"), "{error}");
    // Other engines in the process are not affected.
    engine(&folder, npu::options());
}
