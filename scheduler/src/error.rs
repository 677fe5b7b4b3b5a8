//! Why a run cannot succeed.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::event::Phase;
use crate::operator::BoxError;
use crate::sync::Arc;

/// Why a graph could not be started, or why a run or one of its barriers cannot succeed.
///
/// It names the root: the node where it went wrong, with its lane, operator type and phase, and the nodes that
/// were skipped because of it. Cloning is cheap: every waiter gets the same error.
///
/// ```
/// use scheduler::{InitGraph, InitMode, Phase};
///
/// let mut graph = InitGraph::new();
/// graph.read("config", (), |()| Err::<(), _>("no such file".into()));
/// let error = graph.start(InitMode::Overlapped)?.ready().wait().unwrap_err();
/// assert_eq!((error.node(), error.phase()), (Some("config"), Some(Phase::Host)));
/// assert_eq!(error.to_string(), "config: host phase failed on lane host: no such file");
/// # Ok::<(), scheduler::InitError>(())
/// ```
#[derive(Clone)]
pub struct InitError(Arc<Inner>);

struct Inner {
    kind: Kind,
    /// Names of the nodes that will never run because of this.
    skipped: Vec<String>,
    /// The other failures of a run that collects all of them.
    others: Vec<InitError>,
}

#[derive(Clone)]
enum Kind {
    Node { at: Site, fault: Arc<Fault> },
    Cancelled { running: Option<Site> },
    Graph(String),
    Cycle(Vec<String>),
    Misuse(String),
    RolledBack { node: String },
}

/// Where something went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) node: Cow<'static, str>,
    pub(crate) lane: String,
    pub(crate) operator_type: Cow<'static, str>,
    pub(crate) phase: Phase,
}

/// What user code did wrong.
pub enum Fault {
    Error(BoxError),
    Panic(String),
    /// Stopped at an await point, because the run was cancelled or failed elsewhere.
    Stopped,
}

impl Fault {
    pub(crate) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let text = match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => match payload.downcast::<&'static str>() {
                Ok(text) => (*text).to_owned(),
                Err(payload) => {
                    // A payload whose drop panics must not take the lane with it.
                    std::mem::forget(payload);
                    "a panic without a message".to_owned()
                }
            },
        };
        Fault::Panic(text)
    }
}

impl InitError {
    fn new(kind: Kind, skipped: Vec<String>, others: Vec<InitError>) -> Self {
        InitError(Arc::new(Inner {
            kind,
            skipped,
            others,
        }))
    }

    pub(crate) fn node_failed(at: Site, fault: Fault, skipped: Vec<String>) -> Self {
        let fault = Arc::new(fault);
        InitError::new(Kind::Node { at, fault }, skipped, Vec::new())
    }

    pub(crate) fn cancelled(running: Option<Site>, skipped: Vec<String>) -> Self {
        InitError::new(Kind::Cancelled { running }, skipped, Vec::new())
    }

    pub(crate) fn graph(message: impl Into<String>) -> Self {
        InitError::new(Kind::Graph(message.into()), Vec::new(), Vec::new())
    }

