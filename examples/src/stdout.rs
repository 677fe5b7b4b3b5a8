//! Standard output for the program's own words alone.

use std::io::{self, Write};

/// Gives standard output to the caller and sends whatever else writes there to standard error.
///
/// Execution providers are foreign libraries, and some print to standard output (QNN's does, when the process ends), which would
/// break what a reader of the program's output parses. Call it before any library is loaded.
///
/// # Errors
/// The descriptors cannot be duplicated.
#[cfg(unix)]
pub fn claim() -> io::Result<Box<dyn Write + Send>> {
    use std::os::fd::AsFd;

    let own = io::stdout().as_fd().try_clone_to_owned()?;
    // SAFETY: both descriptors are open for the life of the process, and `own` keeps what 1 was.
    match unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Box::new(std::fs::File::from(own))),
    }
}

/// Gives standard output; here what else writes there is not kept apart.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn claim() -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(io::stdout()))
}
