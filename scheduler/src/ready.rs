//! Which node may start now: the decision, without threads, locks or async.
//!
//! A [`LanePlan`] says what each node of a FIFO lane must see before it starts; a [`Cursor`] is how far the lane
//! has come in its own list. [`Cursor::next`] looks at the counts of other lanes through a [`View`] and decides:
//! run up to here, wait for that, or done. The executors and the tests' stepper share this one decision.
//!
//! Almost every dependency is on the host lane, so a plan keeps those as one number per node (how many host nodes must
//! have finished) and only the others as edges. Since a FIFO lane cannot overtake itself, that number is kept as a
//! running maximum, which makes the scan for "how many may run now" a plain comparison per node.

/// Place of a node in its lane's order, from 0.
pub(crate) type Pos = u32;

/// Index of a lane; 0 is the host lane.
pub(crate) type LaneIndex = u32;

/// The node at `pos` may start only once `lane` has finished its node at `on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) pos: Pos,
    pub(crate) lane: LaneIndex,
    pub(crate) on: Pos,
}

/// What every node of one lane must see before it starts.
#[derive(Debug, Default)]
pub(crate) struct LanePlan {
    /// How many host nodes must have finished before the node at this place starts.
    /// Invariant: never falls along the lane.
    host_needs: Vec<u32>,
    /// Dependencies on other lanes. Invariant: sorted by `pos` once [`seal`](LanePlan::seal)ed.
    edges: Vec<Edge>,
}

impl LanePlan {
    /// Adds a node at the end that needs `host_need` finished host nodes.
    pub(crate) fn push(&mut self, host_need: u32) -> Pos {
        let pos = self.host_needs.len() as Pos;
        let before = self.host_needs.last().copied().unwrap_or(0);
        self.host_needs.push(host_need.max(before));
        pos
    }

    /// Adds an edge between lanes. An edge to an earlier node of the same lane says nothing new and is not for here.
    pub(crate) fn add_edge(&mut self, edge: Edge) {
        self.edges.push(edge);
    }

    /// Puts the edges in order.
    pub(crate) fn seal(&mut self) {
        if !self.edges.is_sorted() {
            self.edges.sort_unstable();
        }
        self.edges.dedup();
    }

    pub(crate) fn len(&self) -> u32 {
        self.host_needs.len() as u32
    }

    /// How many host nodes must have finished before the node at `pos`.
    pub(crate) fn host_need(&self, pos: Pos) -> u32 {
        self.host_needs[pos as usize]
    }

    /// Whether the first node waits for a node of another lane.
    pub(crate) fn first_has_edges(&self) -> bool {
        self.edges.first().is_some_and(|edge| edge.pos == 0)
    }
}

/// What a lane can see of the others.
pub(crate) trait View {
    /// How many host nodes have finished, as last looked up.
    fn host_seen(&self) -> u32;
    /// Looks up again how many host nodes have finished.
    fn look_at_host(&mut self) -> u32;
    /// Whether the node that the edge points at has finished.
    fn has_finished(&mut self, lane: LaneIndex, on: Pos) -> bool;
}

/// What a lane is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Run the nodes up to, not including, this place.
    RunUntil(Pos),
    /// Wait until the host lane has finished this many nodes.
    WaitForHost(u32),
    /// Wait until `lane` has finished its node at `on`.
    WaitFor { lane: LaneIndex, on: Pos },
    /// Every node of the lane is through.
    Done,
}

/// How far a FIFO lane has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pos: Pos,
    edge: usize,
}

impl Cursor {
    /// The place of the node that is next.
    pub(crate) fn pos(self) -> Pos {
        self.pos
    }

    /// Notes that every node before `pos` is through.
    pub(crate) fn advance_to(&mut self, pos: Pos) {
        self.pos = pos;
    }

