//! Prefill and decode against one whole-model stock session, on the same folder, in the same process, interleaved; and the memory
//! of each at ready, in a process of its own.
//!
//! `cargo bench -p runtime-npu --bench prefill -- [--model DIR] [--prompt-len N] [--rounds N] [--threads N] [--init-mode MODE]
//! [--json]`
//!
//! With one thread, CPU time is a fair measure on a busy machine; with more it includes what the pools' threads spin.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use examples::provision::TerminalProgress;
use onnx_model::ModelFolder;
use runtime_npu::{NpuEngine, NpuOptions, NpuPlan, OnnxRuntime, StockThreads, WholeModelSession};
use scheduler::{InitGraph, InitMode};
use serde_json::{Value, json};

const PROMPT_LEN: usize = 128;
const DECODE_TOKENS: usize = 32;
const ROUNDS: usize = 7;
/// A stock pool's threads spin this long at most; each side is measured with the other's asleep.
const QUIET: Duration = Duration::from_millis(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args = Args::parse()?;
    if let Some(side) = &args.memory_of {
        println!("{}", memory_at_ready(&args, side)?);
        return Ok(());
    }
    let report = measure(&args)?;
    match args.json {
        true => println!("{report:#}"),
        false => print_table(&report),
    }
    Ok(())
}

struct Args {
    model: PathBuf,
    prompt_len: usize,
    rounds: usize,
    threads: Option<usize>,
    json: bool,
    memory_of: Option<String>,
    init_mode: InitMode,
}

impl Args {
    fn parse() -> Result<Self> {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models/qwen3-tiny-int4");
        let mut args = Self {
            model: fixture,
            prompt_len: PROMPT_LEN,
            rounds: ROUNDS,
            threads: None,
            json: false,
            memory_of: None,
            init_mode: InitMode::Overlapped,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--model" => args.model = value()?.into(),
                "--prompt-len" => args.prompt_len = value()?.parse()?,
                "--rounds" => args.rounds = value()?.parse()?,
                "--threads" => args.threads = Some(value()?.parse()?),
                "--init-mode" => args.init_mode = value()?.parse()?,
                "--json" => args.json = true,
                "--memory-of" => args.memory_of = Some(value()?),
                "--bench" => {}
                other => {
                    return Err(format!(
                        "unknown argument {other}; known: --model DIR, --prompt-len N, --rounds N, --threads N, --init-mode MODE, --json"
                    )
                    .into());
                }
            }
        }
        Ok(args)
    }

    fn options(&self) -> NpuOptions {
        let mut options = NpuOptions::new(
            examples::setup::library(&TerminalProgress::new()).expect("the ONNX Runtime library"),
        );
        options.n_threads = self.threads.unwrap_or(options.n_threads);
        options
    }
}

fn load(folder: &ModelFolder, options: NpuOptions, mode: InitMode) -> Result<NpuEngine> {
    let mut graph = InitGraph::new();
    let setup = NpuPlan::new(folder, options)?.add_to(&mut graph);
    let run = graph.start(mode)?;
    Ok(setup.finish(&mut run.ready().wait()?)?)
}

fn measure(args: &Args) -> Result<Value> {
    let folder = ModelFolder::open(&args.model)?;
    let options = args.options();
    let runtime = OnnxRuntime::load(&options.library, options.n_threads)?;
    let n_threads = options.n_threads;
    let stock = timed(|| {
        Ok(WholeModelSession::open(
            &runtime,
            &folder,
            StockThreads::Own(n_threads),
        )?)
    })?;
    let engine = timed(|| load(&folder, options, args.init_mode))?;
    let (stock_ready, stock, engine_ready, engine) = (stock.0, stock.1, engine.0, engine.1);

    let vocab = folder.geometry().vocab as u32;
    let prompt: Vec<u32> = (0..args.prompt_len as u32)
        .map(|i| (i * 37 + 11) % vocab)
        .collect();
    let capacity = args.prompt_len + DECODE_TOKENS;
    let (mut a, mut b) = (stock.new_cache(capacity)?, engine.new_cache(capacity)?);
    let mut samples = Samples::default();
    // One round to warm both up, not counted.
    for round in 0..=args.rounds {
        let stock_round = side(
            |cache_len, tokens| {
                a.truncate(cache_len);
                last_row(stock.run(&mut a, tokens)?, vocab)
            },
            &prompt,
        )?;
        let engine_round = side(
            |cache_len, tokens| {
                b.truncate(cache_len);
                Ok(match tokens {
                    [token] => engine.decode(&mut b, *token)?,
                    prompt => engine.prefill(&mut b, prompt)?,
                })
            },
            &prompt,
        )?;
        if stock_round.tokens != engine_round.tokens {
            eprintln!("note: greedy tokens differ in round {round} (int8 activations, near tie)");
        }
        if round > 0 {
            samples.push(stock_round, engine_round);
        }
    }
    let n_operators = engine.placements().count();
    let mut report = samples.report(args.prompt_len, n_operators);
    report["model"] = json!(folder.dir());
    report["threads"] = json!(n_threads);
    report["n_sessions"] = json!(engine.n_sessions());
    report["ready_ms"] = json!({ "stock": ms(stock_ready), "engine": ms(engine_ready), "ratio": ratio(engine_ready, stock_ready) });
    report["memory_at_ready"] = memory(args)?;
    Ok(report)
}

