//! Lanes as lines of text that fit a terminal.

use crate::event::{EventKind, LaneId};
use crate::trace::{Outcome, Trace};
use std::fmt::Write;
use std::ops::Range;

/// Below this the lines would say nothing.
const MIN_WIDTH: usize = 40;
const MAX_NAME_WIDTH: usize = 20;
/// ` 100% 9999`: share of the time busy, nodes run.
const STATS_WIDTH: usize = 12;
/// How much of a column's time a lane was busy, in quarters.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

impl Trace {
    /// The lanes over time, one line each, at most `width` columns wide (at least 40).
    ///
    /// The shade of a column tells how much of its time the lane was busy; `!` marks a node that failed, panicked or was
    /// cancelled, and `?` one that was still running. The last lines show when each barrier settled.
    ///
    /// ```text
    ///              0 ms                                       12.3 ms
    /// host         ████████████████▓                            38%  252
    /// MatMulNBits    ▒█████████████████████████████████████     92%  144
    /// all                                                  ^
    /// ```
    pub fn timeline(&self, width: usize) -> String {
        let width = width.max(MIN_WIDTH);
        let longest = self
            .lanes()
            .iter()
            .map(|lane| lane.name.chars().count())
            .max()
            .unwrap_or(0);
        let name_width = longest.min(MAX_NAME_WIDTH).max("lane".len());
        let n_columns = width - name_width - 1 - STATS_WIDTH;
        let scale = Scale {
            wall_ns: self.wall_ns().max(1),
            n_columns,
        };

        let mut out = String::new();
        let wall = format!("{:.3} ms", self.wall().as_secs_f64() * 1e3);
        let gap = n_columns.saturating_sub("0 ms".len());
        writeln!(out, "{:name_width$} 0 ms{wall:>gap$}  busy nodes", "lane")
            .expect("writing to a string succeeds");
        for usage in self.lane_usage() {
            let name = cut(&self.lane(usage.lane).name, name_width);
            let cells: String = self.lane_cells(usage.lane, &scale).into_iter().collect();
            let percent = 100.0 * usage.utilization;
            writeln!(
                out,
                "{name:name_width$} {cells} {percent:>4.0}% {:>5}",
                usage.n_nodes
            )
            .expect("writing to a string succeeds");
        }
        for (barrier, at_ns) in self.settled_barriers() {
            let name = cut(barrier, name_width);
            let column = scale.column(at_ns);
            writeln!(out, "{name:name_width$} {:column$}^", "").expect("writing to a string succeeds");
        }
        out
    }

    fn lane_cells(&self, lane: LaneId, scale: &Scale) -> Vec<char> {
        let mut busy_ns = vec![0_u64; scale.n_columns];
        let mut marks: Vec<Option<char>> = vec![None; scale.n_columns];
        for node in self.nodes().iter().filter(|node| node.lane == lane) {
            let span = self.span(node.id);
            let Some(range) = span.range_ns() else { continue };
            let columns = scale.column(range.start)..=scale.column(range.end);
            for (column, busy_ns) in columns.clone().zip(&mut busy_ns[columns]) {
                let part = scale.range_ns(column);
                *busy_ns += range
                    .end
                    .min(part.end)
                    .saturating_sub(range.start.max(part.start));
            }
            match span.outcome {
                Outcome::Failed | Outcome::Panicked | Outcome::Cancelled => {
                    marks[scale.column(range.end)] = Some('!');
                }
                Outcome::Running => marks[scale.column(range.end)] = Some('?'),
                _ => {}
            }
        }
        let shade = |column: usize| {
            let part = scale.range_ns(column);
            // Rounded up, so that any work at all is visible.
            let quarters = (4 * busy_ns[column]).div_ceil((part.end - part.start).max(1)) as usize;
            SHADES[quarters.min(4)]
        };
        (0..scale.n_columns)
            .map(|column| marks[column].unwrap_or_else(|| shade(column)))
            .collect()
    }

    fn settled_barriers(&self) -> impl Iterator<Item = (&str, u64)> {
        self.events().iter().filter_map(|event| match event.kind {
            EventKind::BarrierSettled(barrier, _) => {
                Some((&*self.barriers().get(barrier.index())?.name, event.at_ns))
            }
            _ => None,
        })
    }
}

/// Time to columns and back.
struct Scale {
    /// Invariant: at least 1.
    wall_ns: u64,
    n_columns: usize,
}

impl Scale {
    fn column(&self, at_ns: u64) -> usize {
        let column = u128::from(at_ns) * self.n_columns as u128 / u128::from(self.wall_ns);
        (column as usize).min(self.n_columns - 1)
    }

    fn range_ns(&self, column: usize) -> Range<u64> {
        let edge = |column: usize| {
            (u128::from(self.wall_ns) * column as u128).div_ceil(self.n_columns as u128) as u64
        };
        edge(column)..edge(column + 1)
    }
}

/// A name of at most `width` characters; a longer one ends in `~`.
fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(['~']).collect()
}
