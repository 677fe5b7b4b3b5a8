//! One init graph over the prefill and decode engines, their barriers, and the request path.

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
mod text;
mod text_lane;

pub use environment::{DEFERRED_INIT_VARIABLE, DeferredInit};
pub use error::{Error, Result};
pub use load::HybridRuntime;
pub use options::{Engines, HybridOptions};
pub use report::{Engine, LoadReport, Placement, TypeCost};
pub use request::{Answer, Event, Finish, Generation, Request, Summary, Token};
pub use sampler::{Sampler, Sampling};
pub use text::{ChatTemplate, Message, TokenStream, Tokenizer};
