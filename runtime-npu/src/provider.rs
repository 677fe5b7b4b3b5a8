//! Which execution provider operators run on, and how a session is told.

use ort::session::builder::SessionBuilder;

use crate::error::{NpuError, Result};
use crate::options::{NpuOptions, Provider};
use crate::runtime::OnnxRuntime;

/// A provider that is really there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedProvider {
    provider: Provider,
    /// Options with the provider's name as prefix, as sessions want them.
    options: Vec<(String, String)>,
}

impl ResolvedProvider {
    /// The CPU provider, which is always there.
    pub(crate) fn cpu() -> Self {
        Self {
            provider: Provider::Cpu,
            options: Vec::new(),
        }
    }

    /// The provider that `options` ask for.
    ///
    /// # Errors
    /// It was asked for by name, and its library or its device is not there.
    pub(crate) fn resolve(options: &NpuOptions, runtime: &OnnxRuntime) -> Result<Self> {
        let _ = runtime;
        match options.provider {
            Provider::Auto | Provider::Cpu => Ok(Self::cpu()),
            other => Err(NpuError::provider(format!(
                "execution provider {other} is not available"
            ))),
        }
    }

    /// The word for it.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// ONNX Runtime's name for it.
    pub fn execution_provider(&self) -> &'static str {
        self.provider.execution_provider()
    }

    pub(crate) fn apply(
        &self,
        builder: SessionBuilder,
        runtime: &OnnxRuntime,
    ) -> ort::Result<SessionBuilder> {
        let _ = (runtime, &self.options);
        Ok(builder)
    }
}
