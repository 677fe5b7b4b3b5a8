//! Runnable programs on Hostlane, among them generate, the main job.

pub mod cli;
pub mod embed;
pub mod interrupt;
pub mod provision;
pub mod setup;
pub mod stdout;

/// The C library's heaps of threads grow a page at a time, 6,700 times while a large tokenizer is parsed, and each time everybody else
/// who maps or populates memory has to wait.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
