//! What happens when a mapped page is gone: a flag and an error instead of the end of the process.
//!
//! A page behind the end of its file raises SIGBUS in whoever touches it, be it this crate, ONNX Runtime or a GPU
//! driver copying weights. The guard is a handler for that signal. If the address lies in a mapping of this crate, it
//! puts a page of zeros there, marks the mapping as damaged, and lets the thread go on: it reads zeros, and the
//! next [`Mapping::check`](crate::Mapping::check) says which file shrank. Any other address goes to the handler that was there before.
//!
//! ```text
//!  reader          kernel                handler                         later
//!  load page ----> no such page: SIGBUS
//!                                 ----> ours? map zeros, set flag
//!  load zeros <---------------------------- return
//!                                                            check() ---> error: the file shrank
//! ```
//!
//! A signal handler may not lock or allocate, so mappings are in a fixed table of atomics. A slot's version is odd while
//! it changes; the handler reads a slot only if the version is even and the same before and after. The mapping that a
//! thread faults on cannot be unregistered meanwhile, since the thread borrows it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that can be guarded at a time; more are not guarded. A folder has one, or a few.
const SLOTS: usize = 256;

struct Slot {
    /// Odd while the slot changes; its first step to odd also claims it.
    version: AtomicUsize,
    /// 0 when free.
    start: AtomicUsize,
    len: AtomicUsize,
    damaged: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        damaged: AtomicBool::new(false),
    }
}; SLOTS];

/// A mapping's place in the table, given back when dropped.
#[derive(Debug)]
pub(crate) struct Registration(Option<usize>);

impl Registration {
    /// Puts a mapping under guard, installing the handler if it is the first.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        if bytes.is_empty() || !handler::installed() {
            return Registration(None);
        }
        let free = TABLE
            .iter()
            .position(|slot| slot.set(0, bytes.as_ptr() as usize, bytes.len()));
        Registration(free)
    }

    /// No guard.
    pub(crate) fn none() -> Self {
        Registration(None)
    }

    /// Whether a page of the mapping was found missing.
    pub(crate) fn is_damaged(&self) -> bool {
        self.0.is_some_and(|i| TABLE[i].damaged.load(Ordering::Acquire))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(slot) = self.0.map(|i| &TABLE[i]) {
            let start = slot.start.load(Ordering::Relaxed);
            let freed = slot.set(start, 0, 0);
            debug_assert!(freed, "only its registration changes a slot in use");
        }
    }
}

impl Slot {
    /// Changes the slot if it holds `expected`; false if it does not, or another thread is changing it.
    fn set(&self, expected: usize, start: usize, len: usize) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let claimed = version.is_multiple_of(2)
            && self.start.load(Ordering::Relaxed) == expected
            && self
                .version
                .compare_exchange(version, version + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if claimed {
            self.start.store(start, Ordering::Release);
            self.len.store(len, Ordering::Release);
            self.damaged.store(false, Ordering::Release);
            self.version.store(version + 2, Ordering::Release);
        }
        claimed
    }

    /// Whether this address is in the mapping; called from the signal handler.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    fn contains(&self, address: usize) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let (start, len) = (
            self.start.load(Ordering::Acquire),
            self.len.load(Ordering::Acquire),
        );
        let steady = version.is_multiple_of(2) && self.version.load(Ordering::Acquire) == version;
        steady && start != 0 && address >= start && address - start < len
    }
}

#[cfg(target_os = "linux")]
mod handler {
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    use super::TABLE;

    struct Previous {
        action: libc::sigaction,
        page: usize,
    }

    /// What was there before; `None` if the system does not say. Set before the handler is installed, which reads it.
    static PREVIOUS: OnceLock<Option<Previous>> = OnceLock::new();
    static ARMED: OnceLock<bool> = OnceLock::new();

    /// Installs the handler once per process; false if the system refuses.
    pub(super) fn installed() -> bool {
        *ARMED.get_or_init(|| {
            PREVIOUS
                .get_or_init(previous)
                .as_ref()
                .is_some_and(|p| arm(&p.action))
        })
    }

    fn previous() -> Option<Previous> {
        let page = crate::mapping::page_bytes();
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: reads the present action into memory of the right size.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), action.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call above filled it in.
        let action = unsafe { action.assume_init() };
        Some(Previous { action, page })
    }

    fn arm(previous: &libc::sigaction) -> bool {
        // SAFETY: all zeros is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_sigbus as *const () as usize;
        // On the alternate stack, as the standard library's own handler for stack overflows needs it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (previous.sa_flags & libc::SA_RESTART);
        // SAFETY: a valid action; its handler only does what a signal handler may.
        unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) == 0 }
    }

    /// Only system calls and atomics: safe in a signal handler.
    extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let previous = PREVIOUS.get().and_then(Option::as_ref);
        // SAFETY: the kernel gives a valid siginfo for SIGBUS.
        let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
        // SAFETY: errno is this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        // Other codes are misaligned accesses and broken memory.
        if code == libc::BUS_ADRERR
            && let Some(previous) = previous
            && let Some(slot) = TABLE.iter().find(|slot| slot.contains(address))
        {
            slot.damaged.store(true, Ordering::Release);
            let start = address & !(previous.page - 1);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the page is inside a mapping of this crate, which is borrowed by the thread that faulted, so it
            // is not unmapped meanwhile; it had no content that anybody could rely on. Whoever unmaps the whole
            // mapping later unmaps this page with it.
            let page = unsafe {
                libc::mmap(
                    start as *mut libc::c_void,
                    previous.page,
                    libc::PROT_READ,
                    flags,
                    -1,
                    0,
                )
            };
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = errno };
            if page != libc::MAP_FAILED {
                return;
            }
        }
        pass_on(previous, signal, info, context);
    }

    /// Does what would have happened without this handler.
    fn pass_on(
        previous: Option<&Previous>,
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        let action = previous.map(|p| (p.action.sa_sigaction, p.action.sa_flags));
        match action {
            Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
                if flags & libc::SA_SIGINFO != 0 {
                    // SAFETY: with this flag, the address is a handler of three arguments.
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        unsafe { std::mem::transmute(handler) };
                    handler(signal, info, context);
                } else {
                    // SAFETY: without it, of one.
                    let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                    handler(signal);
                }
            }
            // The fault comes again when this returns, and then ends the process. Ignoring it cannot be meant: the
            // thread would fault for ever.
            _ => {
                // SAFETY: signal(2) may be called in a handler.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod handler {
    pub(super) fn installed() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_claimed_changed_and_freed() {
        let slot = Slot {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
        };
        assert!(!slot.contains(0));
        assert!(slot.set(0, 4096, 100));
        assert!(!slot.set(0, 8192, 100), "in use");
        assert!(slot.contains(4096) && slot.contains(4195) && !slot.contains(4196) && !slot.contains(4095));
        slot.version.fetch_add(1, Ordering::Relaxed);
        assert!(!slot.contains(4096), "changing");
        slot.version.fetch_add(1, Ordering::Relaxed);
        assert!(slot.set(4096, 0, 0));
        assert!(!slot.contains(4096) && !slot.contains(0));
    }

    #[test]
    fn nothing_is_left_in_the_table() {
        let bytes = vec![0u8; 10];
        let of_bytes = || {
            TABLE
                .iter()
                .filter(|s| s.contains(bytes.as_ptr() as usize))
                .count()
        };
        let registration = Registration::new(&bytes);
        assert_eq!(of_bytes(), usize::from(cfg!(target_os = "linux")));
        assert!(!registration.is_damaged());
        drop(registration);
        assert_eq!(of_bytes(), 0);
    }
}
