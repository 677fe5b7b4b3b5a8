//! From a model folder to an engine: what is set up, in which lanes, and how it is put together.

use std::sync::Arc;

use onnx_model::{ModelFolder, OperatorData, OperatorId, OperatorKind};
use scheduler::{InitError, InitGraph, Lane, NodeId, NodeRef, Ready};

use crate::engine::NpuEngine;
use crate::error::{NpuError, Result};
use crate::joint::Sessions;
use crate::kernel::Kernel;
use crate::lane::{KernelSetup, OperatorSource};
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

    /// Adds one lane per operator type and every operator, in topological order but for embedding tables, which come last: there is
    /// much of them to read and little to set up, and the other lanes would wait meanwhile. The types that hold most of the weights are
    /// striped over as many threads as a run uses, where the execution provider creates kernels in parallel.
    pub fn add_to(self, graph: &mut InitGraph) -> NpuSetup {
        let Self {
            folder,
            setup,
            program,
        } = self;
        let setup = Arc::new(setup);
        let lanes = Lanes::new(graph, &setup);
        let sources = program.operators().map(|operator| OperatorSource {
            folder: folder.clone(),
            operator,
        });
        let (tables, others): (Vec<_>, Vec<_>) =
            sources.partition(|source| source.kind_and_name().0 == OperatorKind::Embedding);
        let nodes = others
            .into_iter()
            .chain(tables)
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

/// The head is one operator with a lane of its own: it starts with the first of the others, not after the last.
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
        let (kind, name) = source.kind_and_name();
        let operator = graph.operator(self.of(kind), name, source);
        Nodes {
            host: operator.host(),
            device: operator.device(),
        }
    }
}
