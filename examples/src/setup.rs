//! What every program here starts with: the ONNX Runtime library and a model, found or fetched.

use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_npu::{LibrarySearch, MIN_VERSION};

use crate::provision::{Progress, Provisioner};

/// Where the ONNX Runtime library is: one that this machine has and that is new enough, else the project's own, fetched at
/// first use.
///
/// # Errors
/// There is none and it cannot be fetched.
pub fn library(progress: &dyn Progress) -> Result<LibrarySearch> {
    let search = LibrarySearch::from_environment(|name| std::env::var_os(name));
    match search.candidates() {
        // A wrong ORT_DYLIB_PATH is an error, not a reason to fetch.
        Err(error) if search.explicit.is_some() => Err(error.into()),
        Ok(found) if search.explicit.is_some() || found.iter().any(|library| is_new_enough(library)) => {
            Ok(search)
        }
        _ => Ok(LibrarySearch::exactly(
            Provisioner::from_environment()?.onnxruntime(progress)?,
        )),
    }
}

/// The folder of SmolLM2-135M-Instruct, fetched and converted at first use.
///
/// # Errors
/// It cannot be fetched or converted.
pub fn default_model(progress: &dyn Progress) -> Result<PathBuf> {
    Ok(Provisioner::from_environment()?.smollm2(Default::default(), progress)?)
}

/// Whether a library's file name, links followed, says a version that works; one that says none is given a try.
fn is_new_enough(library: &Path) -> bool {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let name = real
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let numbers = |text: &str| {
        text.split('.')
            .map_while(|part| part.parse::<u32>().ok())
            .take(2)
            .collect::<Vec<_>>()
    };
    let version = name
        .split_once(".so.")
        .map(|(_, version)| numbers(version))
        .filter(|version| version.len() == 2);
    version.is_none_or(|version| version >= numbers(MIN_VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_file_names() {
        for (name, expected) in [
            ("libonnxruntime.so.1.32.0", true),
            ("libonnxruntime.so.1.24.0", true),
            ("libonnxruntime.so.1.9.1", false),
            ("libonnxruntime.so.1.23", false),
            ("libonnxruntime.so.2.0.0", true),
            ("libonnxruntime.so", true),
            ("onnxruntime.dll", true),
        ] {
            assert_eq!(is_new_enough(Path::new(name)), expected, "{name}");
        }
    }
}
