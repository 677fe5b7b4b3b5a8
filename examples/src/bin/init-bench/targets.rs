//! What this project wants to reach, beside what was measured. The limits are for Qwen3-4B's geometry on 2 cores.

use serde::Serialize;

use crate::results::{Ratio, Results};
use crate::row::Row;

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) measured: f64,
    /// At most this.
    pub(crate) limit: f64,
    pub(crate) met: bool,
}

const GENAI: &str = "onnxruntime-genai";
const SESSION: &str = "onnxruntime";

/// The targets for which the call measured what they compare.
pub(crate) fn check(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut target = |what: String, measured: Option<f64>, limit: f64| {
        targets.extend(measured.map(|measured| Target {
            what,
            measured,
            limit,
            met: measured <= limit,
        }));
    };
    let over = |to: &str, of: fn(&Ratio) -> Option<f64>| results.ratio("overlapped", to).and_then(of);
    let overlapped = results.median("overlapped");
    let is_hybrid = overlapped.is_some_and(|row| row.decode_weight_bytes.is_some());

    target(
        "constructor, overlapped, of inline's ready".to_owned(),
        over("inline", |ratio| ratio.constructor_to_ready),
        0.1,
    );
    target(
        "ready, overlapped, of inline's".to_owned(),
        over("inline", |ratio| ratio.ready),
        0.55,
    );
    target(
        format!("prefill ready, overlapped, of {GENAI}'s load"),
        over(GENAI, |ratio| ratio.prefill_ready),
        if is_hybrid { 0.8 } else { 0.55 },
    );
    if !is_hybrid {
        target(
            format!("first token, overlapped, of {GENAI}'s"),
            over(GENAI, |ratio| ratio.first_token),
            1.0,
        );
    }
    target(
        format!(
            "peak memory{}, overlapped, of {SESSION}'s",
            if is_hybrid {
                " without the decode engine's weights"
            } else {
                ""
            }
        ),
        over(SESSION, |ratio| ratio.peak_rss_without_decode),
        1.2,
    );
    for row in &results.medians {
        target(
            format!("staged weights, {}, of what the budget allows", row.who),
            staged(row),
            1.0,
        );
    }
    for share in &results.scheduler_share {
        target(
            format!("the scheduler's own share of ready, {}", share.who),
            Some(share.share),
            0.01,
        );
    }
    targets
}

/// The budget is kept if what waits never takes more than it, or than the largest read where that is more.
fn staged(row: &Row) -> Option<f64> {
    let allowed = row.staging_budget_bytes?.max(row.staged_largest_bytes?).max(1);
    Some(row.staged_peak_bytes? as f64 / allowed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{mode, peer, results};

    fn met(results: &Results) -> Vec<(&str, bool)> {
        let targets = results.targets.iter();
        targets.map(|target| (target.what.as_str(), target.met)).collect()
    }

    #[test]
    fn each_is_checked_against_its_own_reference() {
        let fast = Row {
            staging_budget_bytes: Some(20),
            ..mode("overlapped", 5.0, 8.0)
        };
        let rows = [
            mode("inline", 10.0, 9.0),
            fast,
            peer(GENAI, 7.0),
            peer(SESSION, 8.0),
        ];
        assert_eq!(
            met(&results(rows.clone())),
            [
                ("constructor, overlapped, of inline's ready", true),
                ("ready, overlapped, of inline's", true),
                ("prefill ready, overlapped, of onnxruntime-genai's load", false),
                ("first token, overlapped, of onnxruntime-genai's", true),
                ("peak memory, overlapped, of onnxruntime's", true),
                ("staged weights, overlapped, of what the budget allows", true),
                ("the scheduler's own share of ready, inline", true),
                ("the scheduler's own share of ready, overlapped", true),
            ]
        );
        // Both engines: another limit, and the second engine's weights do not count.
        let mut rows = rows;
        rows[1].decode_weight_bytes = Some(100);
        rows[1].peak_rss_bytes = Some(220);
        let results = results(rows);
        assert!(met(&results).contains(&("prefill ready, overlapped, of onnxruntime-genai's load", true)));
        let memory = results
            .targets
            .iter()
            .find(|target| target.what.starts_with("peak"))
            .unwrap();
        assert_eq!((memory.measured, memory.met), (1.2, true));
    }

    #[test]
    fn what_was_not_measured_is_not_a_target() {
        assert_eq!(met(&results([mode("serial", 9.0, 8.0)])).len(), 1);
    }

    #[test]
    fn one_operator_over_the_budget_is_allowed_more_is_not() {
        let row = |budget, peak| Row {
            staging_budget_bytes: budget,
            staged_peak_bytes: Some(peak),
            staged_largest_bytes: Some(40),
            ..Row::default()
        };
        assert_eq!(staged(&row(Some(10), 40)), Some(1.0));
        assert_eq!(staged(&row(Some(100), 50)), Some(0.5));
        assert!(staged(&row(Some(10), 41)) > Some(1.0));
        assert_eq!(staged(&row(None, 41)), None);
    }
}
