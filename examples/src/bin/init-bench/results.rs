//! Everything that was measured in one call, and what follows from it.

use onnx_model::ModelFolder;
use serde::Serialize;

use crate::args::Args;
use crate::row::{Row, median_row};
use crate::targets::{self, Target};

/// Everything that was measured in one call.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) model: String,
    pub(crate) weight_bytes: u64,
    pub(crate) prompt_len: u32,
    pub(crate) page_cache: &'static str,
    pub(crate) n_cpus: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) medians: Vec<Row>,
    /// Of medians: to inline, or to the first mode if inline is not among them, and to each stock peer.
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) attribution: Vec<Step>,
    pub(crate) scheduler_share: Vec<Share>,
    pub(crate) targets: Vec<Target>,
    pub(crate) missing_peers: Vec<String>,
}

/// A mode's or peer's medians as parts of another's.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) who: String,
    pub(crate) to: String,
    /// `constructor_ms` over the other's `ready_ms`: what a caller waits for, deferred against not.
    pub(crate) constructor_to_ready: Option<f64>,
    pub(crate) prefill_ready: Option<f64>,
    pub(crate) ready: Option<f64>,
    pub(crate) first_token: Option<f64>,
    pub(crate) peak_rss: Option<f64>,
    /// Without the weights that a decode engine keeps for itself.
    pub(crate) peak_rss_without_decode: Option<f64>,
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

/// The scheduler's own part of a mode's time until ready.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Share {
    pub(crate) who: String,
    pub(crate) n_nodes: Option<usize>,
    pub(crate) scheduler_ms: Option<f64>,
    pub(crate) share: f64,
}

const STEPS: [(&str, &str, &str); 3] = [
    ("cache separation", "inline", "serial"),
    ("lane parallelism", "serial", "two-phase"),
    ("overlap", "two-phase", "overlapped"),
];

impl Results {
    pub(crate) fn new(args: &Args, folder: &ModelFolder) -> onnx_model::Result<Self> {
        Ok(Self {
            model: folder.dir().display().to_string(),
            weight_bytes: folder.weight_files().map(|file| file.len()).sum(),
            prompt_len: args.prompt_len(),
            page_cache: if args.cold { "cold" } else { "warm" },
            n_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            ..Self::default()
        })
    }

    /// Medians of the rows, and all that follows from them.
    pub(crate) fn summarise(&mut self) {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.who.as_str()) {
                names.push(&row.who);
            }
        }
        let of = |name: &str| self.rows.iter().filter(|row| row.who == name).collect::<Vec<_>>();
        self.medians = names.iter().map(|name| median_row(&of(name))).collect();
        let median = |name: &str| self.medians.iter().find(|row| row.who == name);

        let inline = median("inline").or(self.medians.first());
        let peers = self.medians.iter().filter(|row| row.operator_types.is_empty());
        self.ratios = inline
            .into_iter()
            .chain(peers)
            .flat_map(|reference| self.medians.iter().map(|row| Ratio::new(row, reference)))
            .collect();
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
        let shares = self.medians.iter().filter_map(|row| {
            Some(Share {
                who: row.who.clone(),
                n_nodes: row.n_nodes,
                scheduler_ms: row.scheduler_ms,
                share: row.scheduler_share()?,
            })
        });
        self.scheduler_share = shares.collect();
        self.targets = targets::check(self);
    }

    pub(crate) fn median(&self, name: &str) -> Option<&Row> {
        self.medians.iter().find(|row| row.who == name)
    }

    pub(crate) fn ratio(&self, who: &str, to: &str) -> Option<&Ratio> {
        self.ratios
            .iter()
            .find(|ratio| ratio.who == who && ratio.to == to)
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
            peak_rss_without_decode: over(
                bytes(row.rss_without_decode()),
                bytes(reference.rss_without_decode()),
            ),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::row::TypeRow;

    /// A mode's row.
    pub(crate) fn mode(who: &str, ready_ms: f64, device_ms: f64) -> Row {
        let cost = TypeRow {
            n: 1,
            host_ms: 0.0,
            device_ms,
            queue_ms: 0.0,
        };
        Row {
            device_ms: Some(device_ms),
            scheduler_ms: Some(0.05),
            n_nodes: Some(12),
            staged_peak_bytes: Some(30),
            staged_largest_bytes: Some(40),
            operator_types: [("NPU MatMul".to_owned(), cost)].into(),
            ..peer(who, ready_ms)
        }
    }

    pub(crate) fn peer(who: &str, ready_ms: f64) -> Row {
        Row {
            who: who.to_owned(),
            run: 1,
            constructor_ms: Some(1.0),
            prefill_ready_ms: Some(ready_ms),
            ready_ms: Some(ready_ms),
            first_token_ms: Some(ready_ms + 1.0),
            peak_rss_bytes: Some(100),
            ..Row::default()
        }
    }

    pub(crate) fn results(rows: impl Into<Vec<Row>>) -> Results {
        let mut results = Results {
            rows: rows.into(),
            ..Results::default()
        };
        results.summarise();
        results
    }

    #[test]
    fn ratios_and_attribution() {
        let results = results([
            mode("inline", 10.0, 9.0),
            mode("serial", 9.0, 8.0),
            mode("two-phase", 6.0, 8.5),
            mode("overlapped", 5.0, 8.5),
            peer("onnxruntime", 8.0),
            mode("inline", 12.0, 9.0),
            mode("inline", 11.0, 9.0),
        ]);
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
        let overlapped = results.ratio("overlapped", "inline").unwrap();
        assert_eq!(
            (overlapped.ready, overlapped.constructor_to_ready),
            (Some(5.0 / 11.0), Some(1.0 / 11.0))
        );
        assert_eq!(
            results.ratio("overlapped", "onnxruntime").unwrap().ready,
            Some(5.0 / 8.0)
        );
        assert!(results.ratio("overlapped", "serial").is_none());
        let share = |who: &str| {
            let share = results.scheduler_share.iter().find(|share| share.who == who);
            share.map(|share| share.share)
        };
        assert_eq!(share("overlapped"), Some(0.01));
        assert_eq!(share("onnxruntime"), None);
    }
}
