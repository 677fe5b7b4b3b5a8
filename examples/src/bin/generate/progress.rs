//! How far initialisation is, for people to see.

use runtime_hybrid::HybridRuntime;

/// What is shown while a model loads.
pub(crate) struct Bars;

/// Says that the model is being loaded.
pub(crate) fn show(_: &HybridRuntime) -> Bars {
    eprintln!("loading");
    Bars
}

impl Bars {
    /// Takes it off the screen.
    pub(crate) fn clear(&self) {}
}
