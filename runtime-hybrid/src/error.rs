//! The one error of this crate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scheduler::InitError;

/// Why a load, a request or a setting failed.
///
/// Cheap to clone: every request that waits behind a failed initialisation gets the same error.
#[derive(Clone)]
pub struct Error(Arc<Kind>);

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

enum Kind {
    Setting {
        message: String,
    },
    Model {
        source: Source,
    },
    Text {
        file: PathBuf,
        message: String,
    },
    Template {
        message: String,
    },
    Request {
        message: String,
    },
    Context {
        prompt: usize,
        max_tokens: usize,
        limit: usize,
    },
    Unsupported {
        engine: &'static str,
        source: Source,
    },
    Init {
        source: InitError,
    },
    Engine {
        engine: &'static str,
        source: Source,
    },
    Closed,
}

impl Error {
    pub(crate) fn setting(message: impl Into<String>) -> Self {
        Kind::Setting {
            message: message.into(),
        }
        .into()
    }

    pub(crate) fn model(source: impl Into<Source>) -> Self {
        Kind::Model {
            source: source.into(),
        }
        .into()
    }

    pub(crate) fn text(file: &Path, message: impl fmt::Display) -> Self {
        Kind::Text {
            file: file.to_owned(),
            message: message.to_string(),
        }
        .into()
    }

    pub(crate) fn template(message: impl Into<String>) -> Self {
        Kind::Template {
            message: message.into(),
        }
        .into()
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Kind::Request {
            message: message.into(),
        }
        .into()
    }

    pub(crate) fn context(prompt: usize, max_tokens: usize, limit: usize) -> Self {
        Kind::Context {
            prompt,
            max_tokens,
            limit,
        }
        .into()
    }

    pub(crate) fn unsupported(engine: &'static str, source: impl Into<Source>) -> Self {
        Kind::Unsupported {
            engine,
            source: source.into(),
        }
        .into()
    }

    pub(crate) fn init(source: InitError) -> Self {
        Kind::Init { source }.into()
    }

    pub(crate) fn engine(engine: &'static str, source: impl Into<Source>) -> Self {
        Kind::Engine {
            engine,
            source: source.into(),
        }
        .into()
    }

    pub(crate) fn closed() -> Self {
        Kind::Closed.into()
    }

    /// The failed initialisation behind this error: its node, lane, operator type and phase.
    pub fn init_error(&self) -> Option<&InitError> {
        match &*self.0 {
            Kind::Init { source } => Some(source),
            _ => None,
        }
    }

    /// Whether the prompt and the tokens asked for do not fit the model's context.
    pub fn is_context_overflow(&self) -> bool {
        matches!(*self.0, Kind::Context { .. })
    }

    /// Whether the request itself is at fault (its prompt, its sampling), not the runtime.
    pub fn is_invalid_request(&self) -> bool {
        matches!(
            *self.0,
            Kind::Request { .. } | Kind::Context { .. } | Kind::Template { .. }
        )
    }

    /// Whether the work was cancelled, by [`cancel`](crate::HybridRuntime::cancel) or because the
    /// runtime was dropped, and nothing went wrong.
    pub fn is_cancelled(&self) -> bool {
        match &*self.0 {
            Kind::Closed => true,
            Kind::Init { source } => source.is_cancelled(),
            _ => false,
        }
    }

    /// Whether an engine cannot be used here: the model has something it does not know, or this machine lacks what it needs.
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, Kind::Unsupported { .. })
    }

    /// Whether a setting of the caller is at fault: an option, or the environment variable.
    pub fn is_setting(&self) -> bool {
        matches!(*self.0, Kind::Setting { .. })
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Error(Arc::new(kind))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Setting { message } | Kind::Template { message } | Kind::Request { message } => {
                f.write_str(message)
            }
            Kind::Model { source } => write!(f, "{source}"),
            Kind::Text { file, message } => write!(f, "{}: {message}", file.display()),
            Kind::Context {
                prompt,
                max_tokens,
                limit,
            } => write!(
                f,
                "the prompt has {prompt} tokens and up to {max_tokens} were asked for, but the model's context \
                 holds {limit}: shorten the prompt or ask for at most {} tokens",
                limit.saturating_sub(*prompt)
            ),
            Kind::Init { source } => write!(f, "{source}"),
            Kind::Engine { engine, source } => write!(f, "the {engine} engine failed: {source}"),
            Kind::Unsupported { engine, source } => write!(f, "the {engine} engine cannot be used: {source}"),
            Kind::Closed => f.write_str("the runtime was closed before the request was done"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Model and Init print their source's message as their own, so the chain goes on below it.
        match &*self.0 {
            Kind::Model { source } => source.source(),
            Kind::Init { source } => source.source(),
            Kind::Engine { source, .. } | Kind::Unsupported { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
