//! What a `Trace` answers, on small records written by hand.

mod check;
mod export;
mod queries;
mod record;
mod what_if;
