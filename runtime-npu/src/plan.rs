//! From a model folder to an engine: what is set up, in which lanes, and how it is put together.

use std::sync::Arc;

use onnx_model::{ModelFolder, OperatorData, OperatorId, OperatorKind};
use scheduler::{InitError, InitGraph, Lane, NodeId, NodeRef, Ready};

use crate::engine::NpuEngine;
use crate::error::{NpuError, Result};
use crate::joint::Sessions;
use crate::kernel::Kernel;
use crate::lane::{KernelSetup, OperatorSource, operator_of};
use crate::operator_type::NpuOperatorType;
use crate::options::NpuOptions;
use crate::program::Program;
use crate::provider;

/// A model that the prefill engine can run, checked, with nothing set up yet.
pub struct NpuPlan {
    folder: ModelFolder,
    setup: KernelSetup,
    program: Program,
}

impl NpuPlan {
    /// Checks the model. Opens nothing heavy: no weight is touched, no library loaded.
    ///
    /// # Errors
    /// The model has something that this engine cannot run; the message names the operator and the node.
    pub fn new(folder: &ModelFolder, options: NpuOptions) -> Result<Self> {
        let sessions = provider::sessions(options.provider);
        Self::with_sessions(folder, options, sessions)
    }

    pub(crate) fn with_sessions(
        folder: &ModelFolder,
        options: NpuOptions,
        sessions: Sessions,
    ) -> Result<Self> {
        let mut program = Program::new(folder, sessions)?;
        let joints = std::mem::take(&mut program.joints);
        Ok(Self {
            setup: KernelSetup::new(folder, options, joints),
            folder: folder.clone(),
            program,
        })
    }

    /// The same plan for a process in which somebody else reads the weights where the model file is mapped: pages of weights that the
    /// provider has packed stay mapped. Otherwise they go back to the page cache and no longer count as this process's memory.
    pub fn keep_mapped_pages(self) -> Self {
        Self {
            setup: self.setup.keep_mapped_pages(),
            ..self
        }
    }

    /// Adds one lane per operator type and every operator, in the order in which the host lane is to read. The types that hold most of the
    /// weights are striped over as many threads as a run uses, where the execution provider creates kernels in parallel.
    pub fn add_to(self, graph: &mut InitGraph) -> NpuSetup {
        let Self {
            folder,
            setup,
            program,
        } = self;
        let setup = Arc::new(setup);
        let lanes = Lanes::new(graph, &setup);
        let order = read_order(&folder, &program);
        let sources = order
            .iter()
            .zip(setup.host_bytes(&folder, &order))
            .map(|(&operator, host_bytes)| OperatorSource {
                folder: folder.clone(),
                operator,
                host_bytes,
            });
        let nodes = sources
            .map(|source| (source.operator, lanes.add(graph, source)))
            .collect();
        NpuSetup {
            folder,
            setup,
            program,
            nodes,
        }
    }
}

/// Topological, but for two kinds. Embedding tables come last: there is much of them to read and little to set up, and at the beginning
/// the other lanes would wait meanwhile. The head, which takes longer to set up than any other, comes half-way: at the end its lane would
/// be left alone with it.
fn read_order(folder: &ModelFolder, program: &Program) -> Vec<OperatorId> {
    let mut order: Vec<_> = program.operators().enumerate().collect();
    let half_way = order.len() / 2;
    for (place, id) in &mut order {
        match operator_of(folder, *id).kind {
            OperatorKind::LmHead => *place = half_way,
            OperatorKind::Embedding => *place = usize::MAX,
            _ => {}
        }
    }
    order.sort_by_key(|&(place, _)| place);
    order.into_iter().map(|(_, id)| id).collect()
}

/// A plan whose operators are in a graph.
pub struct NpuSetup {
    folder: ModelFolder,
    setup: Arc<KernelSetup>,
    program: Program,
    /// In the order of the host lane.
    nodes: Vec<(OperatorId, Nodes)>,
}

/// An operator in the graph.
#[derive(Clone, Copy)]
struct Nodes {
    host: NodeRef<OperatorData>,
    device: NodeRef<Option<Kernel>>,
}

