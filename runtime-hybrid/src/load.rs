//! Loading: one graph over both engines, its barriers, and the threads that serve behind them.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use onnx_model::ModelFolder;
use scheduler::{InitGraph, InitMode, LaneProgress, ProgressStream, Run, RunOptions, Trace};

use crate::error::{Error, Result};
use crate::options::{Engines, HybridOptions};
use crate::plan::{Owners, Plan};
use crate::report::{self, LoadReport};
use crate::request::{Generation, Request};
use crate::sampler::Sampling;
use crate::serve::{Limits, Server};
use crate::side::{Opened, Side};
use crate::staging;

/// How long a node may be silent before a warning names it. It goes on: a real NPU compiler may take its time.
const STALL: Duration = Duration::from_secs(20);

/// A model that is being loaded or is loaded, and the requests it serves.
///
/// # Cancel safety
///
/// Dropping it cancels initialisation if that is not through, ends every request with an error, and joins every thread
/// it has started.
pub struct HybridRuntime {
    // The threads that serve wait for barriers of the run, so `drop` cancels the run first.
    server: Server,
    run: Run,
    owners: Owners,
    started: Instant,
    constructor: Duration,
    prefill: Side,
    /// Without it the prefill engine decodes.
    decode: Option<Side>,
    staging_budget_bytes: u64,
    decode_weight_bytes: Option<u64>,
    sampling: Sampling,
    notices: Vec<String>,
}

impl HybridRuntime {
    /// Loads a model folder.
    ///
    /// In the deferred modes it returns when the graph has been started; requests wait behind their engine's barrier. In
    /// inline mode it returns when everything is ready.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, the model has something the NPU engine cannot run, or, where the options insist on it,
    /// something the iGPU engine lacks. In inline mode also the error of initialisation itself.
    pub fn load(folder: impl AsRef<Path>, options: HybridOptions) -> Result<Self> {
        let started = Instant::now();
        let (folder, plan) = Plan::new(folder.as_ref(), &options)?;
        let limits = limits(&folder, plan.context(&folder));
        let (sampling, notices) = (limits.sampling.clone(), plan.notices.clone());
        let mut graph = InitGraph::new();
        let added = plan.add_to(&mut graph, &folder)?;
        let (barriers, owners) = (added.barriers, added.owners());
        let decode_weight_bytes = added.decode_weight_bytes();
        let staging_budget_bytes = options.staging.resolve(&folder, options.init)?;
        let record = RunOptions::new()
            .record()
            .staging_budget_bytes(staging_budget_bytes)
            .thread_prefix("hostlane")
            .stall_notice(STALL, |stall| {
                tracing::warn!(
                    node = stall.node(),
                    lane = stall.lane(),
                    phase = %stall.phase(),
                    running_s = stall.running_for().as_secs(),
                    "still being initialised"
                );
            });
        let run = graph.start_with(options.init, record).map_err(Error::init)?;

        let (prefill, open_prefill) = Side::new(run.barrier(barriers.prefill));
        let (decode, open_decode) = decode_weight_bytes
            .map(|_| Side::new(run.barrier(barriers.decode)))
            .unzip();
        let server = added.serve(limits, open_prefill, open_decode)?;
        if options.init == InitMode::Inline {
            block_on(all_ready(&run, &prefill, decode.as_ref()))?;
        }
        let constructor = started.elapsed();
        Ok(Self {
            server,
            run,
            owners,
            started,
            constructor,
            prefill,
            decode,
            staging_budget_bytes,
            decode_weight_bytes,
            sampling,
            notices,
        })
    }

    /// Takes a request. It waits for its engine and for the requests before it; whatever is wrong comes as the first
    /// item of the stream.
    pub fn generate(&self, request: Request) -> Generation {
        self.server.submit(request)
    }

    /// Resolves when the prefill engine serves.
    ///
    /// # Errors
    ///
    /// Initialisation failed or was cancelled.
    pub async fn prefill_ready(&self) -> Result<()> {
        self.prefill.ready().await
    }

    /// Resolves when the decode engine serves.
    ///
    /// # Errors
    ///
    /// Initialisation failed or was cancelled.
    pub async fn decode_ready(&self) -> Result<()> {
        self.decode_side().ready().await
    }

