//! The operator types as lanes: one type for all, since they differ in what they are called and where their kernels are created.

use std::sync::Arc;

use onnx_model::{OperatorData, OperatorKind};
use scheduler::{BoxError, OperatorType};

use crate::form::GraphForm;
use crate::kernel::Kernel;
use crate::lane::{KernelSetup, NpuLane, OperatorSource};

/// An operator type, named as its kind: what every lane of this engine is of.
pub struct NpuOperatorType {
    kind: OperatorKind,
    setup: Arc<KernelSetup>,
}

/// Where the kernels of an operator type are created, and over which form of the operator's graph.
enum Placement {
    Cpu(GraphForm),
    /// The CPU, for those that the NPU does not take.
    Npu,
}

impl NpuOperatorType {
    pub(crate) fn new(kind: OperatorKind, setup: Arc<KernelSetup>) -> Self {
        Self { kind, setup }
    }
}

fn placement(kind: OperatorKind) -> Placement {
    match kind {
        OperatorKind::MatMulNBits | OperatorKind::Mlp | OperatorKind::LmHead => Placement::Npu,
        OperatorKind::Norm | OperatorKind::GroupQueryAttention => Placement::Cpu(GraphForm::Native),
        // A tied table is stored in the shape that the last product wants.
        OperatorKind::Embedding | OperatorKind::Glue => Placement::Cpu(GraphForm::FoldedReshapes),
    }
}

impl OperatorType for NpuOperatorType {
    type Source = OperatorSource;
    type Host = OperatorData;
    /// Nothing for an operator that runs in another's session.
    type Device = Option<Kernel>;
    type Lane = NpuLane;

    fn name(&self) -> &str {
        self.kind.name()
    }

    fn host_bytes(&self, source: &OperatorSource) -> u64 {
        source.host_bytes
    }

    fn open(&self) -> Result<NpuLane, BoxError> {
        Ok(self.setup.open()?)
    }

    fn read(&self, source: &OperatorSource) -> Result<OperatorData, BoxError> {
        Ok(self.setup.read(source)?)
    }

    async fn setup(&self, lane: &mut NpuLane, host: OperatorData) -> Result<Option<Kernel>, BoxError> {
        if self.setup.joints.is_guest(host.operator().id) {
            return Ok(None);
        }
        let kernel = match placement(self.kind) {
            Placement::Cpu(form) => self.setup.create_on_cpu(lane, &host, form)?,
            Placement::Npu => self.setup.create_on_npu(lane, &host)?,
        };
        Ok(Some(kernel))
    }
}
