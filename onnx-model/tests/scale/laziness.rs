//! Opening a folder of gigabytes touches no weight page.

use std::fs;

use onnx_model::{ModelFolder, OperatorKind};

use crate::support::qwen3_4b::{LAYERS, qwen3_4b};

/// Kibibytes of the weight file that this process has touched, from `/proc/self/smaps`.
#[cfg(target_os = "linux")]
fn resident_kib(folder: &ModelFolder) -> u64 {
    let path = folder.dir().join("model.onnx.data");
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps
        .lines()
        .skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    assert!(lines.next().is_some(), "the weight file is not mapped");
    let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    rss.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn opening_four_billion_parameters_touches_no_weight_page() {
    let folder = qwen3_4b();
    let model = ModelFolder::open(folder.path("")).unwrap();
    let bytes = model.weight_files().map(|f| f.len()).sum::<u64>();
    assert!(bytes > 2_500_000_000, "{bytes}");
    let operators = model.operators().unwrap();
    assert_eq!(operators.len(), 4 + 6 * LAYERS);
    let data: Vec<_> = operators
        .iter()
        .map(|operator| model.read(operator).unwrap())
        .collect();
    model.summary().unwrap();
    assert_eq!(resident_kib(&model), 0, "opening and reading touched weights");
    // The measurement itself works: prefaulting one operator shows. A page that the cache got last may be in it, but not mapped.
    let mlp = data
        .iter()
        .find(|d| d.operator().kind == OperatorKind::Mlp)
        .unwrap();
    mlp.prefault().unwrap();
    let (resident, weights) = (resident_kib(&model), mlp.operator().weight_bytes / 1024);
    assert!(resident >= weights / 100 * 99, "{resident} KiB of {weights}");
}

/// The graph is what opening reads; that it does not grow with the weights is what makes opening fast.
#[test]
fn the_graph_of_four_billion_parameters_is_small() {
    let folder = qwen3_4b();
    assert!(fs::metadata(folder.path("model.onnx")).unwrap().len() < 300_000);
}
