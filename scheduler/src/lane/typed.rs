//! The typed half of a lane.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::items::{Item, Items};
use super::plain::{PlainNode, Plains, flatten};
use super::{BoundLane, UnboundLane};
use crate::error::Fault;
use crate::executor::context::Cx;
use crate::executor::quietly;
use crate::operator::OperatorType;
use crate::ready::Pos;
use crate::slot::{Slot, empty_slots};
use crate::sync::{Arc, OnceLock};

/// A slot per operator, allocated when the graph is complete.
pub(crate) struct Values<V>(OnceLock<Box<[Slot<V>]>>);

impl<V> Values<V> {
    fn new() -> Self {
        Values(OnceLock::new())
    }

    fn allocate(&self, n: u32) {
        if self.0.set(empty_slots(n as usize)).is_err() {
            unreachable!("a lane is frozen once");
        }
    }

    pub(crate) fn slots(&self) -> &[Slot<V>] {
        self.0.get().expect("the graph has been started")
    }
}

/// What the host lane, the lane's own thread and the run share of one lane.
pub(crate) struct LaneCore<T: OperatorType> {
    pub(crate) operator_type: Arc<T>,
    pub(crate) hosts: Values<T::Host>,
    pub(crate) devices: Arc<Values<T::Device>>,
}

/// The host values of a lane, for the host lane's rollback.
pub(crate) trait HostStore: Send + Sync {
    fn discard_host(&self, index: u32) -> bool;
}

impl<T: OperatorType> HostStore for LaneCore<T> {
    fn discard_host(&self, index: u32) -> bool {
        self.hosts.slots()[index as usize].take().is_some()
    }
}

/// The device values of a lane, whatever their type.
pub(crate) trait DeviceStore: Send + Sync {
    /// The `Slot<V>` at `index`.
    fn slot(&self, index: u32) -> &dyn Any;
}

