//! What the core promises, on small graphs with known answers: one test per promise, in every mode.

mod barriers;
mod failure;
mod results;
mod staging;
mod support;
