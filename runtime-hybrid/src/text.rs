//! Text on both ends of a request: tokenizer, streaming detokeniser and chat template of a model folder.

mod detokenize;
mod python;
mod template;
mod tokenizer;

pub use detokenize::TokenStream;
pub use template::{ChatTemplate, Message};
pub use tokenizer::Tokenizer;
