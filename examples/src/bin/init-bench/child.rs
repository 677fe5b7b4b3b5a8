//! One run: load, perhaps one request, and what it cost.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use futures::executor::{block_on, block_on_stream};
use runtime_hybrid::{Engines, Event, Generation, HybridOptions, HybridRuntime, LoadReport, Request};
use runtime_npu::NpuOptions;
use scheduler::InitMode;

use crate::args::{Args, Measure};
use crate::overhead;
use crate::row::{Row, TypeRow, ms};
use crate::usage::Usage;

pub(crate) fn run(args: &Args, mode: InitMode) -> Result<()> {
    let mut out = examples::stdout::claim()?;
    let mut npu = NpuOptions::new(examples::setup::library(&())?);
    npu.provider = args.npu_provider;
    npu.prefault = args.prefault();
    let options = HybridOptions {
        init: mode,
        engines: args.engine,
        staging: args.staging_budget,
        npu,
        ..HybridOptions::default()
    };
    let vocabulary = onnx_model::ModelFolder::open(&args.model)?.geometry().vocab;
    let runtime = HybridRuntime::load(&args.model, options)?;
    let request = || {
        let request = Request::tokens(args.prompt(vocabulary)).max_tokens(2);
        runtime.generate(request.past_end_of_sequence())
    };
    // With one engine nothing is left to be set up when a waiting request starts, so that one process serves for both.
    let asks = match args.measure {
        Measure::FirstToken => true,
        Measure::Ready => runtime.engines() == Engines::NpuOnly,
        Measure::Init => false,
    };
    let mut answer = asks.then(request);
    let mut first_token = None;
    if args.measure == Measure::FirstToken {
        first_token = answer
            .take()
            .map(|answer| first_token_ms(answer, args.spawned_ns));
    }
    block_on(runtime.ready())?;
    let usage = Usage::now();
    if let Some(answer) = answer {
        first_token = Some(first_token_ms(answer, args.spawned_ns));
    }
    let mut row = row(&runtime.report(), usage);
    row.first_token_ms = first_token.transpose()?;
    if let (Measure::Ready, Some(trace)) = (args.measure, &runtime.report().trace) {
        row.scheduler_ms = Some(overhead::scheduler_ms(trace)?);
    }
    Ok(writeln!(out, "{}", serde_json::to_string(&row)?)?)
}

/// Waits for the whole answer. Gives when its first token was there, since the parent started this process, by the clock that both
/// share.
fn first_token_ms(answer: Generation, spawned_ns: u128) -> Result<f64> {
    let mut events = block_on_stream(answer);
    let first_token = loop {
        if let Event::Token(_) = events.next().context("the answer has no token")?? {
            break SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        }
    };
    events.try_for_each(|event| event.map(drop))?;
    let since = u64::try_from(first_token.saturating_sub(spawned_ns))?;
    Ok(ms(Duration::from_nanos(since)))
}

fn row(report: &LoadReport, usage: Usage) -> Row {
    let types: BTreeMap<String, TypeRow> = report
        .operator_types
        .iter()
        .map(|cost| {
            let row = TypeRow {
                n: cost.n,
                host_ms: ms(cost.host),
                device_ms: ms(cost.device),
                queue_ms: ms(cost.queue),
            };
            (format!("{} {}", cost.engine, cost.operator_type), row)
        })
        .collect();
    let breakdown = report.trace.as_ref().map(|trace| trace.breakdown());
    let engines = match report.engines {
        Engines::NpuOnly => vec![report.prefill_engine.clone()],
        Engines::Auto | Engines::Hybrid => vec![report.prefill_engine.clone(), report.decode_engine.clone()],
    };
    Row {
        who: report.mode.to_string(),
        constructor_ms: Some(ms(report.constructor)),
        prefill_ready_ms: report.prefill_ready.map(ms),
        decode_ready_ms: report.decode_ready.map(ms),
        ready_ms: report.ready.map(ms),
        host_ms: Some(types.values().map(|t| t.host_ms).sum()),
        device_ms: Some(types.values().map(|t| t.device_ms).sum()),
        idle_ms: breakdown.as_ref().map(|b| ms(b.idle)),
        overlap_ms: breakdown.as_ref().map(|b| ms(b.overlap)),
        n_nodes: report.trace.as_ref().map(|trace| trace.nodes().len()),
        cpu_s: Some(usage.cpu_s),
        minor_faults: Some(usage.minor_faults),
        major_faults: Some(usage.major_faults),
        peak_rss_bytes: report.peak_memory_bytes,
        decode_weight_bytes: report.decode_weight_bytes,
        staging_budget_bytes: report.staging_budget_bytes,
        staged_peak_bytes: report.staged_peak_bytes,
        staged_largest_bytes: report.staged_largest_bytes,
        operator_types: types,
        engines,
        ..Row::default()
    }
}