impl NpuSetup {
    /// The node that reads an operator on the host lane, for another engine that needs the same data.
    pub fn host(&self, operator: OperatorId) -> Option<NodeRef<OperatorData>> {
        self.nodes_of(operator).map(|nodes| nodes.host)
    }

    fn nodes_of(&self, operator: OperatorId) -> Option<Nodes> {
        let found = self.nodes.iter().find(|(id, _)| *id == operator);
        found.map(|&(_, nodes)| nodes)
    }

    /// The device-setup nodes, in the order of the host lane: what the engine's barrier covers.
    pub fn device_nodes(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.nodes.iter().map(|(_, nodes)| nodes.device.id())
    }

    /// Puts the engine together from a settled barrier over [`NpuSetup::device_nodes`] or over everything.
    ///
    /// # Errors
    /// A kernel is not there: the barrier does not cover it, or it was taken. Or the weight file has shrunk meanwhile: then what the
    /// kernels were made of is not the weights.
    pub fn finish(self, ready: &mut Ready) -> Result<NpuEngine> {
        // One for each step: only the last of the operators that share a session has a kernel.
        let operators = self.program.operators();
        let taken: Result<Vec<Option<Kernel>>, InitError> = operators
            .filter_map(|operator| self.nodes_of(operator))
            .map(|nodes| ready.try_take(nodes.device))
            .collect();
        let taken = taken.map_err(|error| NpuError::initialization(Arc::new(error)))?;
        let kernels = taken.into_iter().flatten().collect();
        let Self {
            folder,
            setup,
            program,
            ..
        } = self;
        folder.check_weights()?;
        let (runtime, _) = setup.runtime()?.clone();
        let operators = folder.operators()?.to_vec();
        NpuEngine::new(
            program,
            kernels,
            operators,
            folder.geometry().clone(),
            setup.options.chunk_tokens,
            runtime,
        )
    }
}

/// One lane per operator type.
struct Lanes([Lane<NpuOperatorType>; LANES.len()]);

/// The types that are set up longest come first, so that their threads are started first.
const LANES: [OperatorKind; OperatorKind::ALL.len()] = [
    OperatorKind::LmHead,
    OperatorKind::Mlp,
    OperatorKind::MatMulNBits,
    OperatorKind::Embedding,
    OperatorKind::Norm,
    OperatorKind::GroupQueryAttention,
    OperatorKind::Glue,
];

impl Lanes {
    fn new(graph: &mut InitGraph, setup: &Arc<KernelSetup>) -> Self {
        Self(LANES.map(|kind| {
            let operator_type = NpuOperatorType::new(kind, setup.clone());
            match kind {
                OperatorKind::Mlp | OperatorKind::MatMulNBits => {
                    graph.striped_lane(operator_type, setup.n_stripes())
                }
                _ => graph.lane(operator_type),
            }
        }))
    }

    fn of(&self, kind: OperatorKind) -> &Lane<NpuOperatorType> {
        let index = LANES.iter().position(|&of| of == kind);
        &self.0[index.expect("every kind has a lane")]
    }

