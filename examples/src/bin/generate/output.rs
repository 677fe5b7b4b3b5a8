//! What is printed where: the answer or one JSON object on standard output, all else on standard error.

use std::time::Duration;

use runtime_hybrid::{LoadReport, Summary};
use serde::Serialize;

/// The object of `--json`. Times are milliseconds; those of `init` count from the call that loads the model,
/// `first_token_ms` from the start of the process.
#[derive(Debug, Serialize)]
pub(crate) struct Output {
    pub(crate) prompt_tokens: Vec<u32>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    init: Init,
    first_token_ms: f64,
    /// Null for an answer of one token.
    decode_tokens_per_s: Option<f64>,
    engines: EngineNames,
    /// Null where the system does not say.
    peak_rss_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Init {
    mode: String,
    constructor_ms: f64,
    prefill_ready_ms: Option<f64>,
    decode_ready_ms: Option<f64>,
    ready_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct EngineNames {
    prefill: String,
    decode: String,
}

/// A generated answer, as it was collected.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) prompt_tokens: Vec<u32>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    /// From the start of the process.
    pub(crate) first_token: Duration,
    pub(crate) summary: Summary,
}

impl Output {
    pub(crate) fn new(answer: Collected, report: &LoadReport) -> Self {
        let optional_ms = |time: Option<Duration>| time.map(ms);
        Self {
            prompt_tokens: answer.prompt_tokens,
            tokens: answer.tokens,
            text: answer.text,
            init: Init {
                mode: report.mode.to_string(),
                constructor_ms: ms(report.constructor),
                prefill_ready_ms: optional_ms(report.prefill_ready),
                decode_ready_ms: optional_ms(report.decode_ready),
                ready_ms: optional_ms(report.ready),
            },
            first_token_ms: ms(answer.first_token),
            decode_tokens_per_s: answer.summary.decode_tokens_per_s(),
            engines: EngineNames {
                prefill: report.prefill_engine.clone(),
                decode: report.decode_engine.clone(),
            },
            peak_rss_bytes: report.peak_memory_bytes,
        }
    }
}

fn ms(time: Duration) -> f64 {
    // Microseconds are enough, and keep the number readable.
    (time.as_secs_f64() * 1e6).round() / 1e3
}
