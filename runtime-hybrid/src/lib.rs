//! One init graph over the prefill and decode engines, their barriers, and the request path.
//!
//! [`HybridRuntime::load`] puts both engines of a decoder into one `scheduler` graph and returns at once. The host lane reads
//! each operator once for both; the NPU engine's lanes and the iGPU engine's set it up. (Where the adapter is the CPU itself, the
//! iGPU engine's part comes after the NPU engine's, and reads for itself.) Requests wait behind the engine
//! they need: a prompt is read, and its first token is out, while the decode engine is still setting up.
//!
//! ```no_run
//! use runtime_hybrid::{HybridOptions, HybridRuntime, Request};
//! use runtime_npu::{LibrarySearch, NpuOptions};
//!
//! # fn main() -> runtime_hybrid::Result<()> {
//! let npu = NpuOptions::new(LibrarySearch::from_environment(|name| std::env::var_os(name)));
//! let options = HybridOptions { npu, ..HybridOptions::from_env()? };
//! let runtime = HybridRuntime::load("models/smollm2", options)?;
//! let answer = runtime.generate(Request::chat("What is gravity?").max_tokens(64)).wait()?;
//! println!("{}\n\n{}", answer.text, runtime.report());
//! # Ok(()) }
//! ```
//!
//! A [`Generation`] is also a stream of [`Event`]s, token by token, for an async caller with any executor or none.
//!
//! # Terms
//!
//! | barrier | what it covers | who waits behind it |
//! | --- | --- | --- |
//! | prefill-ready | the NPU engine's operators, tokenizer, chat template | every request |
//! | decode-ready | the iGPU engine's operators; without one, the NPU engine's | every token after a request's first |
//! | all | every node | [`HybridRuntime::ready`] |
//!
//! # What is guaranteed
//!
//! - Requests are served in the order they came, and give the same tokens alone, after others and at once with others.
//! - A request that cannot be served (an unknown token, a prompt and answer longer than the context) is refused before an
//!   engine works for it.
//! - Dropping a [`Generation`] cancels that request and no other. Dropping the runtime, also while it loads, cancels
//!   everything and joins every thread it has started.
//! - When initialisation fails, every request, waiting or to come, gets that error with its node, lane and phase.
//! - Pieces of text are whole characters.
//!
//! Not guaranteed: that a prefill run at hand stops at once when its request is dropped (it ends first), and equal tokens
//! across engines where two logits are nearly equal.
//!
//! # Memory
//!
//! The host lane does not run away from the lanes that it reads for: weights that wait for device setup keep to a
//! [`StagingBudget`], and [`LoadReport::staged_peak_bytes`] says how many did. An engine that has made its own copy of a weight gives
//! the model file's pages back.
//!
//! # Environment
//!
//! This crate reads one variable, and only in [`DeferredInit::from_env`] and [`HybridOptions::from_env`]:
//!
//! | `HOSTLANE_DEFERRED_INIT` | init mode |
//! | --- | --- |
//! | unset, empty, `0`, `false`, `off`, `no` | inline: [`load`](HybridRuntime::load) returns when everything is ready |
//! | `1`, `true`, `on`, `yes` | overlapped |
//! | anything else | an error that lists these |
//!
//! # Not here
//!
//! Batching of several sequences into one run, speculative decoding, beam search, a server. The random choice of tokens and its
//! penalties are as Hugging Face transformers defines them.

mod engines;
mod environment;
mod error;
mod load;
mod options;
mod plan;
mod report;
mod request;
mod sampler;
mod serve;
mod side;
mod staging;
mod text;
mod text_lane;

pub use environment::{DEFERRED_INIT_VARIABLE, DeferredInit};
pub use error::{Error, Result};
pub use load::HybridRuntime;
pub use options::{Engines, HybridOptions};
pub use report::{Engine, LoadReport, Placement, TypeCost};
pub use request::{Answer, Event, Finish, Generation, Request, Summary, Token};
pub use sampler::{Sampler, Sampling};
pub use staging::StagingBudget;
pub use text::{ChatTemplate, Message, TokenStream, Tokenizer};
