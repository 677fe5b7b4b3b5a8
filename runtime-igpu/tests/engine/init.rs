//! Set-up as nodes of an init graph: the same engine in every mode, kernels before operators, failures by name.

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuOptions, IgpuPlan};
use scheduler::{InitGraph, InitMode, NodeId, Phase, RunOptions};

use crate::common::{cases, folder, prefill};

const FIXTURE: &str = "qwen3-tiny-int4";
const MODES: [InitMode; 4] = [
    InitMode::Inline,
    InitMode::Serial,
    InitMode::TwoPhase,
    InitMode::Overlapped,
];

fn plan(folder: &ModelFolder, what: &str) -> Option<IgpuPlan> {
    match IgpuPlan::new(folder, IgpuOptions::default()) {
        Ok(plan) => Some(plan),
        Err(error) if error.is_no_adapter() => {
            eprintln!("not exercised: {what}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_mode_gives_the_same_engine() {
    let Some(plan) = plan(&folder(FIXTURE), "init modes") else {
        return;
    };
    let prompt = &cases(FIXTURE)[0].prompt;
    let logits = MODES.map(|mode| prefill(&mut plan.load(mode).expect("loads"), prompt));
    for other in &logits[1..] {
        assert_eq!(other, &logits[0], "bit for bit");
    }
}

#[test]
fn the_device_opens_before_kernels_and_uploads() {
    let folder = folder(FIXTURE);
    let Some(plan) = plan(&folder, "order of set-up") else {
        return;
    };
    let operators = folder.operators().expect("operators");
    for mode in MODES {
        let mut graph = InitGraph::new();
        let nodes = plan.add_to(&mut graph);
        let device = nodes.device_node();
        let run = graph
            .start_with(mode, RunOptions::new().record())
            .expect("starts");
        run.ready().wait().expect("sets up");
        let trace = run.trace();
        let find = |name: &str| {
            trace
                .find(name, Phase::Device)
                .unwrap_or_else(|| panic!("node {name}"))
        };
        let kernels: Vec<NodeId> = plan.kernels().iter().map(|kernel| find(kernel)).collect();
        // Operators of all layers share a handful of kernels.
        assert!(
            kernels.len() < operators.len() / 2,
            "{} kernels, {} operators",
            kernels.len(),
            operators.len()
        );
        for &kernel in &kernels {
            assert!(trace.before(device, kernel));
        }
        for operator in operators {
            assert!(
                trace.before(device, find(&operator.name)),
                "{mode}: {}",
                operator.name
            );
        }
        // One node per kernel and operator, and the device: they are bound to each other behind the barrier.
        let n_device_nodes = 1 + kernels.len() + operators.len();
        assert_eq!(nodes.barrier_nodes().len(), n_device_nodes, "{mode}");
        nodes
            .finish(&mut run.ready().wait().expect("is set up"))
            .expect("binds");
    }
}

#[test]
fn a_weight_file_that_shrank_is_an_error_of_its_operator() {
    let original = folder(FIXTURE);
    let dir = tempfile::tempdir().expect("a directory");
    for file in ["genai_config.json", "model.onnx", "model.onnx.data"] {
        std::fs::copy(original.dir().join(file), dir.path().join(file)).expect("copies");
    }
    let opened = ModelFolder::open(dir.path()).expect("opens");
    let Some(plan) = plan(&opened, "a weight file that shrank") else {
        return;
    };
    let data = dir.path().join("model.onnx.data");
    let len = std::fs::metadata(&data).expect("is there").len();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&data)
        .and_then(|file| file.set_len(len / 2))
        .expect("shrinks");
    for mode in MODES {
        let error = plan
            .load(mode)
            .err()
            .unwrap_or_else(|| panic!("{mode}: half of the weights are gone"));
        assert!(error.to_string().contains("model.onnx.data"), "{mode}: {error}");
        assert!(
            error.operator().is_some()
                || error.to_string().contains("layers.")
                || error.to_string().contains("lm_head"),
            "{mode}: {error}"
        );
    }
    std::fs::copy(original.dir().join("model.onnx.data"), &data).expect("copies");
    let again = ModelFolder::open(dir.path()).expect("opens");
    assert!(
        IgpuPlan::new(&again, IgpuOptions::default())
            .expect("plans")
            .load(InitMode::Overlapped)
            .is_ok()
    );
}
