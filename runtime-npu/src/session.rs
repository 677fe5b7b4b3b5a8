//! Sessions through ONNX Runtime's C API.
//!
//! `ort`'s own builder turns automatic provider selection on for every session, which offers a registered plugin to sessions that
//! asked for the CPU, and its sessions carry descriptions of all inputs and outputs. Hundreds of sessions of a node each need neither.

use std::ffi::CString;
use std::path::Path;
use std::ptr::{self, NonNull};

use ort::device::Device;
use ort::sys::{GraphOptimizationLevel, OrtSession, OrtSessionOptions, OrtValue};
use ort::{AsPointer, ortsys};

use crate::runtime::OnnxRuntime;

/// Only errors: everything below is of no interest for a session of a few nodes.
const LOG_ERRORS: i32 = 3;

/// A session.
pub(crate) struct Session(NonNull<OrtSession>);

// SAFETY: a session has no thread affinity.
unsafe impl Send for Session {}
// SAFETY: a session is not changed by running it; the engine runs one kernel at a time.
unsafe impl Sync for Session {}

impl Session {
    pub(crate) fn as_ptr(&self) -> *mut OrtSession {
        self.0.as_ptr()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        ortsys![unsafe ReleaseSession(self.0.as_ptr())];
    }
}

/// Options of a session that is to be created.
pub(crate) struct SessionOptions<'r> {
    options: NonNull<OrtSessionOptions>,
    runtime: &'r OnnxRuntime,
}

impl<'r> SessionOptions<'r> {
    /// Stock settings, but for the log and the thread pool, which is the environment's.
    pub(crate) fn new(runtime: &'r OnnxRuntime) -> ort::Result<Self> {
        let options = Self::stock(runtime)?;
        ortsys![unsafe DisablePerSessionThreads(options.as_ptr())?];
        Ok(options)
    }

    /// As [`SessionOptions::new`], with a thread pool of the session's own.
    pub(crate) fn with_own_threads(runtime: &'r OnnxRuntime, n_threads: usize) -> ort::Result<Self> {
        let options = Self::stock(runtime)?;
        ortsys![unsafe SetIntraOpNumThreads(options.as_ptr(), n_threads as i32)?];
        Ok(options)
    }

    fn stock(runtime: &'r OnnxRuntime) -> ort::Result<Self> {
        let mut options = ptr::null_mut();
        ortsys![unsafe CreateSessionOptions(&mut options)?];
        let options = NonNull::new(options)
            .ok_or_else(|| ort::Error::new("ONNX Runtime returned null session options"))?;
        let options = Self { options, runtime };
        ortsys![unsafe SetSessionLogSeverityLevel(options.as_ptr(), LOG_ERRORS)?];
        Ok(options)
    }

    /// Allocates from the environment's allocator and plans no memory: each arena rounds up and keeps, and hundreds of them would hold half the
    /// weights again.
    pub(crate) fn lean(self) -> ort::Result<Self> {
        ortsys![unsafe DisableCpuMemArena(self.as_ptr())?];
        ortsys![unsafe DisableMemPattern(self.as_ptr())?];
        #[cfg(target_os = "linux")]
        let this = self.config(crate::allocator::USE.0, crate::allocator::USE.1)?;
        #[cfg(not(target_os = "linux"))]
        let this = self;
        Ok(this)
    }

    pub(crate) fn optimization(self, level: GraphOptimizationLevel) -> ort::Result<Self> {
        ortsys![unsafe SetSessionGraphOptimizationLevel(self.as_ptr(), level)?];
        Ok(self)
    }

