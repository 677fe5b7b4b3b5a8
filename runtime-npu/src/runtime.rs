//! ONNX Runtime itself: one library, one environment, one thread pool per process.

use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use ort::environment::{Environment, GlobalThreadPoolOptions, ThreadManager};
use ort::ortsys;
use ort::sys::OrtRunOptions;

use crate::error::{NpuError, Result};
use crate::library::LibrarySearch;

/// The process's ONNX Runtime. A process can hold only one environment and cannot unload it safely, so the first
/// [`OnnxRuntime::load`] decides library and number of threads, and the environment lives until the process ends.
#[derive(Clone)]
pub struct OnnxRuntime {
    inner: &'static Inner,
}

struct Inner {
    library: PathBuf,
    environment: Environment,
    gate: Arc<Gate>,
}

impl Inner {
    fn accept(&'static self, search: &LibrarySearch) -> Result<OnnxRuntime> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        match &search.explicit {
            Some(library) if real(library) != real(&self.library) => Err(NpuError::library(format!(
                "this process has loaded ONNX Runtime from {}; it cannot load {} too",
                self.library.display(),
                library.display()
            ))),
            _ => Ok(OnnxRuntime { inner: self }),
        }
    }
}

static LOADED: OnceLock<Inner> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

impl OnnxRuntime {
    /// Loads the first usable library that `search` finds, with a pool of `n_threads` threads (the caller of a run counts as
    /// one). If the process has already loaded one, that one is returned, unless `search` insists on another.
    ///
    /// # Errors
    /// No library is found, or it is not ONNX Runtime, or too old, or the process has loaded another one.
    pub fn load(search: &LibrarySearch, n_threads: usize) -> Result<Self> {
        if let Some(inner) = LOADED.get() {
            return inner.accept(search);
        }
        let _one_at_a_time = LOADING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(inner) = LOADED.get() {
            return inner.accept(search);
        }
        let mut failures = Vec::new();
        for library in search.candidates()? {
            match ort::init_from(&library) {
                Ok(builder) => {
                    let gate = Arc::new(Gate::default());
                    let environment = builder
                        .with_name("hostlane")
                        .with_telemetry(false)
                        .with_global_thread_pool(
                            pool(n_threads, &gate).map_err(|e| NpuError::runtime("thread pool", e))?,
                        )
                        .build()
                        .map_err(|e| NpuError::runtime("cannot create the ONNX Runtime environment", e))?;
                    // Without this every informational message of every session would be formatted, then dropped.
                    environment.set_log_level(ort::logging::LogLevel::Error);
                    #[cfg(target_os = "linux")]
                    crate::allocator::register(&environment)
                        .map_err(|e| NpuError::runtime("cannot register an allocator", e))?;
                    return Ok(Self {
                        inner: LOADED.get_or_init(|| Inner {
                            library,
                            environment,
                            gate,
                        }),
                    });
                }
                Err(error) => failures.push(format!("{}: {error}", library.display())),
            }
        }
        Err(NpuError::library(format!(
            "no usable ONNX Runtime library (version {} or newer is needed): {}",
            crate::library::MIN_VERSION,
            failures.join("; ")
        )))
    }

    /// The library file.
    pub fn library(&self) -> &Path {
        &self.inner.library
    }

    /// ONNX Runtime's own description of its build, with the version.
    pub fn build_info(&self) -> &'static str {
        ort::info()
    }

    /// The environment, to create other sessions in it.
    pub fn environment(&self) -> &Environment {
        &self.inner.environment
    }

    /// Lets the pool's threads begin to work. Until then every run uses only the thread that calls it.
    ///
    /// A pool thread spins for milliseconds after each parallel section, which is right between the operators of a token, but
    /// during initialization it would take a core away from the lanes after each operator's warm-up run. So the threads start
    /// with the first engine, not with the first kernel.
    pub fn start_threads(&self) {
        self.inner.gate.open();
    }
}

/// Run options, made once: without any, ONNX Runtime makes and frees its own for every run.
pub(crate) struct RunOptions(NonNull<OrtRunOptions>);

// SAFETY: runs only read the options.
unsafe impl Send for RunOptions {}
// SAFETY: as above.
unsafe impl Sync for RunOptions {}

impl RunOptions {
    /// Needs the library to be loaded, which holding an [`OnnxRuntime`] shows.
    pub(crate) fn new(_loaded: &OnnxRuntime) -> ort::Result<Self> {
        let mut options = ptr::null_mut();
        ortsys![unsafe CreateRunOptions(&mut options)?];
        Ok(Self(
            NonNull::new(options).expect("ONNX Runtime returned null run options"),
        ))
    }

    pub(crate) fn as_ptr(&self) -> *const OrtRunOptions {
        self.0.as_ptr()
    }
}

impl Drop for RunOptions {
    fn drop(&mut self) {
        ortsys![unsafe ReleaseRunOptions(self.0.as_ptr())];
    }
}

fn pool(n_threads: usize, gate: &Arc<Gate>) -> ort::Result<GlobalThreadPoolOptions> {
    GlobalThreadPoolOptions::default()
        .with_inter_threads(1)?
        .with_intra_threads(n_threads.max(1))?
        .with_thread_manager(GatedThreads(gate.clone()))
}

/// Opens once, for good.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let mut open = self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while !*open {
            open = self
                .opened
                .wait(open)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

/// Pool threads that wait at the gate before they take work. ONNX Runtime takes back work that no thread has started.
struct GatedThreads(Arc<Gate>);

impl ThreadManager for GatedThreads {
    type Thread = JoinHandle<()>;

    fn create(&self, work: impl FnOnce() + Send + 'static) -> ort::Result<Self::Thread> {
        let gate = self.0.clone();
        thread::Builder::new()
            .name("onnxruntime".into())
            .spawn(move || {
                gate.wait();
                work();
            })
            .map_err(ort::Error::wrap)
    }

    fn join(thread: Self::Thread) -> ort::Result<()> {
        thread
            .join()
            .map_err(|_| ort::Error::new("a pool thread panicked"))
    }
}
