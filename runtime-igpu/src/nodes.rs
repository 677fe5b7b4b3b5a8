//! The engine's part of an init graph: its lanes, nodes and edges, and the engine they end in.

use std::collections::BTreeMap;
use std::sync::Arc;

use onnx_model::{OperatorData, OperatorId, OperatorKind};
use scheduler::{InitError, InitGraph, InitMode, Lane, NodeId, NodeRef, Operator, Ready};

use crate::context::{Context, DeviceOperator};
use crate::engine::IgpuEngine;
use crate::error::{IgpuError, Kind, Result};
use crate::operator::{Kernels, OperatorSource, OperatorsOf, Shared};
use crate::options::UploadPath;
use crate::plan::IgpuPlan;

/// Threads that compile kernels.
const COMPILERS: usize = 2;

/// Threads that write the weights of a type that holds many into the device's memory, where that is their work.
const UPLOADERS: usize = 2;

/// The nodes that a plan added to a graph.
pub struct IgpuNodes {
    shared: Arc<Shared>,
    device: NodeRef<Arc<Context>>,
    operators: Vec<Operator<OperatorsOf>>,
    all: Vec<NodeId>,
}

impl IgpuPlan {
    /// Adds the engine's lanes and nodes to a graph; operators are read on the graph's host lane.
    pub fn add_to(&self, graph: &mut InitGraph) -> IgpuNodes {
        let folder = self.folder.clone();
        self.add(graph, |graph, lane, name, id| {
            graph.operator(
                lane,
                name,
                OperatorSource {
                    folder: folder.clone(),
                    id,
                },
            )
        })
    }

    /// As [`add_to`](Self::add_to), but operators are set up from what another engine's host nodes read, so that each is
    /// read once for both. Where kernels [read the mapping](Self::reads_mapping), the other engine's reading or setting up is
    /// expected to make weights resident: what it leaves out waits for the first token.
    pub fn add_sharing(
        &self,
        graph: &mut InitGraph,
        host: impl Fn(OperatorId) -> NodeRef<OperatorData>,
    ) -> IgpuNodes {
        self.add(graph, |graph, lane, name, id| {
            graph.operator_from(lane, name, host(id))
        })
    }

    fn add(
        &self,
        graph: &mut InitGraph,
        mut operator: impl FnMut(&mut InitGraph, &Lane<OperatorsOf>, String, OperatorId) -> Operator<OperatorsOf>,
    ) -> IgpuNodes {
        let shared = Arc::new(Shared::new(self.clone()));
        // Drivers compile in parallel.
        let kernels = Kernels {
            shared: Arc::clone(&shared),
        };
        let kernel_lane = graph.striped_lane(kernels, COMPILERS);
        let n_uploaders = match self.adapter.upload_path(&self.options) {
            UploadPath::Mapped => UPLOADERS,
            // There is nothing to copy, or one queue that copies.
            UploadPath::Imported | UploadPath::Staged => 1,
        };
        let mut lanes: BTreeMap<OperatorKind, Lane<OperatorsOf>> = BTreeMap::new();
        let opening = Arc::clone(&shared);
        let device = graph.node(&kernel_lane, "igpu.device", (), async move |_: &mut (), ()| {
            Ok(opening.open()?)
        });
        let specs = &self.program.kernels;
        let mut order: Vec<_> = (0..specs.len()).collect();
        // What is long to compile goes first, so that no compiler is left alone with it.
        order.sort_by_key(|&index| std::cmp::Reverse(specs[index].compose(false).len()));
        let kernels: Vec<Operator<Kernels>> = order
            .into_iter()
            .map(|index| {
                let kernel = graph.operator(&kernel_lane, specs[index].label(), index);
                graph.after(kernel, device);
                kernel
            })
            .collect();
        let mut operators: Vec<Operator<OperatorsOf>> = Vec::new();
        for program in &self.program.operators {
            let kind = program.kind;
            let lane = *lanes.entry(kind).or_insert_with(|| {
                let operators = OperatorsOf {
                    kind,
                    shared: Arc::clone(&shared),
                };
                match kind {
                    OperatorKind::Mlp | OperatorKind::MatMulNBits => {
                        graph.striped_lane(operators, n_uploaders)
                    }
                    _ => graph.lane(operators),
                }
            });
            let added = operator(graph, &lane, program.name.clone(), program.id);
            graph.after(added, device);
            operators.push(added);
        }
        let all = std::iter::once(device.id())
            .chain(kernels.into_iter().map(NodeId::from))
            .chain(operators.iter().map(|&operator| operator.into()))
            .collect();
        IgpuNodes {
            shared,
            device,
            operators,
            all,
        }
    }

    /// Sets the engine up by itself, in a graph of its own.
    ///
    /// # Errors
    ///
    /// Whatever keeps the device, a kernel or an operator from being set up, named.
    pub fn load(&self, mode: InitMode) -> Result<IgpuEngine> {
        let mut graph = InitGraph::new();
        let nodes = self.add_to(&mut graph);
        let run = graph.start(mode).map_err(|error| IgpuError::from_init(&error))?;
        let mut ready = run.ready().wait().map_err(|error| IgpuError::from_init(&error))?;
        nodes.finish(&mut ready)
    }
}

impl IgpuNodes {
    /// All the engine's device nodes, for the barrier it serves behind.
    pub fn barrier_nodes(&self) -> &[NodeId] {
        &self.all
    }

    /// The node that opens the device.
    pub fn device_node(&self) -> NodeId {
        self.device.id()
    }

    /// The first of the operators' host nodes.
    pub fn first_host_node(&self) -> Option<NodeId> {
        self.operators.first().map(|operator| operator.host().id())
    }

    /// The host node of an operator.
    pub fn host_node(&self, id: OperatorId) -> Option<NodeRef<OperatorData>> {
        self.operators.get(id.index()).map(|operator| operator.host())
    }

    /// Takes the engine out of a run whose barrier over [`barrier_nodes`](Self::barrier_nodes) has resolved.
    ///
    /// # Errors
    ///
    /// A node failed, was cancelled, or its value was taken before; or an operator cannot be bound to its kernels. Or the weight file has shrunk meanwhile: then what was uploaded
    /// is not the weights.
    pub fn finish(self, ready: &mut Ready) -> Result<IgpuEngine> {
        let folder = &self.shared.plan.folder;
        folder
            .check_weights()
            .map_err(|error| IgpuError::new(Kind::Model, error.to_string()).caused_by(error))?;
        let take = |error: InitError| IgpuError::from_init(&error);
        let operators = self
            .operators
            .into_iter()
            .map(|operator| ready.try_take(operator.device()).map_err(take))
            .collect::<Result<Vec<DeviceOperator>>>()?;
        IgpuEngine::new(Arc::clone(self.shared.context()?), operators, &self.shared.plan)
    }
}

impl IgpuError {
    /// The engine's own error inside a failed run, else the run's error in words.
    pub fn from_init(error: &InitError) -> Self {
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            if let Some(own) = inner.downcast_ref::<IgpuError>() {
                return own.clone();
            }
            source = inner.source();
        }
        IgpuError::new(Kind::Internal, error.to_string()).caused_by(error.clone())
    }
}
