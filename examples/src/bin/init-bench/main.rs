//! What deferred initialisation is worth: every init mode in fresh processes, interleaved, against stock peers.

mod args;
mod child;
mod cold;
mod peers;
mod row;
mod table;

use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::cli::settle_environment;

use args::Args;
use row::{Results, Row};

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
    let folder = onnx_model::ModelFolder::open(&args.model)?;
    // The peers' prompts are made of the same tokens.
    let prompt = args.prompt(folder.geometry().vocab);
    let mut results = Results::new(args, &folder);
    // One run that is not counted: it fills the page cache (unless that is to be cold) and the driver's shader cache.
    if !args.cold {
        eprintln!("warming up");
        run_child(args, args.modes[0], 0)?;
    }
    for run in 1..=args.runs {
        for &mode in &args.modes {
            eprintln!("run {run} of {}: {mode}", args.runs);
            if args.cold {
                cold::drop_page_cache(&folder)?;
            }
            results.rows.push(run_child(args, mode, run)?);
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

/// One load in a process of its own.
fn run_child(args: &Args, mode: scheduler::InitMode, run: u32) -> Result<Row> {
    let spawned = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?
        .as_nanos();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(args.for_child(mode))
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
    let mut row: Row = serde_json::from_slice(&output.stdout).context("a child process wrote no row")?;
    row.run = run;
    Ok(row)
}
