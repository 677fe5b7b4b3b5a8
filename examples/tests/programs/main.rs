//! `synthesize`, `convert` and `inspect` as a person calls them.

#[path = "../../../onnx-model/tests/gguf/build.rs"]
#[allow(dead_code)]
mod build;

use onnx_model::gguf::TensorType;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::tempdir;

fn synthesize(arguments: &[&str], out: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_synthesize"))
        .args(arguments)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap()
}

fn inspect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inspect"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn fixture(name: &str) -> String {
    format!("{}/../tests/fixtures/models/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn synthesize_writes_a_whole_folder() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("model");
    let output = synthesize(&["--preset", "tiny", "--seed", "3"], &out);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("4 layers"),
        "{}",
        text(&output.stdout)
    );
    let folder = onnx_model::ModelFolder::open(&out).unwrap();
    assert_eq!(folder.geometry().vocab, 2048);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no temporary folder is left"
    );

    let tokenizer = tokenizers::Tokenizer::from_file(out.join("tokenizer.json")).unwrap();
    assert_eq!(tokenizer.get_vocab_size(true), 2048);
    let text = "Hello, world! naïve 日本\n";
    let encoded = tokenizer.encode(text, false).unwrap();
    assert!(encoded.len() < text.len(), "nothing was merged");
    assert_eq!(tokenizer.decode(encoded.get_ids(), false).unwrap(), text);
    assert_eq!(tokenizer.token_to_id("<|im_end|>"), Some(2047));
}

#[test]
fn synthesize_refuses_what_cannot_be() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let output = synthesize(&["--preset", "tiny"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("exists already; remove it or choose another folder"),
        "{}",
        text(&output.stderr)
    );
    let output = synthesize(&["--preset", "huge"], &dir.path().join("new"));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("tiny, qwen3-0.6b, qwen3-4b, llama-3.2-1b"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn an_interrupted_synthesize_leaves_nothing() {
    for signal in ["INT", "TERM"] {
        let dir = tempdir().unwrap();
        let out = dir.path().join("model");
        let mut child = Command::new(env!("CARGO_BIN_EXE_synthesize"))
            .args(["--preset", "qwen3-4b", "--out"])
            .arg(&out)
            .spawn()
            .unwrap();
        // The weights have begun to arrive, so the signal is handled from here on.
        let begun = || {
            let entries = fs::read_dir(dir.path()).unwrap().flatten();
            entries.into_iter().any(|entry| {
                fs::metadata(entry.path().join("model.onnx.data")).is_ok_and(|data| data.len() > 1 << 20)
            })
        };
        while !begun() {
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended before it was interrupted"
            );
            std::thread::yield_now();
        }
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "{signal}: something is left"
        );
    }
}

#[test]
fn convert_reads_gguf() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("model.gguf"), dir.path().join("model"));
    fs::write(
        &file,
        build::tiny_llama(TensorType::Q4_1, TensorType::Q8_0).bytes(),
    )
    .unwrap();
    let convert = |file: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_convert"));
        command
            .arg(file)
            .args(["--mode", "int4-symmetric", "--out"])
            .arg(&out)
            .output()
            .unwrap()
    };
    let missing = convert(&dir.path().join("none.gguf"));
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("none.gguf: cannot open"),
        "{}",
        text(&missing.stderr)
    );
    let output = convert(&file);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(onnx_model::ModelFolder::open(&out).unwrap().geometry().layers, 2);
}

#[test]
fn inspect_shows_operators_and_bytes() {
    let output = inspect(&[&fixture("qwen3-tiny-int4")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        "qwen3",
        "layers.3.mlp",
        "layers.0.attn.qkv_proj",
        "GroupQueryAttention",
        "lm_head",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn inspect_writes_json_and_dot() {
    let dir = tempdir().unwrap();
    let dot = dir.path().join("graph.dot");
    let output = inspect(&[
        &fixture("phi3-tiny-int4"),
        "--json",
        "--dot",
        dot.to_str().unwrap(),
    ]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let operators = json["operators"].as_array().unwrap();
    assert!(operators.iter().any(|operator| operator["name"] == "layers.1.mlp" && operator["weight_bytes"].as_u64() > Some(0)));
    let dot = fs::read_to_string(dot).unwrap();
    assert!(dot.starts_with("digraph"));
    // A host and a device node each, with an edge from one to the other.
    assert_eq!(dot.matches("label").count(), 2 * operators.len());
    assert_eq!(dot.matches("->").count(), operators.len());
}

#[test]
fn inspect_says_what_is_wrong_with_a_folder() {
    let output = inspect(&["/does/not/exist"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("error: /does/not/exist"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(inspect(&[]).status.code(), Some(2));
}
