//! What the operator types have in common: reading on the host lane, creating kernels on their own.

use std::path::PathBuf;
use std::sync::OnceLock;

use onnx_model::write::{AttributeOverride, SubmodelOptions};
use onnx_model::{ModelFolder, NodeId, Operator, OperatorData, OperatorId};

use crate::error::{NpuError, Result};
use crate::form::{self, GraphForm};
use crate::joint::{Joint, Joints};
use crate::kernel::Kernel;
use crate::options::{NpuOptions, Prefault, Provider};
use crate::provider::ResolvedProvider;
use crate::runtime::OnnxRuntime;
use crate::shapes::WarmShapes;

/// What the host lane reads an operator from.
#[derive(Clone, Debug)]
pub struct OperatorSource {
    /// The model.
    pub folder: ModelFolder,
    /// Which of its operators.
    pub operator: OperatorId,
    /// Bytes that reading it makes resident, which then wait for device setup.
    pub host_bytes: u64,
}

/// # Panics
/// If the folder has no such operator: a plan's operators are those of its folder.
pub(crate) fn operator_of(folder: &ModelFolder, id: OperatorId) -> &Operator {
    folder
        .operator(id)
        .expect("the plan's operators are its folder's")
}

/// State of a lane: the execution providers that its kernels are created on.
pub struct NpuLane {
    pub(crate) runtime: OnnxRuntime,
    /// For the operators that an NPU takes.
    pub(crate) provider: ResolvedProvider,
    /// For all others.
    pub(crate) cpu: ResolvedProvider,
}

/// Shared by all operator types of one engine. It holds no model: device setup sees only what the host lane read.
pub(crate) struct KernelSetup {
    pub(crate) options: NpuOptions,
    /// Whether a weight's mapped pages stay once the provider has packed it.
    keeps_mapped_pages: bool,
    pub(crate) warm_shapes: WarmShapes,
    pub(crate) joints: Joints,
    /// A file that exists: ONNX Runtime wants to see that the file of weights that are elsewhere is there, and does not open it.
    pub(crate) weights_file: PathBuf,
    /// Asked for by the first lane that opens, which loads the library if nobody has.
    runtime: OnceLock<Result<(OnnxRuntime, ResolvedProvider)>>,
}

impl KernelSetup {
    pub(crate) fn new(folder: &ModelFolder, options: NpuOptions, joints: Vec<Joint>) -> Self {
        Self {
            options,
            keeps_mapped_pages: false,
            joints: Joints::new(joints),
            warm_shapes: WarmShapes::infer(folder),
            weights_file: folder.graph_path().to_path_buf(),
            runtime: OnceLock::new(),
        }
    }

    pub(crate) fn keep_mapped_pages(self) -> Self {
        Self {
            keeps_mapped_pages: true,
            ..self
        }
    }

    pub(crate) fn runtime(&self) -> Result<&(OnnxRuntime, ResolvedProvider)> {
        let loaded = self.runtime.get_or_init(|| {
            let runtime = OnnxRuntime::load(&self.options.library, self.options.n_threads)?;
            let provider = ResolvedProvider::resolve(&self.options, &runtime)?;
            Ok((runtime, provider))
        });
        loaded.as_ref().map_err(NpuError::clone)
    }

    /// Over how many threads the heavy lanes are striped. ONNX Runtime's CPU provider creates sessions in parallel: what races
    /// in it is known to be other providers' (XNNPACK's allocator, onnxruntime issue 32461). NPU compilers serialize anyway.
    pub(crate) fn n_stripes(&self) -> usize {
        match self.options.provider {
            Provider::Auto | Provider::Cpu => self.options.n_threads.max(1),
            Provider::VitisAi | Provider::Qnn | Provider::OpenVino => 1,
        }
    }

    pub(crate) fn open(&self) -> Result<NpuLane> {
        let (runtime, provider) = self.runtime()?.clone();
        Ok(NpuLane {
            runtime,
            provider,
            cpu: ResolvedProvider::cpu(),
        })
    }

