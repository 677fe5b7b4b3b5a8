//! What a caller may choose.

use std::str::FromStr;
use std::time::Duration;

use crate::error::{IgpuError, Kind, Result};

/// Options of the decode engine; the defaults suit a laptop with an integrated GPU.
#[derive(Clone, Debug)]
pub struct IgpuOptions {
    /// Which adapter to decode on.
    pub adapter: AdapterChoice,
    /// Which shape of matrix-vector kernel to use; `None` chooses by the adapter's type.
    pub matvec: Option<MatvecShape>,
    /// How weights reach the device; `None` chooses by the adapter's type and features.
    pub upload: Option<UploadPath>,
    /// The longest sequence, in tokens; `None` takes the model's context length.
    pub context_length: Option<u32>,
    /// Tokens the KV cache has room for before it first grows; at most the context length.
    pub kv_capacity: u32,
    /// Device memory the engine may take, in bytes; `None` takes what the machine says is available where it says so.
    pub memory_budget_bytes: Option<u64>,
    /// Largest binding, in bytes, where it should be smaller than the adapter's own limit; weights are split to fit.
    pub max_binding_bytes: Option<u64>,
    /// How long one submission may run before the device counts as stalled.
    pub stall_timeout: Duration,
}

impl Default for IgpuOptions {
    fn default() -> Self {
        Self {
            adapter: AdapterChoice::Auto,
            matvec: None,
            upload: None,
            context_length: None,
            kv_capacity: 512,
            memory_budget_bytes: None,
            max_binding_bytes: None,
            stall_timeout: Duration::from_secs(120),
        }
    }
}

/// Which adapter to decode on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum AdapterChoice {
    /// A GPU, integrated before discrete; an adapter of CPU type only where there is nothing else.
    #[default]
    Auto,
    /// A GPU or nothing.
    GpuOnly,
    /// An adapter of CPU type, such as Mesa's lavapipe.
    Cpu,
    /// The first adapter whose name contains this, ignoring case.
    Named(String),
}

/// The two shapes of the quantized matrix-vector kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatvecShape {
    /// Wide workgroups share few rows and read neighbouring words: for GPUs.
    Gpu,
    /// Workgroups as wide as a vector register own many rows and keep their inputs in registers: for CPU adapters.
    CpuAdapter,
}

/// How weights reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UploadPath {
    /// Not at all: the device reads the mapped model file where it is. Needs an adapter that shares the host's memory and can
    /// import it (Vulkan's `VK_EXT_external_memory_host`): without, the choice is an error. What lies where the device cannot read
    /// it is copied. The default for adapters of CPU type, which go on copying where the driver refuses after all.
    ///
    /// The engine then needs the file as long as it decodes, and holds a [lease](onnx_model::Lease) on it: who wants to change the
    /// file waits for the next token, which is an error, or for the 45 s that the system grants (a token that takes longer may
    /// lose the file). Where there is no lease to be had (another user's file, some network file systems) the weights are
    /// copied. Files that are replaced, not rewritten, do not matter.
    Imported,
    /// Written into the device buffer itself, mapped at creation. Needs memory that host and device share.
    Mapped,
    /// Copied through small staging chunks, so that memory never doubles.
    Staged,
}

impl FromStr for UploadPath {
    type Err = IgpuError;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "imported" => Ok(Self::Imported),
            "mapped" => Ok(Self::Mapped),
            "staged" => Ok(Self::Staged),
            _ => Err(IgpuError::new(
                Kind::Request,
                format!("{text:?} is not an upload path: use imported, mapped or staged"),
            )),
        }
    }
}
