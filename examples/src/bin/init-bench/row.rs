//! What is measured, and what follows from it.

use std::collections::BTreeMap;
use std::time::Duration;

use onnx_model::ModelFolder;
use serde::{Deserialize, Serialize};

use crate::args::Args;

/// One run of one mode or peer. Milliseconds; those of `init` phases count from the call that loads the model,
/// `first_token_ms` from the start of the process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    /// The init mode, or the peer.
    pub(crate) who: String,
    #[serde(default)]
    pub(crate) run: u32,
    pub(crate) constructor_ms: Option<f64>,
    pub(crate) prefill_ready_ms: Option<f64>,
    pub(crate) decode_ready_ms: Option<f64>,
    pub(crate) ready_ms: Option<f64>,
    pub(crate) first_token_ms: Option<f64>,
    /// Sum of all host reads.
    pub(crate) host_ms: Option<f64>,
    /// Sum of all device setups.
    pub(crate) device_ms: Option<f64>,
    /// Time of the run in which no node ran: thread starts, wake-ups, the scheduler itself.
    pub(crate) idle_ms: Option<f64>,
    /// Time saved because nodes ran at once.
    pub(crate) overlap_ms: Option<f64>,
    pub(crate) cpu_s: Option<f64>,
    pub(crate) minor_faults: Option<i64>,
    pub(crate) major_faults: Option<i64>,
    pub(crate) peak_rss_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) operator_types: BTreeMap<String, TypeRow>,
    #[serde(default)]
    pub(crate) engines: Vec<String>,
}

/// What one operator type cost on one engine.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TypeRow {
    pub(crate) n: usize,
    pub(crate) host_ms: f64,
    pub(crate) device_ms: f64,
    pub(crate) queue_ms: f64,
}

/// Everything that was measured in one call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) model: String,
    pub(crate) weight_bytes: u64,
    pub(crate) prompt_len: u32,
    pub(crate) page_cache: &'static str,
    pub(crate) n_cpus: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) medians: Vec<Row>,
    /// Of medians, to the first mode.
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) attribution: Vec<Step>,
    pub(crate) missing_peers: Vec<String>,
}

/// A mode's or peer's medians as parts of the reference's.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) who: String,
    pub(crate) to: String,
    /// `constructor_ms` over the reference's `ready_ms`: what a caller waits for, deferred against not.
    pub(crate) constructor_to_ready: Option<f64>,
    pub(crate) prefill_ready: Option<f64>,
    pub(crate) ready: Option<f64>,
    pub(crate) first_token: Option<f64>,
    pub(crate) peak_rss: Option<f64>,
}

/// What one difference between two modes gains.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) what: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    /// Of median `ready_ms`; positive is a gain.
    pub(crate) ready_ms: f64,
    /// Of the median sum of device setups; positive is less work.
    pub(crate) device_ms: f64,
}

const STEPS: [(&str, &str, &str); 3] = [
    ("cache separation", "inline", "serial"),
    ("lane parallelism", "serial", "two-phase"),
    ("overlap", "two-phase", "overlapped"),
];

impl Results {
    pub(crate) fn new(args: &Args, folder: &ModelFolder) -> Self {
        Self {
            model: folder.dir().display().to_string(),
            weight_bytes: folder.weight_files().map(|file| file.len()).sum(),
            prompt_len: args.prompt_len(),
            page_cache: if args.cold { "cold" } else { "warm" },
            n_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            rows: Vec::new(),
            medians: Vec::new(),
            ratios: Vec::new(),
            attribution: Vec::new(),
            missing_peers: Vec::new(),
        }
    }

    /// Medians, ratios and attribution of the rows.
    pub(crate) fn summarise(&mut self) {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.who.as_str()) {
                names.push(&row.who);
            }
        }
        let of = |name: &str| self.rows.iter().filter(|row| row.who == name).collect::<Vec<_>>();
        self.medians = names.iter().map(|name| median_row(&of(name))).collect();
        let reference = self
            .medians
            .iter()
            .find(|row| row.who == "inline")
            .or(self.medians.first())
            .cloned();
        if let Some(reference) = reference {
            self.ratios = self
                .medians
                .iter()
                .map(|row| Ratio::new(row, &reference))
                .collect();
        }
        let median = |name: &str| self.medians.iter().find(|row| row.who == name);
        let steps = STEPS.into_iter().filter_map(|(what, from, to)| {
            let (a, b) = (median(from)?, median(to)?);
            Some(Step {
                what,
                from,
                to,
                ready_ms: a.ready_ms? - b.ready_ms?,
                device_ms: a.device_ms? - b.device_ms?,
            })
        });
        self.attribution = steps.collect();
    }
}

