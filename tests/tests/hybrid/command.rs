//! `generate` as a user runs it.

use std::path::Path;

use serde_json::Value;
use tests::{Ran, fixture, generate, vulkan};

fn run(arguments: &str) -> Ran {
    let library = std::env::var_os("ORT_DYLIB_PATH").map(std::path::PathBuf::from);
    let variables: Vec<(&str, &Path)> = library
        .iter()
        .map(|path| ("ORT_DYLIB_PATH", path.as_path()))
        .collect();
    let model = fixture("qwen3-tiny-int4");
    let model = model.to_str().unwrap();
    let arguments: Vec<&str> = arguments
        .split_whitespace()
        .map(|a| if a == "MODEL" { model } else { a })
        .collect();
    generate(&arguments, &variables)
}

#[test]
fn json_is_exactly_one_object_with_everything_promised() {
    let ran = run("--model MODEL --prompt-tokens 5,6,7 --max-tokens 6 --json --init two-phase");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout));
    let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "prompt_tokens",
        "tokens",
        "text",
        "init",
        "first_token_ms",
        "decode_tokens_per_s",
        "engines",
        "peak_rss_bytes",
    ];
    expected.sort();
    assert_eq!(
        {
            let mut keys = keys;
            keys.sort();
            keys
        },
        expected
    );
    assert_eq!(value["prompt_tokens"], serde_json::json!([5, 6, 7]));
    assert!(value["tokens"].as_array().unwrap().len() <= 6);
    assert_eq!(value["init"]["mode"], "two-phase");
    for key in [
        "constructor_ms",
        "prefill_ready_ms",
        "decode_ready_ms",
        "ready_ms",
    ] {
        assert!(value["init"][key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(value["first_token_ms"].as_f64().unwrap() > 0.0);
    assert!(value["engines"]["prefill"].is_string() && value["engines"]["decode"].is_string());
    assert!(value["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn without_json_only_the_answer_is_on_stdout() {
    let json = run("--model MODEL --prompt-tokens 5,6,7 --max-tokens 6 --json --quiet");
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json.stderr, "");
    let plain = run("--model MODEL --prompt-tokens 5,6,7 --max-tokens 6");
    assert_eq!(
        plain.stdout.trim_end_matches('\n'),
        value["text"].as_str().unwrap().trim_end_matches('\n')
    );
    for part in [
        "prefill ready",
        "decode ready",
        "first token",
        "MatMulNBits",
        "host",
    ] {
        assert!(
            plain.stderr.contains(part),
            "{part:?} is not in the report: {}",
            plain.stderr
        );
    }
}

#[test]
fn init_modes_and_the_environment_give_the_same_answer() {
    let tokens = |ran: Ran| {
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        (
            value["tokens"].clone(),
            value["init"]["mode"].as_str().unwrap().to_owned(),
        )
    };
    let (reference, mode) = tokens(run("--model MODEL gravity --max-tokens 8 --json"));
    assert_eq!(mode, "overlapped");
    for mode in ["inline", "serial", "two-phase", "overlapped"] {
        assert_eq!(
            tokens(run(&format!(
                "--model MODEL gravity --max-tokens 8 --json --init {mode}"
            ))),
            (reference.clone(), mode.to_owned())
        );
    }
}

#[test]
fn wrong_usage_is_2_and_a_failure_is_1() {
    for arguments in [
        "",
        "--bogus",
        "hi --max-tokens 0",
        "hi --init fast",
        "hi --top-p 7",
        "hi --accuracy-level 11",
        "--prompt-tokens x",
    ] {
        let ran = run(arguments);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains("error"), "{}", ran.stderr);
    }
    for (arguments, part) in [
        ("hi --model /nowhere", "/nowhere"),
        ("--model MODEL --prompt-tokens 99999 --json", "99999"),
        (
            "--model MODEL --prompt-tokens 1 --max-tokens 5000 --json",
            "context holds 2048",
        ),
    ] {
        let ran = run(arguments);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(1), ""),
            "{arguments:?}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn a_wrong_environment_variable_is_wrong_usage_that_lists_what_it_takes() {
    let ran = generate(
        &["hi", "--model", "/nowhere"],
        &[("HOSTLANE_DEFERRED_INIT", Path::new("maybe"))],
    );
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("HOSTLANE_DEFERRED_INIT") && ran.stderr.contains("true, on, yes"),
        "{}",
        ran.stderr
    );
}

#[test]
fn trace_and_dot_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, dot) = (dir.path().join("trace.json"), dir.path().join("graph.dot"));
    let ran = run(&format!(
        "--model MODEL --prompt-tokens 1 --max-tokens 1 --trace {} --dot {}",
        trace.display(),
        dot.display()
    ));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    assert!(std::fs::read_to_string(dot).unwrap().contains("digraph"));
    let ran = run("--model MODEL --prompt-tokens 1 --max-tokens 1 --trace /nowhere/trace.json");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("/nowhere/trace.json"));
}

