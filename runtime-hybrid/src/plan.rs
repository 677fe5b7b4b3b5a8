//! Which engines a model gets, and the graph that sets them up.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuAdapter, IgpuNodes, IgpuPlan};
use runtime_npu::{NpuEngine, NpuPlan, NpuSetup, OnnxRuntime};
use scheduler::{BarrierId, InitGraph, InitMode, NodeId, Operator, Ready};

use crate::engines::{CacheUse, IgpuDecode, NpuDecode, NpuPrefill};
use crate::error::{Error, Result};
use crate::options::{Engines, HybridOptions};
use crate::report::{Engine, Placement};
use crate::serve::{Limits, Server, Sides};
use crate::side::{Opened, Opening};
use crate::text_lane::TextLoad;

/// What loads a model: both engines' plans over one graph.
///
/// ```text
/// host lane   read q_proj, read k_proj, ..          one read per operator, shared by both engines
///                 |  \
/// NPU lanes     setup  \  ..              -> prefill-ready (with tokenizer and template)
/// iGPU lanes           setup ..           -> decode-ready
/// ```
///
/// Where the adapter is the CPU itself both engines want the same cores, so that what the decode engine does early only makes
/// prefill late. Then the iGPU engine begins when the NPU engine is nearly ready, and reads for itself: a read that waited for both would
/// keep the staging budget used up. Where its kernels read the mapped file in place, the NPU engine leaves the pages mapped.
pub(crate) struct Plan {
    npu: NpuPlan,
    /// Without it the NPU engine decodes too.
    igpu: Option<IgpuPlan>,
    /// A line each on what a user should know.
    pub(crate) notices: Vec<String>,
}

/// A plan whose operators are in a graph.
pub(crate) struct Added {
    npu: NpuSetup,
    igpu: Option<Igpu>,
    text: Operator<TextLoad>,
    pub(crate) barriers: Barriers,
}

/// The decode engine's part.
struct Igpu {
    nodes: IgpuNodes,
    adapter: String,
    weight_bytes: u64,
    operators: Vec<String>,
    n_layers: usize,
}

/// The part of the NPU engine's operators, the last of them, beside which an iGPU engine on the same cores begins: the NPU engine's lanes
/// do not end together, and the cores that they leave would idle.
const TAIL: usize = 8;

/// Adds the decode engine's nodes, the device before everything else of its engine.
fn add_igpu(plan: &IgpuPlan, graph: &mut InitGraph, npu: &NpuSetup) -> IgpuNodes {
    if !plan.adapter().is_cpu() {
        let shared = |id| npu.host(id).expect("the NPU engine's plan covers every operator");
        return plan.add_sharing(graph, shared);
    }
    let nodes = plan.add_to(graph);
    let device = nodes.device_node();
    let before = npu.device_nodes();
    let n_first = before.len() - before.len() / TAIL;
    for node in before.take(n_first) {
        graph.after(device, node);
    }
    // The host lane keeps its order, so the first read holds the others back.
    if let Some(first) = nodes.first_host_node() {
        graph.after(first, device);
    }
    nodes
}

/// The barriers of the graph. The one over everything is the run's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barriers {
    pub(crate) prefill: BarrierId,
    pub(crate) decode: BarrierId,
}

impl Plan {
    /// Opens the folder and chooses the engines. Opens no device and touches no weight, but loads the graphics drivers.
    pub(crate) fn new(dir: &Path, options: &HybridOptions) -> Result<(ModelFolder, Self)> {
        let model = || -> Result<(ModelFolder, NpuPlan)> {
            let folder = ModelFolder::open(dir).map_err(Error::model)?;
            let npu = NpuPlan::new(&folder, options.npu.clone()).map_err(|e| Error::unsupported("NPU", e))?;
            Ok((folder, npu))
        };
        let adapter = || IgpuAdapter::find(&options.igpu);
        let (model, adapter) = match (options.engines, options.init) {
            (Engines::NpuOnly, _) => (model()?, None),
            (_, InitMode::Inline) => (model()?, Some(adapter())),
            _ => thread::scope(|scope| -> Result<_> {
                // Loading the graphics drivers takes longer than all else here.
                let adapter = scope.spawn(adapter);
                let model = model()?;
                // If it cannot be loaded, the lane that needs it says so.
                let _ = OnnxRuntime::load(&options.npu.library, options.npu.n_threads);
                let adapter = adapter.join().unwrap_or_else(|panic| resume_unwind(panic));
                Ok((model, Some(adapter)))
            })?,
        };
        let (folder, npu) = model;
        let igpu = adapter
            .map(|adapter| IgpuPlan::on_adapter(&folder, adapter?, options.igpu.clone()))
            .transpose();
        let mut plan = Self {
            npu,
            igpu: None,
            notices: Vec::new(),
        };
        match (igpu, options.engines) {
            (Ok(igpu), _) => plan.igpu = igpu,
            (Err(error), Engines::Auto) => {
                plan.notices
                    .push(one_line(&format!("decoding on the NPU engine: {error}")));
            }
            (Err(error), _) => return Err(Error::unsupported("iGPU", error)),
        }
        if let Some(notice) = plan.igpu.as_ref().and_then(|igpu| igpu.adapter().notice()) {
            plan.notices.push(one_line(&notice));
        }
        if plan.igpu.as_ref().is_some_and(IgpuPlan::reads_mapping) {
            plan.npu = plan.npu.keep_mapped_pages();
            plan.igpu = plan.igpu.map(IgpuPlan::without_prefault);
        }
        Ok((folder, plan))
    }

