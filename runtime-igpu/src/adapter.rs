//! Finds the adapter to decode on, and says which and why.

use futures::executor::block_on;

use crate::error::{IgpuError, Kind, Result};
use crate::options::{AdapterChoice, IgpuOptions, MatvecShape, UploadPath};
use crate::vulkan;

/// An adapter that was found and suits the engine; the device is opened later.
#[derive(Clone, Debug)]
pub struct IgpuAdapter {
    pub(crate) raw: wgpu::Adapter,
    pub(crate) info: wgpu::AdapterInfo,
    pub(crate) limits: wgpu::Limits,
    pub(crate) features: wgpu::Features,
    /// Whether the driver can make the host's memory its own.
    imports: bool,
    n_gpus: usize,
}

/// Fewest storage buffers a kernel of this crate needs in one stage.
const MIN_STORAGE_BUFFERS: u32 = 8;
/// Largest workgroup of this crate's kernels.
const MIN_WORKGROUP: u32 = 256;

impl IgpuAdapter {
    /// Finds the adapter that the options choose.
    ///
    /// Loads the system's graphics drivers, which takes some tens of milliseconds the first time.
    ///
    /// # Errors
    ///
    /// [`is_no_adapter`](IgpuError::is_no_adapter) when there is no driver or nothing fits the choice,
    /// [`is_over_limit`](IgpuError::is_over_limit) when the adapter is too small for the kernels.
    pub fn find(options: &IgpuOptions) -> Result<Self> {
        let instance = instance();
        let found = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
        let mut candidates: Vec<_> = found.into_iter().map(|raw| (raw.get_info(), raw)).collect();
        // The sort is stable: among equals the driver's own order stays.
        candidates.sort_by_key(|(info, _)| rank(info.device_type));
        let names: Vec<_> = candidates.iter().map(|(info, _)| describe(info)).collect();
        let n_gpus = candidates
            .iter()
            .filter(|(info, _)| is_gpu(info.device_type))
            .count();
        let chosen = candidates
            .into_iter()
            .find(|(info, _)| fits(&options.adapter, info));
        let Some((info, raw)) = chosen else {
            return Err(IgpuError::new(
                Kind::NoAdapter,
                no_adapter_message(&options.adapter, &names),
            ));
        };
        let (limits, features) = (raw.limits(), raw.features());
        let imports = vulkan::can_import(&raw);
        let adapter = Self {
            raw,
            info,
            limits,
            features,
            imports,
            n_gpus,
        };
        adapter.check(options)?;
        Ok(adapter)
    }

    /// Whether the adapter has what the kernels and these options need.
    pub(crate) fn check(&self, options: &IgpuOptions) -> Result<()> {
        let limits = &self.limits;
        let needs = [
            (
                "storage buffers per stage",
                limits.max_storage_buffers_per_shader_stage,
                MIN_STORAGE_BUFFERS,
            ),
            (
                "invocations per workgroup",
                limits.max_compute_invocations_per_workgroup,
                MIN_WORKGROUP,
            ),
            (
                "workgroup size",
                limits.max_compute_workgroup_size_x,
                MIN_WORKGROUP,
            ),
        ];
        for (what, has, needs) in needs {
            if has < needs {
                let message = format!(
                    "adapter {} allows {has} {what}, the kernels need {needs}",
                    self.description()
                );
                return Err(IgpuError::new(Kind::Limit, message));
            }
        }
        if options.upload == Some(UploadPath::Mapped) && !self.can_map() {
            let message = format!(
                "adapter {} lacks MAPPABLE_PRIMARY_BUFFERS, which the mapped upload path needs; use the staged one",
                self.description()
            );
            return Err(IgpuError::new(Kind::Feature, message));
        }
        if options.upload == Some(UploadPath::Imported) && !self.can_import() {
            let message = format!(
                "adapter {} cannot import the host's memory, which the imported upload path needs; use another",
                self.description()
            );
            return Err(IgpuError::new(Kind::Feature, message));
        }
        Ok(())
    }

    /// Name, type, backend and driver in one line.
    pub fn description(&self) -> String {
        describe(&self.info)
    }

    /// Whether the adapter is a CPU dressed as a GPU.
    pub fn is_cpu(&self) -> bool {
        self.info.device_type == wgpu::DeviceType::Cpu
    }

    /// A line that a user should see: set when decoding falls to an adapter of CPU type because nothing else is there.
    pub fn notice(&self) -> Option<String> {
        (self.is_cpu() && self.n_gpus == 0).then(|| {
            format!(
                "no GPU found: decoding on {}, which is the CPU itself",
                self.description()
            )
        })
    }

    pub(crate) fn can_map(&self) -> bool {
        self.features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS)
    }

    /// Whether the adapter's kernels can read the host's own memory.
    pub(crate) fn can_import(&self) -> bool {
        self.is_unified() && self.imports
    }

    /// Whether host and device share one memory.
    pub(crate) fn is_unified(&self) -> bool {
        matches!(
            self.info.device_type,
            wgpu::DeviceType::Cpu | wgpu::DeviceType::IntegratedGpu
        )
    }

    /// Invocations of a workgroup as wide as a vector register of a CPU adapter.
    pub(crate) fn narrow_workgroup(&self) -> u32 {
        self.info.subgroup_min_size.clamp(8, 64).next_power_of_two()
    }

    pub(crate) fn upload_path(&self, options: &IgpuOptions) -> UploadPath {
        let default = if self.is_cpu() && self.can_import() {
            UploadPath::Imported
        } else if self.is_unified() && self.can_map() {
            UploadPath::Mapped
        } else {
            UploadPath::Staged
        };
        options.upload.unwrap_or(default)
    }

    pub(crate) fn matvec_shape(&self, options: &IgpuOptions) -> MatvecShape {
        let default = if self.is_cpu() {
            MatvecShape::CpuAdapter
        } else {
            MatvecShape::Gpu
        };
        options.matvec.unwrap_or(default)
    }
}

