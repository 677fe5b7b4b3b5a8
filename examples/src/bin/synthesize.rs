//! Writes a model folder with random weights, as large as a real model.

use anyhow::{Context, Result};
use clap::Parser;
use examples::interrupt::remove_when_interrupted;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use onnx_model::synth::{Preset, synthesize};
use onnx_model::write::{StagedFolder, WriteProgress};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Write an onnxruntime-genai folder of a model's geometry with random 4-bit weights.
///
/// onnxruntime and onnxruntime-genai load it too. The same preset and seed give the same weights. The folder appears
/// when it is complete, not before.
#[derive(Parser)]
struct Arguments {
    /// Geometry: tiny (2 MB), qwen3-0.6b (0.4 GB), qwen3-4b (2.5 GB) or llama-3.2-1b (0.9 GB).
    #[arg(long)]
    preset: Preset,
    /// Folder to write; it must not exist, or be empty.
    #[arg(long)]
    out: PathBuf,
    /// Which random weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    examples::cli::run(|| write(&arguments))
}

fn write(arguments: &Arguments) -> Result<()> {
    let (spec, out) = (arguments.preset.spec(), &arguments.out);
    let started = Instant::now();
    let staged = StagedFolder::new(out)?;
    remove_when_interrupted(staged.path());

    let bar = progress_bar(arguments.preset, spec.weights());
    let mut bytes = 0;
    let mut show = |progress: WriteProgress| {
        bar.set_position(progress.weights);
        bytes = progress.bytes;
    };
    let hint = || format!("nothing was written to {}; is there enough space?", out.display());
    synthesize(staged.path(), &spec, arguments.seed, &mut show).with_context(hint)?;
    staged.publish()?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let (preset, layers, size) = (arguments.preset, spec.layers, HumanBytes(bytes));
    examples::cli::print(&format!(
        "{}: {preset}, {layers} layers, {size} in {seconds:.1} s\n",
        out.display()
    ))?;
    Ok(())
}

/// Drawn on stderr, only on a terminal.
fn progress_bar(preset: Preset, weights: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(weights), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(preset.name());
    bar
}
