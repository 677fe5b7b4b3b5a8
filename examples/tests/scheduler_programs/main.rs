//! The examples that stand for the scheduler run to their end and say what they should.

use std::process::Command;

/// Runs a program without arguments; fails unless it succeeds and its output has these lines or parts of lines, in order.
#[track_caller]
fn check(program: &str, parts: &[&str]) {
    let output = Command::new(program)
        .output()
        .expect("the example was built with this test");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed\n{text}\n{errors}");
    let mut rest = &*text;
    for part in parts {
        let place = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part:?} is missing in\n{rest}\n{errors}"));
        rest = &rest[place + part.len()..];
    }
}

#[test]
fn custom_operator_type() {
    check(
        env!("CARGO_BIN_EXE_custom_operator_type"),
        &[
            "inline: 240000 values in 3 uploads",
            "overlapped: 240000 values in 3 uploads",
            "error: layers.0.table: host phase failed on lane host: the table is empty (2 nodes skipped)",
            r#"skipped: ["layers.0.table", "layers.1.table"]"#,
        ],
    );
}

#[test]
fn embed_scheduler() {
    check(
        env!("CARGO_BIN_EXE_embed_scheduler"),
        &[
            "constructor returned",
            "prefill answers 24.0",
            "decode answers 24.0",
            "Prefill",
            "Decode",
        ],
    );
}

#[test]
fn ordering_properties() {
    check(
        env!("CARGO_BIN_EXE_ordering_properties"),
        &[
            "every lane kept its order, every guarantee held",
            "across lanes there is no order: the device saw",
            "smallest graph found, in mode",
        ],
    );
}
