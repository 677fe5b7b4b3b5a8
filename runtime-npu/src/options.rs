//! What a user may choose.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{NpuError, Result};
use crate::library::LibrarySearch;

/// How the prefill engine is set up and runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NpuOptions {
    /// Where the ONNX Runtime library is.
    pub library: LibrarySearch,
    /// Which execution provider runs the operators.
    pub provider: Provider,
    /// `accuracy_level` of every MatMulNBits, in place of the model's: 1 computes with float32 activations, 4 with int8
    /// activations (faster, and what builders write).
    pub accuracy_level: Option<AccuracyLevel>,
    /// Threads that one run uses, the caller included; also over how many threads the heavy lanes are striped, where the
    /// provider creates kernels in parallel.
    pub n_threads: usize,
    /// Longest piece of a prompt that is run at once. Longer prompts take several passes, which bounds the memory of activations.
    pub chunk_tokens: usize,
    /// Whether the host lane makes weight pages resident, so that no device lane waits for the disk.
    pub prefault: Prefault,
    /// The library of the execution provider that is asked for by name, if it is not where its Python package puts it.
    pub plugin: Option<ProviderPlugin>,
    /// Positions that an NPU kernel takes at once. NPUs compile for fixed shapes; what is left over is padded.
    pub npu_rows: usize,
}

impl Default for NpuOptions {
    fn default() -> Self {
        Self {
            library: LibrarySearch::default(),
            provider: Provider::Auto,
            accuracy_level: None,
            n_threads: std::thread::available_parallelism().map_or(1, usize::from),
            chunk_tokens: 512,
            prefault: Prefault::Off,
            plugin: None,
            npu_rows: 32,
        }
    }
}

impl NpuOptions {
    /// Default options with the library to be found by `library`.
    pub fn new(library: LibrarySearch) -> Self {
        Self {
            library,
            ..Self::default()
        }
    }
}

/// Whether the host lane touches weight pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefault {
    /// Pages become resident when device setup first reads them.
    #[default]
    Off,
    /// The host lane touches them, page by page.
    On,
}

/// Accuracy level of MatMulNBits: the least precise type that activations may be rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccuracyLevel {
    /// The provider's choice.
    Unset = 0,
    /// float32.
    Float32 = 1,
    /// float16.
    Float16 = 2,
    /// bfloat16.
    BFloat16 = 3,
    /// int8.
    Int8 = 4,
}

impl TryFrom<i64> for AccuracyLevel {
    type Error = NpuError;

    fn try_from(level: i64) -> Result<Self> {
        [
            Self::Unset,
            Self::Float32,
            Self::Float16,
            Self::BFloat16,
            Self::Int8,
        ]
        .into_iter()
        .find(|known| *known as i64 == level)
        .ok_or_else(|| {
            NpuError::unsupported(format!("accuracy level {level} is not one of 0, 1, 2, 3 and 4"))
        })
    }
}

/// An execution provider that comes as a library of its own, and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPlugin {
    /// The provider's library, such as `libonnxruntime_providers_qnn.so`.
    pub library: PathBuf,
    /// Provider options without the provider's prefix, such as `backend_path`.
    pub options: Vec<(String, String)>,
}

/// Which execution provider runs the operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The first of VitisAI, QNN and OpenVINO whose library and NPU are really there, else CPU.
    #[default]
    Auto,
    /// ONNX Runtime's own kernels on the CPU.
    Cpu,
    /// AMD NPUs.
    VitisAi,
    /// Qualcomm NPUs, or the emulator that comes with the provider.
    Qnn,
    /// Intel NPUs.
    OpenVino,
}

impl Provider {
    /// All, in the order of preference.
    pub const ALL: [Self; 5] = [Self::Auto, Self::VitisAi, Self::Qnn, Self::OpenVino, Self::Cpu];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::VitisAi => "vitisai",
            Self::Qnn => "qnn",
            Self::OpenVino => "openvino",
        }
    }

    /// ONNX Runtime's name for it.
    pub(crate) fn execution_provider(self) -> &'static str {
        match self {
            Self::Auto | Self::Cpu => "CPUExecutionProvider",
            Self::VitisAi => "VitisAIExecutionProvider",
            Self::Qnn => "QNNExecutionProvider",
            Self::OpenVino => "OpenVINOExecutionProvider",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Provider {
    type Err = NpuError;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|provider| provider.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                NpuError::provider(format!(
                    "'{text}' is not an execution provider; one of auto, cpu, vitisai, qnn and openvino is"
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_by_name() {
        for provider in Provider::ALL {
            assert_eq!(provider.to_string().parse::<Provider>().unwrap(), provider);
        }
        let error = "npu".parse::<Provider>().unwrap_err();
        assert!(
            error.is_provider() && error.to_string().contains("openvino"),
            "{error}"
        );
    }

    #[test]
    fn accuracy_levels() {
        assert_eq!(AccuracyLevel::try_from(4).unwrap(), AccuracyLevel::Int8);
        assert!(AccuracyLevel::try_from(5).unwrap_err().to_string().contains('5'));
    }
}
