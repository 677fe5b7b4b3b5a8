//! The engine's operator types: kernels, and one per kind of operator.
//!
//! ```text
//! host lane     read embed_tokens, read q_proj, ..        (shared with another engine, if there is one)
//! igpu.Kernel   device | kernel matvec | kernel rms_norm | ..
//! igpu.<Kind>            upload q_proj | upload k_proj | ..          one lane per kind of operator
//! ```
//!
//! Uploads do not wait for kernels: operators are bound to kernels when the engine is put together, behind the barrier, some
//! microseconds each. A kernel node ends after a warm-up dispatch.

use std::sync::{Arc, OnceLock};

use onnx_model::{ModelFolder, OperatorData, OperatorId, OperatorKind};
use scheduler::{BoxError, OperatorType};

use crate::context::{Context, DeviceOperator};
use crate::error::{IgpuError, Kind, Result};
use crate::plan::IgpuPlan;
use crate::program::{OperatorProgram, model_error};

/// What all lanes of one engine share: the plan, and the device once it is open.
pub(crate) struct Shared {
    pub(crate) plan: IgpuPlan,
    context: OnceLock<Arc<Context>>,
}

impl Shared {
    pub(crate) fn new(plan: IgpuPlan) -> Self {
        Self {
            plan,
            context: OnceLock::new(),
        }
    }

    /// Opens the device; the first node of all.
    pub(crate) fn open(&self) -> Result<Arc<Context>> {
        let plan = &self.plan;
        let context = Arc::new(Context::open(
            &plan.adapter,
            &plan.options,
            Arc::clone(&plan.program),
        )?);
        Ok(Arc::clone(self.context.get_or_init(|| context)))
    }

    /// The open device. An edge orders every user after the node that opens it.
    pub(crate) fn context(&self) -> Result<&Arc<Context>> {
        self.context
            .get()
            .ok_or_else(|| IgpuError::new(Kind::Internal, "the device is not open yet"))
    }

    pub(crate) fn program(&self, id: OperatorId) -> &OperatorProgram {
        &self.plan.program.operators[id.index()]
    }
}

/// The operator type of kernels: phase 1 composes the text, phase 2 compiles it and dispatches it once.
pub(crate) struct Kernels {
    pub(crate) shared: Arc<Shared>,
}

impl OperatorType for Kernels {
    type Source = usize;
    type Host = (usize, String);
    type Device = ();
    type Lane = ();

    fn name(&self) -> &str {
        "igpu.Kernel"
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, &index: &usize) -> Result<(usize, String), BoxError> {
        let plan = &self.shared.plan;
        let has_subgroups = plan.adapter.features.contains(wgpu::Features::SUBGROUP);
        Ok((index, plan.program.kernels[index].compose(has_subgroups)))
    }

    async fn setup(&self, (): &mut (), (index, text): (usize, String)) -> Result<(), BoxError> {
        let label = self.shared.plan.program.kernels[index].label();
        self.shared
            .context()?
            .add_kernel(index, &text)
            .map_err(|error| error.at_operator(&label))?;
        Ok(())
    }
}

/// The operators of one kind: phase 1 reads attributes and weights, phase 2 uploads weights and allocates caches.
pub(crate) struct OperatorsOf {
    pub(crate) kind: OperatorKind,
    pub(crate) shared: Arc<Shared>,
}

/// Where an operator is read from.
pub(crate) struct OperatorSource {
    pub(crate) folder: ModelFolder,
    pub(crate) id: OperatorId,
}

impl OperatorType for OperatorsOf {
    type Source = OperatorSource;
    type Host = OperatorData;
    type Device = DeviceOperator;
    type Lane = ();

    fn name(&self) -> &str {
        match self.kind {
            OperatorKind::Embedding => "igpu.Embedding",
            OperatorKind::Norm => "igpu.Norm",
            OperatorKind::MatMulNBits => "igpu.MatMulNBits",
            OperatorKind::GroupQueryAttention => "igpu.GroupQueryAttention",
            OperatorKind::Mlp => "igpu.Mlp",
            OperatorKind::LmHead => "igpu.LmHead",
            OperatorKind::Glue => "igpu.Glue",
        }
    }

    /// Only what reading makes resident waits for set-up.
    fn host_bytes(&self, source: &OperatorSource) -> u64 {
        if !self.shared.plan.prefaults {
            return 0;
        }
        source
            .folder
            .operator(source.id)
            .map_or(0, |operator| operator.weight_bytes)
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, source: &OperatorSource) -> Result<OperatorData, BoxError> {
        let operator = source.folder.operator(source.id)?;
        let data = source.folder.read(operator)?;
        if self.shared.plan.prefaults {
            data.prefault()
                .map_err(|error| model_error(error).at_operator(&operator.name))?;
        }
        Ok(data)
    }

    async fn setup(&self, (): &mut (), data: OperatorData) -> Result<DeviceOperator, BoxError> {
        let program = self.shared.program(data.operator().id);
        let context = self.shared.context()?;
        let set_up = context.set_up(program, &data, self.shared.plan.kv_capacity);
        Ok(set_up.map_err(|error| error.at_operator(&program.name))?)
    }
}
