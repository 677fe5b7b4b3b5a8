//! The cache folder: where things are, locks, and folders that appear complete or not at all.

use super::error::{Kind, ProvisionError, Result};
use super::progress::{Progress, Step};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The cache folder; nothing is created before something is to be put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// A cache at this folder.
    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// The cache that the environment names: `HOSTLANE_CACHE`, else `XDG_CACHE_HOME/hostlane`, else
    /// `~/.cache/hostlane` (`LOCALAPPDATA\hostlane` on Windows). `variable` looks a variable up.
    ///
    /// # Errors
    /// If none of the variables is set.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Cache> {
        let folder = |name: &str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let root = folder("HOSTLANE_CACHE")
            // The specification says to ignore relative paths.
            .or_else(|| {
                folder("XDG_CACHE_HOME")
                    .filter(|path| path.is_absolute())
                    .map(|path| path.join("hostlane"))
            })
            .or_else(|| {
                folder("LOCALAPPDATA")
                    .filter(|_| cfg!(windows))
                    .map(|path| path.join("hostlane"))
            })
            .or_else(|| folder("HOME").map(|home| home.join(".cache").join("hostlane")));
        let message = "no cache folder: neither HOSTLANE_CACHE nor XDG_CACHE_HOME nor HOME is set; set HOSTLANE_CACHE to a folder";
        // A relative path means the same to everybody who is told of it.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        root.map(absolute)
            .map(Cache::at)
            .ok_or_else(|| ProvisionError::new(Kind::Cache, message))
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path in the cache, from its parts.
    pub fn path(&self, item: &str) -> PathBuf {
        item.split('/')
            .fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Gives the folder `item`, after making it if it is not there or `is_complete` does not hold.
    ///
    /// Processes and threads that want the same item take turns, so it is made once. `make` gets an empty folder to
    /// fill; if it fails, panics or the process dies, nothing is put into place.
    ///
    /// # Errors
    /// If `make` fails, or the cache cannot be written.
    pub fn get_or_make(
        &self,
        item: &str,
        is_complete: impl Fn(&Path) -> bool,
        progress: &dyn Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let target = self.path(item);
        if is_complete(&target) {
            return Ok(target);
        }
        let key = item.replace('/', "-");
        let _lock = self.lock(&key, progress)?;
        // Somebody else may have made it while this one waited.
        if is_complete(&target) {
            return Ok(target);
        }
        self.remove_stale(&key)?;
        let partial = Partial::create(self.path("partial"), &key)?;
        make(&partial.path)?;
        sync_files(&partial.path)?;
        // Something is there that is not complete: a file was deleted, or cut short by a failing disk.
        if target.exists() {
            fs::remove_dir_all(&target).map_err(|error| ProvisionError::io("remove", &target, error))?;
        }
        create_dir_all(target.parent().unwrap_or(&self.root))?;
        fs::rename(&partial.path, &target)
            .map_err(|error| ProvisionError::io("move a finished folder to", &target, error))?;
        Ok(target)
    }

    /// Keeps a wheel that was found to be good, for another use.
    pub(super) fn keep_wheel(&self, wheel: &Path) -> Result<()> {
        let folder = self.path("wheels");
        create_dir_all(&folder)?;
        let target = folder.join(wheel.file_name().unwrap_or_default());
        sync_file(wheel)?;
        fs::rename(wheel, &target).map_err(|error| ProvisionError::io("move a wheel to", &target, error))
    }

    /// Wheels that the user put there, or that were kept.
    pub(super) fn wheels(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("wheels")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    fn lock(&self, key: &str, progress: &dyn Progress) -> Result<File> {
        let folder = self.path("locks");
        create_dir_all(&folder)?;
        let path = folder.join(format!("{key}.lock"));
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = open.map_err(|error| ProvisionError::io("open", &path, error))?;
        // The operating system releases the lock when the process ends, however it ends.
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                progress.step(Step::Waiting { item: key });
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        locked.map_err(|error| ProvisionError::io("lock", &path, error))?;
        Ok(file)
    }

    /// Removes what crashed attempts at an item left. Only called under its lock, so nobody is at work there.
    fn remove_stale(&self, key: &str) -> Result<()> {
        let prefix = format!("{key}.");
        for entry in fs::read_dir(self.path("partial")).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(|error| ProvisionError::io("remove", &path, error))?;
            }
        }
        Ok(())
    }
}

/// A folder that is removed when it is dropped, unless it was moved away.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(parent: PathBuf, key: &str) -> Result<Partial> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{key}.{}-{number}", std::process::id()));
        create_dir_all(&path)?;
        Ok(Partial { path })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // If this fails, the next attempt tries again and reports it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

pub(super) fn create_dir_all(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| ProvisionError::io("create", path, error))
}

/// Flushes every file to disk, so that after a power cut a folder under its final name has its contents.
fn sync_files(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|error| ProvisionError::io("list", folder, error))?;
    for entry in entries {
        let path = entry
            .map_err(|error| ProvisionError::io("list", folder, error))?
            .path();
        if path.is_dir() {
            sync_files(&path)?;
        } else {
            sync_file(&path)?;
        }
    }
    Ok(())
}

fn sync_file(path: &Path) -> Result<()> {
    let synced = OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|file| file.sync_all());
    synced.map_err(|error| ProvisionError::io("flush", path, error))
}