    pub(crate) fn cycle(path: Vec<String>) -> Self {
        InitError::new(Kind::Cycle(path), Vec::new(), Vec::new())
    }

    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        InitError::new(Kind::Misuse(message.into()), Vec::new(), Vec::new())
    }

    pub(crate) fn rolled_back(node: impl Into<String>) -> Self {
        InitError::new(Kind::RolledBack { node: node.into() }, Vec::new(), Vec::new())
    }

    /// The same failure, with the others of the run in its train.
    pub(crate) fn with_others(self, others: Vec<InitError>) -> Self {
        InitError::new(self.0.kind.clone(), self.0.skipped.clone(), others)
    }

    fn site(&self) -> Option<&Site> {
        match &self.0.kind {
            Kind::Node { at, .. } => Some(at),
            Kind::Cancelled { running } => running.as_ref(),
            _ => None,
        }
    }

    /// The name of the node where it went wrong. For a cancelled run: a node that was running then, if any was.
    pub fn node(&self) -> Option<&str> {
        self.site().map(|site| site.node.as_ref())
    }

    /// The lane of that node.
    pub fn lane(&self) -> Option<&str> {
        self.site().map(|site| site.lane.as_str())
    }

    /// The operator type of that node.
    pub fn operator_type(&self) -> Option<&str> {
        self.site().map(|site| site.operator_type.as_ref())
    }

    /// Whether it was reading, opening the lane, or setting up.
    pub fn phase(&self) -> Option<Phase> {
        self.site().map(|site| site.phase)
    }

    /// The names of the nodes that will never run because of this, in submission order: for a failed node those
    /// that depend on it, directly or not; for a cancelled run those that had not finished.
    pub fn skipped(&self) -> &[String] {
        &self.0.skipped
    }

    /// The run's other failures, where it collects all of them
    /// ([`FailurePolicy::CollectAll`](crate::FailurePolicy::CollectAll)), in submission order.
    pub fn others(&self) -> &[InitError] {
        &self.0.others
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0.kind, Kind::Cancelled { .. })
    }

    /// Whether the node panicked. The panic's message is part of this error's.
    pub fn is_panic(&self) -> bool {
        matches!(&self.0.kind, Kind::Node { fault, .. } if matches!(**fault, Fault::Panic(_)))
    }

    /// Whether the graph itself is wrong, so that nothing was started.
    pub fn is_graph(&self) -> bool {
        matches!(self.0.kind, Kind::Graph(_) | Kind::Cycle(_))
    }

    /// The names of the nodes on a cycle, the first one again at the end, if a cycle is what is wrong.
    pub fn cycle_path(&self) -> Option<&[String]> {
        match &self.0.kind {
            Kind::Cycle(path) => Some(path),
            _ => None,
        }
    }

    /// Whether a call was wrong: a value taken twice or before its barrier, a constructor on a second thread.
    pub fn is_misuse(&self) -> bool {
        matches!(self.0.kind, Kind::Misuse(_))
    }

    /// Whether the value asked for was dropped in the rollback of a run that failed later.
    pub fn is_rolled_back(&self) -> bool {
        matches!(self.0.kind, Kind::RolledBack { .. })
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            Kind::Node { at, fault } => {
                let (node, phase, lane) = (&at.node, at.phase, &at.lane);
                match &**fault {
                    Fault::Error(error) => write!(f, "{node}: {phase} phase failed on lane {lane}: {error}")?,
                    Fault::Panic(text) => write!(f, "{node}: {phase} phase panicked on lane {lane}: {text}")?,
                    Fault::Stopped => write!(f, "{node}: {phase} phase stopped on lane {lane}")?,
                }
                write_more(f, self.0.skipped.len(), "node skipped", "nodes skipped")?;
                write_more(f, self.0.others.len(), "other failure", "other failures")
            }
            Kind::Cancelled { running: None } => f.write_str("initialisation was cancelled"),
            Kind::Cancelled { running: Some(at) } => {
                write!(
                    f,
                    "initialisation was cancelled during {} ({} phase, lane {})",
                    at.node, at.phase, at.lane
                )
            }
            Kind::Graph(message) | Kind::Misuse(message) => f.write_str(message),
            Kind::Cycle(path) => write!(f, "the graph has a cycle: {}", path.join(" -> ")),
            Kind::RolledBack { node } => {
                write!(
                    f,
                    "{node}: its value is gone, the run failed or was cancelled and rolled it back"
                )
            }
        }
    }
}

fn write_more(f: &mut fmt::Formatter<'_>, n: usize, one: &str, many: &str) -> fmt::Result {
    match n {
        0 => Ok(()),
        1 => write!(f, " (1 {one})"),
        n => write!(f, " ({n} {many})"),
    }
}

impl fmt::Debug for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InitError({self})")
    }
}

impl Error for InitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.kind {
            Kind::Node { fault, .. } => match &**fault {
                Fault::Error(error) => Some(&**error),
                _ => None,
            },
            _ => None,
        }
    }
}
