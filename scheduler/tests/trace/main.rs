//! What a `Trace` answers, on small records written by hand.

mod export;
mod queries;
mod record;
mod what_if;
