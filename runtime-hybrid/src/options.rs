//! How a model is to be loaded.

use std::fmt;
use std::str::FromStr;

use runtime_igpu::IgpuOptions;
use runtime_npu::NpuOptions;
use scheduler::InitMode;

use crate::environment::DeferredInit;
use crate::error::{Error, Result};
use crate::staging::StagingBudget;

/// How a model is to be loaded. [`Default`] is the inline path with the engines this machine has.
#[derive(Clone, Debug, Default)]
pub struct HybridOptions {
    /// How the init graph is scheduled.
    pub init: InitMode,
    /// Which engines serve.
    pub engines: Engines,
    /// How many bytes of weights may wait for device setup.
    pub staging: StagingBudget,
    /// Options of the prefill engine.
    pub npu: NpuOptions,
    /// Options of the decode engine.
    pub igpu: IgpuOptions,
}

impl HybridOptions {
    /// The default, with the init mode that [`HOSTLANE_DEFERRED_INIT`](crate::DEFERRED_INIT_VARIABLE) asks for.
    ///
    /// # Errors
    ///
    /// The variable has a value it cannot have.
    pub fn from_env() -> Result<Self> {
        Ok(Self {
            init: DeferredInit::from_env()?.mode(),
            ..Self::default()
        })
    }
}

/// Which engines serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engines {
    /// Prefill on the NPU engine and decode on the iGPU engine; both on the NPU engine where this machine has no
    /// adapter, or the iGPU engine does not know an operator of the model. The load report says which in one line.
    #[default]
    Auto,
    /// Both engines; what is missing for the iGPU engine is an error.
    Hybrid,
    /// The NPU engine alone.
    NpuOnly,
}

impl fmt::Display for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Hybrid => "hybrid",
            Self::NpuOnly => "npu-only",
        })
    }
}

impl FromStr for Engines {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "hybrid" => Ok(Self::Hybrid),
            "npu-only" => Ok(Self::NpuOnly),
            _ => Err(Error::setting(format!(
                "{text:?} is not a choice of engines: use auto, hybrid or npu-only"
            ))),
        }
    }
}
