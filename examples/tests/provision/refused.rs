//! Each way to fail has its own error, and leaves nothing in the cache.

use crate::kit::{Kit, package, unpacked};
use examples::provision::{Pip, ProvisionError};
use std::fs;

/// The error of a pip that delivers this wheel for a package whose library is `library`.
#[track_caller]
fn refused_wheel(kit: &Kit, wheel: &std::path::Path) -> ProvisionError {
    let provisioner = kit.provisioner(kit.pip_with(wheel));
    let error = unpacked(&provisioner, &package("thing/lib.so", b"library"), &()).unwrap_err();
    assert_eq!(kit.cached_files(), [""; 0]);
    assert!(error.is_checksum(), "{error}");
    error
}

#[test]
fn another_files_checksum() {
    let kit = Kit::new();
    let error = refused_wheel(&kit, &kit.wheel(&[("thing/lib.so", b"malware")]));
    let message = error.to_string();
    assert!(
        message.contains("thing/lib.so") && message.contains("thing-1.0-py3-none-any.whl"),
        "{message}"
    );
    assert!(
        message.contains("expected") && message.contains("nothing was kept"),
        "{message}"
    );
}

#[test]
fn a_file_longer_than_pinned() {
    let kit = Kit::new();
    refused_wheel(
        &kit,
        &kit.wheel(&[("thing/lib.so", b"library and then some, and more")]),
    );
}

#[test]
fn a_wheel_without_the_file() {
    let kit = Kit::new();
    let error = refused_wheel(&kit, &kit.wheel(&[("thing/lib.dll", b"library")]));
    assert!(error.to_string().contains("thing/lib.so"), "{error}");
}

#[test]
fn a_damaged_wheel() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library")]);
    let whole = fs::read(&wheel).unwrap();
    // Every byte of the file's compressed form and its header counts; the rest of the archive may not.
    for damage in [0, whole.len() / 2, whole.len() - 1] {
        fs::write(&wheel, &whole[..damage]).unwrap();
        refused_wheel(&kit, &wheel);
    }
}

#[test]
fn a_kept_wheel_that_is_not_the_pinned_one_is_to_be_removed() {
    let kit = Kit::new();
    fs::create_dir_all(kit.path("cache/wheels")).unwrap();
    let kept = kit.path("cache/wheels/thing-1.0-py3-none-any.whl");
    fs::copy(kit.wheel(&[("thing/lib.so", b"malware")]), &kept).unwrap();
    let provisioner = kit.provisioner(kit.pip("exit 1"));
    let error = unpacked(&provisioner, &package("thing/lib.so", b"library"), &()).unwrap_err();
    assert!(
        error.is_checksum() && error.to_string().contains(&format!("remove {}", kept.display())),
        "{error}"
    );
}

#[track_caller]
fn refused_pip(lines: &str) -> ProvisionError {
    let kit = Kit::new();
    let provisioner = kit.provisioner(kit.pip(lines));
    let error = unpacked(&provisioner, &package("thing/lib.so", b"library"), &()).unwrap_err();
    assert_eq!(kit.cached_files(), [""; 0]);
    assert!(error.is_fetch(), "{error}");
    let message = error.to_string();
    let wheels = kit.path("cache/wheels").display().to_string();
    assert!(
        message.contains("pip download --no-deps --only-binary=:all: thing==1.0"),
        "{message}"
    );
    assert!(message.contains(&wheels), "{message}");
    error
}

#[test]
fn no_network() {
    let error = refused_pip(
        "echo 'WARNING: Retrying: NewConnectionError: [Errno -3] Temporary failure in name resolution' >&2
         echo 'ERROR: No matching distribution found for thing==1.0' >&2
         exit 1",
    );
    assert!(
        error.is_network() && error.to_string().contains("cannot be reached"),
        "{error}"
    );
}

#[test]
fn no_such_package() {
    let error = refused_pip("echo 'ERROR: No matching distribution found for thing==1.0' >&2; exit 1");
    let message = error.to_string();
    assert!(
        !error.is_network() && message.contains("No matching distribution found for thing==1.0"),
        "{message}"
    );
}

#[test]
fn a_pip_that_says_nothing_or_delivers_nothing() {
    refused_pip("exit 3");
    refused_pip("exit 0");
}

#[test]
fn a_full_disk() {
    let kit = Kit::new();
    let pip = kit.pip("echo 'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device' >&2; exit 1");
    let error = unpacked(&kit.provisioner(pip), &package("thing/lib.so", b"library"), &()).unwrap_err();
    assert!(
        error.is_disk_full() && error.to_string().contains("HOSTLANE_CACHE"),
        "{error}"
    );
    assert_eq!(kit.cached_files(), [""; 0]);
}

#[test]
fn no_pip() {
    let kit = Kit::new();
    let provisioner = kit.provisioner(Pip::with_command([kit.path("no-such-python")]));
    let error = unpacked(&provisioner, &package("thing/lib.so", b"library"), &()).unwrap_err();
    assert!(
        error.is_no_pip() && error.to_string().contains("by hand"),
        "{error}"
    );
    assert_eq!(kit.cached_files(), [""; 0]);
}

#[test]
fn a_cache_that_cannot_be_written() {
    let kit = Kit::new();
    fs::write(kit.path("cache"), "a file where a folder should be").unwrap();
    let error = unpacked(
        &kit.provisioner(kit.pip("exit 1")),
        &package("thing/lib.so", b"library"),
        &(),
    )
    .unwrap_err();
    assert!(
        error.is_cache() && error.to_string().contains("HOSTLANE_CACHE names another one"),
        "{error}"
    );
    assert_eq!(kit.calls(), 0);
}
