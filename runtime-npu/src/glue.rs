//! What is in between.

use onnx_model::OperatorData;
use scheduler::{BoxError, OperatorType};
use std::sync::Arc;

use crate::form::GraphForm;
use crate::kernel::Kernel;
use crate::lane::{KernelSetup, NpuLane, OperatorSource};

/// Attention mask to sequence lengths, the choice of rotary tables, and any node without an operator type of its own.
pub struct Glue(pub(crate) Arc<KernelSetup>);

impl OperatorType for Glue {
    type Source = OperatorSource;
    type Host = OperatorData;
    type Device = Kernel;
    type Lane = NpuLane;

    fn name(&self) -> &str {
        "Glue"
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
        Ok(self.0.create_on_cpu(lane, &host, GraphForm::FoldedReshapes)?)
    }
}
