//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use runtime_hybrid::{DeferredInit, Engines, Request, Sampling, StagingBudget};
use runtime_npu::{AccuracyLevel, Provider};
use scheduler::InitMode;

/// Generates text with a model in onnxruntime-genai's format: prefill on the NPU engine, decode on the iGPU engine.
///
/// The answer goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong
/// usage, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "generate", version)]
pub(crate) struct Args {
    /// What to say to the model.
    #[arg(required_unless_present = "prompt_tokens", conflicts_with = "prompt_tokens")]
    prompt: Option<String>,

    /// Model folder. Without it, SmolLM2-135M-Instruct, fetched and converted into the cache at first use.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,

    /// At most this many tokens.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    max_tokens: usize,

    /// How initialisation is scheduled [default: overlapped, unless HOSTLANE_DEFERRED_INIT says otherwise].
    #[arg(long, value_name = "MODE")]
    init: Option<Init>,

    /// Which engines serve.
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    engine: EngineChoice,

    /// Execution provider of the NPU engine: auto, cpu, vitisai, qnn or openvino.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) npu_provider: Provider,

    /// How many bytes of weights may wait for device setup: auto, unlimited, or bytes such as 256M.
    #[arg(long, value_name = "BYTES", default_value_t)]
    pub(crate) staging_budget: StagingBudget,

    /// Accuracy level of every MatMulNBits, in place of the model's: 1 (float32 activations) to 4 (int8).
    #[arg(long, value_name = "LEVEL", value_parser = accuracy_level)]
    pub(crate) accuracy_level: Option<AccuracyLevel>,

    /// Go on with the prompt as it is, without the chat template.
    #[arg(long, conflicts_with = "prompt_tokens")]
    raw: bool,

    /// Tokens to go on with, in place of a prompt.
    #[arg(long, value_name = "1,2,3", value_delimiter = ',')]
    prompt_tokens: Option<Vec<u32>>,

    /// Sample at this temperature [default: greedy].
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,

    /// Sample among the K likeliest tokens.
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// Sample among the likeliest tokens that have probability P together.
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,

    /// Seed for sampling; the same seed gives the same answer.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write what happened as Chrome trace JSON, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the init graph in DOT, with the critical path marked.
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,

    /// No progress and no report.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print one JSON object with tokens and times in place of the text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Init {
    Inline,
    Serial,
    TwoPhase,
    Overlapped,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineChoice {
    Auto,
    Hybrid,
    NpuOnly,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least one token must be asked for".into()),
        Ok(n) => Ok(n),
        Err(e) => Err(format!("{e}")),
    }
}

fn accuracy_level(text: &str) -> Result<AccuracyLevel, String> {
    let level: i64 = text.parse().map_err(|e| format!("{e}"))?;
    AccuracyLevel::try_from(level).map_err(|e| e.to_string())
}

impl Args {
    /// The init mode: as asked for, else as the environment says, else overlapped.
    pub(crate) fn init_mode(&self) -> runtime_hybrid::Result<InitMode> {
        Ok(match self.init {
            Some(Init::Inline) => InitMode::Inline,
            Some(Init::Serial) => InitMode::Serial,
            Some(Init::TwoPhase) => InitMode::TwoPhase,
            Some(Init::Overlapped) => InitMode::Overlapped,
            None => match DeferredInit::from_env()? {
                DeferredInit::Unset => InitMode::Overlapped,
                said => said.mode(),
            },
        })
    }

    pub(crate) fn engines(&self) -> Engines {
        match self.engine {
            EngineChoice::Auto => Engines::Auto,
            EngineChoice::Hybrid => Engines::Hybrid,
            EngineChoice::NpuOnly => Engines::NpuOnly,
        }
    }

    /// Greedy, unless something about sampling is said; what is not said is as the model's configuration has it.
    fn sampling(&self, model: &Sampling) -> Sampling {
        let sampled =
            self.temperature.is_some() || self.top_k.is_some() || self.top_p.is_some() || self.seed.is_some();
        if !sampled {
            return Sampling {
                repetition_penalty: model.repetition_penalty,
                ..Sampling::greedy()
            };
        }
        let temperature = if model.temperature > 0.0 {
            model.temperature
        } else {
            1.0
        };
        Sampling {
            temperature: self.temperature.unwrap_or(temperature),
            top_k: self.top_k.unwrap_or(model.top_k),
            top_p: self.top_p.unwrap_or(model.top_p),
            seed: self.seed,
            repetition_penalty: model.repetition_penalty,
        }
    }

    /// The request, for a model with these sampling defaults.
    pub(crate) fn request(&self, model: &Sampling) -> Request {
        let request = match (&self.prompt, &self.prompt_tokens) {
            (_, Some(tokens)) => Request::tokens(tokens.clone()),
            (Some(prompt), None) if self.raw => Request::text(prompt),
            (prompt, None) => Request::chat(prompt.clone().unwrap_or_default()),
        };
        request.max_tokens(self.max_tokens).sampling(self.sampling(model))
    }

    /// Whether the sampling values are usable: a wrong one is wrong usage, known before anything is loaded.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.sampling(&Sampling::greedy())
            .check()
            .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("generate").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn greedy_unless_sampling_is_asked_for() {
        let model = Sampling {
            top_k: 40,
            repetition_penalty: 1.1,
            ..Sampling::greedy()
        };
        let sampling = |line: &str| parse(line).unwrap().sampling(&model);
        assert_eq!(
            sampling("hi"),
            Sampling {
                repetition_penalty: 1.1,
                ..Sampling::greedy()
            }
        );
        let warm = sampling("hi --top-p 0.5 --seed 3");
        assert_eq!(
            warm,
            Sampling {
                temperature: 1.0,
                top_k: 40,
                top_p: 0.5,
                repetition_penalty: 1.1,
                seed: Some(3)
            }
        );
        assert!(sampling("hi --temperature 0 --seed 3").is_greedy());
        assert!(parse("hi --top-p 1.5").unwrap().check().is_err());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "",
            "hi --max-tokens 0",
            "hi --prompt-tokens 1,2",
            "--prompt-tokens 1,x",
            "hi --init fast",
            "hi --engine gpu",
            "hi --npu-provider tpu",
            "hi --accuracy-level 9",
            "--raw --prompt-tokens 1",
            "hi there",
        ] {
            assert!(parse(line).is_err(), "{line:?} is accepted");
        }
        assert_eq!(
            parse("--prompt-tokens 1,2,3").unwrap().prompt_tokens.unwrap(),
            [1, 2, 3]
        );
    }
}
