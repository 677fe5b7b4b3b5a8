//! A cache in a temporary folder, wheels made here, and stand-ins for pip.

use examples::provision::{Cache, Member, Package, Pip, Progress, ProvisionError, Provisioner, Result, Step};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

/// A workplace: `cache/` is the cache, the rest is the test's.
pub struct Kit {
    dir: TempDir,
}

impl Kit {
    pub fn new() -> Kit {
        Kit {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn cache(&self) -> Cache {
        Cache::at(self.path("cache"))
    }

    /// A wheel of package `thing` 1.0 with these files.
    pub fn wheel(&self, files: &[(&str, &[u8])]) -> PathBuf {
        let path = self.path("thing-1.0-py3-none-any.whl");
        let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        for (name, contents) in files {
            zip.start_file(*name, zip::write::SimpleFileOptions::default())
                .unwrap();
            zip.write_all(contents).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    /// A pip that runs these lines of shell for `download`, with `$dest` set, and notes each call.
    pub fn pip(&self, lines: &str) -> Pip {
        let (script, calls) = (self.path("pip.sh"), self.path("calls"));
        let text = format!(
            "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\necho call >>'{}'\n{lines}\n",
            calls.display()
        );
        fs::write(&script, text).unwrap();
        Pip::with_command([Path::new("sh"), &script])
    }

    /// A pip that delivers a wheel.
    pub fn pip_with(&self, wheel: &Path) -> Pip {
        self.pip(&format!("cp '{}' \"$dest\"", wheel.display()))
    }

    /// How often the pip of this kit was called.
    pub fn calls(&self) -> usize {
        fs::read_to_string(self.path("calls")).map_or(0, |calls| calls.lines().count())
    }

    pub fn provisioner(&self, pip: Pip) -> Provisioner {
        Provisioner::new(self.cache()).with_pip(pip)
    }

    /// Everything in the cache but locks and empty folders.
    pub fn cached_files(&self) -> Vec<String> {
        fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => walk(&path, files),
                    path => files.push(path),
                }
            }
        }
        let (mut files, root) = (Vec::new(), self.path("cache"));
        walk(&root, &mut files);
        let name = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let mut names: Vec<String> = files
            .iter()
            .map(name)
            .filter(|name| !name.starts_with("locks"))
            .collect();
        names.sort();
        names
    }
}

/// Package `thing` 1.0 with one file, pinned to these contents.
pub fn package(path: &str, contents: &[u8]) -> Package {
    let sha256: String = Sha256::digest(contents)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Package {
        name: "thing".into(),
        version: "1.0".into(),
        platform: None,
        wheel_bytes: 1000,
        members: vec![Member {
            path: path.to_owned().into(),
            bytes: contents.len() as u64,
            sha256: sha256.into(),
        }],
    }
}

/// Unpacks a package to `things/1.0`, by the last parts of its paths.
pub fn unpacked(
    provisioner: &Provisioner,
    package: &Package,
    progress: &dyn Progress,
) -> Result<PathBuf, ProvisionError> {
    provisioner.unpacked(
        "things/1.0",
        package,
        |path| path.rsplit('/').next().unwrap().into(),
        progress,
    )
}

/// Notes the names of steps, each once in a row.
#[derive(Default)]
pub struct Steps(Mutex<Vec<&'static str>>);

impl Steps {
    pub fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

impl Progress for Steps {
    fn step(&self, step: Step<'_>) {
        let name = match step {
            Step::Waiting { .. } => "waiting",
            Step::Fetching { .. } => "fetching",
            Step::Unpacking { .. } => "unpacking",
            Step::Converting { .. } => "converting",
            Step::Done { .. } => "done",
        };
        let mut names = self.0.lock().unwrap();
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
}
