//! Matrix products with constant weights.

use onnx_model::OperatorData;
use scheduler::{BoxError, OperatorType};
use std::sync::Arc;

use crate::kernel::Kernel;
use crate::lane::{KernelSetup, NpuLane, OperatorSource};

/// A product with quantized (or dequantized, or plain) weights: query, key and value, or the attention's output.
pub struct MatMulNBits(pub(crate) Arc<KernelSetup>);

impl OperatorType for MatMulNBits {
    type Source = OperatorSource;
    type Host = OperatorData;
    type Device = Kernel;
    type Lane = NpuLane;

    fn name(&self) -> &str {
        "MatMulNBits"
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
