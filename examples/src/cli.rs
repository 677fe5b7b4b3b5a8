//! What the programs' `main` functions share.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Settings of libraries below us that can only be given by environment variables, unless the caller has set them. For the first
/// line of a `main`.
///
/// `NODEVICE_SELECT`: Mesa's device selection complains on standard error where there is no desktop session.
/// `ORT_DISABLE_TELEMETRY`: ONNX Runtime 1.32 otherwise reports its use over the network and keeps a database in the home folder.
pub fn settle_environment() {
    for variable in ["NODEVICE_SELECT", "ORT_DISABLE_TELEMETRY"] {
        if std::env::var_os(variable).is_none() {
            // SAFETY: the first line of `main`; the process has one thread yet.
            unsafe { std::env::set_var(variable, "1") };
        }
    }
}

/// Runs a program: 0 if it succeeds, else its error with its causes on stderr, and 1.
pub fn run(program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", describe(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes on one line, without causes that the text before them says already.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

/// Writes to stdout. Somebody who has read enough, such as `head`, is no error.
///
/// # Errors
/// If stdout cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn causes_are_said_once() {
        let error = anyhow!("disk is full")
            .context("cannot write x: disk is full")
            .context("nothing was written");
        assert_eq!(
            describe(error.as_ref()),
            "nothing was written: cannot write x: disk is full"
        );
    }
}