    /// Decides what comes next. After [`Step::RunUntil`] the caller runs those nodes and calls [`advance_to`](Cursor::advance_to).
    pub(crate) fn next(&mut self, plan: &LanePlan, view: &mut impl View) -> Step {
        let len = plan.len();
        if self.pos == len {
            return Step::Done;
        }
        let mut until = self.pos;
        loop {
            let mut blocked = None;
            while let Some(edge) = plan.edges.get(self.edge).filter(|edge| edge.pos <= until) {
                if !view.has_finished(edge.lane, edge.on) {
                    blocked = Some(*edge);
                    break;
                }
                self.edge += 1;
            }
            if let Some(edge) = blocked {
                return self.run_or(
                    until,
                    Step::WaitFor {
                        lane: edge.lane,
                        on: edge.on,
                    },
                );
            }
            let limit = plan.edges.get(self.edge).map_or(len, |edge| edge.pos);
            let mut host = view.host_seen();
            let needs = &plan.host_needs[..limit as usize];
            let mut scan = until as usize;
            while scan < needs.len() && needs[scan] <= host {
                scan += 1;
            }
            if scan < needs.len() {
                host = view.look_at_host();
                while scan < needs.len() && needs[scan] <= host {
                    scan += 1;
                }
            }
            until = scan as Pos;
            if until == len {
                return Step::RunUntil(len);
            }
            if until < limit {
                return self.run_or(until, Step::WaitForHost(plan.host_needs[scan]));
            }
        }
    }

    fn run_or(&self, until: Pos, wait: Step) -> Step {
        if until > self.pos {
            Step::RunUntil(until)
        } else {
            wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts per lane, as a test sets them.
    struct Counts {
        seen: u32,
        lanes: Vec<u32>,
    }

    impl View for Counts {
        fn host_seen(&self) -> u32 {
            self.seen
        }
        fn look_at_host(&mut self) -> u32 {
            self.seen = self.lanes[0];
            self.seen
        }
        fn has_finished(&mut self, lane: LaneIndex, on: Pos) -> bool {
            self.lanes[lane as usize] > on
        }
    }

    fn counts(lanes: &[u32]) -> Counts {
        Counts {
            seen: 0,
            lanes: lanes.to_vec(),
        }
    }

    fn plan(needs: &[u32], edges: &[(Pos, LaneIndex, Pos)]) -> LanePlan {
        let mut plan = LanePlan::default();
        for need in needs {
            plan.push(*need);
        }
        for &(pos, lane, on) in edges {
            plan.add_edge(Edge { pos, lane, on });
        }
        plan.seal();
        plan
    }

    #[test]
    fn an_empty_lane_is_done() {
        assert_eq!(
            Cursor::default().next(&plan(&[], &[]), &mut counts(&[0])),
            Step::Done
        );
    }

    #[test]
    fn runs_as_far_as_the_host_lane_has_read() {
        let plan = plan(&[1, 3, 5], &[]);
        let mut cursor = Cursor::default();
        assert_eq!(cursor.next(&plan, &mut counts(&[0])), Step::WaitForHost(1));
        assert_eq!(cursor.next(&plan, &mut counts(&[4])), Step::RunUntil(2));
        cursor.advance_to(2);
        assert_eq!(cursor.next(&plan, &mut counts(&[4])), Step::WaitForHost(5));
        assert_eq!(cursor.next(&plan, &mut counts(&[9])), Step::RunUntil(3));
        cursor.advance_to(3);
        assert_eq!(cursor.next(&plan, &mut counts(&[9])), Step::Done);
    }

    #[test]
    fn a_later_node_cannot_overtake_one_that_needs_more() {
        let plan = plan(&[5, 1, 0], &[]);
        assert_eq!(
            Cursor::default().next(&plan, &mut counts(&[4])),
            Step::WaitForHost(5)
        );
    }

    #[test]
    fn stops_in_front_of_an_edge_that_is_not_met() {
        let plan = plan(&[0, 0, 0], &[(1, 2, 4), (1, 1, 0)]);
        let mut cursor = Cursor::default();
        let mut view = counts(&[0, 0, 4]);
        assert_eq!(cursor.next(&plan, &mut view), Step::RunUntil(1));
        cursor.advance_to(1);
        assert_eq!(cursor.next(&plan, &mut view), Step::WaitFor { lane: 1, on: 0 });
        view.lanes[1] = 1;
        assert_eq!(cursor.next(&plan, &mut view), Step::WaitFor { lane: 2, on: 4 });
        view.lanes[2] = 5;
        assert_eq!(cursor.next(&plan, &mut view), Step::RunUntil(3));
    }
}
