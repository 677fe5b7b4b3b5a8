//! Text to tokens, and back.

use std::path::Path;
use std::sync::Arc;

use tokenizers::models::bpe::BPE;
use tokenizers::{
    DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl,
};

use crate::error::{Error, Result};
use crate::text::TokenStream;

/// The tokenizer of a model folder (`tokenizer.json`). Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer(Arc<tokenizers::Tokenizer>);

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder.
    ///
    /// # Errors
    ///
    /// The file is missing or not a tokenizer; the message names it.
    pub fn open(folder: &Path) -> Result<Self> {
        let file = folder.join("tokenizer.json");
        let bytes = std::fs::read(&file)
            .map_err(|e| Error::text(&file, format!("cannot read the tokenizer: {e}")))?;
        let mut tokenizer = parse(&bytes).map_err(|e| Error::text(&file, format!("not a tokenizer: {e}")))?;
        // A tokenizer may carry settings of its training (padding to a batch, truncation): a prompt is whole.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|e| Error::text(&file, e))?;
        Ok(Self(Arc::new(tokenizer)))
    }

    /// The tokens of a plain text, with the tokens the tokenizer itself puts around a text (a beginning-of-sequence
    /// token, where the model has one).
    ///
    /// # Errors
    ///
    /// The tokenizer cannot take the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, true)
    }

    /// The tokens of a text that a chat template has rendered: it holds its own special tokens.
    ///
    /// # Errors
    ///
    /// The tokenizer cannot take the text.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>> {
        let encoding = self
            .0
            .encode_fast(text, add_special_tokens)
            .map_err(|e| Error::request(format!("the tokenizer cannot take the prompt: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens, without special tokens.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.0
            .decode(tokens, true)
            .map_err(|e| Error::engine("tokenizer", e))
    }

    /// Decodes token by token.
    pub fn stream(&self) -> TokenStream {
        TokenStream::new(self.clone())
    }
}

/// Byte-pair encoding, which nearly every decoder has, is parsed as such: the general form buffers the whole vocabulary as
/// untyped values first and takes twice as long.
fn parse(bytes: &[u8]) -> tokenizers::Result<tokenizers::Tokenizer> {
    type BytePair =
        TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
    match serde_json::from_slice::<BytePair>(bytes) {
        Ok(tokenizer) => Ok(tokenizer.into()),
        Err(_) => tokenizers::Tokenizer::from_bytes(bytes),
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.0.get_vocab_size(true))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::Value;

    use super::*;
    use crate::text::{ChatTemplate, Message};

    /// Tokens and prompts as stock onnxruntime-genai makes them on the same folders. (Not phi3's: there its own
    /// tokenizer leaves out most merges and the beginning-of-sequence token, which Hugging Face's puts in.)
    #[test]
    fn tokens_and_prompts_are_those_of_onnxruntime_genai() {
        let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        for name in ["qwen3-tiny-int4", "qwen3-tiny-int4-asym", "llama3-tiny-int4"] {
            let folder = fixtures.join("models").join(name);
            let tokenizer = Tokenizer::open(&folder).unwrap();
            let template = ChatTemplate::open(&folder).unwrap().unwrap();
            let reference = std::fs::read(fixtures.join("refs").join(format!("{name}.json"))).unwrap();
            let reference: Value = serde_json::from_slice(&reference).unwrap();
            let cases = reference["cases"].as_array().unwrap();
            assert!(!cases.is_empty());
            for case in cases {
                let text = case["text"].as_str().unwrap();
                let tokens = match case["kind"].as_str().unwrap() {
                    "chat" => {
                        let prompt = template.render(&[Message::user(text)]).unwrap();
                        assert_eq!(prompt, case["rendered"].as_str().unwrap(), "{name}");
                        tokenizer.encode_rendered(&prompt).unwrap()
                    }
                    _ => tokenizer.encode(text).unwrap(),
                };
                let expected: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).unwrap();
                assert_eq!(tokens, expected, "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn a_plain_text_gets_the_tokens_around_it_and_a_rendered_one_does_not() {
        let folder =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models/phi3-tiny-int4");
        let tokenizer = Tokenizer::open(&folder).unwrap();
        let (plain, rendered) = (
            tokenizer.encode("What").unwrap(),
            tokenizer.encode_rendered("What").unwrap(),
        );
        assert_eq!(plain[0], 1, "the beginning-of-sequence token of phi3");
        assert_eq!(plain[1..], rendered);
    }

    #[test]
    fn parsed_as_byte_pairs_it_is_what_the_general_form_gives() {
        for name in ["qwen3-tiny-int4", "llama3-tiny-int4", "phi3-tiny-int4"] {
            let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../tests/fixtures/models")
                .join(name);
            let bytes = std::fs::read(file.join("tokenizer.json")).unwrap();
            let [fast, general] = [parse(&bytes), tokenizers::Tokenizer::from_bytes(&bytes)]
                .map(|tokenizer| tokenizer.unwrap().to_string(false).unwrap());
            assert!(fast == general, "{name}");
        }
    }

    #[test]
    fn another_model_than_byte_pairs_is_parsed_too() {
        let text = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}}"#;
        let encoding = parse(text.as_bytes()).unwrap().encode("b a c", false).unwrap();
        assert_eq!(encoding.get_ids(), [1, 0, 2]);
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let check = |part: &str| {
            let error = Tokenizer::open(folder.path()).unwrap_err().to_string();
            assert!(
                error.contains("tokenizer.json") && error.contains(part),
                "{error}"
            );
        };
        check("cannot read");
        std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        check("not a tokenizer");
    }
}