/// One prompt and some tokens on one side.
struct Round {
    prefill: Duration,
    decode: Duration,
    decode_cpu: Duration,
    tokens: Vec<u32>,
}

fn side(mut run: impl FnMut(usize, &[u32]) -> Result<Vec<f32>>, prompt: &[u32]) -> Result<Round> {
    sleep(QUIET);
    let start = Instant::now();
    let mut logits = run(0, prompt)?;
    let prefill = start.elapsed();
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut tokens = Vec::new();
    for i in 0..DECODE_TOKENS {
        let token = argmax(&logits);
        tokens.push(token);
        logits = run(prompt.len() + i, &[token])?;
    }
    Ok(Round {
        prefill,
        decode: start.elapsed(),
        decode_cpu: cpu_time() - cpu,
        tokens,
    })
}

#[derive(Default)]
struct Samples {
    prefill: Vec<(Duration, Duration)>,
    decode: Vec<(Duration, Duration)>,
    decode_cpu: Vec<(Duration, Duration)>,
}

impl Samples {
    fn push(&mut self, stock: Round, engine: Round) {
        self.prefill.push((stock.prefill, engine.prefill));
        self.decode.push((stock.decode, engine.decode));
        self.decode_cpu.push((stock.decode_cpu, engine.decode_cpu));
    }

    fn report(&self, prompt_len: usize, n_operators: usize) -> Value {
        let row = |samples: &[(Duration, Duration)], n: usize| {
            let (stock, engine) = (
                median(samples.iter().map(|s| s.0)),
                median(samples.iter().map(|s| s.1)),
            );
            let (best_stock, best_engine) = (
                samples.iter().map(|s| s.0).min(),
                samples.iter().map(|s| s.1).min(),
            );
            json!({
                "stock_tokens_per_s": n as f64 / stock.as_secs_f64(),
                "engine_tokens_per_s": n as f64 / engine.as_secs_f64(),
                // Above 1: the engine takes longer than stock.
                "time_ratio": ratio(engine, stock),
                "time_ratio_of_best_rounds": best_engine.zip(best_stock).map(|(e, s)| ratio(e, s)),
            })
        };
        let per_token = |of: fn(&(Duration, Duration)) -> Duration| {
            median(self.decode.iter().map(of)).as_secs_f64() / DECODE_TOKENS as f64
        };
        let overhead = (per_token(|s| s.1) - per_token(|s| s.0)) / n_operators as f64;
        let cpu = |of: fn(&(Duration, Duration)) -> Duration| median(self.decode_cpu.iter().map(of));
        let cpu_per_operator = |d: Duration| d.as_secs_f64() * 1e6 / (DECODE_TOKENS * n_operators) as f64;
        json!({
            "decode_cpu_time_ratio": ratio(cpu(|s| s.1), cpu(|s| s.0)),
            "decode_cpu_overhead_us_per_operator": cpu_per_operator(cpu(|s| s.1)) - cpu_per_operator(cpu(|s| s.0)),
            "prefill": row(&self.prefill, prompt_len),
            "decode": row(&self.decode, DECODE_TOKENS),
            "n_operators": n_operators,
            "decode_overhead_us_per_operator": overhead * 1e6,
        })
    }
}

