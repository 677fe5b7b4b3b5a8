//! Bad folders, wrong files, interrupts: a clear error, and nothing left behind.

mod folders;
mod interrupt;
