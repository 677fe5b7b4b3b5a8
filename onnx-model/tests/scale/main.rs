//! Large inputs: a million nodes, and gigabytes of weights that must not be touched.

#[path = "../support/counting.rs"]
mod counting;
#[path = "../support/mod.rs"]
mod support;

mod laziness;
mod million;
