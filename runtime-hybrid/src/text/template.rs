//! Chat messages to a prompt, by the model folder's own template.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind};
use serde::Serialize;
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::text::python;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self {
            role: "user".into(),
            content: content.into(),
        }
    }

    /// Standing orders.
    pub fn system(content: impl Into<String>) -> Self {
        Self {
            role: "system".into(),
            content: content.into(),
        }
    }

    /// What the model said before.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self {
            role: "assistant".into(),
            content: content.into(),
        }
    }
}

/// The chat template of a model folder: Jinja, as Hugging Face transformers renders it.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    file: PathBuf,
    special_tokens: Vec<(String, String)>,
}

const NAME: &str = "chat";
/// Steps a template may take: far above any real one, so that an endless loop is an error.
const FUEL: u64 = 50_000_000;

impl ChatTemplate {
    /// Reads the template of a model folder: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`.
    /// `None` where the folder has none.
    ///
    /// # Errors
    ///
    /// A file cannot be read, is not JSON, or the template is not valid Jinja; the message names the file.
    pub fn open(folder: &Path) -> Result<Option<Self>> {
        let config_file = folder.join("tokenizer_config.json");
        let config: Json = match read_if_there(&config_file)? {
            Some(text) => serde_json::from_str(&text)
                .map_err(|e| Error::text(&config_file, format!("not JSON: {e}")))?,
            None => Json::Null,
        };
        let jinja_file = folder.join("chat_template.jinja");
        let (file, source) = match read_if_there(&jinja_file)? {
            Some(source) => (jinja_file, source),
            None => match template_of(&config["chat_template"]) {
                Some(source) => (config_file, source),
                None => return Ok(None),
            },
        };
        let special_tokens = ["bos_token", "eos_token", "pad_token", "unk_token"]
            .into_iter()
            .filter_map(|key| {
                let value = &config[key];
                let text = value.as_str().or_else(|| value["content"].as_str())?;
                Some((key.to_owned(), text.to_owned()))
            })
            .collect();
        Self::new(file, source, special_tokens, now).map(Some)
    }

    fn new(
        file: PathBuf,
        source: String,
        special_tokens: Vec<(String, String)>,
        unix_seconds: fn() -> i64,
    ) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", |value: &Value, kwargs: Kwargs| {
            python::tojson(value, kwargs)
        });
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, message).with_source(Refused))
            },
        );
        environment.add_function("strftime_now", move |format: String| {
            python::strftime(&format, unix_seconds())
        });
        environment
            .add_template_owned(NAME, without_generation_marks(&source))
            .map_err(|e| Error::text(&file, format!("the chat template is not valid: {}", one_line(&e))))?;
        Ok(Self {
            environment,
            file,
            special_tokens,
        })
    }

    /// The prompt for the model's next message after these.
    ///
    /// # Errors
    ///
    /// The template refuses the messages (its own `raise_exception`), or fails; the message says which, and where.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        let template = self
            .environment
            .get_template(NAME)
            .expect("added by the constructor");
        let mut context: Vec<(&str, Value)> = vec![
            ("messages", Value::from_serialize(messages)),
            ("add_generation_prompt", Value::from(true)),
        ];
        context.extend(
            self.special_tokens
                .iter()
                .map(|(key, text)| (key.as_str(), Value::from(text.as_str()))),
        );
        template
            .render(context.into_iter().collect::<Value>())
            .map_err(|e| self.render_error(&e))
    }

    fn render_error(&self, error: &minijinja::Error) -> Error {
        let refused = std::error::Error::source(error).is_some_and(|source| source.is::<Refused>());
        Error::template(if refused {
            format!(
                "the chat template refuses these messages: {}",
                error.detail().unwrap_or_default()
            )
        } else {
            format!(
                "{}: the chat template failed: {}",
                self.file.display(),
                one_line(error)
            )
        })
    }
}

/// Marks an error as the template's own word, not a failure.
#[derive(Debug)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raise_exception was called")
    }
}

impl std::error::Error for Refused {}

fn read_if_there(file: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::text(file, format!("cannot read it: {e}"))),
    }
}

/// A template is a string, or a list of named ones of which `default` is for plain chat.
fn template_of(value: &Json) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let named = value.as_array()?;
    let default = named
        .iter()
        .find(|entry| entry["name"] == "default")
        .or(named.first())?;
    default["template"].as_str().map(str::to_owned)
}

/// `{% generation %}` marks what training learns from and renders as nothing; it is transformers' own tag.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}").map(|end| end + 2) else {
            break;
        };
        let tag = &rest[start..start + length];
        let name = tag[2..length - 2].trim_matches('-').trim();
        out.push_str(&rest[..start]);
        // An empty comment keeps the tag's white space control.
        match name {
            "generation" | "endgeneration" => {
                out.push_str(&tag.replacen("{%", "{#", 1).replacen("%}", "#}", 1))
            }
            _ => out.push_str(tag),
        }
        rest = &rest[start + length..];
    }
    out + rest
}

fn one_line(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
