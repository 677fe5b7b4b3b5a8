//! Which execution provider operators run on, and how a session is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use ort::device::Device;
use ort::memory::DeviceType;

use crate::error::{NpuError, Result};
use crate::joint::Sessions;
use crate::options::{NpuOptions, Provider, ProviderPlugin};
use crate::runtime::OnnxRuntime;
use crate::session::SessionOptions;

/// A provider that is really there: its library is loaded and it has a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedProvider {
    provider: Provider,
    /// Options of the provider.
    options: Vec<(String, String)>,
    emulator: Emulator,
}

/// Whether a device that only emulates an NPU will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emulator {
    /// The user named the provider.
    WillDo,
    /// Nobody wants to be slower than the CPU without having asked.
    WillNotDo,
}

/// Whether operators may share sessions: not where an NPU may take some of them.
pub(crate) fn sessions(provider: Provider) -> Sessions {
    match provider {
        Provider::Cpu => Sessions::Shared,
        Provider::Auto if !npu_driver_is_there() => Sessions::Shared,
        _ => Sessions::Apart,
    }
}

impl ResolvedProvider {
    /// The CPU provider, which is always there.
    pub(crate) fn cpu() -> Self {
        Self {
            provider: Provider::Cpu,
            options: Vec::new(),
            emulator: Emulator::WillNotDo,
        }
    }

    /// The provider that `options` ask for.
    ///
    /// # Errors
    /// It was asked for by name, and its library or its device is not there. Never the CPU in its place.
    pub(crate) fn resolve(options: &NpuOptions, runtime: &OnnxRuntime) -> Result<Self> {
        match options.provider {
            Provider::Cpu => Ok(Self::cpu()),
            Provider::Auto => {
                if !npu_driver_is_there() {
                    return Ok(Self::cpu());
                }
                for provider in [Provider::VitisAi, Provider::Qnn, Provider::OpenVino] {
                    match Self::named(provider, options, runtime, Emulator::WillNotDo) {
                        Ok(resolved) => return Ok(resolved),
                        Err(error) => tracing::debug!(%provider, %error, "execution provider passed over"),
                    }
                }
                Ok(Self::cpu())
            }
            provider => Self::named(provider, options, runtime, Emulator::WillDo),
        }
    }

