//! The command line, of the benchmark and of its child processes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use runtime_hybrid::{Engines, StagingBudget};
use runtime_npu::{Prefault, Provider};
use scheduler::InitMode;

/// Measures what each init mode takes to load a model and to give the first token, in fresh processes, interleaved.
///
/// Ready is measured with no request before it, the first token with a request that waits from the start. With both engines
/// these are two processes for each row: there the request's prefill runs beside the rest of the decode engine's
/// initialisation, which would delay the deferred modes' ready by work that inline does after it. (That figure is shown as well.)
/// With one engine, one process serves for both.
///
/// CPU time and page faults are those until ready; peak memory includes the request.
#[derive(Debug, Parser)]
#[command(name = "init-bench", version)]
pub(crate) struct Args {
    /// Model folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,

    /// Init modes to compare; ratios are to inline, or to the first if inline is not among them.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "inline,serial,two-phase,overlapped"
    )]
    pub(crate) modes: Vec<InitMode>,

    /// Runs of each mode.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,

    /// Execution provider of the NPU engine: auto, cpu, vitisai, qnn or openvino.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) npu_provider: Provider,

    /// Which engines serve: auto, hybrid or npu-only.
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub(crate) engine: Engines,

    /// Tokens of the prompt.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    prompt_len: u32,

    /// How many bytes of weights may wait for device setup: auto, unlimited, or bytes such as 256M.
    #[arg(long, value_name = "BYTES", default_value_t)]
    pub(crate) staging_budget: StagingBudget,

    /// Drop the model's pages from the page cache before each run.
    #[arg(long)]
    pub(crate) cold: bool,

    /// Leave weight pages to be touched by the device lanes, rather than by the host lane before them.
    #[arg(long)]
    no_prefault: bool,

    /// Leave the stock peers out.
    #[arg(long)]
    pub(crate) no_peers: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Be one run of this mode.
    #[arg(long, hide = true)]
    pub(crate) child: Option<InitMode>,

    /// What that run is to measure.
    #[arg(long, hide = true, value_enum, default_value_t = Measure::Ready)]
    pub(crate) measure: Measure,

    /// When the parent started this process, in nanoseconds since 1970.
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) spawned_ns: u128,
}

/// What one process measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// Ready with no request before it; with one engine the first token too.
    Ready,
    /// The first token of a request that waits from the start.
    FirstToken,
    /// Initialisation and nothing else, as a profiler wants it.
    Init,
}

impl Args {
    /// A prompt of the length asked for.
    pub(crate) fn prompt(&self, vocabulary: usize) -> Vec<u32> {
        (0..self.prompt_len)
            .map(|i| (i * 7919 + 13) % vocabulary.min(30_000) as u32)
            .collect()
    }

    pub(crate) fn prompt_len(&self) -> u32 {
        self.prompt_len
    }

    pub(crate) fn prefault(&self) -> Prefault {
        if self.no_prefault {
            Prefault::Off
        } else {
            Prefault::On
        }
    }

    /// The arguments of a child process.
    pub(crate) fn for_child(&self, mode: InitMode, measure: Measure) -> Vec<OsString> {
        let measure = measure.to_possible_value().expect("no variant is skipped");
        let pairs: [(&str, OsString); 7] = [
            ("--child", mode.to_string().into()),
            ("--measure", measure.get_name().into()),
            ("--model", self.model.clone().into()),
            ("--npu-provider", self.npu_provider.to_string().into()),
            ("--engine", self.engine.to_string().into()),
            ("--prompt-len", self.prompt_len.to_string().into()),
            ("--staging-budget", self.staging_budget.to_string().into()),
        ];
        let flags = self.no_prefault.then(|| "--no-prefault".into());
        pairs
            .into_iter()
            .flat_map(|(flag, value)| [flag.into(), value])
            .chain(flags)
            .collect()
    }
}