    /// Resolves when every node is done and every engine serves.
    ///
    /// # Errors
    ///
    /// Initialisation failed or was cancelled.
    pub async fn ready(&self) -> Result<()> {
        all_ready(&self.run, &self.prefill, self.decode.as_ref()).await
    }

    fn decode_side(&self) -> &Side {
        self.decode.as_ref().unwrap_or(&self.prefill)
    }

    /// Which engines serve: [`Engines::Hybrid`] or [`Engines::NpuOnly`].
    pub fn engines(&self) -> Engines {
        match self.decode {
            Some(_) => Engines::Hybrid,
            None => Engines::NpuOnly,
        }
    }

    /// Cancels initialisation, unless it is through, and every request. Returns at once.
    pub fn cancel(&self) {
        self.run.cancel();
        self.server.close();
    }

    /// How far initialisation is, as it comes along.
    pub fn progress(&self) -> ProgressStream {
        self.run.progress()
    }

    /// How far each lane of initialisation is, now; the host lane is the first.
    pub fn lane_progress(&self) -> Vec<LaneProgress> {
        self.run.lane_progress()
    }

    /// How a request without a sampling of its own is sampled: as the model's `genai_config.json` says.
    pub fn default_sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// What loading took so far, and what runs where.
    pub fn report(&self) -> LoadReport {
        let since = |at: Instant| at.duration_since(self.started);
        let (prefill, decode) = (self.prefill.opened(), self.decode_side().opened());
        let name = |side: Option<&Opened>| {
            side.map_or_else(|| "not ready".to_owned(), |opened| opened.engine.clone())
        };
        let placements = [prefill, self.decode.as_ref().and_then(Side::opened)]
            .into_iter()
            .flatten()
            .flat_map(|opened| opened.placements.clone());
        // A settled run closes its lanes at once; its record waits for that.
        let trace = self
            .run
            .ready()
            .is_settled()
            .then(|| Trace::new(self.run.record()));
        let ready = prefill
            .zip(decode)
            .map(|(prefill, decode)| since(prefill.at.max(decode.at)));
        LoadReport {
            mode: self.run.mode(),
            engines: self.engines(),
            constructor: self.constructor,
            prefill_ready: prefill.map(|opened| since(opened.at)),
            decode_ready: decode.map(|opened| since(opened.at)),
            ready,
            first_token: self.server.first_token().map(since),
            prefill_engine: name(prefill),
            decode_engine: name(decode),
            notices: self.notices.clone(),
            operator_types: trace
                .as_ref()
                .map(|trace| report::type_costs(trace, |node| self.owners.of(node)))
                .unwrap_or_default(),
            placements: placements.collect(),
            peak_memory_bytes: report::peak_memory_bytes(),
            decode_weight_bytes: self.decode_weight_bytes,
            staging_budget_bytes: Some(self.staging_budget_bytes).filter(|bytes| *bytes != u64::MAX),
            staged_peak_bytes: trace.as_ref().map(staging::peak_bytes),
            staged_largest_bytes: trace.as_ref().map(staging::largest_bytes),
            trace,
        }
    }
}

impl Drop for HybridRuntime {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl std::fmt::Debug for HybridRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HybridRuntime")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

async fn all_ready(run: &Run, prefill: &Side, decode: Option<&Side>) -> Result<()> {
    run.ready().await.map(drop).map_err(Error::init)?;
    prefill.ready().await?;
    match decode {
        Some(decode) => decode.ready().await,
        None => Ok(()),
    }
}

/// What the model's configuration allows and defaults to.
fn limits(folder: &ModelFolder, context: usize) -> Limits {
    let (geometry, search) = (folder.geometry(), &folder.config().search);
    let size = |value: Option<u64>, default: usize| {
        value.map_or(default, |v| usize::try_from(v).unwrap_or(usize::MAX))
    };
    let float = |value: Option<f64>| value.unwrap_or(1.0) as f32;
    Limits {
        context,
        max_length: size(search.max_length, context),
        vocabulary: geometry.vocab,
        end_of_sequence: geometry.eos.clone(),
        sampling: Sampling {
            temperature: if search.do_sample == Some(true) {
                float(search.temperature)
            } else {
                0.0
            },
            top_k: size(search.top_k, 0),
            top_p: float(search.top_p),
            repetition_penalty: float(search.repetition_penalty),
            seed: None,
        },
    }
}
