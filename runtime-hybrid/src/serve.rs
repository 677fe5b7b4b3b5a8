//! The request path behind the barriers: two threads, a queue before each.
//!
//! ```text
//! generate() -> queue -> [prefill thread: waits for prefill-ready]  -> hand-over -> [decode thread: waits for decode-ready]
//!                         tokens, prefill, first token                 (at most 1)   token by token
//! ```
//!
//! So the first token is out while the decode engine is still setting up, and one request's prefill runs on the NPU while
//! another decodes on the iGPU. Each thread takes requests in the order they came, one at a time, so a request's tokens do not
//! depend on its company. With one engine the prefill thread does both.

mod job;
mod worker;

#[cfg(test)]
mod tests;

pub(crate) use job::{Limits, Text};
pub(crate) use worker::{Decode, Prefill, Server, Sides};
