//! What the graphics library does not offer of Vulkan: buffers over the host's own memory, and buffers that are not
//! zeroed before they are written.

use std::ffi::CStr;
use std::ops::Range;

use ash::vk;
use onnx_model::TensorBytes;
use wgpu::hal::Device as _;
use wgpu::hal::api::Vulkan as Api;

use crate::error::{IgpuError, Kind, Result};

/// The extension that makes host memory device memory.
const IMPORT: &CStr = ash::ext::external_memory_host::NAME;
const HOST: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// A Vulkan device under a graphics library's device.
pub(crate) struct Vulkan {
    device: ash::Device,
    import: Option<Import>,
}

struct Import {
    functions: ash::ext::external_memory_host::Device,
    /// What address and size of imported memory are multiples of.
    alignment: usize,
}

/// Whether host memory can become device memory.
pub(crate) fn can_import(adapter: &wgpu::Adapter) -> bool {
    // SAFETY: the adapter is only asked.
    let raw = unsafe { adapter.as_hal::<Api>() };
    raw.is_some_and(|raw| raw.physical_device_capabilities().supports_extension(IMPORT))
}

/// Opens a device that can import host memory.
pub(crate) fn open(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue)> {
    let refused = |why: &str| IgpuError::new(Kind::Feature, why);
    let allowed = adapter.features().contains(descriptor.required_features)
        && descriptor.required_limits.check_limits(&adapter.limits());
    if !allowed || !can_import(adapter) {
        return Err(refused("the adapter has less than was asked for"));
    }
    // SAFETY: the adapter is only asked, and to open a device.
    let raw = unsafe { adapter.as_hal::<Api>() }.ok_or_else(|| refused("this is no Vulkan adapter"))?;
    // SAFETY: the adapter has these features and limits, which were checked, and the extension that the callback adds.
    let opened = unsafe {
        raw.open_with_callback(
            descriptor.required_features,
            &descriptor.required_limits,
            &descriptor.memory_hints,
            Some(Box::new(|arguments| arguments.extensions.push(IMPORT))),
        )
    };
    let opened = opened.map_err(|error| refused("the driver opens no device").caused_by(error))?;
    // SAFETY: the device was opened on this adapter with the features of the descriptor.
    unsafe { adapter.create_device_from_hal::<Api>(opened, descriptor) }
        .map_err(|error| refused("the graphics library does not take the device").caused_by(error))
}

impl Vulkan {
    /// `None` if the device is no Vulkan device.
    pub(crate) fn of(device: &wgpu::Device) -> Option<Self> {
        // SAFETY: handles are only read; the graphics library goes on owning them, and everything made with them here is
        // kept by a buffer of it, which keeps the device.
        let raw = unsafe { device.as_hal::<Api>() }?;
        let import = raw.enabled_device_extensions().contains(&IMPORT).then(|| {
            let instance = raw.shared_instance().raw_instance();
            let mut limits = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut limits);
            // SAFETY: instance and physical device live as long as `raw`; the structures are chained by type.
            unsafe { instance.get_physical_device_properties2(raw.raw_physical_device(), &mut properties) };
            Import {
                functions: ash::ext::external_memory_host::Device::new(instance, raw.raw_device()),
                alignment: limits.min_imported_host_pointer_alignment as usize,
            }
        });
        Some(Self {
            device: raw.raw_device().clone(),
            import,
        })
    }

    /// A read-only storage buffer over mapped bytes themselves, which it keeps mapped; nothing is copied. `None` where the device
    /// or the place of the bytes does not allow it.
    pub(crate) fn import(
        &self,
        device: &wgpu::Device,
        label: &str,
        home: &TensorBytes,
        part: Range<usize>,
    ) -> Option<wgpu::Buffer> {
        let import = self.import.as_ref()?;
        let bytes = home.get(part)?;
        let mapping = home.mapping()?.bytes().as_ptr_range();
        let start = bytes.as_ptr() as usize / import.alignment * import.alignment;
        let end = (bytes.as_ptr() as usize + bytes.len()).next_multiple_of(import.alignment);
        // A mapping ends with a whole page, of which the file may fill only a part.
        let mapped = mapping.start as usize..(mapping.end as usize).next_multiple_of(PAGE);
        if bytes.is_empty() || !bytes.len().is_multiple_of(16) || start < mapped.start || end > mapped.end {
            return None;
        }
        let imported = Imported::new(self, import, home.clone(), start..end, bytes)?;
        let buffer = imported.buffer;
        // SAFETY: the buffer belongs to this device and has memory bound to it. Both live until the callback, which the graphics
        // library calls when no submission uses the buffer any more and while the device lives.
        let raw = unsafe {
            wgpu::hal::vulkan::Buffer::from_raw_externally_owned(buffer, Box::new(move || drop(imported)))
        };
        // SAFETY: made above on this device, as long as `descriptor` says, not empty, and its bytes are the file's.
        Some(unsafe { device.create_buffer_from_hal::<Api>(raw, &descriptor(label, bytes.len() as u64)) })
    }

    /// A read-only storage buffer of `size` bytes, which begins with a copy of `bytes` and ends with zeros; nothing else writes
    /// its memory. `None` where it cannot be had in this way.
    pub(crate) fn filled(
        &self,
        device: &wgpu::Device,
        label: &str,
        size: u64,
        bytes: &[u8],
    ) -> Option<wgpu::Buffer> {
        use wgpu::wgt::BufferUses;
        // SAFETY: what is made with it below is given back to it, or to the graphics library.
        let raw = unsafe { device.as_hal::<Api>() }?;
        let wanted = wgpu::hal::BufferDescriptor {
            label: Some(label),
            size,
            usage: BufferUses::STORAGE_READ_ONLY | BufferUses::STORAGE_READ_WRITE | BufferUses::MAP_WRITE,
            memory_flags: wgpu::hal::MemoryFlags::empty(),
        };
        // SAFETY: the size is not zero and below the limit, else the driver or its allocator says so.
        let buffer = unsafe { raw.create_buffer(&wanted) }.ok()?;
        // SAFETY: the buffer was made mappable, nobody else knows it, and the range is the whole of it.
        let mapping = match unsafe { raw.map_buffer(&buffer, 0..size) } {
            Ok(mapping) => mapping,
            Err(_) => {
                // SAFETY: nothing uses it.
                unsafe { raw.destroy_buffer(buffer) };
                return None;
            }
        };
        let len = bytes.len().min(size as usize);
        // SAFETY: `size` bytes are mapped there, new, and touched only here until they are unmapped.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.ptr.as_ptr(), len);
            mapping.ptr.add(len).write_bytes(0, size as usize - len);
        }
        // SAFETY: as mapped above. A later submission makes the host's writes visible to the device.
        unsafe {
            if !mapping.is_coherent {
                raw.flush_mapped_ranges(&buffer, std::iter::once(0..size));
            }
            raw.unmap_buffer(&buffer);
        }
        // SAFETY: made above on this device, as long as the descriptor says, not empty, and written whole.
        Some(unsafe { device.create_buffer_from_hal::<Api>(buffer, &descriptor(label, size)) })
    }
}

