//! What the core promises, on small graphs with known answers: one test per promise, in every mode.

mod barriers;
mod failure;
mod intake;
mod results;
mod staging;
mod support;
mod watching;
