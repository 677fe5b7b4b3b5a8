//! A model goes from wheel to folder.

use crate::build::tiny_llama;
use crate::kit::{Kit, Steps, package};
use onnx_model::ModelFolder;
use onnx_model::gguf::{ConvertMode, TensorType};
use std::fs;

#[test]
fn a_model_is_converted_once_per_mode() {
    let kit = Kit::new();
    let gguf = tiny_llama(TensorType::Q4_1, TensorType::Q8_0).bytes();
    let wheel = kit.wheel(&[("thing/model.gguf", &gguf)]);
    let (provisioner, package) = (
        kit.provisioner(kit.pip_with(&wheel)),
        package("thing/model.gguf", &gguf),
    );
    let steps = Steps::default();
    let folder = provisioner
        .model("tiny", &package, ConvertMode::Int8, &steps)
        .unwrap();
    assert_eq!(steps.names(), ["fetching", "unpacking", "converting", "done"]);
    assert_eq!(ModelFolder::open(&folder).unwrap().geometry().layers, 2);
    let mut files = kit.cached_files();
    assert_eq!(files.pop().unwrap(), "wheels/thing-1.0-py3-none-any.whl");
    let is_model = |file: &String| file.starts_with("models/tiny-int8-v1/") && !file.ends_with(".gguf");
    assert!(files.iter().all(is_model), "{files:?}");

    // Nor is the wheel fetched again for another mode.
    provisioner
        .model("tiny", &package, ConvertMode::Int8, &())
        .unwrap();
    let other = provisioner
        .model("tiny", &package, ConvertMode::Int4Symmetric, &())
        .unwrap();
    assert_ne!(other, folder);
    assert_eq!(kit.calls(), 1);

    // A shortened file is noticed.
    let data = folder.join("model.onnx.data");
    let whole = fs::metadata(&data).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&data)
        .unwrap()
        .set_len(whole - 1)
        .unwrap();
    provisioner
        .model("tiny", &package, ConvertMode::Int8, &())
        .unwrap();
    assert_eq!(fs::metadata(&data).unwrap().len(), whole);
}

#[test]
fn a_conversion_that_fails_half_way_leaves_nothing() {
    let kit = Kit::new();
    let mut gguf = tiny_llama(TensorType::Q4_1, TensorType::Q8_0);
    // The last tensor that is read.
    gguf.tensors.retain(|tensor| tensor.name != "output_norm.weight");
    let gguf = gguf.bytes();
    let wheel = kit.wheel(&[("thing/model.gguf", &gguf)]);
    let provisioner = kit.provisioner(kit.pip_with(&wheel));
    let steps = Steps::default();
    let error = provisioner
        .model(
            "tiny",
            &package("thing/model.gguf", &gguf),
            ConvertMode::Int8,
            &steps,
        )
        .unwrap_err();
    assert!(
        error.is_contents() && error.to_string().contains("output_norm.weight is missing"),
        "{error}"
    );
    assert!(steps.names().contains(&"converting"), "it failed before it began");
    assert_eq!(kit.cached_files(), ["wheels/thing-1.0-py3-none-any.whl"]);
}
