//! One run: load, one request, and what it cost.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use runtime_hybrid::{Event, HybridOptions, HybridRuntime, LoadReport, Request};
use runtime_npu::NpuOptions;
use scheduler::InitMode;

use crate::args::Args;
use crate::row::{Row, TypeRow, ms};

pub(crate) fn run(args: &Args, mode: InitMode) -> Result<()> {
    let mut out = examples::stdout::claim()?;
    let mut npu = NpuOptions::new(examples::setup::library(&())?);
    npu.provider = args.npu_provider;
    npu.prefault = args.prefault();
    let options = HybridOptions {
        init: mode,
        engines: args.engine,
        npu,
        ..HybridOptions::default()
    };
    let vocabulary = onnx_model::ModelFolder::open(&args.model)?.geometry().vocab;
    let runtime = HybridRuntime::load(&args.model, options)?;
    let request = Request::tokens(args.prompt(vocabulary))
        .max_tokens(2)
        .past_end_of_sequence();
    let mut events = futures::executor::block_on_stream(runtime.generate(request));
    let first_token = loop {
        if let Event::Token(_) = events.next().context("the answer has no token")?? {
            break since(args.spawned_ns);
        }
    };
    for event in events {
        event?;
    }
    futures::executor::block_on(runtime.ready())?;
    let row = row(&runtime.report(), first_token, usage());
    Ok(writeln!(out, "{}", serde_json::to_string(&row)?)?)
}

/// Time since the parent started this process, by the clock that both share.
fn since(spawned_ns: u128) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos());
    Duration::from_nanos(u64::try_from(now.saturating_sub(spawned_ns)).unwrap_or(u64::MAX))
}

fn row(report: &LoadReport, first_token: Duration, usage: libc::rusage) -> Row {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
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
    Row {
        who: report.mode.to_string(),
        run: 0,
        constructor_ms: Some(ms(report.constructor)),
        prefill_ready_ms: report.prefill_ready.map(ms),
        decode_ready_ms: report.decode_ready.map(ms),
        ready_ms: report.ready.map(ms),
        first_token_ms: Some(ms(first_token)),
        host_ms: Some(types.values().map(|t| t.host_ms).sum()),
        device_ms: Some(types.values().map(|t| t.device_ms).sum()),
        idle_ms: breakdown.as_ref().map(|b| ms(b.idle)),
        overlap_ms: breakdown.as_ref().map(|b| ms(b.overlap)),
        cpu_s: Some(seconds(usage.ru_utime) + seconds(usage.ru_stime)),
        minor_faults: Some(usage.ru_minflt),
        major_faults: Some(usage.ru_majflt),
        peak_rss_bytes: report.peak_memory_bytes,
        operator_types: types,
        engines: vec![report.prefill_engine.clone(), report.decode_engine.clone()],
    }
}

fn usage() -> libc::rusage {
    // SAFETY: an rusage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to an rusage that this function owns; the call writes nothing else.
    let code = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    assert_eq!(code, 0, "getrusage fails only for a bad argument");
    usage
}
