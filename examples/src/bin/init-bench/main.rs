//! What deferred initialisation is worth: every init mode in fresh processes, interleaved, against stock peers.

mod args;
mod child;
mod cold;
mod overhead;
mod peers;
mod results;
mod row;
mod table;
mod targets;
mod usage;

use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::cli::settle_environment;
use onnx_model::ModelFolder;
use scheduler::InitMode;

use args::{Args, Measure};
use results::Results;
use row::Row;

fn main() -> ExitCode {
    settle_environment();
    let args = Args::parse();
    let done = match args.child {
        Some(mode) => child::run(&args, mode),
        None => bench(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<()> {
    let folder = ModelFolder::open(&args.model)?;
    // The peers' prompts are made of the same tokens.
    let prompt = args.prompt(folder.geometry().vocab);
    let mut results = Results::new(args, &folder)?;
    // One run that is not counted: it fills the page cache (unless that is to be cold) and the driver's shader cache.
    if !args.cold {
        eprintln!("warming up");
        run_child(args, args.modes[0], Measure::FirstToken)?;
    }
    for run in 1..=args.runs {
        for &mode in &args.modes {
            eprintln!("run {run} of {}: {mode}", args.runs);
            results.rows.push(run_mode(args, &folder, mode, run)?);
        }
        for peer in peers::ALL.iter().filter(|_| !args.no_peers) {
            if args.cold {
                cold::drop_page_cache(&folder)?;
            }
            match peer.run(&args.model, &prompt, run) {
                Ok(row) => results.rows.push(row),
                Err(error) if run == 1 => results.missing_peers.push(format!("{}: {error:#}", peer.name)),
                Err(_) => {}
            }
        }
    }
    results.summarise();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{results}");
    }
    Ok(())
}

/// One row of a mode, from one process, or from two where a request would get in the way of what is measured without one.
fn run_mode(args: &Args, folder: &ModelFolder, mode: InitMode, run: u32) -> Result<Row> {
    let child = |measure| {
        if args.cold {
            cold::drop_page_cache(folder)?;
        }
        run_child(args, mode, measure)
    };
    let mut row = child(Measure::Ready)?;
    if row.first_token_ms.is_none() {
        row = row.with_request(child(Measure::FirstToken)?);
    }
    row.run = run;
    Ok(row)
}

/// One load in a process of its own.
fn run_child(args: &Args, mode: InitMode, measure: Measure) -> Result<Row> {
    let spawned = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?
        .as_nanos();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(args.for_child(mode, measure))
        .arg("--spawned-ns")
        .arg(spawned.to_string());
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start a child process")?;
    ensure!(
        output.status.success(),
        "the {mode} run ended with {}",
        output.status
    );
    serde_json::from_slice(&output.stdout).context("a child process wrote no row")
}
