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
    setup: Arc<KernelSetup>,
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

    /// Adds one lane per operator type and every operator in topological order. The types that hold most of the weights are
    /// striped over as many threads as a run uses, where the execution provider creates kernels in parallel.
    pub fn add_to(self, graph: &mut InitGraph) -> NpuSetup {
        let lanes = Lanes::new(graph, &self.setup);
        let mut nodes = Vec::new();
        for &operator in self.program.steps.iter().flat_map(|step| &step.operators) {
            let source = OperatorSource {
                folder: self.folder.clone(),
                operator,
            };
            nodes.push((operator, lanes.add(graph, source)));
        }
        NpuSetup { plan: self, nodes }
    }
}

/// A plan whose operators are in a graph.
pub struct NpuSetup {
    plan: NpuPlan,
    /// In topological order.
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
        let nodes = self.nodes.iter().find(|(id, _)| *id == operator);
        nodes.map(|(_, nodes)| nodes.host)
    }

    /// The device-setup nodes, in the order of the operators: what the engine's barrier covers.
    pub fn device_nodes(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.nodes.iter().map(|(_, nodes)| nodes.device.id())
    }

    /// Puts the engine together from a settled barrier over [`NpuSetup::device_nodes`] or over everything.
    ///
    /// # Errors
    /// A kernel is not there: the barrier does not cover it, or it was taken. Or the weight file has shrunk meanwhile: then what the
    /// kernels were made of is not the weights.
    pub fn finish(self, ready: &mut Ready) -> Result<NpuEngine> {
        let NpuSetup {
            plan:
                NpuPlan {
                    folder,
                    setup,
                    program,
                },
            nodes,
        } = self;
        // One for each step: operators that share a session come together, and only the last of them has a kernel.
        let taken: Result<Vec<Option<Kernel>>, InitError> = nodes
            .iter()
            .map(|(_, nodes)| ready.try_take(nodes.device))
            .collect();
        let taken = taken.map_err(|error| NpuError::initialization(Arc::new(error)))?;
        let kernels = taken.into_iter().flatten().collect();
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
