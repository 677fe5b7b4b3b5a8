//! Stock ONNX Runtime runs a decoder whose heavy nodes are custom operators written in Rust; their constructors defer the
//! device half of their work if HOSTLANE_DEFERRED_INIT says so.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::cli::settle_environment;
use examples::embed::{Embedded, Stock};
use examples::provision::TerminalProgress;
use examples::setup;
use onnx_model::ModelFolder;
use runtime_hybrid::DeferredInit;
use runtime_npu::OnnxRuntime;

/// Runs a prompt twice, with stock operators and with custom operators, and compares the logits bit by bit.
#[derive(Debug, Parser)]
struct Args {
    /// Model folder [default: SmolLM2-135M-Instruct, fetched and converted at first use].
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,

    /// The prompt's tokens.
    #[arg(
        long,
        value_name = "1,2,3",
        value_delimiter = ',',
        default_value = "1,338,325,1074"
    )]
    prompt_tokens: Vec<u32>,
}

fn main() -> ExitCode {
    settle_environment();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let mode = DeferredInit::from_env()?.mode();
    let progress = TerminalProgress::new();
    let model = match &args.model {
        Some(folder) => folder.clone(),
        None => setup::default_model(&progress)?,
    };
    let folder = ModelFolder::open(model)?;
    let runtime = OnnxRuntime::load(&setup::library(&progress)?, 2)?;
    runtime.start_threads();

    let mut embedded = Embedded::load(runtime.environment(), &folder, mode)?;
    println!(
        "{} custom operators, {mode}: constructors returned after {:.1} ms, ready after {:.1} ms",
        embedded.n_custom,
        embedded.constructors.as_secs_f64() * 1e3,
        embedded.ready.as_secs_f64() * 1e3,
    );
    println!("{}", embedded.trace().timeline(100));
    let custom = embedded.run(&args.prompt_tokens)?;
    let stock = Stock::load(runtime.environment(), &folder)?.run(&args.prompt_tokens)?;
    let n_different = custom
        .iter()
        .zip(&stock)
        .filter(|(a, b)| a.to_bits() != b.to_bits())
        .count();
    ensure!(
        custom.len() == stock.len() && n_different == 0,
        "{n_different} of {} logits differ from the stock operators'",
        stock.len()
    );
    println!(
        "all {} logits equal the stock operators', bit by bit",
        stock.len()
    );
    Ok(())
}
