//! The last product.

use onnx_model::OperatorData;
use scheduler::{BoxError, OperatorType};
use std::sync::Arc;

use crate::kernel::Kernel;
use crate::lane::{KernelSetup, NpuLane, OperatorSource};

/// Hidden state to logits, with the soft capping that some models apply.
pub struct LmHead(pub(crate) Arc<KernelSetup>);

impl OperatorType for LmHead {
    type Source = OperatorSource;
    type Host = OperatorData;
    type Device = Kernel;
    type Lane = NpuLane;

    fn name(&self) -> &str {
        "LmHead"
    }

    fn host_bytes(&self, source: &OperatorSource) -> u64 {
        self.0.host_bytes(source)
    }

    fn open(&self) -> Result<NpuLane, BoxError> {
        Ok(self.0.open()?)
    }

    fn read(&self, source: &OperatorSource) -> Result<OperatorData, BoxError> {
        Ok(self.0.read(source)?)
    }

    async fn setup(&self, lane: &mut NpuLane, host: OperatorData) -> Result<Kernel, BoxError> {
        Ok(self.0.create_on_npu(lane, &host)?)
    }
}
