//! Files: read whole with a size limit, or memory-mapped.
//!
//! # What is guaranteed when a mapped file shrinks
//!
//! Touching a mapped page that lies behind the end of its file raises SIGBUS. Therefore:
//!
//! - A range is checked against the file's size when the folder is opened, and the size is asked for again
//!   (`fstat`) whenever a tensor is taken or prefaulted: a file that shrank before is an error that names it.
//! - [`Mapping::prefault`] lets the kernel touch the pages (`madvise(MADV_POPULATE_READ)`, Linux 5.14); a page that
//!   is gone by then is an error, not a signal.
//! - In between, and while others use the bytes (ONNX Runtime packing them, a driver copying them), a handler for
//!   SIGBUS stands guard over the mapping (Linux): the reader gets zeros instead of the signal, and [`Mapping::check`]
//!   and [`ModelFolder::check_weights`](crate::ModelFolder::check_weights) are errors from then on. So a caller that
//!   checks after using weights never takes zeros for weights. Other SIGBUS handlers of the process stay in force
//!   for all other addresses.
//! - What remains: on systems other than Linux, and with [`WeightAccess::MapUnguarded`](crate::WeightAccess), a file
//!   that shrinks after prefaulting ends the process. With [`WeightAccess::Read`](crate::WeightAccess) nothing is
//!   mapped in use. And threads of a driver that block the signal: what they read in place needs a [`Lease`], which keeps the
//!   file from shrinking. A file whose bytes are overwritten in place gives other weights; no check finds that.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::lease::Lease;
use crate::prefault::populate;
use crate::shrink_guard::Registration;

/// Whether a mapping is under guard against a shrinking file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarded {
    Yes,
    No,
}

/// A file mapped for reading.
#[derive(Debug)]
pub struct Mapping {
    path: PathBuf,
    file: File,
    // Before `map`, so that it is dropped before the memory is unmapped.
    guard: Registration,
    /// Invariant: maps exactly `len` bytes of `file`; absent when the file is empty, which cannot be mapped.
    map: Option<Mmap>,
    len: u64,
    /// The lease that somebody holds on the file.
    lease: Mutex<Weak<Lease>>,
}

impl Mapping {
    pub(crate) fn open(path: &Path, guarded: Guarded) -> Result<Self> {
        let (file, len) = open_regular(path)?;
        if usize::try_from(len).is_err() {
            return Err(
                Error::unsupported(format!("{len} bytes do not fit this machine's address space"))
                    .in_file(path),
            );
        }
        let map = match len {
            0 => None,
            // SAFETY: the mapping is read-only and private to this crate. That nobody changes the file is a
            // requirement on the user, stated in the crate's documentation: bytes are plain numbers whatever they
            // hold, and shrinking is dealt with as the module documentation says.
            _ => Some(unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "map", e))?),
        };
        let map = map.filter(|m| m.len() as u64 == len);
        if map.is_none() && len > 0 {
            return Err(Error::changed("the file changed while it was being opened").in_file(path));
        }
        let guard = match (&map, guarded) {
            (Some(map), Guarded::Yes) => Registration::new(map),
            _ => Registration::none(),
        };
        Ok(Mapping {
            path: path.to_path_buf(),
            file,
            guard,
            map,
            len,
            lease: Mutex::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in the file when it was mapped.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file was empty when it was mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// A lease on the file, for somebody who has the bytes read in place by threads that are not this program's. All who ask
    /// share one. `None` where there is no such thing; then such a reader needs a copy.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        let mut held = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = held.upgrade() {
            return lease.holds().then_some(lease);
        }
        let lease = Arc::new(Lease::take(&self.file, &self.path)?);
        *held = Arc::downgrade(&lease);
        Some(lease)
    }

    /// Asks the file system whether the file still has at least `end` bytes, and the guard whether any page was lost.
    ///
    /// # Errors
    /// It has fewer, or cannot be asked, or a page was found missing since the file was mapped.
    pub fn check(&self, end: u64) -> Result<()> {
        if self.guard.is_damaged() {
            let message =
                "a page was gone when it was used: the file shrank or the disk failed; open the folder again";
            return Err(Error::changed(message).in_file(&self.path));
        }
        let len = self
            .file
            .metadata()
            .map_err(|e| Error::io(&self.path, "ask for the size", e))?
            .len();
        if len < end {
            let was = self.len;
            return Err(Error::changed(format!(
                "the file shrank from {was} to {len} bytes while it was in use; byte {end} is gone"
            ))
            .in_file(&self.path));
        }
        Ok(())
    }

    /// Makes `len` bytes at `offset` resident, so that using them later does not wait for the disk, and maps nearly all of them.
    ///
    /// # Errors
    /// The file no longer has these bytes, or the disk cannot read them.
    pub fn prefault(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len);
        let Some(end) = end else {
            return Err(Error::range(format!(
                "{len} bytes at {offset} are behind the end, {}",
                self.len
            ))
            .in_file(&self.path));
        };
        self.check(end)?;
        if len == 0 {
            return Ok(());
        }
        match populate(&self.file, &self.bytes()[offset as usize..end as usize]) {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => {
                self.check(end)?;
                Err(Error::io(&self.path, "read the weights", e))
            }
            None => self.read_pages(offset, end),
        }
    }

    /// Gives whole pages among `len` bytes at `offset` back to the page cache: they no longer count as this process's memory, and
    /// come back from the cache when used again. Does nothing where the operating system has no such call.
    pub fn release(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        let page = page_bytes() as u64;
        let (first, last) = (offset.div_ceil(page) * page, end / page * page);
        if first < last {
            discard(&self.bytes()[first as usize..last as usize]);
        }
    }

    /// Reads one byte of each page into nowhere: fills the page cache and finds a missing page without touching it.
    fn read_pages(&self, offset: u64, end: u64) -> Result<()> {
        let page = page_bytes() as u64;
        let mut at = offset;
        while at < end {
            read_exact_at(&self.file, &mut [0u8], at)
                .map_err(|e| Error::io(&self.path, "read the weights", e))?;
            at = (at / page + 1) * page;
        }
        Ok(())
    }

    /// Copies `len` bytes at `offset` through the file, never touching the mapping.
    pub(crate) fn read_range(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset.saturating_add(buffer.len() as u64))?;
        read_exact_at(&self.file, buffer, offset).map_err(|e| Error::io(&self.path, "read the weights", e))
    }
}

