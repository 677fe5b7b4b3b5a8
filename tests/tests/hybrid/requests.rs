//! Requests: their company, their end, and what a runtime leaves behind.

use futures::StreamExt;
use futures::executor::block_on;
use runtime_hybrid::{Engines, Event, Generation, HybridOptions, HybridRuntime, Request, Sampling};
use runtime_igpu::{IgpuAdapter, IgpuOptions};
use runtime_npu::{NpuOptions, Provider};
use scheduler::{InitMode, NodeInfo, Phase};
use tests::{alone, fixture, in_company, library, threads_left, vulkan};

fn options(init: InitMode) -> HybridOptions {
    HybridOptions {
        init,
        npu: NpuOptions::new(library()),
        ..HybridOptions::default()
    }
}

fn load(init: InitMode) -> HybridRuntime {
    HybridRuntime::load(fixture("qwen3-tiny-int4"), options(init)).unwrap()
}

fn requests() -> Vec<Request> {
    let warm = Sampling {
        temperature: 0.9,
        top_k: 40,
        top_p: 0.95,
        seed: Some(3),
        ..Sampling::greedy()
    };
    vec![
        Request::chat("What is gravity?").max_tokens(12),
        Request::text("The capital of France is").max_tokens(20),
        Request::tokens(vec![5, 6, 7]).max_tokens(9).sampling(warm),
        Request::tokens((0..150).collect()).max_tokens(5),
        Request::chat("What is gravity?").max_tokens(3),
    ]
}

#[test]
fn several_requests_one_after_another_and_at_once_give_what_each_gives_alone() {
    let alone: Vec<Vec<u32>> = requests()
        .into_iter()
        .map(|request| {
            load(InitMode::Overlapped)
                .generate(request)
                .wait()
                .unwrap()
                .tokens
        })
        .collect();
    let runtime = load(InitMode::Overlapped);
    let after: Vec<Vec<u32>> = requests()
        .into_iter()
        .map(|request| runtime.generate(request).wait().unwrap().tokens)
        .collect();
    assert_eq!(alone, after);
    let running: Vec<_> = requests()
        .into_iter()
        .map(|request| runtime.generate(request))
        .collect();
    let at_once: Vec<Vec<u32>> = running
        .into_iter()
        .map(|answer| answer.wait().unwrap().tokens)
        .collect();
    assert_eq!(alone, at_once);
}

#[test]
fn the_report_tells_each_time_apart() {
    let _company = in_company();
    for init in InitMode::ALL {
        let runtime = load(init);
        let constructor = runtime.report().constructor;
        let answer = runtime
            .generate(Request::tokens(vec![1, 2, 3]).max_tokens(4))
            .wait()
            .unwrap();
        assert_eq!(answer.tokens.len(), 4);
        block_on(runtime.ready()).unwrap();
        let report = runtime.report();
        let (prefill, decode) = (report.prefill_ready.unwrap(), report.decode_ready.unwrap());
        let (ready, first_token) = (report.ready.unwrap(), report.first_token.unwrap());
        assert!(
            prefill <= ready && decode <= ready && prefill <= first_token,
            "{report}"
        );
        assert!(
            init != InitMode::Inline || constructor >= ready,
            "inline returns when all is done: {report}"
        );
        assert!(
            report
                .operator_types
                .iter()
                .any(|cost| cost.n > 0 && !cost.device.is_zero()),
            "{report}"
        );
        assert!(!report.placements.is_empty() && report.peak_memory_bytes.is_some());
        assert!(report.trace.unwrap().events().len() > 10);
    }
}

#[test]
fn without_an_adapter_it_is_npu_only_and_says_so_in_one_line() {
    let _company = in_company();
    let mut options = options(InitMode::Overlapped);
    options.igpu.adapter = runtime_igpu::AdapterChoice::Named("no such adapter".into());
    let runtime = HybridRuntime::load(fixture("llama3-tiny-int4"), options.clone()).unwrap();
    let tokens = runtime
        .generate(Request::tokens(vec![1, 2, 3]).max_tokens(4))
        .wait()
        .unwrap()
        .tokens;
    let report = runtime.report();
    let [notice] = report.notices.as_slice() else {
        panic!("{:?}", report.notices)
    };
    assert!(
        notice.contains("no such adapter") && !notice.contains('\n'),
        "{notice}"
    );
    assert!(
        report.decode_engine.starts_with("NPU"),
        "{}",
        report.decode_engine
    );
    assert_eq!(tokens.len(), 4);

    options.engines = Engines::Hybrid;
    let error = HybridRuntime::load(fixture("llama3-tiny-int4"), options).unwrap_err();
    assert!(error.to_string().contains("no such adapter"), "{error}");
}

