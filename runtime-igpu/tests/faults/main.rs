//! What goes wrong is a typed error that names the operator; the process lives, and a later load works.

mod adapters;
#[path = "../engine/common.rs"]
#[allow(dead_code)]
mod common;
mod device_loss;
mod memory;
mod refusals;

use std::process::{Command, Output};

/// Runs one test of this binary in a process of its own, with an environment that has to be set before drivers load.
fn child(test: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(environment.iter().copied())
        .output()
        .expect("the child starts")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
