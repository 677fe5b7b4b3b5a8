//! The tokenizer inside a GGUF file as Hugging Face files.

use super::file::GgufFile;
use crate::error::{Error, Result};
use crate::write::{DecoderSpec, pretty};
use serde_json::{Map, Value, json};
use std::io::{Read, Seek};
use std::path::Path;

/// `tokenizer.ggml.token_type` of tokens that stand for control, and of those that a user added.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Writes `tokenizer.json`, `tokenizer_config.json` and, if there is a template, `chat_template.jinja`.
pub(super) fn write_tokenizer<R: Read + Seek>(
    gguf: &GgufFile<R>,
    folder: &Path,
    spec: &DecoderSpec,
) -> Result<()> {
    let template = match gguf.metadata().contains_key("tokenizer.chat_template") {
        true => Some(gguf.string("tokenizer.chat_template")?),
        false => None,
    };
    let tokens = gguf.strings("tokenizer.ggml.tokens")?;
    let token = |id: u32| tokens.get(id as usize).map(String::as_str);
    let unknown = match gguf.metadata().contains_key("tokenizer.ggml.unknown_token_id") {
        true => token(gguf.integer("tokenizer.ggml.unknown_token_id")?),
        false => None,
    };
    let config = json!({
        "bos_token": token(spec.bos),
        "eos_token": token(spec.eos[0]),
        "pad_token": token(spec.pad),
        "unk_token": unknown,
        "model_max_length": spec.context_length,
        "clean_up_tokenization_spaces": false,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": template,
    });
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| Error::io(&path, "write", error))
    };
    write("tokenizer.json", &tokenizer_json(gguf, tokens)?.to_string())?;
    write("tokenizer_config.json", &pretty(&config))?;
    if let Some(template) = template {
        write("chat_template.jinja", template)?;
    }
    Ok(())
}

fn tokenizer_json<R: Read + Seek>(gguf: &GgufFile<R>, tokens: &[String]) -> Result<Value> {
    let model = gguf.string("tokenizer.ggml.model")?;
    if model != "gpt2" {
        let message = format!("tokenizer {model:?}, only byte-level BPE (\"gpt2\") can be converted");
        return Err(Error::unsupported(message).in_file(gguf.path()));
    }
    let types = gguf.integers("tokenizer.ggml.token_type")?;
    if types.len() != tokens.len() {
        return Err(gguf.invalid(format!("{} tokens but {} token types", tokens.len(), types.len())));
    }
    let mut vocab = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        if vocab.insert(token.clone(), json!(id)).is_some() {
            return Err(gguf.invalid(format!("token {token:?} occurs twice in the vocabulary")));
        }
    }
    let mut merges = Vec::new();
    for merge in gguf.strings("tokenizer.ggml.merges")? {
        match merge.split_once(' ') {
            Some((left, right))
                if [left, right, &[left, right].concat()]
                    .iter()
                    .all(|&part| vocab.contains_key(part)) =>
            {
                merges.push(json!([left, right]));
            }
            _ => return Err(gguf.invalid(format!("merge {merge:?} is not two tokens that make a third"))),
        }
    }
    let added = tokens
        .iter()
        .zip(types)
        .enumerate()
        .filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED));
    let added: Vec<Value> = added
        .map(|(id, (content, kind))| {
            json!({
                "id": id, "content": content, "special": *kind == CONTROL,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer(gguf)?,
        "post_processor": null,
        "decoder": byte_level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        },
    }))
}

/// How text is cut before merging. llama.cpp only names the rule; these are the rules behind the names.
fn pre_tokenizer<R: Read + Seek>(gguf: &GgufFile<R>) -> Result<Value> {
    match gguf.string("tokenizer.ggml.pre")? {
        "smollm" => {
            let digits = json!({ "type": "Digits", "individual_digits": true });
            Ok(json!({ "type": "Sequence", "pretokenizers": [digits, byte_level(false)] }))
        }
        "gpt-2" => Ok(byte_level(false)),
        other => {
            let message = format!("pre-tokenizer {other:?}, only \"smollm\" and \"gpt-2\" can be converted");
            Err(Error::unsupported(message).in_file(gguf.path()))
        }
    }
}

fn byte_level(add_prefix_space: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": true })
}