/// Each side in a process of its own, at the moment it can serve.
fn memory(args: &Args) -> Result<Value> {
    let of = |side: &str| -> Result<Value> {
        let output = Command::new(std::env::current_exe()?)
            .args([
                "--model",
                &args.model.to_string_lossy(),
                "--memory-of",
                side,
                "--init-mode",
                &args.init_mode.to_string(),
            ])
            .output()?;
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout)?),
            false => Err(format!("{side}: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    };
    let (stock, engine) = (of("stock")?, of("engine")?);
    let ratio = |key: &str| Some(engine[key].as_f64()? / stock[key].as_f64()?);
    let ratios = json!({ "rss": ratio("rss_bytes"), "anonymous": ratio("anonymous_bytes"), "peak_rss": ratio("peak_rss_bytes"),
        "ready": ratio("ready_ms"), "cpu": ratio("cpu_ms") });
    Ok(json!({ "stock": stock, "engine": engine, "ratio": ratios }))
}

fn memory_at_ready(args: &Args, side: &str) -> Result<Value> {
    let start = Instant::now();
    let folder = ModelFolder::open(&args.model)?;
    let options = args.options();
    match side {
        "stock" => {
            let runtime = OnnxRuntime::load(&options.library, options.n_threads)?;
            let _session = WholeModelSession::open(&runtime, &folder, StockThreads::Own(options.n_threads))?;
            status(start)
        }
        _ => {
            let _engine = load(&folder, options, args.init_mode)?;
            status(start)
        }
    }
}

fn status(start: Instant) -> Result<Value> {
    let ready_ms = ms(start.elapsed());
    let text = std::fs::read_to_string("/proc/self/status")?;
    let bytes = |key: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    };
    Ok(json!({
        "rss_bytes": bytes("VmRSS"),
        "anonymous_bytes": bytes("RssAnon"),
        "peak_rss_bytes": bytes("VmHWM"),
        "ready_ms": ready_ms,
        "cpu_ms": ms(cpu_time()),
    }))
}

fn print_table(report: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    println!(
        "model {}, {} threads, {} operators in {} sessions",
        report["model"], report["threads"], report["n_operators"], report["n_sessions"]
    );
    for what in ["prefill", "decode"] {
        let row = &report[what];
        println!(
            "{what:8} stock {:8.1} tokens/s   engine {:8.1} tokens/s   time ratio {:.3} (best rounds {:.3})",
            number(&row["stock_tokens_per_s"]),
            number(&row["engine_tokens_per_s"]),
            number(&row["time_ratio"]),
            number(&row["time_ratio_of_best_rounds"])
        );
    }
    println!(
        "decode overhead {:.2} us per operator; CPU time ratio {:.3}, {:.2} us per operator",
        number(&report["decode_overhead_us_per_operator"]),
        number(&report["decode_cpu_time_ratio"]),
        number(&report["decode_cpu_overhead_us_per_operator"])
    );
    let ready = &report["ready_ms"];
    println!(
        "ready    stock {:.0} ms, engine {:.0} ms, ratio {:.3}",
        number(&ready["stock"]),
        number(&ready["engine"]),
        number(&ready["ratio"])
    );
    let memory = &report["memory_at_ready"];
    for side in ["stock", "engine"] {
        let mib = |key: &str| number(&memory[side][key]) / f64::from(1 << 20);
        println!(
            "memory   {side}: rss {:.0} MiB, anonymous {:.0} MiB, peak {:.0} MiB",
            mib("rss_bytes"),
            mib("anonymous_bytes"),
            mib("peak_rss_bytes")
        );
    }
    println!("memory ratio {}", memory["ratio"]);
}

fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let value = run()?;
    Ok((start.elapsed(), value))
}

fn last_row(mut logits: Vec<f32>, vocab: u32) -> Result<Vec<f32>> {
    Ok(logits.split_off(logits.len() - vocab as usize))
}

/// CPU time of the process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn argmax(logits: &[f32]) -> u32 {
    logits
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map_or(0, |(i, _)| i as u32)
}

fn median(samples: impl Iterator<Item = Duration>) -> Duration {
    let mut samples: Vec<Duration> = samples.collect();
    samples.sort();
    samples[samples.len() / 2]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
