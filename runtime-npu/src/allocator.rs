//! Memory for packed weights, with its pages already there.
//!
//! ONNX Runtime reserves a buffer for each packed weight and then writes it once, front to back, so that each of its pages faults:
//! on Qwen3-4B's geometry a third of the processor time that creating its sessions takes. And each buffer is a mapping of its own,
//! which only one thread at a time can make while all that fault wait. So an allocator of ours, registered with the environment,
//! cuts reserved buffers from slabs of address space, whose memory is populated a block at a time (see [`pages`]). Scratch memory
//! of runs is not reserved and comes from the C library as ever. On other systems than Linux nothing is registered.

mod pages;
mod slabs;

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;
use ort::sys::{OrtAllocator, OrtMemoryInfo};
use ort::{AsPointer, ortsys};

use slabs::Slabs;

/// The session option that makes a session use the registered allocator.
pub(crate) const USE: (&str, &str) = ("session.use_env_allocators", "1");

/// What ONNX Runtime's own allocator guarantees to its kernels.
const ALIGNMENT: usize = 64;

/// Smaller buffers come from the C library, whose heap has pages at hand.
const MIN_RESERVED: usize = 128 << 10;

static SLABS: Mutex<Slabs> = Mutex::new(Slabs::new());

/// Registers the allocator. Sessions use it that are created with [`USE`].
pub(crate) fn register(environment: &Environment) -> ort::Result<()> {
    // Lives as long as the environment: until the process ends.
    let allocator = Box::leak(Box::new(OrtAllocator {
        Alloc: Some(alloc),
        Free: Some(free),
        Info: Some(info),
        Reserve: Some(reserve),
        // SAFETY: nothing but null pointers and a version.
        ..unsafe { OrtAllocator::default() }
    }));
    ortsys![unsafe RegisterAllocator(environment.ptr().cast_mut(), allocator)?];
    Ok(())
}

unsafe extern "system" fn alloc(_: *mut OrtAllocator, size: usize) -> *mut c_void {
    let mut memory = ptr::null_mut();
    // SAFETY: the alignment is a power of two and a multiple of a pointer's size. ONNX Runtime reports a null pointer.
    match unsafe { libc::posix_memalign(&mut memory, ALIGNMENT, size) } {
        0 => memory,
        _ => ptr::null_mut(),
    }
}

unsafe extern "system" fn reserve(_: *const OrtAllocator, size: usize) -> *mut c_void {
    if size >= MIN_RESERVED
        && let Some(cut) = slabs(|slabs| slabs.cut(size, ALIGNMENT))
    {
        pages::populate(cut.blocks);
        return cut.buffer as *mut c_void;
    }
    // SAFETY: as of any caller.
    unsafe { alloc(ptr::null_mut(), size) }
}

unsafe extern "system" fn free(_: *mut OrtAllocator, memory: *mut c_void) {
    if !slabs(|slabs| slabs.give_back(memory as usize)) {
        // SAFETY: it is from `alloc`.
        unsafe { libc::free(memory) };
    }
}

unsafe extern "system" fn info(_: *const OrtAllocator) -> *const OrtMemoryInfo {
    crate::value::memory_info()
}

fn slabs<T>(f: impl FnOnce(&mut Slabs) -> T) -> T {
    f(&mut SLABS.lock().unwrap_or_else(PoisonError::into_inner))
}
