//! Loads a model again and again in one process and says what each load took and what it left behind:
//! `cargo run --release -p runtime-igpu --example load -- MODEL [--runs N] [--mode inline|serial|two-phase|overlapped]
//! [--upload imported|mapped|staged] [--tokens N]`.
//!
//! What a process has in use should not grow from one load to the next. What it keeps resident may: glibc's allocator hands freed memory
//! back late, and keeps up to eight arenas per core; with `MALLOC_ARENA_MAX=1` in the environment there is only one.

use std::time::Instant;

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuOptions, IgpuPlan};
use scheduler::InitMode;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut model, mut runs, mut mode, mut n_tokens) = (None, 1, InitMode::Inline, 0);
    let mut options = IgpuOptions::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--runs" => runs = value()?.parse()?,
            "--mode" => mode = value()?.parse()?,
            "--tokens" => n_tokens = value()?.parse()?,
            "--upload" => options.upload = Some(value()?.parse()?),
            _ => model = Some(argument),
        }
    }
    let model = model.ok_or("which model folder?")?;
    println!(
        "run  ready ms   cpu ms  (system)  minor faults  after: resident MB  in use MB  | open  pipelines  warm-up  upload  caches  bind, ms"
    );
    for run in 0..runs {
        let (started, before) = (Instant::now(), Usage::now());
        let folder = ModelFolder::open(&model)?;
        let plan = IgpuPlan::new(&folder, options.clone())?;
        let mut engine = plan.load(mode)?;
        let (ready, usage) = (started.elapsed(), Usage::now());
        let mut token = 1;
        let decoding = Instant::now();
        for _ in 0..n_tokens {
            token = engine.decode_greedy(token)?;
        }
        if n_tokens > 0 {
            println!(
                "{n_tokens} tokens in {:.0} ms, the last is {token}",
                decoding.elapsed().as_secs_f64() * 1e3
            );
        }
        let times = engine.setup_times();
        drop((engine, plan, folder));
        let parts = [
            times.device_open,
            times.pipelines,
            times.warm_up,
            times.upload,
            times.caches,
            times.bind,
        ];
        let parts: Vec<_> = parts
            .iter()
            .map(|time| format!("{:.1}", time.as_secs_f64() * 1e3))
            .collect();
        println!(
            "{run:3} {:9.1} {:8.0} {:8.0} {:13} {:19.1} {:10.2}  | {}",
            ready.as_secs_f64() * 1e3,
            usage.cpu_ms - before.cpu_ms,
            usage.system_ms - before.system_ms,
            usage.faults - before.faults,
            resident_mb(),
            allocated_mb(),
            parts.join("  ")
        );
    }
    Ok(())
}

/// What this process has used so far.
struct Usage {
    cpu_ms: f64,
    system_ms: f64,
    faults: u64,
}

impl Usage {
    /// Zeros where the system has no `/proc`.
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Fields after the command's name, which may hold anything: the third of the file is the first here.
        let fields: Vec<u64> = (stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace())
        .map(|field| field.parse().unwrap_or(0))
        .collect();
        let field = |i: usize| fields.get(i - 3).copied().unwrap_or(0);
        // Linux counts in hundredths of a second.
        let (user, system) = (field(14) as f64 * 10.0, field(15) as f64 * 10.0);
        Self {
            cpu_ms: user + system,
            system_ms: system,
            faults: field(10),
        }
    }
}

fn resident_mb() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages as f64 * 4096.0 / 1e6
}

/// What this process has allocated and not freed; zero where the allocator does not tell.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn allocated_mb() -> f64 {
    // SAFETY: only reads the allocator's own counters.
    let counters = unsafe { libc::mallinfo2() };
    (counters.uordblks + counters.hblkhd) as f64 / 1e6
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn allocated_mb() -> f64 {
    0.0
}
