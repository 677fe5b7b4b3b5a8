//! Ctrl-C.

use std::io::Read;
use std::process::{Command, Stdio};

use tests::{binary, fixture, library};

#[test]
fn an_interrupt_ends_the_program_with_130() {
    let mut command = Command::new(binary("generate"));
    command.args([
        "The capital of France is",
        "--raw",
        "--max-tokens",
        "2000",
        "--model",
    ]);
    command.arg(fixture("qwen3-tiny-int4"));
    if let Some(library) = library().candidates().unwrap().first() {
        command.env("ORT_DYLIB_PATH", library);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first piece of the answer: loaded, and decoding.
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // SAFETY: sends a signal to a child that has not been waited for, so its id is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{status}");
}
