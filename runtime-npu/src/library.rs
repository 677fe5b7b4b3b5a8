//! Where the ONNX Runtime library is: the one place that knows.
//!
//! In this order: a path that the user gave, a system library, an installed `onnxruntime` Python package, the project's cache.
//! Nothing here reads the process environment; a program passes its lookup function in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{NpuError, Result};

/// Oldest ONNX Runtime that works: the C API version that `ort` is built for.
pub const MIN_VERSION: &str = "1.24";

/// File name of the library.
#[cfg(target_os = "windows")]
const LIBRARY: &str = "onnxruntime.dll";
#[cfg(target_os = "macos")]
const LIBRARY: &str = "libonnxruntime.dylib";
#[cfg(not(any(target_os = "windows", target_os = "macos")))]
const LIBRARY: &str = "libonnxruntime.so";

/// The places to search, and in what order.
///
/// ```
/// let search = runtime_npu::LibrarySearch::from_environment(|name| std::env::var_os(name));
/// match search.candidates() {
///     Ok(found) => println!("{found:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibrarySearch {
    /// This file and no other (`ORT_DYLIB_PATH`).
    pub explicit: Option<PathBuf>,
    /// Folders that hold system libraries.
    pub system: Vec<PathBuf>,
    /// Folders of installed Python packages (`site-packages`).
    pub python: Vec<PathBuf>,
    /// The project's cache folder.
    pub cache: Option<PathBuf>,
}

impl LibrarySearch {
    /// Searches as documented for the project, with `variable` to look environment variables up: `ORT_DYLIB_PATH`,
    /// `LD_LIBRARY_PATH`, `VIRTUAL_ENV`, `PATH` (Python installations), `HOME`, `HOSTLANE_CACHE` and `XDG_CACHE_HOME`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let folder = |name: &str| variable(name).map(PathBuf::from);
        let list = |name: &str| {
            variable(name)
                .map(|v| std::env::split_paths(&v).collect::<Vec<_>>())
                .unwrap_or_default()
        };
        let home = folder("HOME");

        let mut system = list("LD_LIBRARY_PATH");
        system.extend(SYSTEM_FOLDERS.iter().map(PathBuf::from));

        let mut prefixes: Vec<PathBuf> = folder("VIRTUAL_ENV").into_iter().collect();
        prefixes.extend(
            list("PATH")
                .iter()
                .filter(|bin| has_python(bin))
                .filter_map(|bin| bin.parent().map(Path::to_path_buf)),
        );
        prefixes.extend(home.as_ref().map(|home| home.join(".local")));
        let mut python: Vec<PathBuf> = prefixes.iter().flat_map(|prefix| site_packages(prefix)).collect();
        python.dedup();

        let cache = folder("HOSTLANE_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("hostlane")))
            .or_else(|| home.map(|home| home.join(".cache/hostlane")));
        Self {
            explicit: folder("ORT_DYLIB_PATH"),
            system,
            python,
            cache,
        }
    }

    /// This library and no other.
    pub fn exactly(path: impl Into<PathBuf>) -> Self {
        Self {
            explicit: Some(path.into()),
            ..Self::default()
        }
    }

    /// Existing files that should be the library, best first.
    ///
    /// # Errors
    /// The explicit path does not exist, or nothing was found; the message says what was searched and how to get the library.
    pub fn candidates(&self) -> Result<Vec<PathBuf>> {
        if let Some(path) = &self.explicit {
            return match path.is_file() {
                true => Ok(vec![path.clone()]),
                false => Err(NpuError::library(format!(
                    "ORT_DYLIB_PATH names {}, which is not a file; set it to an ONNX Runtime library of version {MIN_VERSION} or newer, or unset it to search for one",
                    path.display()
                ))),
            };
        }
        let packages = self
            .python
            .iter()
            .map(|packages| packages.join("onnxruntime/capi"));
        let mut found: Vec<PathBuf> = self
            .system
            .iter()
            .cloned()
            .chain(packages)
            .flat_map(|folder| libraries_in(&folder))
            .collect();
        if let Some(cache) = &self.cache {
            found.extend(libraries_below(&cache.join("onnxruntime"), CACHE_DEPTH));
        }
        if found.is_empty() {
            return Err(NpuError::library(self.not_found()));
        }
        Ok(found)
    }

