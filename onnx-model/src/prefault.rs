//! Has the kernel map pages before they are used.

use std::fs::File;
use std::io;

/// Maps `bytes`, which lie in `file`; `None` where the system has no such call.
#[cfg(not(target_os = "linux"))]
pub(crate) fn populate(_: &File, _: &[u8]) -> Option<io::Result<()>> {
    None
}

#[cfg(target_os = "linux")]
pub(crate) use linux::populate;

#[cfg(target_os = "linux")]
mod linux {
    use std::ops::Range;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::mapping::page_bytes;

    /// What the kernel maps around a page that is touched, of what its cache has (`fault_around_bytes`, unless changed).
    const FAULT_AROUND: usize = 64 << 10;
    /// Bytes after which the cache is asked whether it still has what comes.
    const CHUNK: usize = 1 << 20;

    /// Maps `bytes`, which lie in `file`; `None` where the system has no such call.
    ///
    /// What the cache has is mapped by asking for one page of each window: to have the kernel walk over every page takes twice
    /// as long. From where it lacks something, everything is asked for whole, which reads ahead.
    pub(crate) fn populate(file: &File, bytes: &[u8]) -> Option<io::Result<()>> {
        let page = page_bytes();
        let start = bytes.as_ptr() as usize / page * page;
        let end = bytes.as_ptr() as usize + bytes.len();
        if !is_told(file) {
            return whole(start..end);
        }
        for at in (start..end).step_by(CHUNK) {
            let chunk = at..end.min(at + CHUNK);
            // The first page tells for most: to learn by windows what is missing would read it piece by piece. The rest is looked
            // at once it is mapped, which takes a fraction of the time.
            if are_cached(at..at + 1) {
                let populated = windows(chunk.clone());
                if !matches!(populated, Some(Ok(()))) {
                    return populated;
                }
            }
            if !are_cached(chunk) {
                return whole(at..end);
            }
        }
        Some(Ok(()))
    }

    /// Asks for one page of each window, and for the last: what the file has lost, it has lost from its end.
    fn windows(range: Range<usize>) -> Option<io::Result<()>> {
        let page = page_bytes();
        let next = |at: &usize| Some((at / FAULT_AROUND + 1) * FAULT_AROUND);
        let windows = std::iter::successors(Some(range.start), next).take_while(|&at| at < range.end);
        for at in windows.chain([(range.end - 1) / page * page]) {
            let populated = whole(at..at + page);
            if !matches!(populated, Some(Ok(()))) {
                return populated;
            }
        }
        Some(Ok(()))
    }

    /// Asks for every page of a range that begins with one.
    fn whole(range: Range<usize>) -> Option<io::Result<()>> {
        loop {
            // SAFETY: the range is inside a live mapping of ours (page-aligned downwards stays inside it, since mappings
            // begin at a page), and this advice changes no byte.
            let rc = unsafe {
                libc::madvise(
                    range.start as *mut libc::c_void,
                    range.len(),
                    libc::MADV_POPULATE_READ,
                )
            };
            if rc == 0 {
                return Some(Ok(()));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::EINVAL | libc::ENOSYS) => return None,
                _ => return Some(Err(error)),
            }
        }
    }

    /// Whether this process is told the truth about the cache: of files of its own user, or as root.
    fn is_told(file: &File) -> bool {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        user == 0 || file.metadata().is_ok_and(|file| file.uid() == user)
    }

    /// Whether the cache has every page of a range; who may not know is told that it has, see [`is_told`].
    fn are_cached(range: Range<usize>) -> bool {
        let mut pages = vec![0_u8; range.len().div_ceil(page_bytes())];
        // SAFETY: the range begins with a page of a live mapping of ours and there is a byte for each of its pages.
        let rc = unsafe { libc::mincore(range.start as *mut libc::c_void, range.len(), pages.as_mut_ptr()) };
        rc == 0 && pages.iter().all(|page| page & 1 == 1)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::FileExt;

    use memmap2::Mmap;

    use super::*;

    fn faults() -> libc::c_long {
        // SAFETY: all zeros is a value of the struct, which the call fills in.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
            usage.ru_minflt + usage.ru_majflt
        }
    }

    /// Makes a file of 4 MiB without blocks, so that the cache has nothing of it at first, and lets it be prepared; populates a range of
    /// it, mapped, and reads that. Gives the faults that reading took.
    fn faults_of_reading(prepare: impl FnOnce(&File)) -> libc::c_long {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        prepare(&file);
        // SAFETY: the file is this test's own.
        let map = unsafe { Mmap::map(&file) }.unwrap();
        let bytes = &map[70_000..3_070_000];
        populate(&file, bytes).expect("Linux 5.14").unwrap();
        let before = faults();
        let sum: u64 = bytes.iter().step_by(512).map(|&b| u64::from(b)).sum();
        assert_eq!(sum, bytes.len().div_ceil(512) as u64 * u64::from(bytes[0]));
        faults() - before
    }

    /// 46 windows, of up to 16 pages each.
    #[test]
    fn reading_what_was_in_the_cache_takes_no_faults() {
        let faults = faults_of_reading(|file| file.write_all_at(&vec![7; 4 << 20], 0).unwrap());
        assert!(faults < 12, "{faults} faults");
    }

    #[test]
    fn reading_what_was_not_in_the_cache_takes_no_faults_either() {
        let faults = faults_of_reading(|_| ());
        assert!(faults < 12, "{faults} faults");
    }

    /// Nor if the cache has the beginning only.
    #[test]
    fn reading_what_was_in_the_cache_in_part_takes_no_faults_either() {
        let faults = faults_of_reading(|file| file.read_exact_at(&mut [0; 10_000], 65_536).unwrap());
        assert!(faults < 12, "{faults} faults");
    }
}
