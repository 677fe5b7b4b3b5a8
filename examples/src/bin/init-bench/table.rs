//! The results as people read them: a table, a bar chart, the attribution.

use std::fmt;

use crate::results::{Ratio, Results};
use crate::row::Row;

const BAR_WIDTH: usize = 60;

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}\n{:.0} MB of weights, prompt of {} tokens, page cache {}, {} CPUs; medians, times in ms",
            self.model,
            self.weight_bytes as f64 / 1e6,
            self.prompt_len,
            self.page_cache,
            self.n_cpus
        )?;
        table(f, &self.medians)?;
        for ratios in self.ratios.chunk_by(|a, b| a.to == b.to) {
            ratio_table(f, ratios)?;
        }
        bars(f, &self.medians)?;
        types(f, &self.medians)?;
        if !self.attribution.is_empty() {
            writeln!(
                f,
                "\nattribution (gain of median ready time; change of summed device setup)"
            )?;
        }
        for step in &self.attribution {
            let what = format!("{} ({} to {})", step.what, step.from, step.to);
            writeln!(f, "{what:<46} {:>10.1} {:>10.1}", step.ready_ms, step.device_ms)?;
        }
        if !self.targets.is_empty() {
            writeln!(f, "\ntargets (set for Qwen3-4B's geometry on 2 cores)")?;
        }
        for target in &self.targets {
            let verdict = if target.met { "met" } else { "missed" };
            writeln!(
                f,
                "{:<76} {:>8.4}, at most {:<5} {verdict}",
                target.what, target.measured, target.limit
            )?;
        }
        self.missing_peers
            .iter()
            .try_for_each(|peer| writeln!(f, "\nnot compared: {peer}"))
    }
}

fn table(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let heads = [
        "constr.",
        "prefill",
        "decode",
        "ready",
        "1st token",
        "rdy+reqst",
        "host",
        "device",
        "idle",
        "sched %",
        "cpu s",
        "min flt",
        "maj flt",
        "RSS MB",
        "staged MB",
    ];
    write!(f, "\n{:<18}", "")?;
    heads.iter().try_for_each(|head| write!(f, " {head:>9}"))?;
    writeln!(f)?;
    for row in rows {
        let cells = [
            number(row.constructor_ms, 1),
            number(row.prefill_ready_ms, 1),
            number(row.decode_ready_ms, 1),
            number(row.ready_ms, 1),
            number(row.first_token_ms, 1),
            number(row.ready_beside_request_ms, 1),
            number(row.host_ms, 1),
            number(row.device_ms, 1),
            number(row.idle_ms, 1),
            number(row.scheduler_share().map(|share| share * 100.0), 3),
            number(row.cpu_s, 2),
            number(row.minor_faults.map(|n| n as f64), 0),
            number(row.major_faults.map(|n| n as f64), 0),
            number(row.peak_rss_bytes.map(|n| n as f64 / 1e6), 0),
            number(row.staged_peak_bytes.map(|n| n as f64 / 1e6), 1),
        ];
        write!(f, "{:<18}", row.who)?;
        cells.iter().try_for_each(|cell| write!(f, " {cell:>9}"))?;
        writeln!(f)?;
    }
    Ok(())
}

/// A block per reference.
fn ratio_table(f: &mut fmt::Formatter<'_>, ratios: &[Ratio]) -> fmt::Result {
    let heads = [
        "constructor/ready",
        "prefill ready",
        "ready",
        "first token",
        "peak RSS",
        "less decode weights",
    ];
    writeln!(f, "\nratios to {}", ratios[0].to)?;
    write!(f, "{:<18}", "")?;
    heads.iter().try_for_each(|head| write!(f, " {head:>19}"))?;
    writeln!(f)?;
    for ratio in ratios {
        let cells = [
            ratio.constructor_to_ready,
            ratio.prefill_ready,
            ratio.ready,
            ratio.first_token,
            ratio.peak_rss,
            ratio.peak_rss_without_decode,
        ];
        write!(f, "{:<18}", ratio.who)?;
        cells
            .iter()
            .try_for_each(|cell| write!(f, " {:>19}", number(*cell, 3)))?;
        writeln!(f)?;
    }
    Ok(())
}

/// A line per row.
fn bars(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let times = |row: &Row| [row.ready_ms, row.first_token_ms];
    let longest = rows.iter().flat_map(times).flatten().fold(0.0, f64::max);
    if longest == 0.0 {
        return Ok(());
    }
    writeln!(
        f,
        "\nc while the constructor blocks, p until prefill is ready, d until decode is; 1 the first token"
    )?;
    for row in rows {
        let ready = number(row.ready_ms, 1);
        writeln!(f, "{:<18} |{}| ready {ready}", row.who, bar(row, longest))?;
    }
    Ok(())
}

fn bar(row: &Row, longest_ms: f64) -> String {
    let place = |time: Option<f64>| (time.unwrap_or(0.0) / longest_ms * BAR_WIDTH as f64).round() as usize;
    let constructor = place(row.constructor_ms);
    let (prefill, ready) = (place(row.prefill_ready_ms), place(row.ready_ms));
    let first_token = row.first_token_ms.map(|time| place(Some(time)).saturating_sub(1));
    let cell = |at: usize| match at {
        _ if Some(at) == first_token => '1',
        _ if at >= ready => ' ',
        _ if at < constructor => 'c',
        _ if at < prefill => 'p',
        _ => 'd',
    };
    (0..BAR_WIDTH).map(cell).collect()
}

fn types(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let modes: Vec<&Row> = rows.iter().filter(|row| !row.operator_types.is_empty()).collect();
    let Some(first) = modes.first() else { return Ok(()) };
    write!(f, "\n{:<34} {:>5}", "host + device ms by type", "n")?;
    modes.iter().try_for_each(|row| write!(f, " {:>18}", row.who))?;
    writeln!(f)?;
    for (name, of_type) in &first.operator_types {
        write!(f, "{name:<34} {:>5}", of_type.n)?;
        for row in &modes {
            let cell = row
                .operator_types
                .get(name)
                .map(|t| format!("{:.1} + {:.1}", t.host_ms, t.device_ms));
            write!(f, " {:>18}", cell.unwrap_or_default())?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_the_phases_apart() {
        let row = Row {
            constructor_ms: Some(10.0),
            prefill_ready_ms: Some(20.0),
            ready_ms: Some(40.0),
            first_token_ms: Some(30.0),
            ..Row::default()
        };
        assert_eq!(
            bar(&row, 60.0).trim_end(),
            format!(
                "{}{}{}1{}",
                "c".repeat(10),
                "p".repeat(10),
                "d".repeat(9),
                "d".repeat(10)
            )
        );
        assert_eq!(bar(&row, 60.0).len(), BAR_WIDTH);
        assert_eq!(bar(&Row::default(), 60.0).trim_end(), "");
    }
}
