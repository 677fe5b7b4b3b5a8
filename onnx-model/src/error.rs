//! The crate's one error type.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What [`Error`] is used with.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model folder could not be read, written or used: what was wrong and where (file, node, tensor).
///
/// Cloning is cheap, so one failure can be reported to several callers.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    message: String,
    file: Option<PathBuf>,
    node: Option<String>,
    tensor: Option<String>,
    cycle: Vec<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Io,
    Malformed,
    Range,
    UnsafePath,
    Unsupported,
    Cycle,
    Changed,
    NotFound,
    InvalidArgument,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            file: None,
            node: None,
            tensor: None,
            cycle: Vec::new(),
            source: None,
        }))
    }

    pub(crate) fn io(file: &Path, doing: &str, source: std::io::Error) -> Self {
        let mut error = Error::new(Kind::Io, format!("cannot {doing}: {source}")).in_file(file);
        error.inner().source = Some(Arc::new(source));
        error
    }

    /// Bytes or structure that no valid file has.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Error::new(Kind::Malformed, message)
    }

    /// A byte range that does not fit its file or its shape.
    pub(crate) fn range(message: impl Into<String>) -> Self {
        Error::new(Kind::Range, message)
    }

    /// A path that leaves the model folder.
    pub(crate) fn unsafe_path(message: impl Into<String>) -> Self {
        Error::new(Kind::UnsafePath, message)
    }

    /// A valid model that this crate does not handle.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Error::new(Kind::Unsupported, message)
    }

    /// A file that is no longer what it was when it was opened.
    pub(crate) fn changed(message: impl Into<String>) -> Self {
        Error::new(Kind::Changed, message)
    }

    /// Something asked for by a name that the model does not have.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Error::new(Kind::NotFound, message)
    }

    /// An argument of a call into this crate that makes no sense.
    // Used by the writing half.
    #[allow(dead_code)]
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Error::new(Kind::InvalidArgument, message)
    }

    /// Nodes that need each other's results; `path` starts and ends with the same node.
    pub(crate) fn cycle(path: Vec<String>) -> Self {
        const SHOWN: usize = 32;
        let mut message = String::from("the graph has a cycle: ");
        for (i, node) in path.iter().take(SHOWN).enumerate() {
            if i > 0 {
                message.push_str(" -> ");
            }
            message.push_str(&shown(node));
        }
        if path.len() > SHOWN {
            message.push_str(&format!(
                " -> .. ({} more) -> {}",
                path.len() - SHOWN,
                shown(&path[path.len() - 1])
            ));
        }
        let mut error = Error::new(Kind::Cycle, message);
        error.inner().cycle = path;
        error
    }

    pub(crate) fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.inner().source = Some(Arc::new(source));
        self
    }

    /// Names the file, unless one is named already.
    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        if self.0.file.is_none() {
            self.inner().file = Some(file.to_path_buf());
        }
        self
    }

    /// Names the node, unless one is named already.
    pub(crate) fn at_node(mut self, node: impl Into<String>) -> Self {
        if self.0.node.is_none() {
            self.inner().node = Some(node.into());
        }
        self
    }

    /// Names the tensor or value, unless one is named already.
    pub(crate) fn at_tensor(mut self, tensor: impl Into<String>) -> Self {
        if self.0.tensor.is_none() {
            self.inner().tensor = Some(tensor.into());
        }
        self
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// The file that was being read, if the failure has one.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The graph node at fault, if any.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The tensor or value at fault, if any.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }

    /// The nodes of a cycle in order, the first repeated at the end; empty for any other error.
    pub fn cycle_path(&self) -> &[String] {
        &self.0.cycle
    }

    /// Whether the operating system refused: missing file, permission, and so on.
    pub fn is_io(&self) -> bool {
        self.0.kind == Kind::Io
    }

    /// Whether the bytes or the structure are not those of a valid file.
    pub fn is_malformed(&self) -> bool {
        self.0.kind == Kind::Malformed
    }

    /// Whether a byte range does not fit its file, element type or shape.
    pub fn is_out_of_range(&self) -> bool {
        self.0.kind == Kind::Range
    }

    /// Whether a path inside the model leaves the model folder.
    pub fn is_unsafe_path(&self) -> bool {
        self.0.kind == Kind::UnsafePath
    }

    /// Whether the model is valid but this crate does not handle it.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == Kind::Unsupported
    }

    /// Whether nodes need each other's results.
    pub fn is_cycle(&self) -> bool {
        self.0.kind == Kind::Cycle
    }

    /// Whether a file changed after it was opened.
    pub fn is_changed(&self) -> bool {
        self.0.kind == Kind::Changed
    }

    /// Whether a name was asked for that the model does not have.
    pub fn is_not_found(&self) -> bool {
        self.0.kind == Kind::NotFound
    }

    /// Whether the caller's own argument was at fault.
    pub fn is_invalid_argument(&self) -> bool {
        self.0.kind == Kind::InvalidArgument
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.0.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(node) = &self.0.node {
            write!(f, "node '{}': ", shown(node))?;
        }
        if let Some(tensor) = &self.0.tensor {
            write!(f, "tensor '{}': ", shown(tensor))?;
        }
        f.write_str(&self.0.message)
    }
}

/// At most 200 characters of a name taken from a file, escaped: names may be megabytes of control characters.
pub(crate) fn shown(name: &str) -> String {
    const LIMIT: usize = 200;
    let mut out: String = name.chars().take(LIMIT).flat_map(char::escape_debug).collect();
    if name.chars().nth(LIMIT).is_some() {
        out.push_str("..");
    }
    out
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &format_args!("{self}"))
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|s| &**s as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_says_where_and_inner_context_wins() {
        let error = Error::range("too long")
            .at_tensor("w")
            .at_tensor("outer")
            .at_node("n")
            .in_file(Path::new("model.onnx"));
        assert_eq!(error.to_string(), "model.onnx: node 'n': tensor 'w': too long");
        assert!(error.is_out_of_range() && !error.is_io());
    }

    #[test]
    fn long_and_unprintable_names_are_cut_and_escaped() {
        let error = Error::malformed("bad").at_node("\u{1b}[31m".repeat(1000));
        assert!(error.to_string().len() < 2500);
        assert!(!error.to_string().contains('\u{1b}'));
    }

    #[test]
    fn a_long_cycle_is_shortened_in_the_message_only() {
        let mut path: Vec<String> = (0..1000).map(|i| format!("n{i}")).collect();
        path.push("n0".into());
        let error = Error::cycle(path);
        assert!(error.to_string().ends_with("(969 more) -> n0"), "{error}");
        assert_eq!(error.cycle_path().len(), 1001);
    }
}