impl Ratio {
    fn new(row: &Row, reference: &Row) -> Self {
        let over = |part: Option<f64>, whole: Option<f64>| Some(part? / whole?);
        let bytes = |bytes: Option<u64>| bytes.map(|b| b as f64);
        Self {
            who: row.who.clone(),
            to: reference.who.clone(),
            constructor_to_ready: over(row.constructor_ms, reference.ready_ms),
            prefill_ready: over(row.prefill_ready_ms, reference.prefill_ready_ms),
            ready: over(row.ready_ms, reference.ready_ms),
            first_token: over(row.first_token_ms, reference.first_token_ms),
            peak_rss: over(bytes(row.peak_rss_bytes), bytes(reference.peak_rss_bytes)),
        }
    }
}

/// A row of medians, each number by itself.
fn median_row(rows: &[&Row]) -> Row {
    let float = |of: &dyn Fn(&Row) -> Option<f64>| median(rows.iter().filter_map(|row| of(row)).collect());
    let mut operator_types = rows[0].operator_types.clone();
    for (name, row) in &mut operator_types {
        let of = |of: &dyn Fn(&TypeRow) -> f64| {
            median(
                rows.iter()
                    .filter_map(|row| row.operator_types.get(name))
                    .map(of)
                    .collect(),
            )
            .unwrap_or(0.0)
        };
        (row.host_ms, row.device_ms, row.queue_ms) =
            (of(&|t| t.host_ms), of(&|t| t.device_ms), of(&|t| t.queue_ms));
    }
    Row {
        who: rows[0].who.clone(),
        run: 0,
        constructor_ms: float(&|row| row.constructor_ms),
        prefill_ready_ms: float(&|row| row.prefill_ready_ms),
        decode_ready_ms: float(&|row| row.decode_ready_ms),
        ready_ms: float(&|row| row.ready_ms),
        first_token_ms: float(&|row| row.first_token_ms),
        host_ms: float(&|row| row.host_ms),
        device_ms: float(&|row| row.device_ms),
        idle_ms: float(&|row| row.idle_ms),
        overlap_ms: float(&|row| row.overlap_ms),
        cpu_s: float(&|row| row.cpu_s),
        minor_faults: float(&|row| row.minor_faults.map(|n| n as f64)).map(|n| n as i64),
        major_faults: float(&|row| row.major_faults.map(|n| n as f64)).map(|n| n as i64),
        peak_rss_bytes: float(&|row| row.peak_rss_bytes.map(|n| n as f64)).map(|n| n as u64),
        operator_types,
        engines: rows[0].engines.clone(),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// Milliseconds, to the microsecond.
pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(who: &str, ready_ms: f64, device_ms: f64) -> Row {
        let mut row: Row = serde_json::from_str(&format!(
            r#"{{"who": "{who}", "ready_ms": {ready_ms}, "device_ms": {device_ms}, "constructor_ms": 1.0, "peak_rss_bytes": 100}}"#
        ))
        .unwrap();
        row.run = 1;
        row
    }

    #[test]
    fn medians_ratios_and_attribution() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
        let rows = [
            row("inline", 10.0, 9.0),
            row("serial", 9.0, 8.0),
            row("two-phase", 6.0, 8.5),
            row("overlapped", 5.0, 8.5),
            row("inline", 12.0, 9.0),
            row("inline", 11.0, 9.0),
        ];
        let medians: Vec<&Row> = rows.iter().filter(|row| row.who == "inline").collect();
        assert_eq!(median_row(&medians).ready_ms, Some(11.0));
        let mut results = Results {
            model: String::new(),
            weight_bytes: 0,
            prompt_len: 1,
            page_cache: "warm",
            n_cpus: 2,
            rows: rows.to_vec(),
            medians: Vec::new(),
            ratios: Vec::new(),
            attribution: Vec::new(),
            missing_peers: Vec::new(),
        };
        results.summarise();
        let gains: Vec<(&str, f64, f64)> = results
            .attribution
            .iter()
            .map(|s| (s.what, s.ready_ms, s.device_ms))
            .collect();
        assert_eq!(
            gains,
            [
                ("cache separation", 2.0, 1.0),
                ("lane parallelism", 3.0, -0.5),
                ("overlap", 1.0, 0.0)
            ]
        );
        let overlapped = results
            .ratios
            .iter()
            .find(|ratio| ratio.who == "overlapped")
            .unwrap();
        assert_eq!(
            (overlapped.ready, overlapped.constructor_to_ready),
            (Some(5.0 / 11.0), Some(1.0 / 11.0))
        );
    }
}
