//! How fast this machine's adapter decodes, against what its memory gives: `cargo bench -p runtime-igpu --bench decode`.
//!
//! Options after `--`: `--json`, `--model DIR` (an onnxruntime-genai folder; default: random weights of SmolLM2-135M's size,
//! written to a temporary folder), `--tokens N`, `--shape gpu|cpu`, `--upload imported|mapped|staged`. All rates are of one run, so their ratios can be compared.
//! On lavapipe, `LP_NUM_THREADS=0` in the environment runs small dispatches on the calling thread.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onnx_model::ModelFolder;
use onnx_model::synth::{Preset, synthesize};
use onnx_model::write::DecoderSpec;
use runtime_igpu::{IgpuOptions, IgpuPlan, MatvecShape, Probe};
use scheduler::{InitGraph, InitMode, RunOptions};
use serde_json::json;

/// The matrix-vector product that the target is about.
const K: u32 = 2560;
const N: u32 = 9728;
/// Rounds; copy and product alternate, medians are reported.
const ROUNDS: usize = 25;
/// Bytes of one measured upload.
const UPLOAD_BYTES: usize = 100 << 20;
/// Uploads and host copies, alternating.
const UPLOADS: usize = 7;

struct Arguments {
    json: bool,
    model: Option<PathBuf>,
    n_tokens: usize,
    options: IgpuOptions,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = parse(std::env::args().skip(1))?;
    let probe = Probe::open(&arguments.options)?;
    let mut report = json!({ "adapter": probe.adapter().description() });
    report["matvec"] = matvec(&probe)?;
    report["upload"] = upload(&probe)?;
    drop(probe);
    let synthetic = tempfile::tempdir()?;
    let model = match &arguments.model {
        Some(model) => model.as_path(),
        None => {
            synthesize(synthetic.path(), &smollm2_size(), 1, &mut |_| {})?;
            synthetic.path()
        }
    };
    report["init"] = init(model, &arguments)?;
    report["decode"] = decode(model, &arguments)?;
    let streaming = report["matvec"]["copy_gb_per_s"].as_f64().unwrap_or(f64::NAN);
    let weights = report["decode"]["weights_gb_per_s"].as_f64().unwrap_or(f64::NAN);
    report["decode"]["of_streaming"] = json!(weights / streaming);
    if arguments.json {
        println!("{report:#}")
    } else {
        print_table(&report)
    }
    Ok(())
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn std::error::Error>> {
    let mut parsed = Arguments {
        json: false,
        model: None,
        n_tokens: 32,
        options: IgpuOptions::default(),
    };
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--json" => parsed.json = true,
            // Cargo passes this to every bench.
            "--bench" => {}
            "--model" => parsed.model = Some(value()?.into()),
            "--tokens" => parsed.n_tokens = value()?.parse()?,
            "--shape" => {
                parsed.options.matvec = Some(match value()?.as_str() {
                    "gpu" => MatvecShape::Gpu,
                    "cpu" => MatvecShape::CpuAdapter,
                    other => return Err(format!("--shape {other} is neither gpu nor cpu").into()),
                });
            }
            "--upload" => parsed.options.upload = Some(value()?.parse()?),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(parsed)
}

/// SmolLM2-135M's geometry.
fn smollm2_size() -> DecoderSpec {
    DecoderSpec {
        layers: 30,
        hidden: 576,
        intermediate: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        vocab: 49_152,
        context_length: 8192,
        bos: 0,
        eos: vec![2],
        pad: 2,
        ..Preset::Llama3_2_1b.spec()
    }
}

fn matvec(probe: &Probe) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let product = probe.matvec(K, N)?;
    let copy = probe.copy(product.bytes())?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(product.run()?);
        times[1].push(copy.run()?);
    }
    let ratios = times[0]
        .iter()
        .zip(&times[1])
        .map(|(product, copy)| copy.as_secs_f64() / product.as_secs_f64());
    let rates = times
        .clone()
        .map(|times| gb_per_s(product.bytes() as usize, median(times)));
    Ok(json!({
        "k": K,
        "n": N,
        "kernel": product.kernel(),
        "bytes": product.bytes(),
        "matvec_ms": ms(median(times[0].clone())),
        "matvec_gb_per_s": rates[0],
        // Bytes copied, that is read and written, counted once.
        "copy_gb_per_s": rates[1],
        "of_streaming": median_f64(ratios.collect()),
        // The same, with the copy's reads and writes both counted.
        "of_streaming_both_ways": median_f64(times[0].iter().zip(&times[1]).map(|(product, copy)| copy.as_secs_f64() / product.as_secs_f64() / 2.0).collect()),
    }))
}