    fn add(&self, graph: &mut InitGraph, source: OperatorSource) -> Nodes {
        let operator = operator_of(&source.folder, source.operator);
        let (kind, name) = (operator.kind, operator.name.clone());
        let operator = graph.operator(self.of(kind), name, source);
        Nodes {
            host: operator.host(),
            device: operator.device(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::path::Path;

    use scheduler::{EventKind, InitMode, RunOptions};

    use super::*;
    use crate::library::LibrarySearch;
    use crate::options::{Prefault, Provider};

    fn folder(name: &str) -> ModelFolder {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
        ModelFolder::open(models.join(name)).unwrap()
    }

    /// What reads are charged, by operator, in the order in which a run's host lane made them.
    fn staged(folder: &ModelFolder, sessions: Sessions, prefault: Prefault) -> Vec<(String, u64)> {
        let library = examples::setup::library(&()).expect("the ONNX Runtime library");
        let library = library.candidates().unwrap().remove(0);
        let mut options = NpuOptions::new(LibrarySearch::exactly(library));
        options.provider = Provider::Cpu;
        options.prefault = prefault;
        let plan = NpuPlan::with_sessions(folder, options, sessions).unwrap();
        let mut graph = InitGraph::new();
        plan.add_to(&mut graph);
        let options = RunOptions::new().record().staging_budget_bytes(u64::MAX);
        let run = graph.start_with(InitMode::Serial, options).unwrap();
        run.ready().wait().unwrap();
        let trace = run.trace();
        let staged = trace.events().iter().filter_map(|event| match event.kind {
            EventKind::BytesStaged(node, bytes) => Some((trace.node(node).name.to_string(), bytes)),
            _ => None,
        });
        staged.collect()
    }

    /// By the last one's name, the operators that are read together.
    fn read_together(folder: &ModelFolder, sessions: Sessions) -> HashMap<&str, Vec<OperatorId>> {
        let steps = Program::new(folder, sessions).unwrap().steps;
        let named = steps.into_iter().map(|step| {
            let last = *step.operators.last().unwrap();
            (operator_of(folder, last).name.as_str(), step.operators)
        });
        named.collect()
    }

    #[test]
    fn a_read_is_charged_what_no_read_before_it_made_resident() {
        for name in ["qwen3-tiny-int4", "qwen3-tiny-int4-asym", "phi3-tiny-int4"] {
            let folder = folder(name);
            let weight_bytes = folder.operators().unwrap().iter().map(|o| o.weight_bytes);
            let all: u64 = weight_bytes.sum();
            for sessions in [Sessions::Shared, Sessions::Apart] {
                let together = read_together(&folder, sessions);
                let staged = staged(&folder, sessions, Prefault::On);
                let mut resident = HashSet::new();
                for (operator, bytes) in &staged {
                    let mut new_bytes = 0;
                    for &id in &together[operator.as_str()] {
                        let data = folder.read(operator_of(&folder, id)).unwrap();
                        for (name, tensor) in data.tensors() {
                            if resident.insert(name.clone()) {
                                new_bytes += tensor.bytes.len() as u64;
                            }
                        }
                    }
                    assert_eq!(*bytes, new_bytes, "{name}, {sessions:?}: {operator}");
                }
                let sum: u64 = staged.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(sum, all, "{name}, {sessions:?}");
            }
        }
    }

    /// Embeddings are read last: where the head shares their table, it has made that resident.
    #[test]
    fn a_tied_table_is_charged_to_the_head() {
        for (name, is_tied) in [("qwen3-tiny-int4", true), ("qwen3-tiny-int4-asym", false)] {
            let folder = folder(name);
            let operators = folder.operators().unwrap();
            let read = |kind| {
                let operator = operators.iter().find(|operator| operator.kind == kind);
                folder.read(operator.unwrap()).unwrap()
            };
            let (embedding, head) = (read(OperatorKind::Embedding), read(OperatorKind::LmHead));
            let bytes = |is_counted: &dyn Fn(&str) -> bool| -> u64 {
                let counted = embedding.tensors().iter().filter(|(name, _)| is_counted(name));
                counted.map(|(_, tensor)| tensor.bytes.len() as u64).sum()
            };
            let is_shared = |name: &str| head.tensor(name).is_some();
            let (table, own) = (bytes(&is_shared), bytes(&|name| !is_shared(name)));
            assert_eq!(
                (table > 100_000, own < 100),
                (is_tied, is_tied),
                "{name}: {table} {own}"
            );

            let staged = staged(&folder, Sessions::Shared, Prefault::On);
            assert_eq!(
                staged.last().unwrap(),
                &("embed_tokens".to_string(), own),
                "{name}"
            );
            let charged = staged.iter().find(|(operator, _)| operator == "lm_head");
            assert!(charged.unwrap().1 > table, "{name}: {charged:?} of {table}");
        }
    }

    #[test]
    fn without_prefaulting_nothing_waits() {
        let staged = staged(&folder("qwen3-tiny-int4"), Sessions::Shared, Prefault::Off);
        assert_eq!(staged, []);
    }
}