    pub(crate) fn config(self, key: &str, value: &str) -> ort::Result<Self> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        ortsys![unsafe AddSessionConfigEntry(self.as_ptr(), key.as_ptr(), value.as_ptr())?];
        Ok(self)
    }

    /// Where the files of external weights are, for a model that is given as bytes.
    pub(crate) fn weights_folder(self, folder: &Path) -> ort::Result<Self> {
        self.config(
            "session.model_external_initializers_file_folder_path",
            &folder.to_string_lossy(),
        )
    }

    /// Appends an execution provider by its devices. `options` have no prefix.
    pub(crate) fn provider(
        self,
        takes: impl Fn(&Device<'_>) -> bool,
        options: &[(String, String)],
    ) -> ort::Result<Self> {
        let environment = self.runtime.environment();
        let devices = environment.devices().filter(|device| takes(device));
        let devices: Vec<_> = devices.map(|device| device.ptr()).collect();
        let strings = |of: fn(&(String, String)) -> &str| {
            options
                .iter()
                .map(|o| c_string(of(o)))
                .collect::<ort::Result<Vec<_>>>()
        };
        let (keys, values) = (strings(|o| &o.0)?, strings(|o| &o.1)?);
        let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let (key_pointers, value_pointers) = (pointers(&keys), pointers(&values));
        ortsys![unsafe SessionOptionsAppendExecutionProvider_V2(
            self.as_ptr(),
            environment.ptr().cast_mut(),
            devices.as_ptr(),
            devices.len(),
            key_pointers.as_ptr(),
            value_pointers.as_ptr(),
            options.len()
        )?];
        Ok(self)
    }

    /// A weight that the session uses where it is, without a copy; optimizers do not see it.
    ///
    /// # Safety
    /// The value's memory outlives the session.
    pub(crate) unsafe fn share_weight(&mut self, name: &str, value: *const OrtValue) -> ort::Result<()> {
        let name = c_string(name)?;
        ortsys![unsafe AddInitializer(self.as_ptr(), name.as_ptr(), value)?];
        Ok(())
    }

    /// A weight that becomes part of the model while the session is created, so that optimizers see it.
    ///
    /// # Safety
    /// The value's memory outlives the session.
    pub(crate) unsafe fn inject_weight(&mut self, name: &str, value: *const OrtValue) -> ort::Result<()> {
        let name = c_string(name)?;
        ortsys![unsafe AddExternalInitializers(self.as_ptr(), &name.as_ptr(), &value, 1)?];
        Ok(())
    }

    /// Creates the session from an encoded model.
    pub(crate) fn create_from_bytes(self, model: &[u8]) -> ort::Result<Session> {
        let mut session = ptr::null_mut();
        ortsys![unsafe CreateSessionFromArray(
            self.runtime.environment().ptr(), model.as_ptr().cast(), model.len(), self.as_ptr(), &mut session
        )?];
        owned(session)
    }

    /// Creates the session from a file.
    pub(crate) fn create_from_file(self, path: &Path) -> ort::Result<Session> {
        let path = os_path(path)?;
        let mut session = ptr::null_mut();
        ortsys![unsafe CreateSession(
            self.runtime.environment().ptr(), path.as_ptr(), self.as_ptr(), &mut session
        )?];
        owned(session)
    }

    fn as_ptr(&self) -> *mut OrtSessionOptions {
        self.options.as_ptr()
    }
}

impl Drop for SessionOptions<'_> {
    fn drop(&mut self) {
        ortsys![unsafe ReleaseSessionOptions(self.options.as_ptr())];
    }
}

fn owned(session: *mut OrtSession) -> ort::Result<Session> {
    let session =
        NonNull::new(session).ok_or_else(|| ort::Error::new("ONNX Runtime returned a null session"))?;
    Ok(Session(session))
}

fn c_string(text: &str) -> ort::Result<CString> {
    CString::new(text).map_err(ort::Error::wrap)
}

#[cfg(not(target_os = "windows"))]
fn os_path(path: &Path) -> ort::Result<CString> {
    c_string(&path.to_string_lossy())
}

#[cfg(target_os = "windows")]
fn os_path(path: &Path) -> ort::Result<Vec<u16>> {
    use std::os::windows::ffi::OsStrExt;
    Ok(path.as_os_str().encode_wide().chain([0]).collect())
}
