//! A folder that appears complete or not at all.

use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A temporary folder beside its destination, which it becomes by one rename when it is complete.
///
/// Dropping it unpublished removes it. After a crash the temporary folder stays behind, under a name that starts with
/// a dot and ends in `.partial`, and never under the destination's name.
#[derive(Debug)]
pub struct StagedFolder {
    temporary: PathBuf,
    destination: PathBuf,
    published: bool,
}

impl StagedFolder {
    /// Starts a folder that is to become `destination`. Missing parents are created.
    ///
    /// # Errors
    /// If `destination` exists and is not an empty folder, or the temporary folder cannot be made.
    pub fn new(destination: impl Into<PathBuf>) -> Result<Self> {
        let destination = destination.into();
        let Some(name) = destination.file_name() else {
            return Err(Error::invalid_argument("not a folder that can be created").in_file(&destination));
        };
        check_free(&destination)?;
        let parent = match destination.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(|error| Error::io(&parent, "create", error))?;
        let temporary = create_unique(&parent, &name.to_string_lossy())?;
        Ok(StagedFolder {
            temporary,
            destination,
            published: false,
        })
    }

    /// Where to write until it is published.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Writes a small file into it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = self.temporary.join(name);
        fs::write(&path, contents).map_err(|error| Error::io(&path, "write", error))
    }

    /// Makes it the destination.
    ///
    /// # Errors
    /// If the destination has come into being meanwhile, or the rename fails; nothing is left behind then.
    pub fn publish(mut self) -> Result<()> {
        check_free(&self.destination)?;
        fs::rename(&self.temporary, &self.destination)
            .map_err(|error| Error::io(&self.destination, "rename the finished folder", error))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        if !self.published {
            // There is nobody to tell, and the name says what it is.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// A new folder that no other thread or process uses.
fn create_unique(parent: &Path, name: &str) -> Result<PathBuf> {
    let mut attempt = 0;
    loop {
        let path = parent.join(format!(".{name}.{}-{attempt}.partial", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
            Err(error) => return Err(Error::io(&path, "create", error)),
        }
    }
}

fn check_free(destination: &Path) -> Result<()> {
    let entries = match fs::read_dir(destination) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => true,
        Err(error) => return Err(Error::io(destination, "look into", error)),
    };
    if entries {
        let message = "exists already; remove it or choose another folder";
        return Err(Error::invalid_argument(message).in_file(destination));
    }
    Ok(())
}
