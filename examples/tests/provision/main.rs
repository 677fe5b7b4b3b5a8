//! What is fetched is the pinned thing or an error; what is in the cache is complete; things are fetched once.

#[path = "../../../onnx-model/tests/gguf/build.rs"]
#[allow(dead_code)]
mod build;
mod interrupted;
mod kit;
mod model;
mod real;
mod refused;

use kit::{Kit, Steps, package, unpacked};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::mpsc;

#[test]
fn a_package_is_fetched_once() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library"), ("thing/other", b"not wanted")]);
    let (provisioner, package) = (
        kit.provisioner(kit.pip_with(&wheel)),
        package("thing/lib.so", b"library"),
    );
    let steps = Steps::default();
    let folder = unpacked(&provisioner, &package, &steps).unwrap();
    assert_eq!(fs::read(folder.join("lib.so")).unwrap(), b"library");
    assert_eq!(kit.cached_files(), ["things/1.0/lib.so"]);
    assert_eq!(steps.names(), ["fetching", "unpacking", "done"]);

    let steps = Steps::default();
    assert_eq!(unpacked(&provisioner, &package, &steps).unwrap(), folder);
    assert_eq!(kit.calls(), 1);
    assert_eq!(steps.names(), ["done"]);
}

#[test]
fn a_wheel_put_there_by_hand_needs_no_pip() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library")]);
    fs::create_dir_all(kit.path("cache/wheels")).unwrap();
    fs::copy(&wheel, kit.path("cache/wheels/thing-1.0-py3-none-any.whl")).unwrap();
    // Another version's wheel is not taken for it.
    fs::write(kit.path("cache/wheels/thing-1.0.1-py3-none-any.whl"), "other").unwrap();
    let provisioner = kit.provisioner(kit.pip("exit 1"));
    unpacked(&provisioner, &package("thing/lib.so", b"library"), &()).unwrap();
    assert_eq!(kit.calls(), 0);
}

#[test]
fn a_deleted_or_shortened_file_is_fetched_again() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library")]);
    let (provisioner, package) = (
        kit.provisioner(kit.pip_with(&wheel)),
        package("thing/lib.so", b"library"),
    );
    let file = unpacked(&provisioner, &package, &()).unwrap().join("lib.so");
    fs::write(&file, b"lib").unwrap();
    unpacked(&provisioner, &package, &()).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"library");
    fs::remove_file(&file).unwrap();
    unpacked(&provisioner, &package, &()).unwrap();
    assert_eq!(kit.calls(), 3);
}

#[test]
fn threads_that_want_the_same_take_turns() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library")]);
    let (provisioner, package) = (
        kit.provisioner(kit.pip_with(&wheel)),
        package("thing/lib.so", b"library"),
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| unpacked(&provisioner, &package, &()).unwrap());
        }
    });
    assert_eq!(kit.calls(), 1);
}

#[test]
fn another_processs_lock_is_waited_for() {
    let kit = Kit::new();
    let wheel = kit.wheel(&[("thing/lib.so", b"library")]);
    fs::create_dir_all(kit.path("cache/locks")).unwrap();
    let lock = fs::File::create(kit.path("cache/locks/things-1.0.lock")).unwrap();
    lock.lock().unwrap();

    struct Tell(Steps, mpsc::Sender<()>);
    impl examples::provision::Progress for Tell {
        fn step(&self, step: examples::provision::Step<'_>) {
            self.0.step(step);
            // The receiver listens for the first step only.
            let _ = self.1.send(());
        }
    }
    let (sender, first_step) = mpsc::channel();
    let (provisioner, package) = (
        kit.provisioner(kit.pip_with(&wheel)),
        package("thing/lib.so", b"library"),
    );
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let tell = Tell(Steps::default(), sender);
            unpacked(&provisioner, &package, &tell).unwrap();
            tell.0.names()
        });
        first_step.recv().unwrap();
        assert_eq!(kit.calls(), 0, "nothing is fetched while the lock is held");
        drop(lock);
        assert_eq!(
            waiter.join().unwrap(),
            ["waiting", "fetching", "unpacking", "done"]
        );
    });
}

#[test]
fn the_cache_is_where_the_environment_says() {
    let root = |variables: &[(&str, &str)]| {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, value)| OsString::from(value))
        };
        examples::provision::Cache::from_environment(variable).map(|cache| cache.root().to_path_buf())
    };
    let all = [("HOSTLANE_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
    assert_eq!(root(&all).unwrap(), Path::new("/a"));
    assert_eq!(root(&all[1..]).unwrap(), Path::new("/b/hostlane"));
    assert_eq!(root(&all[2..]).unwrap(), Path::new("/c/.cache/hostlane"));
    assert_eq!(
        root(&[
            ("HOSTLANE_CACHE", ""),
            ("XDG_CACHE_HOME", "relative"),
            ("HOME", "/c")
        ])
        .unwrap(),
        Path::new("/c/.cache/hostlane")
    );
    let error = root(&[]).unwrap_err();
    assert!(
        error.is_cache() && error.to_string().contains("set HOSTLANE_CACHE"),
        "{error}"
    );
}
