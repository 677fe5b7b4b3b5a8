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

/// Lies right before each buffer, in a gap of [`ALIGNMENT`] bytes.
#[derive(Clone, Copy)]
enum Origin {
    /// What the C library gave.
    Heap(*mut c_void),
    /// Bytes that were cut from a slab, this gap included.
    Slab(usize),
}

unsafe extern "system" fn alloc(_: *mut OrtAllocator, size: usize) -> *mut c_void {
    // Aligned by hand: small blocks of `malloc` come from a cache of the thread's own, those of `posix_memalign` do not.
    let Some(padded) = size.checked_add(2 * ALIGNMENT) else {
        return ptr::null_mut();
    };
    // SAFETY: any size may be asked for. ONNX Runtime reports a null pointer.
    let heap = unsafe { libc::malloc(padded) };
    if heap.is_null() {
        return heap;
    }
    let buffer = (heap as usize + ALIGNMENT).next_multiple_of(ALIGNMENT) as *mut c_void;
    // SAFETY: at least `ALIGNMENT` bytes of the block lie before the buffer, and `size` behind its start.
    unsafe { *origin(buffer) = Origin::Heap(heap) };
    buffer
}

unsafe extern "system" fn reserve(_: *const OrtAllocator, size: usize) -> *mut c_void {
    if size >= MIN_RESERVED
        && let Some(n_bytes) = size
            .checked_add(ALIGNMENT)
            .and_then(|n| n.checked_next_multiple_of(ALIGNMENT))
        && let Some(cut) = slabs(|slabs| slabs.cut(n_bytes))
    {
        pages::populate(cut.blocks);
        let buffer = (cut.start + ALIGNMENT) as *mut c_void;
        // SAFETY: `ALIGNMENT` bytes of the cut lie before the buffer.
        unsafe { *origin(buffer) = Origin::Slab(n_bytes) };
        return buffer;
    }
    // SAFETY: as of any caller.
    unsafe { alloc(ptr::null_mut(), size) }
}

unsafe extern "system" fn free(_: *mut OrtAllocator, buffer: *mut c_void) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: the buffer is from `alloc` or `reserve`, and nobody uses it any more.
    match unsafe { *origin(buffer) } {
        // SAFETY: as above.
        Origin::Heap(heap) => unsafe { libc::free(heap) },
        Origin::Slab(n_bytes) => slabs(|slabs| slabs.give_back(buffer as usize - ALIGNMENT, n_bytes)),
    }
}

fn origin(buffer: *mut c_void) -> *mut Origin {
    const { assert!(size_of::<Origin>() <= ALIGNMENT) };
    buffer.cast::<Origin>().wrapping_sub(1)
}

unsafe extern "system" fn info(_: *const OrtAllocator) -> *const OrtMemoryInfo {
    crate::value::memory_info()
}

fn slabs<T>(f: impl FnOnce(&mut Slabs) -> T) -> T {
    f(&mut SLABS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_aligned_writable_and_given_back() {
        let sizes = [0, 1, 63, 64, 65, 4096, MIN_RESERVED - 1, MIN_RESERVED, 5 << 20];
        // SAFETY: the functions ignore the allocator; each buffer is filled within its size and freed once.
        unsafe {
            for take in [
                |size| alloc(ptr::null_mut(), size),
                |size| reserve(ptr::null(), size),
            ] {
                let buffers: Vec<(*mut u8, usize)> =
                    sizes.iter().map(|&size| (take(size).cast(), size)).collect();
                for (i, &(buffer, size)) in buffers.iter().enumerate() {
                    assert!(
                        !buffer.is_null() && (buffer as usize).is_multiple_of(ALIGNMENT),
                        "{size} bytes"
                    );
                    buffer.write_bytes(i as u8, size);
                }
                for (i, &(buffer, size)) in buffers.iter().enumerate() {
                    let bytes = std::slice::from_raw_parts(buffer, size);
                    assert!(
                        bytes.iter().all(|&b| b == i as u8),
                        "{size} bytes were overwritten"
                    );
                }
                buffers
                    .iter()
                    .for_each(|&(buffer, _)| free(ptr::null_mut(), buffer.cast()));
            }
        }
    }

    #[test]
    fn what_nobody_has_is_null_and_null_is_freed() {
        // SAFETY: as above.
        unsafe {
            for size in [usize::MAX, usize::MAX - ALIGNMENT, usize::MAX / 2] {
                assert!(alloc(ptr::null_mut(), size).is_null());
                assert!(reserve(ptr::null(), size).is_null());
            }
            free(ptr::null_mut(), ptr::null_mut());
        }
    }
}
