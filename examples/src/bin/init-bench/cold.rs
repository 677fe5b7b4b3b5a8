//! A cold page cache, without special rights: the kernel drops clean pages of a file that nobody maps when told they are
//! not needed.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use onnx_model::ModelFolder;

/// Drops the model's weights from the page cache.
pub(crate) fn drop_page_cache(folder: &ModelFolder) -> Result<()> {
    for weights in folder.weight_files() {
        let path = weights.path();
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        // Dirty pages stay: write them out first.
        file.sync_all()
            .with_context(|| format!("cannot sync {}", path.display()))?;
        // SAFETY: a call on an open file descriptor that touches no memory of this process.
        let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        ensure!(
            code == 0,
            "dropping {} from the page cache: {}",
            path.display(),
            std::io::Error::from_raw_os_error(code)
        );
    }
    Ok(())
}
