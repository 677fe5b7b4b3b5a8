//! The staging budget: what waits for device setup never takes more, and what comes out is the same.

use futures::executor::block_on;
use runtime_hybrid::{Engines, HybridOptions, HybridRuntime, LoadReport, Request, StagingBudget};
use runtime_npu::{NpuOptions, Prefault};
use scheduler::InitMode;
use tests::{fixture, in_company, library, vulkan};

const MODEL: &str = "qwen3-tiny-int4";

/// The answer's tokens and what loading took, with weights made resident by the host lane.
fn load(init: InitMode, engines: Engines, staging: StagingBudget) -> (Vec<u32>, LoadReport) {
    let mut npu = NpuOptions::new(library());
    npu.prefault = Prefault::On;
    let options = HybridOptions {
        init,
        engines,
        staging,
        npu,
        ..HybridOptions::default()
    };
    let runtime = HybridRuntime::load(fixture(MODEL), options).unwrap();
    let request = Request::tokens(vec![5, 6, 7, 8]).max_tokens(8);
    let tokens = runtime.generate(request).wait().unwrap().tokens;
    block_on(runtime.ready()).unwrap();
    (tokens, runtime.report())
}

fn weights() -> Vec<u64> {
    let folder = onnx_model::ModelFolder::open(fixture(MODEL)).unwrap();
    let operators = folder.operators().unwrap().iter();
    operators.map(|operator| operator.weight_bytes).collect()
}

/// Both engines where there is a driver.
fn engines() -> Vec<Engines> {
    match vulkan() {
        true => vec![Engines::NpuOnly, Engines::Hybrid],
        false => vec![Engines::NpuOnly],
    }
}

#[test]
fn what_waits_keeps_to_the_budget_and_the_answer_is_the_same() {
    let _company = in_company();
    let (largest_operator, all) = (
        weights().into_iter().max().unwrap(),
        weights().iter().sum::<u64>(),
    );
    for engines in engines() {
        for init in InitMode::ALL {
            let (expected, unlimited) = load(init, engines, StagingBudget::Unlimited);
            // An attention block is set up as one, and is the largest read; of four layers each has one.
            let largest = unlimited.staged_largest_bytes.unwrap();
            assert!(
                largest_operator < largest && largest < all / 3,
                "{engines} {init}: {largest_operator} {largest} {all}"
            );
            for budget in [0, largest / 3, largest, 2 * largest] {
                let (tokens, report) = load(init, engines, StagingBudget::Bytes(budget));
                let peak = report.staged_peak_bytes.unwrap();
                assert!(
                    0 < peak && peak <= budget.max(largest),
                    "{engines} {init}: {peak} bytes waited, {budget} may, and the largest read is {largest}"
                );
                assert_eq!(report.staging_budget_bytes, Some(budget));
                assert_eq!(tokens, expected, "{engines} {init}, {budget} bytes");
            }
        }
    }
}

#[test]
fn without_a_budget_a_reading_phase_reads_everything() {
    let _company = in_company();
    let all: u64 = weights().iter().sum();
    for staging in [StagingBudget::Auto, StagingBudget::Unlimited] {
        let (_, report) = load(InitMode::Serial, Engines::NpuOnly, staging);
        assert_eq!(
            (report.staged_peak_bytes, report.staging_budget_bytes),
            (Some(all), None),
            "{staging}"
        );
    }
}

#[test]
fn by_default_overlapped_has_a_budget_and_says_so() {
    let _company = in_company();
    let (largest, all) = (
        weights().into_iter().max().unwrap(),
        weights().iter().sum::<u64>(),
    );
    let (_, report) = load(InitMode::Overlapped, Engines::NpuOnly, StagingBudget::default());
    assert_eq!(report.staging_budget_bytes, Some(largest + all / 4));
    let shown = report.to_string();
    assert!(
        shown.contains("staged at most") && shown.contains("budget 0."),
        "{shown}"
    );
}
