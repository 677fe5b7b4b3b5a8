//! Every kernel against a plain CPU reference, at every subgroup size the adapter can be made to have.

mod attention;
mod elementwise;
mod embedding;
mod matvec;
mod norm;

use std::process::Command;

use crate::testing::Rig;

/// Mesa's lavapipe takes its vector width, and so its subgroup size, from this variable at start.
const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";

#[test]
fn kernels_match_their_references() {
    let Some(mut rig) = Rig::open("kernels against CPU references") else {
        return;
    };
    println!("subgroup size {}", rig.subgroup_size);
    check_all(&rig);
    // The same kernels as devices without subgroup operations get them.
    rig.subgroups = false;
    check_all(&rig);
}

fn check_all(rig: &Rig) {
    matvec::check(rig);
    norm::check(rig);
    embedding::check(rig);
    elementwise::check(rig);
    attention::check(rig);
}

/// The variable has to be set before the driver loads, so each width is a process of its own.
#[test]
fn kernels_match_at_every_subgroup_size() {
    let Some(rig) = Rig::open("kernels at every subgroup size") else {
        return;
    };
    if !rig.gpu.device.adapter_info().name.contains("llvmpipe") {
        eprintln!(
            "not exercised: kernels at every subgroup size: only Mesa's lavapipe can be told its subgroup size"
        );
        return;
    }
    for width in [128, 256, 512] {
        let child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args([
                "--exact",
                "kernel_tests::kernels_match_their_references",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(WIDTH, width.to_string())
            .output()
            .expect("the child starts");
        let text = String::from_utf8_lossy(&child.stdout);
        let errors = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "width {width}: {text}{errors}");
        let size = format!("subgroup size {}", width / 32);
        assert!(
            text.contains(&size),
            "width {width} was not taken: {text}{errors}"
        );
    }
}
