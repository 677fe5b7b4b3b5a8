//! Converts a GGUF file to a model folder.

use anyhow::{Context, Result};
use clap::Parser;
use examples::interrupt::remove_when_interrupted;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use onnx_model::gguf::{ConvertMode, GgufFile, convert};
use onnx_model::write::StagedFolder;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Convert a GGUF file of llama architecture to an onnxruntime-genai folder.
///
/// Weights may be F32, F16, BF16, Q4_0, Q4_1 or Q8_0, the tokenizer byte-level BPE. The folder appears when it is
/// complete, not before.
#[derive(Parser)]
struct Arguments {
    /// GGUF file.
    file: PathBuf,
    /// Folder to write; it must not exist, or be empty.
    #[arg(long)]
    out: PathBuf,
    /// How weights are converted: int8, int4-asymmetric, int4-symmetric or exact.
    #[arg(long, default_value_t)]
    mode: ConvertMode,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    examples::cli::run(|| write(&arguments))
}

fn write(arguments: &Arguments) -> Result<()> {
    let out = &arguments.out;
    let started = Instant::now();
    let mut gguf = GgufFile::open(&arguments.file)?;
    let staged = StagedFolder::new(out)?;
    remove_when_interrupted(staged.path());

    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("converting [{bar:40}] {percent}% {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut bytes = 0;
    let converted = convert(&mut gguf, staged.path(), arguments.mode, &mut |progress| {
        bar.set_length(progress.total_weights);
        bar.set_position(progress.weights);
        bytes = progress.bytes;
    });
    converted.with_context(|| format!("nothing was written to {}", out.display()))?;
    staged.publish()?;
    bar.finish_and_clear();
    let (mode, size, seconds) = (arguments.mode, HumanBytes(bytes), started.elapsed().as_secs_f64());
    examples::cli::print(&format!("{}: {mode}, {size} in {seconds:.1} s\n", out.display()))?;
    Ok(())
}
