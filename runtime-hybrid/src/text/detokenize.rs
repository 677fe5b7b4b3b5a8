//! Tokens to text as they come, in pieces that are whole characters.

use crate::error::Result;
use crate::text::Tokenizer;

/// Turns a sequence of tokens into pieces of text that, put together, are the text of the whole sequence.
///
/// One token may hold half a character, and a decoder may need a token's left neighbour (to know whether a space
/// belongs before it). So each step decodes a short window twice, without and with the new token, and the difference is
/// the new piece; a window that ends in half a character waits for the next token.
///
/// ```text
/// tokens    | given out before | context | held back | new |
/// window                       `start ................... end
/// known                        `start ... read
/// ```
#[derive(Clone, Debug)]
pub struct TokenStream {
    tokenizer: Tokenizer,
    /// Invariant: the text of `window[..read]` has been given out, and ends with a whole character.
    window: Vec<u32>,
    read: usize,
}

impl TokenStream {
    pub(crate) fn new(tokenizer: Tokenizer) -> Self {
        Self {
            tokenizer,
            window: Vec::new(),
            read: 0,
        }
    }

    /// Takes one more token and gives the text that is now certain, which may be empty.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.window.push(token);
        let text = self.tokenizer.decode(&self.window)?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        self.advance(&text)
    }

    /// Gives what was held back: half a character at the very end becomes U+FFFD.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn finish(mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.window)?;
        self.advance(&text)
    }

    fn advance(&mut self, text: &str) -> Result<String> {
        let known = self.tokenizer.decode(&self.window[..self.read])?;
        let piece = match text.strip_prefix(known.as_str()) {
            Some(piece) => piece.to_owned(),
            // A byte-fallback decoder gives up a whole run of bytes when a later one breaks it, also those already
            // given out as characters: they stay, and the rest is decoded on its own.
            None => self.tokenizer.decode(&self.window[self.read..])?,
        };
        // A window whose text is empty (special tokens) is no context yet: keep it until there is some.
        if !piece.is_empty() {
            self.window.drain(..self.read);
            self.read = self.window.len();
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/fixtures/models")
            .join(name)
    }

    fn stream(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
        let mut stream = tokenizer.stream();
        let mut pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
        pieces.push(stream.finish().unwrap());
        pieces
    }

    #[test]
    fn characters_of_several_tokens_come_whole() {
        for model in ["qwen3-tiny-int4", "phi3-tiny-int4"] {
            let tokenizer = Tokenizer::open(&fixture(model)).unwrap();
            let text = "café 日本語 🙂 naïf";
            let tokens = tokenizer.encode_rendered(text).unwrap();
            assert!(tokens.len() > text.chars().count() / 2);
            let pieces = stream(&tokenizer, &tokens);
            assert!(
                pieces.iter().all(|p| !p.contains(char::REPLACEMENT_CHARACTER)),
                "{pieces:?}"
            );
            assert_eq!(pieces.concat().trim_start(), text);
        }
    }

    #[test]
    fn half_a_character_at_the_end_is_given_by_finish_only() {
        let tokenizer = Tokenizer::open(&fixture("qwen3-tiny-int4")).unwrap();
        let tokens = tokenizer.encode_rendered("ab🙂").unwrap();
        let pieces = stream(&tokenizer, &tokens[..tokens.len() - 1]);
        let (last, before) = pieces.split_last().unwrap();
        assert_eq!(before.concat(), "ab");
        assert!(last.contains(char::REPLACEMENT_CHARACTER));
    }

    #[track_caller]
    fn check_adds_up(tokenizer: &Tokenizer, tokens: &[u32]) -> std::result::Result<(), TestCaseError> {
        prop_assert_eq!(
            stream(tokenizer, tokens).concat(),
            tokenizer.decode(tokens).unwrap()
        );
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn pieces_add_up_to_the_whole_text(tokens in prop::collection::vec(0_u32..2048, 0..40)) {
            // Random tokens: broken characters, special tokens, everything a random model may say.
            let byte_level = Tokenizer::open(&fixture("qwen3-tiny-int4")).unwrap();
            check_adds_up(&byte_level, &tokens)?;
            // Here bytes are tokens 3 to 258, and the decoder is not a function of prefixes where they are broken.
            let byte_fallback = Tokenizer::open(&fixture("phi3-tiny-int4")).unwrap();
            let without_bytes: Vec<u32> = tokens.iter().copied().filter(|t| !(3..259).contains(t)).collect();
            check_adds_up(&byte_fallback, &without_bytes)?;
            // With them nothing after a broken run is lost.
            let mut marked = tokens;
            marked.extend(byte_fallback.encode_rendered(" end").unwrap());
            prop_assert!(stream(&byte_fallback, &marked).concat().ends_with("end"));
        }
    }
}
