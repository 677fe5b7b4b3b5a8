//! Building a graph: lanes, operators, plain nodes, edges, barriers.

pub(crate) mod check;
pub(crate) mod deps;
pub(crate) mod host;
pub(crate) mod refs;
mod sources;
pub(crate) mod start;
pub(crate) mod topology;

use deps::{Deps, Subscriptions, Tap, tap_into};
use host::{HostHalf, HostLane, OwnThread};
use refs::{Lane, NodeRef, Operator, Place};
use topology::{Name, NodeEntry};

use crate::event::{BarrierId, LaneOrder, NodeId};
use crate::lane::UnboundLane;
use crate::lane::plain::{PlainCell, PlainStore};
use crate::lane::typed::{DeviceStore, HostStore, TypedLane};
use crate::operator::{BoxError, OperatorType};
use crate::ready::LanePlan;
use crate::slot::Slot;
use crate::sync::Arc;

/// Initialisation work as a graph: operators on lanes, edges, barriers.
///
/// A node can only depend on nodes added before it, so the order of submission is a valid schedule and no graph built
/// here has a cycle. The host lane has a thread of its own ([`InitGraph::new`]) or is the thread that starts the run
/// ([`InitGraph::on_this_thread`]).
///
/// ```
/// # use scheduler::{BoxError, InitGraph, InitMode, OperatorType};
/// # struct MatMul;
/// # impl OperatorType for MatMul {
/// #     type Source = u32; type Host = u32; type Device = u32; type Lane = ();
/// #     fn name(&self) -> &str { "MatMul" }
/// #     fn open(&self) -> Result<(), BoxError> { Ok(()) }
/// #     fn read(&self, s: &u32) -> Result<u32, BoxError> { Ok(*s) }
/// #     async fn setup(&self, _: &mut (), h: u32) -> Result<u32, BoxError> { Ok(h) }
/// # }
/// let mut graph = InitGraph::new();
/// let matmul = graph.lane(MatMul);
/// let q_proj = graph.operator(&matmul, "layers.0.q_proj", 7);
/// let sum = graph.node(&matmul, "check", q_proj.device(), async |_lane, kernel| Ok(kernel + 1));
/// let prefill = graph.barrier("prefill", [q_proj]);
///
/// let run = graph.start(InitMode::Overlapped)?;
/// run.barrier(prefill).wait()?;
/// let mut ready = run.ready().wait()?;
/// assert_eq!((ready.take(q_proj), ready.take(sum)), (7, 8));
/// # Ok::<(), scheduler::InitError>(())
/// ```
pub struct InitGraph<H: HostLane = OwnThread> {
    id: u32,
    nodes: Vec<NodeEntry>,
    edges: Vec<(u32, u32)>,
    /// (node, host node of an operator whose value it uses too).
    shares: Vec<(u32, u32)>,
    /// Lane 0 is the host lane.
    lanes: Vec<LaneDraft>,
    host: HostHalf<H>,
    host_names: Vec<(u32, Name)>,
    host_bytes: Vec<(u32, u64)>,
    total_bytes: u64,
    taps: Vec<(u32, Tap)>,
    barriers: Vec<(Name, Vec<u32>)>,
}

/// A lane while its graph is being built.
struct LaneDraft {
    name: String,
    operator_type: Name,
    order: LaneOrder,
    stripe: Option<(u32, u32)>,
    /// How many operators the lane, with its stripes, was given. Kept with the first stripe.
    dealt: u32,
    plan: LanePlan,
    names: Vec<Name>,
    /// Nothing for the host lane.
    body: Option<Box<dyn UnboundLane>>,
    devices: Option<Arc<dyn DeviceStore>>,
    /// Nothing for the host lane.
    plains: Option<Arc<dyn PlainStore>>,
}

