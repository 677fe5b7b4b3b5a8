//! A read lease: nobody changes a file while somebody reads it in place who cannot be told of a fault.
//!
//! The guard for a shrinking file (see [`Mapping`](crate::Mapping)) handles a signal in the thread that reads. Threads of a
//! driver may block that signal, and then the process ends. So what such threads read has to stay: on Linux a process may
//! hold a lease on a file of its own user; whoever wants to write to the file or to shorten it then waits until the
//! lease is given back, at most the system's `lease-break-time` (45 s). It does not help against a disk that fails.

use std::fs::File;
use std::path::{Path, PathBuf};

/// A read lease on a file, given back when dropped.
///
/// Its holder asks [`holds`](Self::holds) before each use of the bytes, and drops it once that is false: somebody waits.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    /// A description of its own: a lease belongs to it.
    file: File,
}

impl Lease {
    /// `None` where there is no such thing: other systems, file systems without leases, another user's file, a file that is open
    /// for writing.
    pub(crate) fn take(file: &File, path: &Path) -> Option<Self> {
        let file = imp::lease(file)?;
        Some(Self {
            path: path.to_path_buf(),
            file,
        })
    }

    /// Whether nobody waits to change the file.
    pub fn holds(&self) -> bool {
        imp::holds(&self.file)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use libc::c_int;

    /// `F_SETSIG` of `fcntl.h`, which `libc` does not name.
    const SET_SIGNAL: c_int = 10;

    pub(super) fn lease(file: &File) -> Option<File> {
        // The file itself, whatever its path means by now, and readable only, as a read lease wants it.
        let own = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        // The holder asks and is not to be signalled. Until there is nobody to signal, let it be a signal that is ignored by default.
        control(&own, SET_SIGNAL, libc::SIGURG)?;
        control(&own, libc::F_SETLEASE, libc::F_RDLCK as c_int)?;
        control(&own, libc::F_SETOWN, 0)?;
        Some(own)
    }

    pub(super) fn holds(file: &File) -> bool {
        // A lease that somebody waits for counts as what it is to become: none.
        control(file, libc::F_GETLEASE, 0) == Some(libc::F_RDLCK as c_int)
    }

    fn control(file: &File, command: c_int, argument: c_int) -> Option<c_int> {
        // SAFETY: commands that take a number, on an open file.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => None,
            value => Some(value),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::fs::File;

    pub(super) fn lease(_: &File) -> Option<File> {
        None
    }

    pub(super) fn holds(_: &File) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, [7; 5000]).unwrap();
        (dir, path)
    }

    #[test]
    fn whoever_changes_a_leased_file_waits_until_it_is_given_back() {
        let (_dir, path) = file();
        let lease = Lease::take(&File::open(&path).unwrap(), &path).expect("the file is this user's");
        assert!(lease.holds());
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                File::options()
                    .write(true)
                    .open(&path)
                    .and_then(|file| file.set_len(1))
                    .unwrap();
                changed.store(true, Ordering::SeqCst);
            });
            for _ in 0..30_000 {
                if !lease.holds() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!lease.holds(), "nobody asked for the file");
            assert!(!changed.load(Ordering::SeqCst), "the writer waits");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 5000);
            drop(lease);
        });
        assert!(changed.load(Ordering::SeqCst));
    }

    #[test]
    fn a_file_that_is_being_written_has_no_lease() {
        let (_dir, path) = file();
        let writer = File::options().write(true).open(&path).unwrap();
        assert!(Lease::take(&File::open(&path).unwrap(), &path).is_none());
        drop(writer);
        assert!(Lease::take(&File::open(&path).unwrap(), &path).is_some());
    }
}