impl<V: Send + 'static> DeviceStore for Values<V> {
    fn slot(&self, index: u32) -> &dyn Any {
        &self.slots()[index as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceItem {
    Operator,
    Plain,
}

/// A lane while its graph is being built.
pub(crate) struct TypedLane<T: OperatorType> {
    pub(crate) core: Arc<LaneCore<T>>,
    items: Items<DeviceItem>,
    n_operators: u32,
    plains: Vec<Box<dyn PlainNode<T::Lane>>>,
    pub(crate) frozen_plains: Arc<Plains<T::Lane>>,
}

impl<T: OperatorType> TypedLane<T> {
    pub(crate) fn new(operator_type: Arc<T>) -> Self {
        let core = LaneCore {
            operator_type,
            hosts: Values::new(),
            devices: Arc::new(Values::new()),
        };
        TypedLane {
            core: Arc::new(core),
            items: Items::new(),
            n_operators: 0,
            plains: Vec::new(),
            frozen_plains: Arc::new(Plains::new()),
        }
    }

    /// Adds an operator and returns its index among the lane's operators.
    pub(crate) fn push_operator(&mut self) -> u32 {
        let index = self.n_operators;
        self.n_operators += 1;
        self.items.push(Item {
            kind: DeviceItem::Operator,
            index,
        });
        index
    }

    /// Adds a plain node and returns its index among the lane's plain nodes.
    pub(crate) fn push_plain(&mut self, node: Box<dyn PlainNode<T::Lane>>) -> u32 {
        let index = self.plains.len() as u32;
        self.plains.push(node);
        self.items.push(Item {
            kind: DeviceItem::Plain,
            index,
        });
        index
    }
}

impl<T: OperatorType> UnboundLane for TypedLane<T> {
    fn freeze(&mut self) {
        self.core.hosts.allocate(self.n_operators);
        self.core.devices.allocate(self.n_operators);
        self.frozen_plains.set(std::mem::take(&mut self.plains));
    }

    fn bind(self: Box<Self>) -> Box<dyn BoundLane> {
        Box::new(OpenLane {
            lane: *self,
            state: None,
            hint: 0,
        })
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A lane on its thread.
struct OpenLane<T: OperatorType> {
    lane: TypedLane<T>,
    state: Option<T::Lane>,
    hint: usize,
}

impl<T: OperatorType> OpenLane<T> {
    /// Runs the operators from `index` on, whose nodes are at `from` up to `to`. The hot loop.
    fn run_operators(&mut self, mut index: u32, from: Pos, to: Pos, cx: &mut Cx) -> Pos {
        let core = &*self.lane.core;
        let operator_type = &*core.operator_type;
        let state = self.state.as_mut().expect("a lane is open before its first node");
        let (hosts, devices) = (core.hosts.slots(), core.devices.slots());
        let mut pos = from;
        while pos < to {
            cx.begin(pos);
            let span = cx.span(pos);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                match hosts[index as usize].take() {
                    Some(host) => cx.drive(operator_type.setup(state, host)),
                    // The run was stopped since this lane last looked, and the host lane has rolled the value back.
                    None if cx.shared.is_stopped() => Err(Fault::Stopped),
                    None => panic!("the host node has finished"),
                }
            }));
            drop(span);
            let outcome = flatten(outcome).and_then(|device| {
                cx.tap(pos, &device)?;
                let _ = devices[index as usize].put(device);
                Ok(())
            });
            match outcome {
                Ok(()) => cx.finish(pos),
                Err(fault) => cx.fail(pos, fault),
            }
            pos += 1;
            index += 1;
            if cx.wants_attention() {
                break;
            }
        }
        pos
    }

    fn run_plain(&mut self, index: u32, pos: Pos, cx: &mut Cx) {
        let state = self.state.as_mut().expect("a lane is open before its first node");
        cx.begin(pos);
        let span = cx.span(pos);
        let outcome = self.lane.frozen_plains.nodes()[index as usize].run(state, pos, cx);
        drop(span);
        match outcome {
            Ok(()) => cx.finish(pos),
            Err(fault) => cx.fail(pos, fault),
        }
    }
}

impl<T: OperatorType> BoundLane for OpenLane<T> {
    fn open(&mut self) -> Result<(), Fault> {
        match catch_unwind(AssertUnwindSafe(|| self.lane.core.operator_type.open())) {
            Ok(Ok(state)) => {
                self.state = Some(state);
                Ok(())
            }
            Ok(Err(error)) => Err(Fault::Error(error)),
            Err(payload) => Err(Fault::from_panic(payload)),
        }
    }

    fn run(&mut self, from: Pos, to: Pos, cx: &mut Cx) -> Pos {
        let mut pos = from;
        while pos < to {
            let (item, end) = self.lane.items.at(pos, &mut self.hint);
            match item.kind {
                DeviceItem::Operator => {
                    pos = self.run_operators(item.index, pos, end.min(to), cx);
                }
                DeviceItem::Plain => {
                    self.run_plain(item.index, pos, cx);
                    pos += 1;
                }
            }
            if cx.wants_attention() {
                break;
            }
        }
        pos
    }

    /// The host value goes at once: its bytes are given back to the staging budget, so they must not stay behind.
    fn skip(&mut self, pos: Pos) {
        let (item, _) = self.lane.items.at(pos, &mut self.hint);
        if item.kind == DeviceItem::Operator {
            let host = self.lane.core.hosts.slots()[item.index as usize].take();
            quietly(|| drop(host));
        }
    }

    fn discard(&mut self, pos: Pos) -> bool {
        let (item, _) = self.lane.items.at(pos, &mut self.hint);
        match item.kind {
            DeviceItem::Operator => self.lane.core.devices.slots()[item.index as usize]
                .take()
                .is_some(),
            DeviceItem::Plain => self.lane.frozen_plains.nodes()[item.index as usize].discard_all(),
        }
    }

    fn close(&mut self) {
        drop(self.state.take());
    }
}
