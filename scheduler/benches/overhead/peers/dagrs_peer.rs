//! The crate dagrs: a task and channels per node on a tokio runtime, no lanes.

use super::{Round, tokio_lanes::runtime};
use crate::shape::Shape;
use dagrs::{Action, Content, DefaultNode, EnvVar, Graph, InChannels, Node, NodeTable, OutChannels, Output};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

struct Body(u32);

// `Action` is an async_trait; this is what its macro would write.
impl Action for Body {
    fn run<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        inputs: &'life1 mut InChannels,
        outputs: &'life2 mut OutChannels,
        _: Arc<EnvVar>,
    ) -> Pin<Box<dyn Future<Output = Output> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            inputs.map(|content| content.expect("no node fails")).await;
            outputs.broadcast(Content::new(black_box(self.0))).await;
            Output::Out(None)
        })
    }
}

pub fn round(shape: &Shape) -> Round {
    let begin = Instant::now();
    let mut table = NodeTable::default();
    let mut graph = Graph::new();
    let mut ids = Vec::with_capacity(shape.n_nodes());
    let mut dependents = vec![Vec::new(); shape.n_nodes()];
    for node in 0..shape.n_nodes() {
        let task = DefaultNode::with_action(node.to_string(), Body(node as u32), &mut table);
        ids.push(task.id());
        graph.add_node(task).expect("names are unique");
        for &dep in shape.deps(node) {
            dependents[dep as usize].push(ids[node]);
        }
    }
    for (node, dependents) in dependents.into_iter().enumerate() {
        if !dependents.is_empty() {
            graph
                .add_edge(ids[node], dependents)
                .expect("edges go from earlier to later nodes");
        }
    }
    graph.set_env(EnvVar::new(table));
    let build = begin.elapsed();

    let begin = Instant::now();
    runtime().block_on(graph.async_start()).expect("no node fails");
    Round {
        build,
        run: begin.elapsed(),
        ..Round::default()
    }
}
