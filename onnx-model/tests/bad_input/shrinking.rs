//! A weight file that shrinks while it is mapped: an error that names it at every point where it can be noticed.

use std::fs;

use onnx_model::{Error, FolderOptions, ModelFolder, WeightAccess};

use crate::support::*;

fn shrink(folder: &Folder, len: u64) {
    fs::File::options()
        .write(true)
        .open(folder.path("model.onnx.data"))
        .unwrap()
        .set_len(len)
        .unwrap();
}

#[track_caller]
fn check(error: &Error) {
    assert!(error.is_changed(), "{error}");
    assert!(
        error.file().is_some_and(|f| f.ends_with("model.onnx.data")),
        "{error}"
    );
}

#[test]
fn before_a_tensor_is_taken() {
    let folder = Folder::tiny();
    let model = folder.open().unwrap();
    shrink(&folder, 1000);
    check(&model.tensor("head").unwrap_err());
    check(&model.check_weights().unwrap_err());
    let error = model
        .read(model.operators().unwrap().last().unwrap())
        .unwrap_err();
    check(&error);
    assert_eq!(
        (error.node(), error.tensor()),
        (Some("/lm_head/MatMul"), Some("head"))
    );
    // What is still there can be taken.
    model.tensor("embed").unwrap().bytes.prefault().unwrap();
}

#[test]
fn between_reading_and_prefault() {
    let folder = Folder::tiny();
    let model = folder.open().unwrap();
    let data = model.read(model.operators().unwrap().last().unwrap()).unwrap();
    data.prefault().unwrap();
    shrink(&folder, 0);
    let error = data.prefault().unwrap_err();
    check(&error);
    assert_eq!(error.tensor(), Some("head"));
}

/// Nothing warns the reader here: the bytes are used after every check. The guard makes it zeros and an error.
#[cfg(target_os = "linux")]
#[test]
fn while_the_bytes_are_in_use() {
    let folder = Folder::tiny();
    let model = folder.open().unwrap();
    let head = model.tensor("head").unwrap();
    head.bytes.prefault().unwrap();
    assert!(head.bytes.iter().all(|&b| b == 1));
    model.check_weights().unwrap();
    shrink(&folder, 0);
    assert!(head.bytes.iter().all(|&b| b == 0));
    check(&model.check_weights().unwrap_err());
    // The rest of the process is as before: another folder works, and the damaged one stays damaged.
    let other = Folder::tiny();
    other.open().unwrap().check_weights().unwrap();
    fs::write(folder.path("model.onnx.data"), vec![1; TINY_DATA]).unwrap();
    check(&model.check_weights().unwrap_err());
    folder.open().unwrap().check_weights().unwrap();
}

/// Without the guard, the signal ends the process; run in a process of its own, so that the test can see it.
#[cfg(target_os = "linux")]
#[test]
fn without_the_guard_it_is_the_end_of_the_process() {
    use std::os::unix::process::ExitStatusExt;

    const ENVIRONMENT: &str = "HOSTLANE_TEST_UNGUARDED";
    if std::env::var_os(ENVIRONMENT).is_some() {
        let folder = Folder::tiny();
        let options = FolderOptions {
            weights: WeightAccess::MapUnguarded,
            ..Default::default()
        };
        let model = ModelFolder::open_with(folder.path(""), options).unwrap();
        let head = model.tensor("head").unwrap();
        shrink(&folder, 0);
        let sum: u32 = head.bytes.iter().map(|&b| u32::from(b)).sum();
        unreachable!("read {sum}");
    }
    let this = "shrinking::without_the_guard_it_is_the_end_of_the_process";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let status = child
        .args([this, "--exact", "--nocapture"])
        .env(ENVIRONMENT, "1")
        .output()
        .unwrap()
        .status;
    assert_eq!(status.signal(), Some(libc::SIGBUS));
}

#[test]
fn weights_that_were_read_do_not_care() {
    let folder = Folder::tiny();
    let options = FolderOptions {
        weights: WeightAccess::Read,
        ..Default::default()
    };
    let model = ModelFolder::open_with(folder.path(""), options).unwrap();
    let data = model.read(model.operators().unwrap().last().unwrap()).unwrap();
    shrink(&folder, 0);
    data.prefault().unwrap();
    assert!(data.tensor("head").unwrap().bytes.iter().all(|&b| b == 1));
}
