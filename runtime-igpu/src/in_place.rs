//! Weights that kernels read where the model file is mapped, and what becomes of them when somebody wants the file.

use std::sync::Arc;

use onnx_model::{Lease, ModelFolder};

use crate::error::{IgpuError, Kind, Result};
use crate::program::model_error;

/// The model that kernels read in place.
pub(crate) struct InPlace {
    folder: ModelFolder,
    /// Empty once somebody wanted to change a file: no kernel may run any more.
    leases: Vec<Arc<Lease>>,
    /// Kernels were claimed for and have not been seen to end: as long as they may run, no lease is given back.
    may_run: bool,
}

impl InPlace {
    /// `None` if no kernel reads in place.
    pub(crate) fn new(folder: &ModelFolder, leases: Vec<Arc<Lease>>) -> Option<Self> {
        (!leases.is_empty()).then(|| Self {
            folder: folder.clone(),
            leases,
            may_run: false,
        })
    }

    /// Asked before kernels run: whether the weights will stay while they do.
    ///
    /// # Errors
    ///
    /// Somebody waits to change a file. They wait no longer, and this is an error for good.
    pub(crate) fn claim(&mut self) -> Result<()> {
        if !self.leases.is_empty() && self.leases.iter().all(|lease| lease.holds()) {
            self.may_run = true;
            return Ok(());
        }
        let broken = match self.may_run {
            true => self.leases.clone(),
            false => std::mem::take(&mut self.leases),
        };
        let names: Vec<_> = broken
            .iter()
            .filter(|lease| !lease.holds())
            .map(|lease| lease.path().display().to_string())
            .collect();
        let files = match names.is_empty() {
            true => "the model's weights".to_owned(),
            false => names.join(", "),
        };
        let message = format!(
            "{files}: changed by another program while the device reads it in place; load the model again"
        );
        Err(IgpuError::new(Kind::Model, message))
    }

    /// Asked after kernels have ended: whether what they read was the weights.
    ///
    /// # Errors
    ///
    /// A file has shrunk all the same.
    pub(crate) fn verify(&mut self) -> Result<()> {
        self.may_run = false;
        self.folder.check_weights().map_err(model_error)
    }
}

impl Drop for InPlace {
    /// A device that did not answer may still read: then the leases stay until the process ends.
    fn drop(&mut self) {
        if self.may_run {
            std::mem::forget(std::mem::take(&mut self.leases));
        }
    }
}