    /// The longest sequence that the engines can hold.
    pub(crate) fn context(&self, folder: &ModelFolder) -> usize {
        let model = folder.geometry().context_length;
        self.igpu
            .as_ref()
            .map_or(model, |plan| plan.context_length().min(model))
    }

    /// Adds lanes, operators and barriers. The NPU's lanes and the text come first: prefill is what a request waits for.
    pub(crate) fn add_to(self, graph: &mut InitGraph, folder: &ModelFolder) -> Result<Added> {
        let text_lane = graph.lane(TextLoad);
        let text = graph.operator(&text_lane, "text", folder.dir().to_owned());
        let npu = self.npu.add_to(graph);
        let igpu = match &self.igpu {
            None => None,
            Some(plan) => Some(Igpu {
                nodes: add_igpu(plan, graph, &npu),
                adapter: plan.adapter().description(),
                weight_bytes: plan.weight_bytes(),
                n_layers: folder.geometry().layers,
                operators: folder
                    .operators()
                    .map_err(Error::model)?
                    .iter()
                    .map(|o| o.name.clone())
                    .collect(),
            }),
        };
        let prefill = graph.barrier("prefill-ready", npu.device_nodes().chain([text.device().id()]));
        let decode = match &igpu {
            Some(igpu) => graph.barrier("decode-ready", igpu.nodes.barrier_nodes().iter().copied()),
            None => graph.barrier("decode-ready", npu.device_nodes()),
        };
        Ok(Added {
            npu,
            igpu,
            text,
            barriers: Barriers { prefill, decode },
        })
    }
}

impl Added {
    /// Bytes of weights that the decode engine keeps for itself, if there is one.
    pub(crate) fn decode_weight_bytes(&self) -> Option<u64> {
        self.igpu.as_ref().map(|igpu| igpu.weight_bytes)
    }

    /// Whose each node is.
    pub(crate) fn owners(&self) -> Owners {
        let igpu = self
            .igpu
            .iter()
            .flat_map(|igpu| igpu.nodes.barrier_nodes().iter().copied());
        Owners {
            igpu: igpu.collect(),
            text: [self.text.host().id(), self.text.device().id()],
        }
    }

    /// Starts the threads that serve. Each waits for its barrier, puts its engine together and takes requests. There is a
    /// decode side where a second engine decodes.
    pub(crate) fn serve(self, limits: Limits, prefill: Opening, decode: Option<Opening>) -> Result<Server> {
        let Self { npu, igpu, text, .. } = self;
        let open_npu = move |ready: &mut Ready| {
            let text = ready.try_take(text).map_err(Error::init)?;
            let engine = npu.finish(ready).map_err(|e| Error::engine("NPU", e))?;
            let opened = Opened::now(npu_name(&engine), npu_placements(&engine));
            Ok(((Arc::new(engine), text), opened))
        };
        let Some((igpu, decode)) = igpu.zip(decode) else {
            let open = move || {
                let (engine, text) = prefill.open(open_npu)?;
                let decode = NpuDecode {
                    engine: engine.clone(),
                    cache: None,
                };
                let cache = CacheUse::Decoding;
                Ok((NpuPrefill { engine, cache }, decode, text))
            };
            return Server::start(limits, Sides::Single(Box::new(open)));
        };
        let open_prefill = move || {
            let (engine, text) = prefill.open(open_npu)?;
            let cache = CacheUse::HandOver;
            Ok((NpuPrefill { engine, cache }, text))
        };
        let open_decode = move || decode.open(|ready| igpu.open(ready));
        Server::start(
            limits,
            Sides::Split(Box::new(open_prefill), Box::new(open_decode)),
        )
    }
}

impl Igpu {
    fn open(self, ready: &mut Ready) -> Result<(IgpuDecode, Opened)> {
        let engine = self.nodes.finish(ready).map_err(|e| Error::engine("iGPU", e))?;
        let place = |operator| Placement {
            operator,
            engine: Engine::Igpu,
            device: self.adapter.clone(),
        };
        let placements = self.operators.into_iter().map(place).collect();
        let opened = Opened::now(format!("iGPU engine on {}", self.adapter), placements);
        let n_layers = self.n_layers;
        Ok((IgpuDecode { engine, n_layers }, opened))
    }
}

/// Whose a node is.
#[derive(Debug)]
pub(crate) struct Owners {
    igpu: HashSet<NodeId>,
    text: [NodeId; 2],
}

impl Owners {
    /// The NPU engine's, if not another's: it adds the host reads that both share.
    pub(crate) fn of(&self, node: NodeId) -> Engine {
        if self.igpu.contains(&node) {
            Engine::Igpu
        } else if self.text.contains(&node) {
            Engine::Text
        } else {
            Engine::Npu
        }
    }
}

/// The engine with the execution providers that it really uses, the most used first.
fn npu_name(engine: &NpuEngine) -> String {
    let mut providers: Vec<(&str, usize)> = Vec::new();
    for (_, provider, _) in engine.placements() {
        match providers.iter_mut().find(|(known, _)| *known == provider) {
            Some((_, n)) => *n += 1,
            None => providers.push((provider, 1)),
        }
    }
    providers.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let names: Vec<&str> = providers.iter().map(|(name, _)| *name).collect();
    format!("NPU engine on {}", names.join(" and "))
}

fn npu_placements(engine: &NpuEngine) -> Vec<Placement> {
    let placed = engine.placements().map(|(operator, provider, _)| Placement {
        operator: operator.name.clone(),
        engine: Engine::Npu,
        device: provider.to_owned(),
    });
    placed.collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
