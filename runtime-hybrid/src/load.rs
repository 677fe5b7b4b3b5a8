//! Loading: one graph over both engines, its barriers, and the threads that serve behind them.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use onnx_model::ModelFolder;
use scheduler::{InitGraph, InitMode, LaneProgress, ProgressStream, Run, RunOptions, Trace};

use crate::error::{Error, Result};
use crate::options::HybridOptions;
use crate::plan::{Barriers, Opened, Opening, Owners, Plan};
use crate::report::{self, LoadReport};
use crate::request::{Generation, Request};
use crate::sampler::Sampling;
use crate::serve::{Limits, Server};

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
    barriers: Barriers,
    owners: Owners,
    started: Instant,
    constructor: Duration,
    prefill: Arc<OnceLock<Opened>>,
    decode: Arc<OnceLock<Opened>>,
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
        let folder = ModelFolder::open(folder).map_err(Error::model)?;
        let plan = Plan::new(&folder, &options)?;
        let limits = limits(&folder, plan.context(&folder));
        let (sampling, notices) = (limits.sampling.clone(), plan.notices.clone());
        let mut graph = InitGraph::new();
        let added = plan.add_to(&mut graph, &folder)?;
        let (barriers, owners) = (added.barriers, added.owners());
        let record = RunOptions::new()
            .record()
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

        let (prefill, decode) = (
            Arc::<OnceLock<Opened>>::default(),
            Arc::<OnceLock<Opened>>::default(),
        );
        let (done, open) = channel();
        let server = added.serve(
            limits,
            Opening {
                barrier: run.barrier(barriers.prefill),
                opened: prefill.clone(),
                _done: done.clone(),
            },
            Opening {
                barrier: run.barrier(barriers.decode),
                opened: decode.clone(),
                _done: done,
            },
        )?;
        if options.init == InitMode::Inline {
            run.ready().wait().map_err(Error::init)?;
            // Nothing is ever sent: this ends when both sides have let go of their ends.
            open.iter().for_each(|()| ());
        }
        let constructor = started.elapsed();
        Ok(Self {
            server,
            run,
            barriers,
            owners,
            started,
            constructor,
            prefill,
            decode,
            sampling,
            notices,
        })
    }

    /// Takes a request. It waits for its engine and for the requests before it; whatever is wrong comes as the first
    /// item of the stream.
    pub fn generate(&self, request: Request) -> Generation {
        self.server.submit(request)
    }

    /// Resolves when what the prefill engine needs is ready.
    ///
    /// # Errors
    ///
    /// Initialisation failed or was cancelled.
    pub async fn prefill_ready(&self) -> Result<()> {
        self.run
            .barrier(self.barriers.prefill)
            .await
            .map(drop)
            .map_err(Error::init)
    }

    /// Resolves when what the decode engine needs is ready.
    ///
    /// # Errors
    ///
    /// Initialisation failed or was cancelled.
    pub async fn decode_ready(&self) -> Result<()> {
        self.run
            .barrier(self.barriers.decode)
            .await
            .map(drop)
            .map_err(Error::init)
    }

    /// Resolves when everything is ready.
    ///
    /// # Errors
    ///
    /// Initialisation failed or was cancelled.
    pub async fn ready(&self) -> Result<()> {
        self.run.ready().await.map(drop).map_err(Error::init)
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
        let (prefill, decode) = (self.prefill.get(), self.decode.get());
        let name = |side: Option<&Opened>| {
            side.map_or_else(|| "not ready".to_owned(), |opened| opened.engine.clone())
        };
        let placements = [prefill, decode]
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
