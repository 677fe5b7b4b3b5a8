//! Which engines a model gets, and the graph that sets them up.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use onnx_model::ModelFolder;
use runtime_igpu::{IgpuNodes, IgpuPlan};
use runtime_npu::{NpuEngine, NpuPlan, NpuSetup};
use scheduler::{Barrier, BarrierId, InitGraph, NodeId, Operator, Ready};

use crate::engines::{CacheUse, IgpuDecode, NpuDecode, NpuPrefill};
use crate::error::{Error, Result};
use crate::options::{Engines, HybridOptions};
use crate::report::{Engine, Placement};
use crate::serve::{Limits, Server, Sides, Text};
use crate::text_lane::TextLoad;

/// What loads a model: both engines' plans over one graph.
///
/// ```text
/// host lane   read q_proj, read k_proj, ..          one read per operator, shared by both engines
///                 |  \
/// NPU lanes     setup  \  ..              -> prefill-ready (with tokenizer and template)
/// iGPU lanes           setup ..           -> decode-ready
/// ```
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
    shares_the_cpu: bool,
    operators: Vec<String>,
    n_layers: usize,
}

/// The barriers of the graph. The one over everything is the run's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barriers {
    pub(crate) prefill: BarrierId,
    pub(crate) decode: BarrierId,
}

impl Plan {
    /// Chooses the engines. Opens no device and touches no weight.
    pub(crate) fn new(folder: &ModelFolder, options: &HybridOptions) -> Result<Self> {
        let npu = NpuPlan::new(folder, options.npu.clone()).map_err(|e| Error::unsupported("NPU", e))?;
        let mut notices = Vec::new();
        let igpu = match options.engines {
            Engines::NpuOnly => None,
            Engines::Hybrid => {
                Some(IgpuPlan::new(folder, options.igpu.clone()).map_err(|e| Error::unsupported("iGPU", e))?)
            }
            Engines::Auto => match IgpuPlan::new(folder, options.igpu.clone()) {
                Ok(plan) => Some(plan),
                Err(error) => {
                    notices.push(one_line(&format!("decoding on the NPU engine: {error}")));
                    None
                }
            },
        };
        if let Some(notice) = igpu.as_ref().and_then(|plan| plan.adapter().notice()) {
            notices.push(one_line(&notice));
        }
        Ok(Self { npu, igpu, notices })
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
        let igpu = match self.igpu {
            None => None,
            Some(plan) => {
                let shared = |id| npu.host(id).expect("the NPU engine's plan covers every operator");
                Some(Igpu {
                    nodes: plan.add_sharing(graph, shared),
                    adapter: plan.adapter().description(),
                    shares_the_cpu: plan.adapter().is_cpu(),
                    n_layers: folder.geometry().layers,
                    operators: folder
                        .operators()
                        .map_err(Error::model)?
                        .iter()
                        .map(|o| o.name.clone())
                        .collect(),
                })
            }
        };
        if let Some(igpu) = igpu.as_ref().filter(|igpu| igpu.shares_the_cpu) {
            // Where an adapter is the CPU itself both engines want the same cores, so that what the decode engine does early
            // only makes prefill late. The device comes before everything else of its engine.
            for node in npu.device_nodes() {
                graph.after(igpu.nodes.device_node(), node);
            }
        }
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

/// One side's wait: its barrier, and where it notes that it serves.
pub(crate) struct Opening {
    pub(crate) barrier: Barrier,
    pub(crate) opened: Arc<OnceLock<Opened>>,
    /// Its end of a channel, let go of when the side serves or cannot.
    pub(crate) _done: Sender<()>,
}

/// An engine that has come to serve.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) at: Instant,
    pub(crate) engine: String,
    pub(crate) placements: Vec<Placement>,
}

impl Opening {
    fn wait(&self) -> Result<Ready> {
        self.barrier.wait().map_err(Error::init)
    }

    fn note(self, engine: String, placements: Vec<Placement>) {
        // Each side opens once.
        let _ = self.opened.set(Opened {
            at: Instant::now(),
            engine,
            placements,
        });
    }
}

impl Added {
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

    /// Starts the threads that serve. Each waits for its barrier, puts its engine together and takes requests.
    pub(crate) fn serve(self, limits: Limits, prefill: Opening, decode: Opening) -> Result<Server> {
        let Self { npu, igpu, text, .. } = self;
        match igpu {
            Some(igpu) => {
                let open_prefill = move || {
                    let mut ready = prefill.wait()?;
                    let (engine, text) = open_npu(npu, text, &mut ready)?;
                    prefill.note(npu_name(&engine), npu_placements(&engine));
                    Ok((
                        NpuPrefill {
                            engine,
                            cache: CacheUse::HandOver,
                        },
                        text,
                    ))
                };
                let open_decode = move || {
                    let mut ready = decode.wait()?;
                    let engine = igpu
                        .nodes
                        .finish(&mut ready)
                        .map_err(|e| Error::engine("iGPU", e))?;
                    let place = |operator| Placement {
                        operator,
                        engine: Engine::Igpu,
                        device: igpu.adapter.clone(),
                    };
                    decode.note(
                        format!("iGPU engine on {}", igpu.adapter),
                        igpu.operators.into_iter().map(place).collect(),
                    );
                    Ok(IgpuDecode {
                        engine,
                        n_layers: igpu.n_layers,
                    })
                };
                Server::start(
                    limits,
                    Sides::Split(Box::new(open_prefill), Box::new(open_decode)),
                )
            }
            None => {
                let open = move || {
                    let mut ready = prefill.wait()?;
                    let (engine, text) = open_npu(npu, text, &mut ready)?;
                    prefill.note(npu_name(&engine), npu_placements(&engine));
                    decode.note(npu_name(&engine), Vec::new());
                    let decode = NpuDecode {
                        engine: engine.clone(),
                        cache: None,
                    };
                    Ok((
                        NpuPrefill {
                            engine,
                            cache: CacheUse::Decoding,
                        },
                        decode,
                        text,
                    ))
                };
                Server::start(limits, Sides::Single(Box::new(open)))
            }
        }
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

fn open_npu(
    setup: NpuSetup,
    text: Operator<TextLoad>,
    ready: &mut Ready,
) -> Result<(Arc<NpuEngine>, Arc<Text>)> {
    let text = ready.try_take(text).map_err(Error::init)?;
    let engine = setup.finish(ready).map_err(|e| Error::engine("NPU", e))?;
    Ok((Arc::new(engine), text))
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
