//! Which guarantee a recorded run broke, and with which nodes.

mod lifetime;
mod order;
mod settle;

use crate::event::{Event, EventKind, LaneId, NodeId};
use crate::trace::Trace;
use std::error::Error;
use std::fmt;

/// A numbered guarantee of the scheduler; the crate documentation says what each means.
///
/// G9 (waiters) and G11 (the same values in every mode) leave no mark in a trace, so no check of one trace returns them;
/// they have property tests of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Guarantee {
    G1,
    G2,
    G3,
    G4,
    G5,
    G6,
    G7,
    G8,
    G9,
    G10,
    G11,
    G12,
    G13,
}

impl Guarantee {
    /// The guarantee in two or three words.
    pub fn title(self) -> &'static str {
        match self {
            Guarantee::G1 => "exactly once",
            Guarantee::G2 => "dependencies",
            Guarantee::G3 => "serialized lanes",
            Guarantee::G4 => "lane order",
            Guarantee::G5 => "pinning",
            Guarantee::G6 => "lane state",
            Guarantee::G7 => "barrier",
            Guarantee::G8 => "always settles",
            Guarantee::G9 => "waiter-drop safety",
            Guarantee::G10 => "rollback",
            Guarantee::G11 => "same result",
            Guarantee::G12 => "no deadlock by construction",
            Guarantee::G13 => "bounded staging",
        }
    }
}

/// One broken guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which guarantee.
    pub guarantee: Guarantee,
    /// The nodes at fault, the one that shows it last. Empty if it is a lane or a barrier.
    pub nodes: Vec<NodeId>,
    /// What happened, with names.
    pub what: String,
}

/// Every broken guarantee of a run, in the order of their numbers. Its [`Display`](fmt::Display) is one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// The violations; at least one.
    pub fn list(&self) -> &[Violation] {
        &self.0
    }

    /// Whether a guarantee is among those broken.
    pub fn contains(&self, guarantee: Guarantee) -> bool {
        self.0.iter().any(|violation| violation.guarantee == guarantee)
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            index,
            Violation {
                guarantee,
                nodes,
                what,
            },
        ) in self.0.iter().enumerate()
        {
            let line_break = if index > 0 { "\n" } else { "" };
            write!(
                f,
                "{line_break}{guarantee:?} ({}): {what} {nodes:?}",
                guarantee.title()
            )?;
        }
        Ok(())
    }
}

impl Error for Violations {}

/// Checks a trace against every guarantee that leaves a mark in it: G1 to G8, G10, G12 and G13.
///
/// The trace may be of a run that succeeded, failed, was cancelled or is still going. What must have happened by the end
/// is asked only of a run whose barrier over everything has settled and whose lanes have closed.
///
/// # Errors
///
/// Every violation, with the nodes at fault. The error converts into proptest's, so `check_guarantees(&trace)?` is all
/// that a property needs.
pub fn check_guarantees(trace: &Trace) -> Result<(), Violations> {
    let mut check = Check {
        trace,
        found: Vec::new(),
    };
    check.order();
    check.lifetime();
    check.settle();
    let mut found = check.found;
    found.sort_by_key(|violation| violation.guarantee);
    if found.is_empty() {
        Ok(())
    } else {
        Err(Violations(found))
    }
}

struct Check<'a> {
    trace: &'a Trace,
    found: Vec<Violation>,
}

impl Check<'_> {
    fn report(&mut self, guarantee: Guarantee, nodes: &[NodeId], what: impl fmt::Display) {
        self.found.push(Violation {
            guarantee,
            nodes: nodes.to_vec(),
            what: what.to_string(),
        });
    }

    /// `name (phase)`.
    fn name(&self, node: NodeId) -> String {
        let node = self.trace.node(node);
        format!("{} ({})", node.name, node.phase)
    }

    fn lane_name(&self, lane: LaneId) -> &str {
        &self.trace.lane(lane).name
    }

    /// The first event of that kind.
    fn event(&self, is_it: impl Fn(EventKind) -> bool) -> Option<&Event> {
        self.trace.events().iter().find(|event| is_it(event.kind))
    }
}

/// The node that an event starts, ends or skips.
fn node_of(kind: EventKind) -> Option<NodeId> {
    match kind {
        EventKind::NodeStarted(node)
        | EventKind::NodeFinished(node)
        | EventKind::NodeFailed(node)
        | EventKind::NodePanicked(node)
        | EventKind::NodeCancelled(node)
        | EventKind::NodeSkipped(node) => Some(node),
        _ => None,
    }
}

fn is_end(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::NodeFinished(_)
            | EventKind::NodeFailed(_)
            | EventKind::NodePanicked(_)
            | EventKind::NodeCancelled(_)
    )
}
