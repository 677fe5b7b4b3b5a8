//! Tools to property-test ordering guarantees, on fake operator types or on your own.

mod check;

pub use check::{Guarantee, Violation, Violations, check_guarantees};