    /// Installed files of another Python package, for execution providers that come as one: `file` of package `package`.
    pub fn python_package_file(&self, package: &str, file: &str) -> Option<PathBuf> {
        // An explicit library is in `site-packages/onnxruntime/capi` or in the cache's `onnxruntime/VERSION`: others are beside.
        let beside = self
            .explicit
            .iter()
            .filter_map(|library| library.ancestors().nth(3));
        let folders = beside
            .chain(self.python.iter().map(PathBuf::as_path))
            .chain(self.cache.as_deref());
        // The cache keeps the whole wheel below its own name, since providers look for libraries in the folder beside theirs.
        let wheel = package.replace('_', "-");
        folders
            .flat_map(|folder| [folder.join(package), folder.join(&wheel).join(package)])
            .map(|folder| folder.join(file))
            .find(|path| path.is_file())
    }

    fn not_found(&self) -> String {
        let cache = self
            .cache
            .as_ref()
            .map(|cache| format!(", below {}", cache.display()))
            .unwrap_or_default();
        format!(
            "no ONNX Runtime library was found: ORT_DYLIB_PATH is not set, {LIBRARY} is not in {} system folders, \
             no onnxruntime package is in {} Python installations{cache}; fetch it with `cargo run -p examples --bin provision`, \
             or `pip install onnxruntime`",
            self.system.len(),
            self.python.len()
        )
    }
}

/// The cache holds `onnxruntime/VERSION/lib...`, or an unpacked wheel.
const CACHE_DEPTH: usize = 2;

#[cfg(not(target_os = "windows"))]
const SYSTEM_FOLDERS: &[&str] = &[
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/opt/homebrew/lib",
];
#[cfg(target_os = "windows")]
const SYSTEM_FOLDERS: &[&str] = &[];

/// `libonnxruntime.so`, or with a version: `libonnxruntime.so.1.32.0`. Provider libraries have other names.
fn is_library(name: &str) -> bool {
    match name.strip_prefix(LIBRARY) {
        Some("") => true,
        Some(version) => version.starts_with('.') && version.bytes().all(|b| b == b'.' || b.is_ascii_digit()),
        // macOS puts the version before the ending.
        None => name.starts_with("libonnxruntime.") && name.ends_with(".dylib") && cfg!(target_os = "macos"),
    }
}

fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_library))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    // Several versions side by side: the newest by name first; equal files under several names do no harm.
    found.sort_by(|a, b| b.cmp(a));
    found
}

fn libraries_below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = libraries_in(folder);
    if depth > 0
        && let Ok(entries) = folder.read_dir()
    {
        let mut folders: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            // What is there is still being made.
            .filter(|path| path.is_dir() && !path.ends_with("partial"))
            .collect();
        folders.sort_by(|a, b| b.cmp(a));
        found.extend(
            folders
                .iter()
                .flat_map(|folder| libraries_below(folder, depth - 1)),
        );
    }
    found
}

fn has_python(bin: &Path) -> bool {
    ["python3", "python", "python.exe"]
        .iter()
        .any(|name| bin.join(name).exists())
}

