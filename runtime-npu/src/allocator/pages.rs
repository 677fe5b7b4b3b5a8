//! Pages: mapped, populated a block at a time, given back.
//!
//! A block is the size of a huge page, and a huge page where that is quicker. Where the machine has huge pages at hand, one takes a
//! fifth of the time that its 512 small pages take. But a kernel that first has to make room for one, and a virtual machine whose
//! host has taken free memory back, need many times as long. Nobody can ask for that beforehand, so the two are timed against each
//! other, and huge pages are taken on credit: what they save is theirs to lose, and small ones earn a little for the next try.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A huge page on x86-64, and on ARM with small pages of 4 KiB.
pub(super) const BLOCK: usize = 2 << 20;

/// Makes the memory of whole blocks resident. What the kernel refuses comes page by page, as it is written.
pub(super) fn populate(blocks: Range<usize>) {
    static PACE: Mutex<Pace> = Mutex::new(Pace::new());
    let pace = |f: &mut dyn FnMut(&mut Pace)| f(&mut PACE.lock().unwrap_or_else(PoisonError::into_inner));
    for block in blocks.step_by(BLOCK) {
        let mut size = PageSize::Small;
        pace(&mut |pace| size = pace.next());
        let took = populate_block(block, size);
        pace(&mut |pace| pace.took(size, took));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageSize {
    Small,
    Huge,
}

/// Which pages the next block is to have.
struct Pace {
    /// The least that a block of small pages took, in nanoseconds.
    small: Option<i64>,
    /// What huge pages may still lose, in nanoseconds.
    credit: i64,
}

/// The most that huge pages may lose in a row after they have saved much, in blocks of small pages: about what one costs that the host of
/// a virtual machine has taken back.
const MAX_CREDIT: i64 = 8;

/// The part of a small block's time that it earns for another try of a huge one. So where those are slow, this part is lost.
const TRY: i64 = 32;

impl Pace {
    const fn new() -> Self {
        Self {
            small: None,
            credit: 0,
        }
    }

    fn next(&self) -> PageSize {
        match self.small {
            Some(_) if self.credit >= 0 => PageSize::Huge,
            _ => PageSize::Small,
        }
    }

    fn took(&mut self, size: PageSize, time: Duration) {
        let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2);
        let small = self.small.unwrap_or(time);
        match size {
            PageSize::Small => {
                self.small = Some(small.min(time));
                if self.credit < 0 {
                    self.credit += time / TRY;
                }
            }
            PageSize::Huge => self.credit = (self.credit + small - time).min(MAX_CREDIT * small),
        }
    }
}

/// Populates a block; the time that this took of the processor, since others may run meanwhile.
fn populate_block(block: usize, size: PageSize) -> Duration {
    let before = thread_time();
    // SAFETY: a block of a slab; no advice changes a byte.
    unsafe {
        if size == PageSize::Huge {
            libc::madvise(block as *mut c_void, BLOCK, libc::MADV_HUGEPAGE);
        }
        libc::madvise(block as *mut c_void, BLOCK, libc::MADV_POPULATE_WRITE);
    }
    thread_time().saturating_sub(before)
}

fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Maps `len` bytes of address space, at the boundary of a block.
pub(super) fn map(len: usize) -> Option<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let padded = len.checked_add(BLOCK)?;
    // SAFETY: new memory, anywhere.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), padded, access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let mapped = mapped as usize;
    let start = mapped.next_multiple_of(BLOCK);
    // SAFETY: what lies before and behind the aligned part is ours and unused.
    unsafe {
        unmap(mapped, start - mapped);
        unmap(start + len, mapped + padded - (start + len));
    }
    Some(start)
}

/// # Safety
/// Nobody uses these bytes any more.
pub(super) unsafe fn unmap(start: usize, len: usize) {
    if len > 0 {
        // SAFETY: as promised.
        unsafe { libc::munmap(start as *mut c_void, len) };
    }
}

/// Gives the memory of the pages that lie inside this range back to the system.
pub(super) fn discard(range: Range<usize>) {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (first, last) = (range.start.next_multiple_of(page), range.end / page * page);
    if first < last {
        // SAFETY: these pages belong to the range alone.
        unsafe { libc::madvise(first as *mut c_void, last - first, libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Duration = Duration::from_micros(800);
    const QUICK: Duration = Duration::from_micros(150);
    const SLOW: Duration = Duration::from_micros(4700);

    /// Which blocks of a thousand are huge, if huge ones take so long.
    fn huge(time: impl Fn(usize) -> Duration) -> Vec<usize> {
        let mut pace = Pace::new();
        let mut huge = Vec::new();
        for block in 0..1000 {
            let size = pace.next();
            match size {
                PageSize::Small => pace.took(size, SMALL),
                PageSize::Huge => {
                    huge.push(block);
                    pace.took(size, time(block));
                }
            }
        }
        huge
    }

    #[test]
    fn quick_huge_pages_are_used_throughout() {
        assert_eq!(huge(|_| QUICK), Vec::from_iter(1..1000));
    }

    #[test]
    fn slow_ones_are_tried_now_and_then() {
        // Each loses 3.9 ms, which 156 small ones earn.
        assert_eq!(huge(|_| SLOW), [1, 158, 315, 472, 629, 786, 943]);
    }

    #[test]
    fn a_slow_one_among_quick_ones_is_paid_from_what_those_saved() {
        let expected = Vec::from_iter(1..1000);
        assert_eq!(huge(|block| if block == 50 { SLOW } else { QUICK }), expected);
    }

    #[test]
    fn where_slow_ones_outweigh_quick_ones_little_is_lost() {
        // One in three is slow, so that huge ones take twice the time of small ones.
        let huge = huge(|block| if block % 3 == 0 { SLOW } else { QUICK });
        let time = |&block: &usize| if block % 3 == 0 { SLOW } else { QUICK };
        let lost = huge
            .iter()
            .map(time)
            .sum::<Duration>()
            .saturating_sub(SMALL * huge.len() as u32);
        assert!(lost < SMALL * 1000 / 20, "{lost:?} over {} tries", huge.len());
    }

    #[test]
    fn populated_blocks_are_zero_and_discarded_ones_too() {
        let start = map(4 * BLOCK).unwrap();
        assert_eq!(start % BLOCK, 0);
        populate(start..start + 3 * BLOCK);
        // SAFETY: memory of the test's own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, 4 * BLOCK) };
        assert!(bytes.iter().all(|&b| b == 0));
        bytes.fill(1);
        discard(start + 10..start + 2 * BLOCK + 10);
        // Whole pages only: what others may use stays.
        assert!(bytes[..10].iter().all(|&b| b == 1) && bytes[2 * BLOCK..].iter().all(|&b| b == 1));
        assert!(bytes[64 << 10..2 * BLOCK].iter().all(|&b| b == 0));
        // SAFETY: not used any more.
        unsafe { unmap(start, 4 * BLOCK) };
    }
}