    /// Phase 1: attributes and reference-counted constants; for a product also those of its guests, which are made resident
    /// with it and not in their own turn: they wait for its device setup.
    pub(crate) fn read(&self, source: &OperatorSource) -> Result<OperatorData> {
        let read = |id: OperatorId| Ok(source.folder.read(source.folder.operator(id)?)?);
        let data = read(source.operator)?;
        if self.joints.is_guest(source.operator) {
            return Ok(data);
        }
        let guests = self.joints.guests_of(source.operator);
        let guests = guests.iter().map(|&id| read(id)).collect::<Result<Vec<_>>>()?;
        if self.options.prefault == Prefault::On {
            guests
                .iter()
                .chain([&data])
                .try_for_each(OperatorData::prefault)?;
        }
        self.joints.put(source.operator, guests);
        Ok(data)
    }

    /// Bytes that wait for device setup, operator by operator, when they are read in this order. Weights stay in the page cache, so
    /// only what prefaulting makes resident counts: a constant at the first read of it, a guest's with its product.
    pub(crate) fn host_bytes(&self, folder: &ModelFolder, order: &[OperatorId]) -> Vec<u64> {
        let made_resident = |id: &OperatorId| -> Vec<NodeId> {
            if self.options.prefault == Prefault::Off || self.joints.is_guest(*id) {
                return Vec::new();
            }
            let operators = self.joints.guests_of(*id).iter().chain([id]);
            let nodes = operators.flat_map(|&id| &operator_of(folder, id).nodes);
            nodes.copied().collect()
        };
        folder
            .graph()
            .weight_bytes_in_order(order.iter().map(made_resident))
    }

    /// Phase 2 on the CPU.
    pub(crate) fn create_on_cpu(
        &self,
        lane: &NpuLane,
        data: &OperatorData,
        form: GraphForm,
    ) -> Result<Kernel> {
        self.create(&lane.runtime, &lane.cpu, data, form)
    }

    /// Phase 2 on the lane's execution provider, in the form that it takes; on the CPU if it takes none.
    pub(crate) fn create_on_npu(&self, lane: &NpuLane, data: &OperatorData) -> Result<Kernel> {
        let rows = self.options.npu_rows.max(1);
        let is_joint = !self.joints.guests_of(data.operator().id).is_empty();
        match lane.provider.is_npu() && !is_joint && form::is_dequantizable(data) {
            true => self.create(
                &lane.runtime,
                &lane.provider,
                data,
                GraphForm::Dequantized { rows },
            ),
            false => self.create_on_cpu(lane, data, GraphForm::Native),
        }
    }

    /// Creates the kernel on `provider` and runs it once.
    fn create(
        &self,
        runtime: &OnnxRuntime,
        provider: &ResolvedProvider,
        data: &OperatorData,
        form: GraphForm,
    ) -> Result<Kernel> {
        let options = self.submodel_options();
        let joint = self.joints.take(data);
        let (mut source, parts) = match joint {
            Some((joint, parts)) => (
                form::joint_kernel_source(&parts, joint, &options, &self.warm_shapes)?,
                parts,
            ),
            None => (
                form::kernel_source(data, form, &options, &self.warm_shapes)?,
                vec![data.clone()],
            ),
        };
        if self.keeps_mapped_pages {
            source.keep_weights();
        }
        let operator = data.operator().id;
        Kernel::create(runtime, provider, &self.weights_file, operator, source)
            .map_err(|error| failed(&parts, provider, error))
    }

    fn submodel_options(&self) -> SubmodelOptions {
        let location = self
            .weights_file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let mut options = SubmodelOptions {
            location,
            ..SubmodelOptions::default()
        };
        if let Some(level) = self.options.accuracy_level {
            options.attributes.push(AttributeOverride::int(
                "MatMulNBits",
                "accuracy_level",
                level as i64,
            ));
        }
        options
    }
}

/// The error at the operator and the node that ONNX Runtime names, or at the last operator, which the kernel is called after.
fn failed(parts: &[OperatorData], provider: &ResolvedProvider, error: ort::Error) -> NpuError {
    let nodes = || {
        parts
            .iter()
            .flat_map(|data| data.nodes().iter().map(move |node| (data, node)))
    };
    let named = nodes().find(|(_, node)| error.message().contains(&format!("'{}'", node.name)));
    let last = || parts.last().and_then(|data| Some((data, data.nodes().first()?)));
    let (data, node) = named.or_else(last).expect("an operator has nodes");
    let (operator, node) = (
        &data.operator().name,
        format!("{} ({})", node.label(), node.op_type),
    );
    NpuError::runtime(
        format!("cannot be set up on {}", provider.execution_provider()),
        error,
    )
    .at_operator(operator)
    .at_node(node)
}