fn upload(probe: &Probe) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let source: Vec<u8> = (0..UPLOAD_BYTES).map(|i| i as u8).collect();
    let mut touched = vec![1u8; UPLOAD_BYTES];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..UPLOADS {
        times[0].push(probe.upload(&source)?);
        let started = Instant::now();
        touched.copy_from_slice(&source);
        std::hint::black_box(&mut touched);
        times[1].push(started.elapsed());
        let started = Instant::now();
        std::hint::black_box(source.clone());
        times[2].push(started.elapsed());
    }
    let [upload, memcpy, fresh] = times.map(|times| gb_per_s(UPLOAD_BYTES, median(times)));
    Ok(json!({
        "path": format!("{:?}", probe.upload_path()),
        "upload_gb_per_s": upload,
        "memcpy_gb_per_s": memcpy,
        "memcpy_to_fresh_memory_gb_per_s": fresh,
        "of_memcpy": upload / memcpy,
        "of_memcpy_to_fresh_memory": upload / fresh,
    }))
}

/// Time to a ready device, and what its lanes did meanwhile.
fn init(model: &Path, arguments: &Arguments) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let started = Instant::now();
    let folder = ModelFolder::open(model)?;
    let opened = started.elapsed();
    let plan = IgpuPlan::new(&folder, arguments.options.clone())?;
    let planned = started.elapsed();
    let mut graph = InitGraph::new();
    let nodes = plan.add_to(&mut graph);
    let run = graph.start_with(InitMode::Overlapped, RunOptions::new().record())?;
    let mut ready = run.ready().wait()?;
    let engine = nodes.finish(&mut ready)?;
    let device_ready = started.elapsed();
    let trace = run.trace();
    let times = engine.setup_times();
    drop(engine);
    let mut by_type = serde_json::Map::new();
    for usage in trace.type_usage() {
        let times =
            json!({ "nodes": usage.n_nodes, "host_ms": ms(usage.host), "device_ms": ms(usage.device) });
        by_type.insert(usage.operator_type.to_string(), times);
    }
    let busy = times.device_open + times.pipelines + times.warm_up + times.upload + times.caches + times.bind;
    let share = |time: Duration| json!({ "ms": ms(time), "share": time.as_secs_f64() / busy.as_secs_f64() });
    Ok(json!({
        "model": arguments.model.as_ref().map_or("random weights of SmolLM2-135M's size".to_owned(), |model| model.display().to_string()),
        "device_bytes": plan.device_bytes(),
        "open_folder_ms": ms(opened),
        "adapter_and_plan_ms": ms(planned - opened),
        "device_ready_ms": ms(device_ready),
        "device_work": {
            "device_open": share(times.device_open),
            "pipelines": share(times.pipelines),
            "warm_up": share(times.warm_up),
            "upload": share(times.upload),
            "kv_caches": share(times.caches),
            "bind": share(times.bind),
        },
        "operator_types": by_type,
    }))
}

fn decode(model: &Path, arguments: &Arguments) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let folder = ModelFolder::open(model)?;
    let plan = IgpuPlan::new(&folder, arguments.options.clone())?;
    let mut engine = plan.load(InitMode::Overlapped)?;
    let mut token = 1;
    for _ in 0..4 {
        token = engine.decode_greedy(token)?;
    }
    let (mut times, mut encodes) = (Vec::new(), Vec::new());
    for _ in 0..arguments.n_tokens {
        let started = Instant::now();
        token = engine.decode_greedy(token)?;
        times.push(started.elapsed());
        encodes.push(engine.encode_time());
    }
    let time = median(times);
    Ok(json!({
        "n_tokens": arguments.n_tokens,
        "dispatches_per_token": engine.n_dispatches(),
        "token_ms": ms(time),
        "tokens_per_s": 1.0 / time.as_secs_f64(),
        "encode_ms": ms(median(encodes)),
        "weights_bytes_per_token": plan.matmul_bytes(),
        "weights_gb_per_s": gb_per_s(plan.matmul_bytes() as usize, time),
    }))
}

fn print_table(report: &serde_json::Value) {
    println!("{}", report["adapter"].as_str().unwrap_or_default());
    for section in ["matvec", "upload", "init", "decode"] {
        println!("{section}");
        for (name, value) in report[section].as_object().into_iter().flatten() {
            println!("  {name:32} {value}");
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn median_f64(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn gb_per_s(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
