//! Typed references into a graph: small, `Copy`, and useless in any other graph.

use std::fmt;
use std::marker::PhantomData;

use crate::event::{LaneId, NodeId};
use crate::operator::OperatorType;

/// Where a node's value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The host value of the operator at `index` of `lane`.
    Host { lane: u32, index: u32 },
    /// The device value of the operator at `index` of `lane`.
    Device { lane: u32, index: u32 },
    /// The value of the plain node at `index` of `lane`.
    Plain { lane: u32, index: u32 },
}

/// A node that gives a `V`.
///
/// Other nodes can depend on it and get the value; after the barrier, [`Ready`](crate::Ready) gives it out.
pub struct NodeRef<V> {
    pub(crate) id: NodeId,
    pub(crate) graph: u32,
    pub(crate) place: Place,
    value: PhantomData<fn() -> V>,
}

impl<V> NodeRef<V> {
    pub(crate) fn new(id: NodeId, graph: u32, place: Place) -> Self {
        NodeRef {
            id,
            graph,
            place,
            value: PhantomData,
        }
    }

    /// The node without its type: for barriers and order edges, which do not care for the value.
    pub fn id(self) -> NodeId {
        self.id
    }
}

impl<V> Clone for NodeRef<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for NodeRef<V> {}

impl<V> PartialEq for NodeRef<V> {
    fn eq(&self, other: &Self) -> bool {
        (self.graph, self.id) == (other.graph, other.id)
    }
}

impl<V> Eq for NodeRef<V> {}

impl<V> fmt::Debug for NodeRef<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeRef({:?})", self.id)
    }
}

impl<V> From<NodeRef<V>> for NodeId {
    fn from(node: NodeRef<V>) -> NodeId {
        node.id
    }
}

/// An operator of type `T`: a host node, a device node, and the edge between them.
pub struct Operator<T: OperatorType> {
    pub(crate) device: NodeRef<T::Device>,
    pub(crate) host: NodeRef<T::Host>,
}

impl<T: OperatorType> Operator<T> {
    /// The node that reads the operator on the host lane. For an operator made with
    /// [`operator_from`](crate::InitGraph::operator_from) that is the node it shares.
    pub fn host(self) -> NodeRef<T::Host> {
        self.host
    }

    /// The node that sets the operator up on its lane.
    pub fn device(self) -> NodeRef<T::Device> {
        self.device
    }
}

impl<T: OperatorType> Clone for Operator<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: OperatorType> Copy for Operator<T> {}

impl<T: OperatorType> fmt::Debug for Operator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operator({:?})", self.device.id)
    }
}

/// The device node: what a barrier over operators waits for.
impl<T: OperatorType> From<Operator<T>> for NodeId {
    fn from(operator: Operator<T>) -> NodeId {
        operator.device.id
    }
}

/// Something whose value [`Ready`](crate::Ready) can give out: a node, or an operator, which stands for its device node.
pub trait HasValue {
    /// The type of the value.
    type Value: 'static;
    /// The node that makes the value.
    fn node(self) -> NodeRef<Self::Value>;
}

impl<V: 'static> HasValue for NodeRef<V> {
    type Value = V;
    fn node(self) -> NodeRef<V> {
        self
    }
}

impl<T: OperatorType> HasValue for Operator<T> {
    type Value = T::Device;
    fn node(self) -> NodeRef<T::Device> {
        self.device
    }
}

/// A lane for operators of type `T`; with stripes, n lanes that take them in turn.
pub struct Lane<T: OperatorType> {
    pub(crate) graph: u32,
    pub(crate) first: u32,
    pub(crate) n_stripes: u32,
    operator_type: PhantomData<fn() -> T>,
}

impl<T: OperatorType> Lane<T> {
    pub(crate) fn new(graph: u32, first: u32, n_stripes: u32) -> Self {
        Lane {
            graph,
            first,
            n_stripes,
            operator_type: PhantomData,
        }
    }

    /// The ids of its stripes, in the order operators are dealt; a lane that is not striped has one.
    pub fn ids(self) -> impl ExactSizeIterator<Item = LaneId> {
        (self.first..self.first + self.n_stripes).map(LaneId)
    }
}

impl<T: OperatorType> Clone for Lane<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: OperatorType> Copy for Lane<T> {}

impl<T: OperatorType> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({} + {})", self.first, self.n_stripes)
    }
}
