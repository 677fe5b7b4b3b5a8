//! The crate's error.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Result with [`NpuError`].
pub type Result<T, E = NpuError> = std::result::Result<T, E>;

/// What went wrong, where (operator and node), and what to do. Cloning is one atomic increment, so that every request that waits
/// on a failed initialization can be given the same error.
#[derive(Clone)]
pub struct NpuError(Arc<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    operator: Option<String>,
    node: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No usable ONNX Runtime library.
    Library,
    /// The execution provider asked for cannot be had.
    Provider,
    /// The model has something that this engine cannot run.
    Unsupported,
    /// The request does not fit: too many tokens, a token out of range.
    Request,
    /// The model folder.
    Model,
    /// ONNX Runtime returned an error.
    Runtime,
    /// The initialization that the engine was to come from failed.
    Initialization,
}

impl NpuError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            operator: None,
            node: None,
            source: None,
        }))
    }

    pub(crate) fn library(message: impl Into<String>) -> Self {
        Self::new(Kind::Library, message)
    }

    pub(crate) fn provider(message: impl Into<String>) -> Self {
        Self::new(Kind::Provider, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, message)
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(Kind::Request, message)
    }

    pub(crate) fn runtime(message: impl Into<String>, source: ort::Error) -> Self {
        let mut error = Self::new(Kind::Runtime, message);
        error.edit(|inner| inner.source = Some(Box::new(source)));
        error
    }

    pub(crate) fn initialization(source: Arc<scheduler::InitError>) -> Self {
        let mut error = Self::new(Kind::Initialization, "the engine was not initialized");
        error.edit(|inner| inner.source = Some(Box::new(source)));
        error
    }

    pub(crate) fn at_operator(mut self, operator: impl Into<String>) -> Self {
        self.edit(|inner| {
            inner.operator.get_or_insert(operator.into());
        });
        self
    }

    pub(crate) fn at_node(mut self, node: impl Into<String>) -> Self {
        self.edit(|inner| {
            inner.node.get_or_insert(node.into());
        });
        self
    }

    /// Applies to errors that were just made and not yet shared; a shared one already says where it is from.
    fn edit(&mut self, edit: impl FnOnce(&mut Inner)) {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            edit(inner);
        }
    }

    /// Name of the operator at fault, such as `layers.3.mlp`.
    pub fn operator(&self) -> Option<&str> {
        self.0.operator.as_deref()
    }

    /// Name of the graph node at fault.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// Whether no usable ONNX Runtime library was found.
    pub fn is_library(&self) -> bool {
        self.0.kind == Kind::Library
    }

    /// Whether the execution provider asked for cannot be had.
    pub fn is_provider(&self) -> bool {
        self.0.kind == Kind::Provider
    }

    /// Whether the model has something that this engine cannot run.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == Kind::Unsupported
    }

    /// Whether a request does not fit: too many tokens for the KV cache, or a token that the model does not have.
    pub fn is_request(&self) -> bool {
        self.0.kind == Kind::Request
    }
}

impl fmt::Display for NpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            message,
            operator,
            node,
            ..
        } = &*self.0;
        if let Some(operator) = operator {
            write!(f, "operator {operator}: ")?;
        }
        if let Some(node) = node {
            write!(f, "node {node}: ")?;
        }
        f.write_str(message)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for NpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NpuError({:?}: {self})", self.0.kind)
    }
}

impl StdError for NpuError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The message already ends with the source's own; what is left is the source's source.
        self.0.source.as_ref().and_then(|source| source.source())
    }
}

impl From<onnx_model::Error> for NpuError {
    fn from(error: onnx_model::Error) -> Self {
        let mut converted = Self::new(Kind::Model, "");
        converted.edit(|inner| {
            inner.message = "the model folder cannot be used".into();
            inner.source = Some(Box::new(error));
        });
        converted
    }
}
