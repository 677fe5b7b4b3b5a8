//! Why something could not be provided, and what to do by hand.

use std::fmt;
use std::io;
use std::path::Path;

/// What [`ProvisionError`] is used with.
pub type Result<T, E = ProvisionError> = std::result::Result<T, E>;

/// Why something could not be provided; the text says what to do by hand.
#[derive(Debug)]
pub struct ProvisionError {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NoPip,
    Fetch,
    Network,
    DiskFull,
    Checksum,
    Cache,
    Platform,
    Contents,
}

impl ProvisionError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        ProvisionError {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(super) fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// A failed operation on a file or folder of the cache.
    pub(super) fn io(doing: &str, path: &Path, error: io::Error) -> Self {
        let path = path.display();
        if is_disk_full(&error) {
            return ProvisionError::disk_full(format!("cannot {doing} {path}: {error}")).caused_by(error);
        }
        let hint = "the cache folder must be writable; HOSTLANE_CACHE names another one";
        ProvisionError::new(Kind::Cache, format!("cannot {doing} {path}: {error}; {hint}")).caused_by(error)
    }

    /// Says what to do instead of what failed.
    pub(super) fn by_hand(self, what: &str) -> Self {
        let message = format!("{self}\nby hand: {what}");
        ProvisionError { message, ..self }
    }

    /// Adds what to do when a wheel that lies in the cache is not the pinned one.
    pub(super) fn about_kept_wheel(self, wheel: &Path) -> Self {
        match self.kind {
            Kind::Checksum => self.by_hand(&format!("remove {} and run this again", wheel.display())),
            _ => self,
        }
    }

    pub(super) fn disk_full(what: String) -> Self {
        let hint = "free some space (about 400 MB are needed at most), or name a folder on another disk in HOSTLANE_CACHE";
        ProvisionError::new(Kind::DiskFull, format!("{what}; the disk is full: {hint}"))
    }

    /// Whether there is no Python with pip.
    pub fn is_no_pip(&self) -> bool {
        self.kind == Kind::NoPip
    }

    /// Whether pip could not fetch the package, for want of a network or for another reason.
    pub fn is_fetch(&self) -> bool {
        matches!(self.kind, Kind::Fetch | Kind::Network)
    }

    /// Whether pip could not reach its package index.
    pub fn is_network(&self) -> bool {
        self.kind == Kind::Network
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        self.kind == Kind::DiskFull
    }

    /// Whether a file is not the pinned one.
    pub fn is_checksum(&self) -> bool {
        self.kind == Kind::Checksum
    }

    /// Whether the cache folder cannot be used.
    pub fn is_cache(&self) -> bool {
        self.kind == Kind::Cache
    }

    /// Whether nothing is pinned for this operating system and processor.
    pub fn is_platform(&self) -> bool {
        self.kind == Kind::Platform
    }

    /// Whether the fetched file is the pinned one but cannot be used.
    pub fn is_contents(&self) -> bool {
        self.kind == Kind::Contents
    }
}

impl fmt::Display for ProvisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProvisionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Whether an error or one of its causes is a full disk or an exhausted quota.
pub(super) fn is_disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let full = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    };
    error.downcast_ref().is_some_and(full) || error.source().is_some_and(is_disk_full)
}