impl<H: HostLane> InitGraph<H> {
    fn empty() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let mut host = HostHalf::new();
        host.add_lane(None);
        InitGraph {
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            nodes: Vec::new(),
            edges: Vec::new(),
            shares: Vec::new(),
            lanes: vec![LaneDraft::host()],
            host,
            host_names: Vec::new(),
            host_bytes: Vec::new(),
            total_bytes: 0,
            taps: Vec::new(),
            barriers: vec![(Name::Borrowed("all"), Vec::new())],
        }
    }

    /// Adds a lane for an operator type: first in, first out, on one thread.
    pub fn lane<T: OperatorType>(&mut self, operator_type: T) -> Lane<T> {
        self.add_lane(operator_type, LaneOrder::Fifo, 1)
    }

    /// Adds a lane that starts its nodes in the order they become ready, not in the order they were added.
    pub fn ready_order_lane<T: OperatorType>(&mut self, operator_type: T) -> Lane<T> {
        self.add_lane(operator_type, LaneOrder::Ready, 1)
    }

    /// Adds `n_stripes` lanes for an operator type that is safe to set up in parallel; its operators are dealt out in
    /// order. Each stripe has a state and a thread of its own.
    ///
    /// # Panics
    /// If `n_stripes` is 0.
    pub fn striped_lane<T: OperatorType>(&mut self, operator_type: T, n_stripes: usize) -> Lane<T> {
        assert!(n_stripes > 0, "a lane has at least one stripe");
        self.add_lane(operator_type, LaneOrder::Fifo, n_stripes as u32)
    }

    fn add_lane<T: OperatorType>(&mut self, operator_type: T, order: LaneOrder, n_stripes: u32) -> Lane<T> {
        let operator_type = Arc::new(operator_type);
        let first = self.lanes.len() as u32;
        for stripe in 0..n_stripes {
            let name = operator_type.name();
            let n_same = self
                .lanes
                .iter()
                .filter(|lane| lane.operator_type == name)
                .count();
            let lane = TypedLane::new(operator_type.clone());
            let store: Arc<dyn HostStore> = lane.core.clone();
            self.host.add_lane(Some(store));
            self.lanes.push(LaneDraft {
                name: if n_same == 0 {
                    name.to_owned()
                } else {
                    format!("{name}#{n_same}")
                },
                operator_type: Name::Owned(name.to_owned()),
                order,
                stripe: (n_stripes > 1).then_some((stripe, n_stripes)),
                dealt: 0,
                plan: LanePlan::default(),
                names: Vec::new(),
                devices: Some(lane.core.devices.clone()),
                plains: Some(lane.frozen_plains.clone()),
                body: Some(Box::new(lane)),
            });
        }
        Lane::new(self.id, first, n_stripes)
    }

    /// Adds an operator that is set up from what another host node reads, so that two engines share one read. The host value
    /// is cloned when it is read: make it cheap to clone.
    ///
    /// # Panics
    /// If the lane or the host node is of another graph.
    pub fn operator_from<T: OperatorType>(
        &mut self,
        lane: &Lane<T>,
        name: impl Into<Name>,
        host: NodeRef<T::Host>,
    ) -> Operator<T>
    where
        T::Host: Clone,
    {
        assert_eq!(host.graph, self.id, "the host node must be of the same graph");
        let lane = self.deal(lane);
        let typed = self.typed::<T>(lane);
        let index = typed.push_operator();
        let core = typed.core.clone();
        let tap = tap_into(move |value| drop(core.hosts.slots()[index as usize].put(value)));
        self.taps.push((host.id.0, tap));
        let host_entry = self.nodes[host.id.index()];
        let need = if host_entry.lane() == 0 {
            host_entry.pos + 1
        } else {
            0
        };
        let id = self.push_device(lane, need, name.into(), NodeEntry::new);
        self.depend(id, [host.id.0]);
        let device = NodeRef::new(id, self.id, Place::Device { lane, index });
        Operator { device, host }
    }

    /// Adds a plain node to a device lane: a closure that gets the lane's state and the values of what it depends on.
    ///
    /// ```
    /// # use scheduler::{BoxError, InitGraph, InitMode, OperatorType};
    /// # struct Gpu;
    /// # impl OperatorType for Gpu {
    /// #     type Source = (); type Host = (); type Device = (); type Lane = Vec<u32>;
    /// #     fn name(&self) -> &str { "Gpu" }
    /// #     fn open(&self) -> Result<Vec<u32>, BoxError> { Ok(Vec::new()) }
    /// #     fn read(&self, _: &()) -> Result<(), BoxError> { Ok(()) }
    /// #     async fn setup(&self, _: &mut Vec<u32>, _: ()) -> Result<(), BoxError> { Ok(()) }
    /// # }
    /// let mut graph = InitGraph::new();
    /// let gpu = graph.lane(Gpu);
    /// let shader = graph.read("shader.wgsl", (), |()| Ok("source".to_owned()));
    /// let pipeline = graph.node(&gpu, "pipeline", shader, async |state, source| {
    ///     state.push(1);
    ///     Ok(source.len())
    /// });
    /// # let run = graph.start(InitMode::Overlapped)?;
    /// # assert_eq!(run.ready().wait()?.take(pipeline), 6);
    /// # Ok::<(), scheduler::InitError>(())
    /// ```
    ///
    /// # Panics
    /// If the lane or a dependency is of another graph.
    pub fn node<T: OperatorType, D: Deps, V: Send + 'static>(
        &mut self,
        lane: &Lane<T>,
        name: impl Into<Name>,
        deps: D,
        setup: impl AsyncFnOnce(&mut T::Lane, D::Values) -> Result<V, BoxError> + Send + 'static,
    ) -> NodeRef<V> {
        let (inbox, deps) = self.subscribe(deps);
        let lane = self.deal(lane);
        let cell = Box::new(PlainCell::new(setup, inbox));
        let index = self.typed::<T>(lane).push_plain(cell);
        let id = self.push_device(lane, 0, name.into(), NodeEntry::new);
        self.depend(id, deps);
        NodeRef::new(id, self.id, Place::Plain { lane, index })
    }

    /// Makes a node wait for an earlier one, whose value it does not need.
    ///
    /// An edge that points the wrong way makes [`start`](InitGraph::start) fail: with the whole cycle, if it closes one.
    pub fn after(&mut self, node: impl Into<NodeId>, earlier: impl Into<NodeId>) {
        let (node, earlier) = (node.into(), earlier.into());
        self.edges.push((node.0, earlier.0));
    }

    /// Makes a barrier over some nodes; [`Run::barrier`](crate::Run::barrier) waits for it. The barrier over all nodes needs no
    /// making: [`Run::ready`](crate::Run::ready).
    pub fn barrier<N: Into<NodeId>>(
        &mut self,
        name: impl Into<Name>,
        covers: impl IntoIterator<Item = N>,
    ) -> BarrierId {
        let id = BarrierId(self.barriers.len() as u32);
        let mut covers: Vec<u32> = covers.into_iter().map(|node| node.into().0).collect();
        covers.sort_unstable();
        covers.dedup();
        self.barriers.push((name.into(), covers));
        id
    }

    /// How many nodes there are; an operator is two.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many bytes all host values together will hold, as their operator types say.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Notes that a node gets the values of others.
    fn depend(&mut self, node: NodeId, on: impl IntoIterator<Item = u32>) {
        for on in on {
            self.edges.push((node.0, on));
            if self
                .nodes
                .get(on as usize + 1)
                .is_some_and(|next| next.follows_own_host())
            {
                self.shares.push((node.0, on));
            }
        }
    }

    /// The stripe that gets the next node.
    fn deal<T: OperatorType>(&mut self, lane: &Lane<T>) -> u32 {
        assert_eq!(lane.graph, self.id, "the lane must be of the same graph");
        if lane.n_stripes == 1 {
            return lane.first;
        }
        let dealt = &mut self.lanes[lane.first as usize].dealt;
        *dealt += 1;
        lane.first + (*dealt - 1) % lane.n_stripes
    }

    fn typed<T: OperatorType>(&mut self, lane: u32) -> &mut TypedLane<T> {
        let body = self.lanes[lane as usize].body.as_mut().expect("a device lane");
        body.as_any_mut()
            .downcast_mut()
            .expect("a typed reference knows its lane's type")
    }

    fn subscribe<D: Deps>(&mut self, deps: D) -> (D::Inbox, Vec<u32>) {
        let mut subscriptions = Subscriptions {
            graph: self.id,
            ..Subscriptions::default()
        };
        let inbox = deps.subscribe(&mut subscriptions);
        self.taps.append(&mut subscriptions.taps);
        (inbox, subscriptions.nodes)
    }

    /// Adds the two nodes of an operator that is read at `pos` of the host lane.
    fn push_pair<T: OperatorType>(
        &mut self,
        lane: u32,
        index: u32,
        pos: u32,
        bytes: u64,
        name: Name,
    ) -> Operator<T> {
        let host = NodeId(self.nodes.len() as u32);
        self.nodes.push(NodeEntry::new(0, pos));
        if bytes > 0 {
            self.host_bytes.push((pos, bytes));
            self.total_bytes += bytes;
        }
        let device = self.push_device(lane, pos + 1, name, NodeEntry::device_of_previous);
        Operator {
            device: NodeRef::new(device, self.id, Place::Device { lane, index }),
            host: NodeRef::new(host, self.id, Place::Host { lane, index }),
        }
    }

    fn push_device(
        &mut self,
        lane: u32,
        host_need: u32,
        name: Name,
        entry: impl FnOnce(u32, u32) -> NodeEntry,
    ) -> NodeId {
        let draft = &mut self.lanes[lane as usize];
        let pos = draft.plan.push(host_need);
        draft.names.push(name);
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(entry(lane, pos));
        id
    }

    fn push_host_plain<V: Send + 'static>(
        &mut self,
        name: Name,
        deps: Vec<u32>,
        job: Box<H::Job>,
        slot: Arc<Slot<V>>,
    ) -> NodeRef<V> {
        let (pos, index) = self.host.push_plain(job, slot);
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(NodeEntry::new(0, pos));
        self.host_names.push((id.0, name));
        self.depend(id, deps);
        NodeRef::new(id, self.id, Place::Plain { lane: 0, index })
    }
}

impl LaneDraft {
    fn host() -> Self {
        LaneDraft {
            name: "host".to_owned(),
            operator_type: Name::Borrowed("host"),
            order: LaneOrder::Fifo,
            stripe: None,
            dealt: 0,
            plan: LanePlan::default(),
            names: Vec::new(),
            body: None,
            devices: None,
            plains: None,
        }
    }
}

impl Default for InitGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: HostLane> std::fmt::Debug for InitGraph<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitGraph")
            .field("nodes", &self.nodes.len())
            .field("lanes", &self.lanes.len())
            .finish()
    }
}
