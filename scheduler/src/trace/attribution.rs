//! Where the difference between two runs of one graph comes from.
//!
//! Wall time is taken apart into three parts that add up to it exactly:
//!
//! ```text
//! wall = work - overlap + idle
//!
//! work      sum of the times all nodes ran; changes when nodes get cheaper, as by keeping caches apart
//! overlap   time saved because nodes ran at once: work minus the time in which at least one ran
//! idle      time in which no node ran: starting threads, opening lanes, waking up
//! ```

use super::{Span, Trace, TypeUsage, ratio};
use crate::mode::InitMode;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A run's wall time as work, overlap and idle time: `wall = work - overlap + idle`, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// From the start of the run to the end of its last node.
    pub wall: Duration,
    /// Sum of the times all nodes ran.
    pub work: Duration,
    /// Time saved because nodes ran at once.
    pub overlap: Duration,
    /// Time in which no node ran.
    pub idle: Duration,
}

/// What one operator type cost in two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributionRow {
    /// The operator type.
    pub operator_type: Cow<'static, str>,
    /// Sum of its host reads, in the first run and in the second.
    pub host: (Duration, Duration),
    /// Sum of its device setups, in the first run and in the second.
    pub device: (Duration, Duration),
}

/// The difference between two runs of the same graph. Its [`Display`](fmt::Display) is a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution {
    /// Modes of the first and the second run.
    pub modes: (InitMode, InitMode),
    /// Wall time of the first run, taken apart.
    pub first: Breakdown,
    /// Wall time of the second run, taken apart.
    pub second: Breakdown,
    /// By operator type, in the order of the first run.
    pub rows: Vec<AttributionRow>,
}

impl Trace {
    /// The run's wall time, taken apart.
    pub fn breakdown(&self) -> Breakdown {
        let mut ranges: Vec<_> = self.spans.iter().filter_map(Span::range_ns).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut covered, mut reached) = (0, 0);
        for range in &ranges {
            covered += range.end.saturating_sub(range.start.max(reached));
            reached = reached.max(range.end);
        }
        let work: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        Breakdown {
            wall: self.wall(),
            work: Duration::from_nanos(work),
            overlap: Duration::from_nanos(work - covered),
            idle: Duration::from_nanos(self.wall_ns() - covered),
        }
    }

    /// How `second`, a run of the same graph in another mode or layout, differs from this one.
    pub fn attribution(&self, second: &Trace) -> Attribution {
        let mut rows: Vec<AttributionRow> = Vec::new();
        for usage in self.type_usage() {
            row(&mut rows, &usage).host.0 = usage.host;
            row(&mut rows, &usage).device.0 = usage.device;
        }
        for usage in second.type_usage() {
            row(&mut rows, &usage).host.1 = usage.host;
            row(&mut rows, &usage).device.1 = usage.device;
        }
        Attribution {
            modes: (self.mode(), second.mode()),
            first: self.breakdown(),
            second: second.breakdown(),
            rows,
        }
    }
}

fn row<'a>(rows: &'a mut Vec<AttributionRow>, usage: &TypeUsage) -> &'a mut AttributionRow {
    let place = rows
        .iter()
        .position(|row| row.operator_type == usage.operator_type)
        .unwrap_or_else(|| {
            let zero = (Duration::ZERO, Duration::ZERO);
            rows.push(AttributionRow {
                operator_type: usage.operator_type.clone(),
                host: zero,
                device: zero,
            });
            rows.len() - 1
        });
    &mut rows[place]
}

impl Attribution {
    /// Wall time of the first run over that of the second: above 1 when the second is faster; 0 if the second ran nothing.
    pub fn speedup(&self) -> f64 {
        ratio(self.first.wall, self.second.wall)
    }
}

impl fmt::Display for Attribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (&self.first, &self.second);
        let headings = (self.modes.0.to_string(), self.modes.1.to_string());
        writeln!(
            f,
            "{:<34} {:>12} {:>12} {:>12}",
            "ms", headings.0, headings.1, "change"
        )?;
        line(f, "wall", first.wall, second.wall)?;
        line(f, "  work (+)", first.work, second.work)?;
        line(f, "  overlap (-)", first.overlap, second.overlap)?;
        line(f, "  idle (+)", first.idle, second.idle)?;
        for row in &self.rows {
            line(f, &format!("{} host", row.operator_type), row.host.0, row.host.1)?;
            line(
                f,
                &format!("{} device", row.operator_type),
                row.device.0,
                row.device.1,
            )?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, what: &str, first: Duration, second: Duration) -> fmt::Result {
    let (first, second) = (first.as_secs_f64() * 1e3, second.as_secs_f64() * 1e3);
    writeln!(
        f,
        "{what:<34} {first:>12.3} {second:>12.3} {:>+12.3}",
        second - first
    )
}
