//! Typed dependencies: a node gets the values of what it depends on.
//!
//! A dependency's value is cloned into the dependent's inbox when it is made, on the thread that made it; so a
//! consumer never touches what somebody else may take, and needs no lock. Make a value that several nodes use cheap to clone
//! (an `Arc`).

use std::any::Any;

use super::refs::NodeRef;
use crate::slot::Slot;
use crate::sync::Arc;

/// Copies a node's value to a dependent. Called with the `V` of the node it was made for.
pub(crate) type Tap = Box<dyn Fn(&dyn Any) + Send>;

/// Where dependencies are noted while a graph is being built.
#[derive(Default)]
pub struct Subscriptions {
    pub(crate) graph: u32,
    pub(crate) taps: Vec<(u32, Tap)>,
    pub(crate) nodes: Vec<u32>,
}

/// What arrives for a node, until it starts.
pub trait Inbox: Send + 'static {
    /// The values, as the node's closure gets them.
    type Values;
    #[doc(hidden)]
    fn open(self) -> Self::Values;
}

/// What a plain node can depend on: `()`, a [`NodeRef`], a tuple, an array or a `Vec` of them.
///
/// The node's closure gets the values in the same shape.
pub trait Deps: sealed::Sealed {
    /// The values, as the node's closure gets them.
    type Values;
    #[doc(hidden)]
    type Inbox: Inbox<Values = Self::Values>;
    #[doc(hidden)]
    fn subscribe(self, to: &mut Subscriptions) -> Self::Inbox;
}

mod sealed {
    pub trait Sealed {}
}

#[doc(hidden)]
pub struct OneValue<V>(Arc<Slot<V>>);

impl<V: Send + 'static> Inbox for OneValue<V> {
    type Values = V;
    fn open(self) -> V {
        self.0
            .take()
            .expect("a node starts after what it depends on has finished")
    }
}

impl<V> sealed::Sealed for NodeRef<V> {}

impl<V: Clone + Send + 'static> Deps for NodeRef<V> {
    type Values = V;
    type Inbox = OneValue<V>;
    fn subscribe(self, to: &mut Subscriptions) -> OneValue<V> {
        assert_eq!(
            self.graph, to.graph,
            "a dependency must be a node of the same graph"
        );
        let slot = Arc::new(Slot::new());
        let inbox = OneValue(slot.clone());
        to.nodes.push(self.id.0);
        to.taps
            .push((self.id.0, tap_into(move |value: V| drop(slot.put(value)))));
        inbox
    }
}

/// A tap that clones the value and hands it to `sink`.
pub(crate) fn tap_into<V: Clone + 'static>(sink: impl Fn(V) + Send + 'static) -> Tap {
    Box::new(move |value| {
        let value = value
            .downcast_ref::<V>()
            .expect("a typed reference knows its node's type");
        sink(value.clone());
    })
}

impl<I: Inbox> Inbox for Vec<I> {
    type Values = Vec<I::Values>;
    fn open(self) -> Self::Values {
        self.into_iter().map(Inbox::open).collect()
    }
}

impl<D: Deps> sealed::Sealed for Vec<D> {}

impl<D: Deps> Deps for Vec<D> {
    type Values = Vec<D::Values>;
    type Inbox = Vec<D::Inbox>;
    fn subscribe(self, to: &mut Subscriptions) -> Self::Inbox {
        self.into_iter().map(|dep| dep.subscribe(to)).collect()
    }
}

impl<I: Inbox, const N: usize> Inbox for [I; N] {
    type Values = [I::Values; N];
    fn open(self) -> Self::Values {
        self.map(Inbox::open)
    }
}

impl<D: Deps, const N: usize> sealed::Sealed for [D; N] {}

impl<D: Deps, const N: usize> Deps for [D; N] {
    type Values = [D::Values; N];
    type Inbox = [D::Inbox; N];
    fn subscribe(self, to: &mut Subscriptions) -> Self::Inbox {
        self.map(|dep| dep.subscribe(to))
    }
}

macro_rules! tuples {
    ($(($($T:ident $i:tt),*))*) => {$(
        impl<$($T: Inbox),*> Inbox for ($($T,)*) {
            type Values = ($($T::Values,)*);
            #[allow(clippy::unused_unit)]
            fn open(self) -> Self::Values {
                ($(self.$i.open(),)*)
            }
        }

        impl<$($T: Deps),*> sealed::Sealed for ($($T,)*) {}

        impl<$($T: Deps),*> Deps for ($($T,)*) {
            type Values = ($($T::Values,)*);
            type Inbox = ($($T::Inbox,)*);
            #[allow(unused_variables, clippy::unused_unit)]
            fn subscribe(self, to: &mut Subscriptions) -> Self::Inbox {
                ($(self.$i.subscribe(to),)*)
            }
        }
    )*};
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
