//! The crate's one error.

use std::fmt;
use std::sync::Arc;

/// Why the decode engine could not be planned, set up or run.
///
/// Cheap to clone. [`operator`](Self::operator) and [`node`](Self::node) say where, the predicates say what kind.
#[derive(Clone)]
pub struct IgpuError {
    inner: Arc<Inner>,
}

/// The crate's result.
pub type Result<T, E = IgpuError> = std::result::Result<T, E>;

struct Inner {
    kind: Kind,
    message: String,
    operator: Option<String>,
    node: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NoAdapter,
    Feature,
    Limit,
    Unsupported,
    Model,
    Memory,
    Shader,
    DeviceLost,
    Stalled,
    Request,
    Internal,
}

impl IgpuError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message: message.into(),
                operator: None,
                node: None,
                source: None,
            }),
        }
    }

    /// Names the operator at fault, unless an inner site already did.
    pub(crate) fn at_operator(self, operator: &str) -> Self {
        self.edit(|inner| {
            inner.operator.get_or_insert_with(|| operator.to_owned());
        })
    }

    /// Names the node at fault, unless an inner site already did.
    pub(crate) fn at_node(self, node: &str) -> Self {
        self.edit(|inner| {
            inner.node.get_or_insert_with(|| node.to_owned());
        })
    }

    pub(crate) fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Box::new(source)))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        // A shared error was already reported as it is; only its maker still adds to it.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            change(inner);
        }
        self
    }

    /// The operator at fault, as the model's grouping names it.
    pub fn operator(&self) -> Option<&str> {
        self.inner.operator.as_deref()
    }

    /// The graph node at fault.
    pub fn node(&self) -> Option<&str> {
        self.inner.node.as_deref()
    }

    /// No driver, or no adapter that fits the choice. A caller with another engine goes on without this one.
    pub fn is_no_adapter(&self) -> bool {
        self.inner.kind == Kind::NoAdapter
    }

    /// The adapter lacks a feature that was asked for.
    pub fn is_unsupported_feature(&self) -> bool {
        self.inner.kind == Kind::Feature
    }

    /// Something is larger than the adapter allows.
    pub fn is_over_limit(&self) -> bool {
        self.inner.kind == Kind::Limit
    }

    /// The model has a node, attribute or type that this engine has no kernel for.
    pub fn is_unsupported_model(&self) -> bool {
        self.inner.kind == Kind::Unsupported
    }

    /// The model contradicts itself: shapes that do not fit, a tensor that is missing.
    pub fn is_invalid_model(&self) -> bool {
        self.inner.kind == Kind::Model
    }

    /// The memory budget or the device's memory does not hold the model.
    pub fn is_out_of_memory(&self) -> bool {
        self.inner.kind == Kind::Memory
    }

    /// A kernel did not compile or was used wrongly; a defect of this crate or of the driver.
    pub fn is_shader(&self) -> bool {
        self.inner.kind == Kind::Shader
    }

    /// The device is gone. Load again to go on.
    pub fn is_device_lost(&self) -> bool {
        self.inner.kind == Kind::DeviceLost
    }

    /// The device did not finish within the stall timeout.
    pub fn is_stalled(&self) -> bool {
        self.inner.kind == Kind::Stalled
    }

    /// The request does not fit the engine: an unknown token, a full context, a cache of another shape.
    pub fn is_bad_request(&self) -> bool {
        self.inner.kind == Kind::Request
    }
}

impl fmt::Display for IgpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.operator(), self.node()) {
            (Some(operator), Some(node)) if operator != node => {
                write!(f, "operator {operator}, node {node}: ")?
            }
            (Some(operator), _) => write!(f, "operator {operator}: ")?,
            (None, Some(node)) => write!(f, "node {node}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for IgpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IgpuError({:?}: {self})", self.inner.kind)
    }
}

impl std::error::Error for IgpuError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner
            .source
            .as_ref()
            .map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
