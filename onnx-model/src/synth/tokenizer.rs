//! A tokenizer of any vocabulary size: byte-level BPE that merges letters to pairs and pairs to fours.

use crate::error::{Error, Result};
use crate::write::{DecoderSpec, pretty};
use serde_json::{Map, Value, json};

/// The last three tokens of the vocabulary, in this order.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// ChatML, and no system message.
pub(super) const CHAT_TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// tokenizer_config.json for [`tokenizer_json`].
pub(super) fn tokenizer_config(spec: &DecoderSpec) -> String {
    pretty(&json!({
        "clean_up_tokenization_spaces": false,
        "eos_token": SPECIAL[2],
        "model_max_length": spec.context_length,
        "pad_token": SPECIAL[0],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }))
}

/// A tokenizer.json with exactly `vocab` tokens.
///
/// # Errors
/// If that is too few for all bytes and the special tokens, or more than merges of four letters can fill.
pub(super) fn tokenizer_json(vocab: usize) -> Result<String> {
    let alphabet = byte_alphabet();
    let Some(n_merges) = vocab.checked_sub(alphabet.len() + SPECIAL.len()) else {
        return Err(Error::invalid_argument(format!(
            "a vocabulary of {vocab} has no room for 256 bytes and 3 special tokens"
        )));
    };
    // A space (which byte-level BPE spells Ġ) only begins a word.
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    let first = || letters.iter().map(String::as_str).chain(["Ġ"]);
    let pairs: Vec<[&str; 2]> = first()
        .flat_map(|a| letters.iter().map(move |b| [a, b.as_str()]))
        .collect();
    let pair_names: Vec<String> = pairs.iter().map(|pair| pair.concat()).collect();
    let (starts, inner) = (&pair_names, &pair_names[..26 * 26]);
    // Spread over the alphabet, so that a small vocabulary does not spell only what begins with "aa".
    let fours = (0..inner.len()).flat_map(|step| {
        starts
            .iter()
            .enumerate()
            .map(move |(i, start)| [start.as_str(), inner[(i * 17 + step) % inner.len()].as_str()])
    });
    let merges: Vec<[&str; 2]> = pairs.iter().copied().chain(fours).take(n_merges).collect();
    if merges.len() < n_merges {
        return Err(Error::invalid_argument(format!(
            "a vocabulary of {vocab} is more than can be made up"
        )));
    }

    let merged = merges.iter().map(|pair| pair.concat());
    let tokens = alphabet.iter().map(|c| c.to_string()).chain(merged);
    let entries: Map<String, Value> = tokens.enumerate().map(|(id, token)| (token, json!(id))).collect();
    let first_special = vocab - SPECIAL.len();
    debug_assert_eq!(entries.len(), first_special, "every token is different");
    let added = SPECIAL.iter().enumerate().map(|(i, content)| {
        json!({
            "id": first_special + i, "content": content, "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    });
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let json = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": entries, "merges": merges,
        },
    });
    Ok(json.to_string())
}

/// The 256 characters that stand for the bytes in byte-level BPE (GPT-2's `bytes_to_unicode`): printable Latin-1 for
/// itself, the rest in order from U+0100.
fn byte_alphabet() -> Vec<char> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    (0..256)
        .map(|byte| {
            let code = if printable(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).expect("below the surrogates")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_from_the_smallest_up_has_that_many_tokens() {
        for vocab in [259, 260, 259 + 27 * 26, 2048, 151_936] {
            let json: Value = serde_json::from_str(&tokenizer_json(vocab).unwrap()).unwrap();
            let tokens = json["model"]["vocab"].as_object().unwrap();
            assert_eq!(tokens.len() + 3, vocab);
            assert_eq!(json["added_tokens"][2]["id"], vocab - 1);
            for merge in json["model"]["merges"].as_array().unwrap() {
                let [left, right] = [&merge[0], &merge[1]].map(|part| part.as_str().unwrap());
                let made = tokens[&format!("{left}{right}")].as_u64();
                assert!(
                    [left, right].iter().all(|part| tokens[*part].as_u64() < made),
                    "{merge}"
                );
            }
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(tokenizer_json(258).unwrap_err().to_string().contains("258"));
        assert!(tokenizer_json(1 << 20).unwrap_err().is_invalid_argument());
    }

    #[test]
    fn a_space_is_spelt_as_everywhere() {
        assert_eq!(byte_alphabet()[usize::from(b' ')], 'Ġ');
        assert_eq!(byte_alphabet()[usize::from(b'a')], 'a');
    }
}