/// `lib/python3.*/site-packages` and its cousins below an installation's prefix.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = vec![
        prefix.join("Lib/site-packages"),
        prefix.join("lib/python3/dist-packages"),
    ];
    if let Ok(entries) = prefix.join("lib").read_dir() {
        let versions = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3."));
        let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
        versions.sort_by(|a, b| b.cmp(a));
        found.extend(
            versions
                .iter()
                .flat_map(|v| [v.join("site-packages"), v.join("dist-packages")]),
        );
    }
    found.retain(|folder| folder.is_dir());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn touch(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"").unwrap();
        path
    }

    fn search(root: &Path, variables: &[(&str, &Path)]) -> LibrarySearch {
        let variables: Vec<(String, PathBuf)> = variables
            .iter()
            .map(|(n, p)| (n.to_string(), p.to_path_buf()))
            .collect();
        let mut search = LibrarySearch::from_environment(|name| {
            variables
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, path)| path.clone().into_os_string())
        });
        // Only what this test laid out, not what the machine has.
        search.system.retain(|folder| folder.starts_with(root));
        search
    }

    #[test]
    fn order_is_explicit_system_python_cache() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let cached = touch(root.join("cache/onnxruntime/1.32.0").join(LIBRARY));
        let env = [
            ("HOSTLANE_CACHE", root.join("cache")),
            ("VIRTUAL_ENV", root.join("venv")),
            ("LD_LIBRARY_PATH", root.join("sys")),
        ];
        let env: Vec<(&str, &Path)> = env.iter().map(|(n, p)| (*n, p.as_path())).collect();
        assert_eq!(search(root, &env).candidates().unwrap(), vec![cached.clone()]);

        let python = touch(
            root.join("venv/lib/python3.12/site-packages/onnxruntime/capi")
                .join(LIBRARY),
        );
        assert_eq!(
            search(root, &env).candidates().unwrap(),
            [python.clone(), cached.clone()]
        );

        let system = touch(root.join("sys").join(LIBRARY));
        touch(root.join("sys/libonnxruntime_providers_shared.so"));
        assert_eq!(search(root, &env).candidates().unwrap(), [system, python, cached]);

        let explicit = touch(root.join("mine.so"));
        let env = [env, vec![("ORT_DYLIB_PATH", explicit.as_path())]].concat();
        assert_eq!(search(root, &env).candidates().unwrap(), vec![explicit]);
    }

    #[test]
    fn provider_packages_are_found_installed_or_in_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let (cache, venv) = (root.join("cache"), root.join("venv"));
        let find = || {
            let env: [(&str, &Path); 2] = [("HOSTLANE_CACHE", &cache), ("VIRTUAL_ENV", &venv)];
            search(root, &env).python_package_file("onnxruntime_qnn", "libQnnHtp.so")
        };
        assert_eq!(find(), None);
        let cached = touch(cache.join("onnxruntime-qnn/onnxruntime_qnn/libQnnHtp.so"));
        assert_eq!(find(), Some(cached.clone()));
        let explicit = LibrarySearch::exactly(cache.join("onnxruntime/1.32.0").join(LIBRARY));
        let beside = explicit.python_package_file("onnxruntime_qnn", "libQnnHtp.so");
        assert_eq!(beside, Some(cached));
        let installed = touch(venv.join("lib/python3.12/site-packages/onnxruntime_qnn/libQnnHtp.so"));
        assert_eq!(find(), Some(installed));
    }

    #[test]
    fn missing_explicit_file_is_an_error_not_a_search() {
        let error = LibrarySearch::exactly("/nowhere/libonnxruntime.so")
            .candidates()
            .unwrap_err();
        assert!(error.is_library());
        assert!(
            error.to_string().contains("/nowhere/libonnxruntime.so"),
            "{error}"
        );
    }

    #[test]
    fn nothing_found_says_the_command() {
        let root = tempfile::tempdir().unwrap();
        let error = search(root.path(), &[("HOSTLANE_CACHE", root.path())])
            .candidates()
            .unwrap_err();
        assert!(error.to_string().contains("cargo run -p examples"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn versioned_names() {
        for (name, expected) in [
            ("libonnxruntime.so", true),
            ("libonnxruntime.so.1", true),
            ("libonnxruntime.so.1.32.0", true),
            ("libonnxruntime_providers_qnn.so", false),
            ("libonnxruntime.so.bak", false),
        ] {
            assert_eq!(is_library(name), expected, "{name}");
        }
    }
}
