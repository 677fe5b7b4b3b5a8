//! The main job: a model folder to an answer, with the init graph in view.

mod args;
mod output;
mod progress;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use examples::cli::settle_environment;
use examples::provision::{Progress, TerminalProgress};
use examples::{setup, stdout};
use futures::StreamExt;
use runtime_hybrid::{Event, HybridOptions, HybridRuntime, LoadReport};
use runtime_npu::{LibrarySearch, NpuOptions, Prefault};
use scheduler::InitMode;

use args::Args;
use output::{Collected, Output};
use progress::{Bars, Spinner, terminal_width};

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let started = Instant::now();
    settle_environment();
    let args = Args::parse();
    if let Err(message) = args.check() {
        eprintln!("error: {message}\n\nFor more information, try '--help'.");
        return USAGE.into();
    }
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let executor = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(executor) => executor,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return FAILED.into();
        }
    };
    let code = executor.block_on(async {
        tokio::select! {
            biased;
            // Dropping the other branch cancels initialisation or the answer, and joins every thread.
            _ = tokio::signal::ctrl_c() => INTERRUPTED,
            result = run(&args, started) => result.map_or_else(|error| complain(&error), |()| 0),
        }
    });
    // A download, a conversion or an inline load may still block its thread; it must not hold the exit up.
    executor.shutdown_background();
    code.into()
}

fn complain(error: &anyhow::Error) -> u8 {
    eprintln!("error: {error:#}");
    let is_setting = error
        .downcast_ref::<runtime_hybrid::Error>()
        .is_some_and(runtime_hybrid::Error::is_setting);
    if is_setting { USAGE } else { FAILED }
}

async fn run(args: &Args, started: Instant) -> Result<()> {
    let init = args.init_mode()?;
    let mut out = stdout::claim().context("cannot write to standard output")?;
    let (given, quiet) = (args.model.clone(), args.quiet);
    let (library, model) = tokio::task::spawn_blocking(move || set_up(given, quiet)).await??;
    let mut npu = NpuOptions::new(library);
    npu.provider = args.npu_provider;
    npu.accuracy_level = args.accuracy_level;
    // The host lane makes weights resident while device lanes work, so that no lane waits for the disk.
    npu.prefault = Prefault::On;
    let options = HybridOptions {
        init,
        engines: args.engines(),
        staging: args.staging_budget,
        npu,
        ..HybridOptions::default()
    };
    // Inline, the constructor is the whole of initialisation: it must not block the one that listens for an interrupt.
    let spinner = (!args.quiet && init == InitMode::Inline)
        .then(|| Spinner::new("initialising inline: everything before the first request"));
    let runtime = tokio::task::spawn_blocking(move || HybridRuntime::load(model, options)).await??;
    drop(spinner);

    let bars = (!args.quiet).then(|| Bars::new(&runtime));
    let followed = async {
        if let Some(bars) = &bars {
            bars.follow(&runtime).await;
        }
        std::future::pending().await
    };
    let answer = tokio::select! {
        answer = generate(args, &runtime, started, bars.as_ref(), &mut out) => answer,
        () = followed => unreachable!("following never ends"),
    };
    // A failed initialisation ends the bars too; they go before anything else is printed.
    if let Some(bars) = &bars {
        bars.clear();
    }
    let answer = answer?;
    runtime.ready().await?;
    let report = runtime.report();
    write_files(args, &report)?;
    if !args.quiet {
        show_report(&report, &answer);
    }
    if args.json {
        let json = serde_json::to_string(&Output::new(answer, &report))?;
        print_through(None, &mut out, &(json + "\n"))?;
    }
    Ok(())
}

/// The library and the model, fetched at first use.
fn set_up(model: Option<PathBuf>, quiet: bool) -> Result<(LibrarySearch, PathBuf)> {
    let progress: Box<dyn Progress> = if quiet {
        Box::new(())
    } else {
        Box::new(TerminalProgress::new())
    };
    let model = model.map_or_else(|| setup::default_model(&*progress), Ok)?;
    Ok((setup::library(&*progress)?, model))
}

/// Generates, printing text as it comes unless it is wanted as JSON.
async fn generate(
    args: &Args,
    runtime: &HybridRuntime,
    started: Instant,
    bars: Option<&Bars>,
    out: &mut impl Write,
) -> Result<Collected> {
    let mut events = runtime.generate(args.request(runtime.default_sampling()));
    let (mut prompt_tokens, mut tokens, mut text) = (Vec::new(), Vec::new(), String::new());
    let mut first_token = Duration::ZERO;
    let mut say = |piece: &str| -> Result<()> {
        text += piece;
        if !args.json && !piece.is_empty() {
            print_through(bars, out, piece)?;
        }
        Ok(())
    };
    loop {
        match events.next().await.context("the answer ended without an end")?? {
            Event::Prompt(prompt) => prompt_tokens = prompt,
            Event::Token(token) => {
                if tokens.is_empty() {
                    first_token = started.elapsed();
                }
                tokens.push(token.id);
                say(&token.text)?;
            }
            Event::Done(summary) => {
                say(&summary.rest)?;
                if !args.json {
                    print_through(bars, out, "\n")?;
                }
                return Ok(Collected {
                    prompt_tokens,
                    tokens,
                    text,
                    first_token,
                    summary,
                });
            }
        }
    }
}

/// Prints a piece of the answer at once. The bars are done with by then, or step aside.
fn print_through(bars: Option<&Bars>, out: &mut impl Write, piece: &str) -> Result<()> {
    if let Some(bars) = bars {
        bars.clear();
    }
    out.write_all(piece.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write the answer")
}

fn write_files(args: &Args, report: &LoadReport) -> Result<()> {
    let trace = report.trace.as_ref().context("initialisation has no trace")?;
    let write = |file: &Path, text: String| {
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    if let Some(file) = &args.trace {
        write(file, trace.to_chrome_json())?;
    }
    if let Some(file) = &args.dot {
        write(file, trace.to_dot())?;
    }
    Ok(())
}

fn show_report(report: &LoadReport, answer: &Collected) {
    eprintln!("\n{report}");
    if let Some(trace) = &report.trace {
        eprintln!("{}", trace.timeline(terminal_width()));
    }
    let summary = &answer.summary;
    eprintln!(
        "{} prompt tokens in {:.0} ms, {} tokens{}\nfirst token {:.0} ms after the start of the process",
        answer.prompt_tokens.len(),
        summary.prefill.as_secs_f64() * 1e3,
        answer.tokens.len(),
        summary
            .decode_tokens_per_s()
            .map_or_else(String::new, |rate| format!(" at {rate:.1} per second")),
        answer.first_token.as_secs_f64() * 1e3,
    );
}
