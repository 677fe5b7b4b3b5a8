//! How far initialisation is, for people to see: a bar over all operators, and one per lane over its bytes.

use std::time::Duration;

use futures::StreamExt;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use runtime_hybrid::HybridRuntime;
use scheduler::LaneProgress;

/// The bars, on standard error. Without a terminal nothing is drawn.
pub(crate) struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    lanes: Vec<ProgressBar>,
}

/// The drawing is what costs; ten times a second is enough for an eye.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Bars {
    pub(crate) fn new(runtime: &HybridRuntime) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("█▓░")
        };
        let total = all.add(ProgressBar::new(0));
        // The bars take what the terminal leaves, so that no line is broken.
        total.set_style(style("{msg:<26!} {wide_bar} {pos:>10}/{len:<10}"));
        total.set_message("initialising: nodes");
        let progress = runtime.lane_progress();
        let lanes = progress
            .iter()
            .filter(|lane| lane.progress.nodes_total > 0)
            .map(|lane| {
                let bar = all.add(ProgressBar::new(lane.progress.bytes_total));
                // A lane without weights (norms, attention) is measured by its operators.
                bar.set_style(match lane.progress.bytes_total {
                    0 => style("  {msg:<24!} {wide_bar} {pos:>10}/{len:<10}"),
                    _ => style("  {msg:<24!} {wide_bar} {bytes:>10}/{total_bytes:<10}"),
                });
                bar.set_message(lane.name.clone());
                bar
            });
        Self {
            lanes: lanes.collect(),
            all,
            total,
        }
    }

    /// Draws until initialisation has settled, then takes the bars off the screen.
    pub(crate) async fn follow(&self, runtime: &HybridRuntime) {
        if self.all.is_hidden() {
            return;
        }
        let mut progress = runtime.progress();
        while let Some(now) = progress.next().await {
            self.total.set_length(now.nodes_total);
            self.total.set_position(now.nodes_done);
            self.show_lanes(runtime.lane_progress());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.clear();
    }

    fn show_lanes(&self, lanes: Vec<LaneProgress>) {
        let lanes = lanes.into_iter().filter(|lane| lane.progress.nodes_total > 0);
        for (bar, LaneProgress { progress, .. }) in self.lanes.iter().zip(lanes) {
            let (done, total) = match progress.bytes_total {
                0 => (progress.nodes_done, progress.nodes_total),
                bytes => (progress.bytes_read, bytes),
            };
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Takes the bars off the screen, so that text can be printed where they were.
    pub(crate) fn clear(&self) {
        // Dropping them finishes them; only drawing again would bring them back.
        let _ = self.all.clear();
        self.all.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// Says that something is going on while the inline constructor blocks, until it is dropped.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn new(message: &'static str) -> Self {
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        spinner.set_style(ProgressStyle::default_spinner());
        spinner.set_message(message);
        spinner.enable_steady_tick(LOOK_EVERY);
        Self(spinner)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Columns of the terminal on standard error; 100 where there is none.
pub(crate) fn terminal_width() -> usize {
    console::Term::stderr()
        .size_checked()
        .map_or(100, |(_, columns)| usize::from(columns))
}