#[test]
fn init_bench_measures_each_mode_in_a_process_of_its_own() {
    let model = fixture("qwen3-tiny-int4");
    let model = ["--model", model.to_str().unwrap()];
    let small = [
        "--modes",
        "inline,overlapped",
        "--runs",
        "2",
        "--prompt-len",
        "4",
        "--no-peers",
    ];
    let json = tests::run(
        "init-bench",
        &[&model[..], &small, &["--json", "--engine", "npu-only"]].concat(),
        &[],
    );
    assert_eq!(json.code, Some(0), "{}", json.stderr);
    let value: Value = serde_json::from_str(&json.stdout).unwrap_or_else(|e| panic!("{e}: {}", json.stdout));
    let rows = value["rows"].as_array().unwrap();
    let who: Vec<&str> = rows.iter().map(|row| row["who"].as_str().unwrap()).collect();
    assert_eq!(
        who,
        ["inline", "overlapped", "inline", "overlapped"],
        "interleaved"
    );
    for row in rows {
        for key in [
            "constructor_ms",
            "prefill_ready_ms",
            "decode_ready_ms",
            "ready_ms",
            "first_token_ms",
            "host_ms",
            "device_ms",
            "cpu_s",
            "minor_faults",
            "peak_rss_bytes",
            "n_nodes",
            "staged_peak_bytes",
        ] {
            assert!(
                row[key].as_f64().is_some_and(|number| number > 0.0),
                "{key}: {row}"
            );
        }
        assert!(
            row["major_faults"].is_number() && row["operator_types"]["NPU MatMulNBits"]["n"] == 8,
            "{row}"
        );
    }
    assert_eq!(value["ratios"][0]["ready"], 1.0);
    let [shares, medians] = ["scheduler_share", "medians"].map(|key| value[key].as_array().unwrap());
    assert!(shares.len() == medians.len() && !shares.is_empty(), "{value}");
    for (share, row) in shares.iter().zip(medians) {
        let expected = row["scheduler_ms"].as_f64().unwrap() / row["ready_ms"].as_f64().unwrap();
        let share_of_ready = share["share"].as_f64().unwrap();
        assert!(
            share["who"] == row["who"] && (share_of_ready - expected).abs() < 1e-9,
            "{share} {row}"
        );
    }
    let targets = value["targets"].as_array().unwrap();
    let staged = targets
        .iter()
        .filter(|target| target["what"].as_str().unwrap().starts_with("staged"));
    assert!(
        staged.clone().count() == 2 && staged.clone().all(|target| target["met"] == true),
        "{targets:?}"
    );

    let table = tests::run(
        "init-bench",
        &[&model[..], &small, &["--cold", "--engine", "npu-only"]].concat(),
        &[],
    );
    assert_eq!(table.code, Some(0), "{}", table.stderr);
    for part in [
        "page cache cold",
        "ratios to inline",
        "|ccc",
        "NPU MatMulNBits",
        "sched %",
        "the scheduler's own share of ready, overlapped",
    ] {
        assert!(table.stdout.contains(part), "{part:?} is not in {}", table.stdout);
    }
    for wrong in [["--runs", "0"], ["--staging-budget", "lots"]] {
        assert_eq!(
            tests::run("init-bench", &[&model[..], &wrong].concat(), &[]).code,
            Some(2)
        );
    }
}

#[test]
fn with_both_engines_ready_and_first_token_come_from_a_process_each() {
    if !vulkan() {
        return;
    }
    let model = fixture("qwen3-tiny-int4");
    let arguments =
        "--modes overlapped --runs 1 --prompt-len 4 --no-peers --json --engine hybrid --staging-budget 200K";
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    arguments.extend(["--model", model.to_str().unwrap()]);
    let json = tests::run("init-bench", &arguments, &[]);
    assert_eq!(json.code, Some(0), "{}", json.stderr);
    let value: Value = serde_json::from_str(&json.stdout).unwrap_or_else(|e| panic!("{e}: {}", json.stdout));
    let [row] = value["rows"].as_array().unwrap().as_slice() else {
        panic!("{value}")
    };
    for key in [
        "ready_ms",
        "first_token_ms",
        "ready_beside_request_ms",
        "decode_weight_bytes",
    ] {
        assert!(
            row[key].as_f64().is_some_and(|number| number > 0.0),
            "{key}: {row}"
        );
    }
    // The largest read is larger than the budget, and no two wait at once.
    assert_eq!(row["staging_budget_bytes"], 200 << 10);
    assert!(
        row["staged_peak_bytes"].as_u64().unwrap() == row["staged_largest_bytes"].as_u64().unwrap(),
        "{value}"
    );
}