fn instance() -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    // Validation layers are a developer's tool; they would slow start-up down in debug builds.
    descriptor.flags = wgpu::InstanceFlags::empty();
    descriptor.memory_budget_thresholds = wgpu::MemoryBudgetThresholds {
        for_resource_creation: Some(95),
        for_device_loss: None,
    };
    wgpu::Instance::new(descriptor)
}

fn is_gpu(kind: wgpu::DeviceType) -> bool {
    matches!(
        kind,
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu
    )
}

fn rank(kind: wgpu::DeviceType) -> u32 {
    match kind {
        wgpu::DeviceType::IntegratedGpu => 0,
        wgpu::DeviceType::DiscreteGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

fn fits(choice: &AdapterChoice, info: &wgpu::AdapterInfo) -> bool {
    match choice {
        AdapterChoice::Auto => true,
        AdapterChoice::GpuOnly => is_gpu(info.device_type),
        AdapterChoice::Cpu => info.device_type == wgpu::DeviceType::Cpu,
        AdapterChoice::Named(part) => info.name.to_lowercase().contains(&part.to_lowercase()),
    }
}

fn describe(info: &wgpu::AdapterInfo) -> String {
    format!(
        "{} ({:?}, {:?}, {})",
        info.name, info.device_type, info.backend, info.driver_info
    )
}

fn no_adapter_message(choice: &AdapterChoice, names: &[String]) -> String {
    let wanted = match choice {
        AdapterChoice::Auto => "any adapter".to_owned(),
        AdapterChoice::GpuOnly => "a GPU".to_owned(),
        AdapterChoice::Cpu => "an adapter of CPU type".to_owned(),
        AdapterChoice::Named(part) => format!("an adapter named like {part:?}"),
    };
    if names.is_empty() {
        format!(
            "found no graphics adapter while looking for {wanted}: no Vulkan, Metal or DX12 driver is installed or usable"
        )
    } else {
        format!(
            "found no adapter that is {wanted}; there is: {}",
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::IgpuPlan;

    use super::*;

    #[test]
    fn gpus_go_before_cpu_adapters() {
        let mut kinds = [
            wgpu::DeviceType::Cpu,
            wgpu::DeviceType::DiscreteGpu,
            wgpu::DeviceType::IntegratedGpu,
        ];
        kinds.sort_by_key(|&kind| rank(kind));
        assert_eq!(
            kinds,
            [
                wgpu::DeviceType::IntegratedGpu,
                wgpu::DeviceType::DiscreteGpu,
                wgpu::DeviceType::Cpu
            ]
        );
    }

    #[test]
    fn the_message_names_what_was_wanted_and_what_is_there() {
        let message = no_adapter_message(&AdapterChoice::GpuOnly, &["llvmpipe".to_owned()]);
        assert_eq!(message, "found no adapter that is a GPU; there is: llvmpipe");
    }

    fn found(what: &str) -> Option<IgpuAdapter> {
        match IgpuAdapter::find(&IgpuOptions::default()) {
            Ok(adapter) => Some(adapter),
            Err(error) if error.is_no_adapter() => {
                eprintln!("not exercised: {what}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_feature_that_the_adapter_lacks_is_an_error() {
        let Some(mut adapter) = found("adapters without a feature") else {
            return;
        };
        adapter.features.remove(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);
        adapter.imports = false;
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/models/qwen3-tiny-int4"
        );
        let folder = onnx_model::ModelFolder::open(folder).expect("the fixture opens");
        for path in [UploadPath::Mapped, UploadPath::Imported] {
            let options = IgpuOptions {
                upload: Some(path),
                ..IgpuOptions::default()
            };
            let error = adapter.check(&options).expect_err("the path needs the feature");
            assert!(error.is_unsupported_feature(), "{error:?}");
            let error = IgpuPlan::on_adapter(&folder, adapter.clone(), options).err();
            assert!(
                error.is_some_and(|error| error.is_unsupported_feature()),
                "{path:?}"
            );
        }
        assert_eq!(adapter.upload_path(&IgpuOptions::default()), UploadPath::Staged);
        assert!(adapter.check(&IgpuOptions::default()).is_ok());
    }

    #[test]
    fn an_adapter_too_small_for_the_kernels_is_refused() {
        let Some(mut adapter) = found("adapters that are too small") else {
            return;
        };
        adapter.limits.max_storage_buffers_per_shader_stage = 4;
        let error = adapter
            .check(&IgpuOptions::default())
            .expect_err("the kernels bind more");
        assert!(error.is_over_limit(), "{error:?}");
        assert!(error.to_string().contains("storage buffers"), "{error}");
    }
}
