//! Programs as a user runs them, and what a process leaves behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use anyhow::{Context, Result};

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    /// Exit code, `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `generate` with these arguments and, of the environment variables of this project, only `variables`.
///
/// # Panics
///
/// It cannot be built or started.
pub fn generate(arguments: &[&str], variables: &[(&str, &Path)]) -> Ran {
    run("generate", arguments, variables)
}

/// Runs a program of the examples package, as [`generate`] does.
///
/// # Panics
///
/// It cannot be built or started.
pub fn run(program: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> Ran {
    let mut command = Command::new(binary(program));
    command
        .args(arguments)
        .env_remove("HOSTLANE_DEFERRED_INIT")
        .envs(variables.iter().copied());
    command
        .output()
        .map(Ran::from)
        .unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// A program of the examples package, built once. Cargo gives tests the path of programs of their own package only.
pub fn binary(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| build().expect("the examples build"));
    folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn build() -> Result<PathBuf> {
    // target/PROFILE/deps/this-test
    let this = std::env::current_exe()?;
    let folder = this
        .ancestors()
        .nth(2)
        .context("a test lies in a target folder")?
        .to_owned();
    let target = folder
        .parent()
        .context("a profile folder lies in a target folder")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        // The selection of `cargo test --workspace`: with any other, features differ and every dependency is built once more.
        .args(["test", "--no-run", "--quiet", "--workspace", "--target-dir"])
        .arg(target);
    if folder.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    let done = command.current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    anyhow::ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(folder)
}

/// Held by tests that load models, and by tests that count the threads that loading leaves, so that those are alone.
static LOADING: RwLock<()> = RwLock::new(());

/// For a test that loads a model while others may.
pub fn in_company() -> RwLockReadGuard<'static, ()> {
    LOADING.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that counts threads: no other test has a model loaded.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    LOADING.write().unwrap_or_else(PoisonError::into_inner)
}

/// The names of this process's threads that start with `prefix`, and that stay: the kernel lists a thread for a moment after it
/// was joined.
pub fn threads_left(prefix: &str) -> Vec<String> {
    for _ in 0..200 {
        if threads_named(prefix).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    threads_named(prefix)
}

fn threads_named(prefix: &str) -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let names = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names
        .map(|name| name.trim().to_owned())
        .filter(|name| name.starts_with(prefix))
        .collect()
}
