//! What one run measures, and medians of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One run of one mode or peer. Times of initialisation count from the call that loads the model, `first_token_ms` from the start
/// of the process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Row {
    /// The init mode, or the peer.
    pub(crate) who: String,
    pub(crate) run: u32,
    pub(crate) constructor_ms: Option<f64>,
    pub(crate) prefill_ready_ms: Option<f64>,
    pub(crate) decode_ready_ms: Option<f64>,
    /// With no request before.
    pub(crate) ready_ms: Option<f64>,
    /// With a request that waits from the start. Where that takes a process of its own, also what is next.
    pub(crate) first_token_ms: Option<f64>,
    /// When everything was ready in the process where the request's prefill ran beside the rest of initialisation.
    pub(crate) ready_beside_request_ms: Option<f64>,
    /// Sum of all host reads.
    pub(crate) host_ms: Option<f64>,
    /// Sum of all device setups.
    pub(crate) device_ms: Option<f64>,
    /// Time of the run in which no node ran: opening lanes, thread starts, wake-ups, the scheduler itself.
    pub(crate) idle_ms: Option<f64>,
    /// Time saved because nodes ran at once.
    pub(crate) overlap_ms: Option<f64>,
    pub(crate) n_nodes: Option<usize>,
    /// CPU time that lanes use outside nodes, for the same graph with nodes that only sleep.
    pub(crate) scheduler_ms: Option<f64>,
    /// CPU time of the process until ready, as are the page faults.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) minor_faults: Option<i64>,
    pub(crate) major_faults: Option<i64>,
    /// Of the whole process, request included; the larger where there are two.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// Weights that a decode engine of its own keeps.
    pub(crate) decode_weight_bytes: Option<u64>,
    /// Null if there is none.
    pub(crate) staging_budget_bytes: Option<u64>,
    /// The most bytes of weights that ever waited for device setup.
    pub(crate) staged_peak_bytes: Option<u64>,
    /// The most that one read made wait.
    pub(crate) staged_largest_bytes: Option<u64>,
    pub(crate) operator_types: BTreeMap<String, TypeRow>,
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

impl Row {
    /// Adds what the process measured in which a request waited from the start.
    pub(crate) fn with_request(mut self, beside: Row) -> Self {
        self.first_token_ms = beside.first_token_ms;
        self.ready_beside_request_ms = beside.ready_ms;
        self.peak_rss_bytes = self.peak_rss_bytes.max(beside.peak_rss_bytes);
        self
    }

    /// The scheduler's own part of the time until ready.
    pub(crate) fn scheduler_share(&self) -> Option<f64> {
        Some(self.scheduler_ms? / self.ready_ms?)
    }

    /// Peak memory without the weights that a decode engine keeps for itself.
    pub(crate) fn rss_without_decode(&self) -> Option<u64> {
        let weights = self.decode_weight_bytes.unwrap_or(0);
        Some(self.peak_rss_bytes?.saturating_sub(weights))
    }
}

/// A row of medians, each number by itself.
pub(crate) fn median_row(rows: &[&Row]) -> Row {
    let float = |of: &dyn Fn(&Row) -> Option<f64>| median(rows.iter().filter_map(|row| of(row)).collect());
    let bytes = |of: &dyn Fn(&Row) -> Option<u64>| {
        float(&|row| of(row).map(|bytes| bytes as f64)).map(|bytes| bytes as u64)
    };
    let count = |of: &dyn Fn(&Row) -> Option<i64>| float(&|row| of(row).map(|n| n as f64)).map(|n| n as i64);
    let mut operator_types = rows[0].operator_types.clone();
    for (name, row) in &mut operator_types {
        let of = |of: &dyn Fn(&TypeRow) -> f64| {
            let same = rows.iter().filter_map(|row| row.operator_types.get(name));
            median(same.map(of).collect()).unwrap_or(0.0)
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
        ready_beside_request_ms: float(&|row| row.ready_beside_request_ms),
        host_ms: float(&|row| row.host_ms),
        device_ms: float(&|row| row.device_ms),
        idle_ms: float(&|row| row.idle_ms),
        overlap_ms: float(&|row| row.overlap_ms),
        n_nodes: rows[0].n_nodes,
        scheduler_ms: float(&|row| row.scheduler_ms),
        cpu_s: float(&|row| row.cpu_s),
        minor_faults: count(&|row| row.minor_faults),
        major_faults: count(&|row| row.major_faults),
        peak_rss_bytes: bytes(&|row| row.peak_rss_bytes),
        decode_weight_bytes: rows[0].decode_weight_bytes,
        staging_budget_bytes: rows[0].staging_budget_bytes,
        // A bound is kept by all runs or it is not.
        staged_peak_bytes: rows.iter().filter_map(|row| row.staged_peak_bytes).max(),
        staged_largest_bytes: rows.iter().filter_map(|row| row.staged_largest_bytes).max(),
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

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
        let rows = [10.0, 12.0, 11.0].map(|ready| Row {
            ready_ms: Some(ready),
            scheduler_ms: Some(0.11),
            staged_peak_bytes: Some(ready as u64),
            ..Row::default()
        });
        let row = median_row(&rows.iter().collect::<Vec<_>>());
        assert_eq!((row.ready_ms, row.staged_peak_bytes), (Some(11.0), Some(12)));
        assert_eq!(row.scheduler_share(), Some(0.01));
        assert_eq!(Row::default().scheduler_share(), None);
    }

    #[test]
    fn ready_is_that_of_the_process_without_a_request() {
        let row = |ready, first_token, peak| Row {
            ready_ms: Some(ready),
            first_token_ms: first_token,
            peak_rss_bytes: Some(peak),
            ..Row::default()
        };
        let both = row(5.0, None, 100).with_request(row(7.0, Some(6.0), 120));
        assert_eq!((both.ready_ms, both.first_token_ms), (Some(5.0), Some(6.0)));
        assert_eq!(
            (both.ready_beside_request_ms, both.peak_rss_bytes),
            (Some(7.0), Some(120))
        );
    }
}