/// Bytes of this machine's pages.
#[cfg(unix)]
pub(crate) fn page_bytes() -> usize {
    // SAFETY: asks for a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("a system with memory maps has pages")
}

/// No more than a page; smaller steps than needed do no harm.
#[cfg(not(unix))]
pub(crate) fn page_bytes() -> usize {
    4096
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !buffer.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[n..];
        offset += n as u64;
    }
    Ok(())
}

/// Opens a regular file; pipes and devices could block or never end.
fn open_regular(path: &Path) -> Result<(File, u64)> {
    let before = std::fs::metadata(path).map_err(|e| Error::io(path, "open", e))?;
    if !before.is_file() {
        return Err(Error::unsafe_path("not a regular file").in_file(path));
    }
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let len = file
        .metadata()
        .map_err(|e| Error::io(path, "ask for the size", e))?
        .len();
    Ok((file, len))
}

/// Reads a whole regular file of at most `limit` bytes.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, len) = open_regular(path)?;
    if len > limit {
        return Err(
            Error::unsupported(format!("{len} bytes; such files may have at most {limit}")).in_file(path),
        );
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len as usize).map_err(|e| {
        Error::unsupported(format!("no memory for {len} bytes"))
            .caused_by(e)
            .in_file(path)
    })?;
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::io(path, "read", e))?;
    Ok(bytes)
}

#[cfg(unix)]
fn discard(bytes: &[u8]) {
    // SAFETY: the range is whole pages of a read-only mapping of a file, which the kernel reads again when they are touched.
    unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), libc::MADV_DONTNEED) };
}

#[cfg(not(unix))]
fn discard(_: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(len: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7u8; len]).unwrap();
        (dir, path)
    }

    #[test]
    fn maps_and_prefaults() {
        let (_dir, path) = file_of(10_000);
        let mapping = Mapping::open(&path, Guarded::Yes).unwrap();
        mapping.prefault(5, 9_995).unwrap();
        assert!(mapping.prefault(5, 9_996).unwrap_err().is_out_of_range());
        assert!(mapping.prefault(u64::MAX, 2).unwrap_err().is_out_of_range());
        mapping.read_pages(5, 10_000).unwrap();
        assert!(mapping.bytes().iter().all(|&b| b == 7));
    }

    #[test]
    fn an_empty_file_is_an_empty_mapping() {
        let (_dir, path) = file_of(0);
        let mapping = Mapping::open(&path, Guarded::Yes).unwrap();
        assert!(mapping.is_empty() && mapping.bytes().is_empty());
        mapping.prefault(0, 0).unwrap();
    }

    #[test]
    fn a_shrunk_file_is_an_error_not_a_signal() {
        let (_dir, path) = file_of(100_000);
        let mapping = Mapping::open(&path, Guarded::Yes).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10)
            .unwrap();
        for error in [
            mapping.check(100_000).unwrap_err(),
            mapping.prefault(50_000, 10).unwrap_err(),
            mapping.read_range(50_000, &mut [0; 10]).unwrap_err(),
        ] {
            assert!(
                error.is_changed() && error.file() == Some(path.as_path()),
                "{error}"
            );
        }
        mapping.prefault(0, 10).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_page_lost_in_use_reads_as_zeros_and_is_an_error() {
        let (_dir, path) = file_of(100_000);
        let mapping = Mapping::open(&path, Guarded::Yes).unwrap();
        mapping.prefault(0, 100_000).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10)
            .unwrap();
        // A second thread, as the kernel sends the signal to the thread that reads.
        let sum = std::thread::scope(|s| {
            let read = || mapping.bytes()[8192..].iter().map(|&b| u64::from(b)).sum::<u64>();
            s.spawn(read).join().unwrap()
        });
        assert_eq!(sum, 0);
        // Also if the file is whole again: what was read was not its content.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(100_000)
            .unwrap();
        let error = mapping.check(1).unwrap_err();
        assert!(
            error.is_changed() && error.file() == Some(path.as_path()),
            "{error}"
        );
    }

    /// The race that a size check cannot win: the page goes between the check and the touch.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_reports_a_missing_page() {
        let (_dir, path) = file_of(100_000);
        let mapping = Mapping::open(&path, Guarded::Yes).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10)
            .unwrap();
        match populate(&mapping.file, &mapping.bytes()[90_000..90_010]) {
            Some(Err(_)) => {}
            None => assert!(mapping.read_pages(90_000, 90_010).unwrap_err().is_io()),
            Some(Ok(())) => panic!("a page behind the end cannot be populated"),
        }
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_folders_are_refused() {
        for path in ["/dev/zero", "/"] {
            assert!(
                Mapping::open(Path::new(path), Guarded::Yes)
                    .unwrap_err()
                    .is_unsafe_path()
            );
            assert!(read_file(Path::new(path), 10).unwrap_err().is_unsafe_path());
        }
    }
}