/// Smallest page of the supported systems: mappings end at a multiple of it at least.
const PAGE: usize = 4096;

fn descriptor(label: &str, size: u64) -> wgpu::BufferDescriptor<'_> {
    wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    }
}

/// A buffer over host memory. Dropping it destroys the buffer, then the device's view of the memory, then lets go of the memory.
struct Imported {
    device: ash::Device,
    buffer: vk::Buffer,
    /// Null until it is there.
    memory: vk::DeviceMemory,
    _home: TensorBytes,
}

impl Imported {
    /// `range` is what to import around `bytes`, which lie in `home`.
    fn new(
        vulkan: &Vulkan,
        import: &Import,
        home: TensorBytes,
        range: Range<usize>,
        bytes: &[u8],
    ) -> Option<Self> {
        let device = &vulkan.device;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HOST);
        let info = vk::BufferCreateInfo::default()
            .size(bytes.len() as u64)
            .usage(vk::BufferUsageFlags::STORAGE_BUFFER)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .push_next(&mut external);
        // SAFETY: a valid description; the extension of the chained structure is enabled, or there were no `import`.
        let buffer = unsafe { device.create_buffer(&info, None) }.ok()?;
        let mut imported = Self {
            device: device.clone(),
            buffer,
            memory: vk::DeviceMemory::null(),
            _home: home,
        };
        // SAFETY: the buffer is a live one of this device.
        let needs = unsafe { device.get_buffer_memory_requirements(buffer) };
        let offset = (bytes.as_ptr() as usize - range.start) as u64;
        if !offset.is_multiple_of(needs.alignment) || offset + needs.size > range.len() as u64 {
            return None;
        }
        let start = range.start as *mut std::ffi::c_void;
        let mut host = vk::MemoryHostPointerPropertiesEXT::default();
        // SAFETY: the pointer is to mapped memory and aligned as the device wants it.
        unsafe {
            let ask = import.functions.fp().get_memory_host_pointer_properties_ext;
            ask(device.handle(), HOST, start, &mut host)
        }
        .result()
        .ok()?;
        let types = host.memory_type_bits & needs.memory_type_bits;
        if types == 0 {
            return None;
        }
        let mut pointer = vk::ImportMemoryHostPointerInfoEXT::default()
            .handle_type(HOST)
            .host_pointer(start);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(range.len() as u64)
            .memory_type_index(types.trailing_zeros())
            .push_next(&mut pointer);
        // SAFETY: the whole range is mapped, and stays so as long as `_home` is held. The device only reads it: the buffer is
        // bound to kernels as read-only storage and counts as initialized.
        imported.memory = unsafe { device.allocate_memory(&info, None) }.ok()?;
        // SAFETY: both are live, nothing is bound to the buffer yet, and alignment and size were checked.
        unsafe { device.bind_buffer_memory(buffer, imported.memory, offset) }.ok()?;
        Some(imported)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: both belong to this device, which lives, since the graphics library's buffer or its maker keeps it; no
        // submission uses them. Freeing null is allowed.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}
