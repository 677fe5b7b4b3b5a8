//! GGUF files: reading them whole and damaged, and converting them.

mod build;
mod convert;
mod damage;