    fn named(
        provider: Provider,
        options: &NpuOptions,
        runtime: &OnnxRuntime,
        emulator: Emulator,
    ) -> Result<Self> {
        let plugin = match &options.plugin {
            Some(plugin) if options.provider == provider => plugin.clone(),
            _ => installed(provider, options)?,
        };
        register(provider, &plugin, runtime)?;
        let resolved = Self {
            provider,
            options: plugin.options,
            emulator,
        };
        match runtime
            .environment()
            .devices()
            .any(|device| resolved.takes(&device))
        {
            true => Ok(resolved),
            false => Err(NpuError::provider(format!(
                "execution provider {provider} is not available: {} is there, but it finds no NPU",
                plugin.library.display()
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

    /// Whether it is something else than ONNX Runtime's own CPU kernels.
    pub(crate) fn is_npu(&self) -> bool {
        self.provider != Provider::Cpu
    }

    /// Makes a session use this provider and no other: an operator that it does not take whole is an error, not a run on the CPU.
    pub(crate) fn apply<'r>(&self, options: SessionOptions<'r>) -> ort::Result<SessionOptions<'r>> {
        match self.is_npu() {
            true => options
                .config("session.disable_cpu_ep_fallback", "1")?
                .provider(|device| self.takes(device), &self.options),
            false => Ok(options),
        }
    }

    /// Whether sessions may use the device: an NPU, or for QNN by name the emulator, which says that it is a CPU. OpenVINO also has
    /// devices that are CPUs and mean it.
    fn takes(&self, device: &Device<'_>) -> bool {
        let emulated = self.provider == Provider::Qnn && self.emulator == Emulator::WillDo;
        device.ep().is_ok_and(|ep| ep == self.execution_provider())
            && (emulated || device.hardware_device().ty() == DeviceType::NPU)
    }

    /// Held while a session is created on an NPU: compilers of NPUs are not known to be safe in parallel, and gain nothing.
    pub(crate) fn compiling(&self) -> Option<MutexGuard<'static, ()>> {
        static COMPILING: Mutex<()> = Mutex::new(());
        self.is_npu()
            .then(|| COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// Whether the operating system has a driver of any NPU, as far as it can be told without loading a provider: a registered
/// provider is offered to every session of the process, so none is loaded in vain.
#[cfg(target_os = "linux")]
fn npu_driver_is_there() -> bool {
    let any = |folder: &str, prefix: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .into_iter()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
    };
    any("/dev/accel", "accel") || any("/dev", "fastrpc-cdsp")
}

#[cfg(not(target_os = "linux"))]
fn npu_driver_is_there() -> bool {
    true
}

/// Where the provider's library is, as its Python package lays it out.
fn installed(provider: Provider, options: &NpuOptions) -> Result<ProviderPlugin> {
    let (package, library, backend, fetch) = match provider {
        Provider::Qnn => (
            "onnxruntime_qnn",
            "onnxruntime_providers_qnn",
            Some("QnnHtp"),
            "pip install --no-deps onnxruntime-qnn",
        ),
        Provider::OpenVino => (
            "onnxruntime/capi",
            "onnxruntime_providers_openvino",
            None,
            "pip install onnxruntime-openvino",
        ),
        Provider::VitisAi | Provider::Auto | Provider::Cpu => (
            "onnxruntime/capi",
            "onnxruntime_providers_vitisai",
            None,
            "install the Ryzen AI software",
        ),
    };
    let find = |name: &str| options.library.python_package_file(package, &library_name(name));
    let missing = |name: &str| {
        let name = library_name(name);
        NpuError::provider(format!(
            "execution provider {provider} is not available: {name} is in no installed {package} package ({fetch})"
        ))
    };
    let library = find(library).ok_or_else(|| missing(library))?;
    let backend: Option<PathBuf> = match backend {
        Some(backend) => Some(find(backend).ok_or_else(|| missing(backend))?),
        None => None,
    };
    let options = backend
        .iter()
        .map(|path| ("backend_path".to_string(), path.to_string_lossy().into_owned()))
        .collect();
    Ok(ProviderPlugin { library, options })
}

fn library_name(name: &str) -> String {
    match cfg!(target_os = "windows") {
        true => format!("{name}.dll"),
        false => format!("lib{name}.so"),
    }
}

/// Libraries that are registered with the environment, by the name of their execution provider.
fn registered() -> MutexGuard<'static, BTreeMap<&'static str, PathBuf>> {
    static REGISTERED: Mutex<BTreeMap<&'static str, PathBuf>> = Mutex::new(BTreeMap::new());
    REGISTERED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Loads the provider's library, once per process.
fn register(provider: Provider, plugin: &ProviderPlugin, runtime: &OnnxRuntime) -> Result<()> {
    let name = provider.execution_provider();
    let mut registered = registered();
    if !plugin.library.is_file() {
        return Err(NpuError::provider(format!(
            "execution provider {provider} is not available: {} is not a file",
            plugin.library.display()
        )));
    }
    match registered.get(name) {
        Some(library) if *library == plugin.library => return Ok(()),
        Some(library) => {
            return Err(NpuError::provider(format!(
                "execution provider {provider} is loaded from {}; a process cannot load it from {} too",
                library.display(),
                plugin.library.display()
            )));
        }
        None => {}
    }
    runtime
        .environment()
        .register_ep_library(name, &plugin.library)
        .map_err(|error| {
            NpuError::provider(format!(
                "execution provider {provider} is not available: {} cannot be loaded: {error}",
                plugin.library.display()
            ))
        })?;
    registered.insert(name, plugin.library.clone());
    Ok(())
}
