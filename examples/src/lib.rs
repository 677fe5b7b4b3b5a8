//! Runnable programs on Hostlane, among them generate, the main job.

pub mod cli;
pub mod embed;
pub mod interrupt;
pub mod provision;
pub mod setup;
pub mod stdout;