#[test]
fn a_failed_start_is_every_requests_error_and_leaves_nothing() {
    let _alone = alone();
    for init in [InitMode::Serial, InitMode::TwoPhase, InitMode::Overlapped] {
        let mut options = options(init);
        options.npu.provider = Provider::VitisAi;
        let runtime = HybridRuntime::load(fixture("llama3-tiny-int4"), options).unwrap();
        let before: Vec<_> = requests()
            .into_iter()
            .map(|request| runtime.generate(request))
            .collect();
        let outcomes: Vec<_> = before.into_iter().map(Generation::wait).collect();
        let after = runtime.generate(Request::tokens(vec![1])).wait();
        for outcome in outcomes.into_iter().chain([after]) {
            let error = outcome.unwrap_err();
            let init_error = error.init_error().unwrap_or_else(|| panic!("{error}"));
            assert!(
                init_error.node().is_some() && init_error.lane().is_some(),
                "{init_error}"
            );
            assert!(error.to_string().contains("vitisai"), "{error}");
        }
        assert!(block_on(runtime.ready()).is_err() && block_on(runtime.prefill_ready()).is_err());
        drop(runtime);
        assert_eq!(threads_left("hostlane"), Vec::<String>::new(), "{init}");
    }
}

#[test]
fn cancelling_or_dropping_during_load_leaves_no_thread() {
    let _alone = alone();
    for init in [InitMode::Serial, InitMode::TwoPhase, InitMode::Overlapped] {
        // A load may be through before its cancel: then the answer comes, and another load is cancelled.
        let cancelled = (0..50).any(|_| {
            let runtime = load(init);
            let waiting = runtime.generate(Request::tokens(vec![1, 2]).max_tokens(3));
            runtime.cancel();
            match waiting.wait() {
                Err(error) => {
                    assert!(error.is_cancelled(), "{init}: {error}");
                    true
                }
                Ok(_) => {
                    assert!(runtime.report().ready.is_some(), "{init}");
                    false
                }
            }
        });
        assert!(cancelled, "{init}");
        drop(load(init));
        assert_eq!(threads_left("hostlane"), Vec::<String>::new(), "{init}");
    }
}

#[test]
fn dropping_an_answer_halfway_frees_the_engines_for_the_next() {
    let _company = in_company();
    let runtime = load(InitMode::Overlapped);
    let mut long = runtime.generate(
        Request::tokens(vec![9, 8, 7])
            .max_tokens(1500)
            .past_end_of_sequence(),
    );
    let first = block_on(async {
        long.next().await;
        long.next().await
    });
    assert!(matches!(first, Some(Ok(Event::Token(_)))));
    drop(long);
    let answer = runtime
        .generate(Request::tokens(vec![1, 2, 3]).max_tokens(3))
        .wait()
        .unwrap();
    assert_eq!(answer.tokens.len(), 3);
}

#[test]
fn an_answer_that_does_not_fit_is_refused_before_work_starts() {
    let _company = in_company();
    let runtime = load(InitMode::Overlapped);
    let error = runtime
        .generate(Request::tokens(vec![1; 2000]).max_tokens(100))
        .wait()
        .unwrap_err();
    assert!(
        error.is_context_overflow() && error.to_string().contains("2048"),
        "{error}"
    );
    assert!(runtime.report().first_token.is_none());
}

#[test]
fn hybrid_decodes_on_the_adapter_it_names() {
    let _company = in_company();
    if !vulkan() {
        return;
    }
    let mut options = options(InitMode::Overlapped);
    options.engines = Engines::Hybrid;
    let runtime = HybridRuntime::load(fixture("phi3-tiny-int4"), options).unwrap();
    runtime
        .generate(Request::tokens(vec![1, 2, 3]).max_tokens(4))
        .wait()
        .unwrap();
    block_on(runtime.ready()).unwrap();
    let report = runtime.report();
    assert!(
        report.decode_engine.starts_with("iGPU"),
        "{}",
        report.decode_engine
    );
    // An adapter that is the CPU itself leaves the cores to the prefill engine first, but for the end.
    if IgpuAdapter::find(&IgpuOptions::default()).unwrap().is_cpu() {
        let trace = report.trace.unwrap();
        let device = trace.find("igpu.device", Phase::Device).unwrap();
        let others = ["Text", "host"].map(str::to_owned);
        let is_npus = |node: &&NodeInfo| {
            !node.operator_type.starts_with("igpu.") && !others.contains(&node.operator_type.to_string())
        };
        let npus: Vec<_> = trace
            .nodes()
            .iter()
            .filter(is_npus)
            .filter(|n| n.phase == Phase::Device)
            .collect();
        assert!(npus.len() > 20);
        let n_before = npus.iter().filter(|node| trace.before(node.id, device)).count();
        assert!(
            n_before >= npus.len() - npus.len() / 8,
            "{n_before} of {} nodes",
            npus.len()
        );
    }
}
