//! What the programs' `main` functions share.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

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
