//! Fixtures and their reference outputs.

use std::path::PathBuf;

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuEngine, IgpuOptions, IgpuPlan};
use scheduler::InitMode;
use serde_json::Value;

/// The shared model folders.
pub const FIXTURES: [&str; 4] = [
    "llama3-tiny-int4",
    "qwen3-tiny-int4",
    "qwen3-tiny-int4-asym",
    "phi3-tiny-int4",
];

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

pub fn folder(name: &str) -> ModelFolder {
    ModelFolder::open(fixtures().join("models").join(name)).expect("the fixture opens")
}

/// One prompt with what stock ONNX Runtime made of it at accuracy level 1.
pub struct Case {
    pub prompt: Vec<u32>,
    pub ids: Vec<u32>,
    pub margins: Vec<f64>,
    /// Token and logit of the five largest logits after the prompt.
    pub top5: Vec<(usize, f64)>,
    /// The first eight logits.
    pub head8: Vec<f64>,
    /// Mean, standard deviation and Euclidean norm of the logits.
    pub moments: [f64; 3],
}

/// A reference file.
pub fn reference(name: &str) -> Value {
    let path = fixtures().join("refs").join(format!("{name}.json"));
    let text = std::fs::read_to_string(path).expect("the reference is there");
    serde_json::from_str(&text).expect("the reference is JSON")
}

pub fn cases(name: &str) -> Vec<Case> {
    let json = reference(name);
    let ids = |value: &Value| {
        value
            .as_array()
            .expect("ids")
            .iter()
            .map(|id| id.as_u64().expect("an id") as u32)
            .collect()
    };
    let floats = |value: &Value| {
        value
            .as_array()
            .expect("floats")
            .iter()
            .map(|x| x.as_f64().expect("a float"))
            .collect::<Vec<_>>()
    };
    let case = |case: &Value| {
        let last = &case["acc1_last_logits"];
        Case {
            prompt: ids(&case["prompt_ids"]),
            ids: ids(&case["acc1_ids"]),
            margins: floats(&case["acc1_margins"]),
            top5: last["top5"]
                .as_array()
                .expect("top5")
                .iter()
                .map(floats)
                .map(|pair| (pair[0] as usize, pair[1]))
                .collect(),
            head8: floats(&last["head8"]),
            moments: ["mean", "std", "l2"].map(|name| last[name].as_f64().expect("a float")),
        }
    };
    json["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(case)
        .collect()
}

/// An engine for a folder; `None`, said in one line, where the machine has no adapter.
pub fn engine(folder: &ModelFolder, options: IgpuOptions, what: &str) -> Option<IgpuEngine> {
    match IgpuPlan::new(folder, options) {
        Ok(plan) => Some(plan.load(InitMode::Overlapped).expect("the engine loads")),
        Err(error) if error.is_no_adapter() => {
            eprintln!("not exercised: {what}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Feeds a prompt token by token and gives the last logits.
pub fn prefill(engine: &mut IgpuEngine, prompt: &[u32]) -> Vec<f32> {
    engine.reset();
    let mut logits = Vec::new();
    for &token in prompt {
        logits = engine.decode(token).expect("decodes");
    }
    logits
}

pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = i;
        }
    }
    best as u32
}
