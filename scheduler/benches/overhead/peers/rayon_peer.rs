//! A work-stealing pool: no lanes, no thread affinity. The nodes that became ready are spawned.

use super::{Round, counted::CountedGraph};
use crate::shape::Shape;
use std::time::Instant;

pub fn round(shape: &Shape) -> Round {
    let begin = Instant::now();
    let graph = CountedGraph::new(shape);
    let build = begin.elapsed();

    let graph = &graph;
    let begin = Instant::now();
    rayon::scope(|scope| {
        for &root in graph.roots() {
            scope.spawn(move |scope| visit(graph, scope, root));
        }
    });
    Round {
        build,
        run: begin.elapsed(),
        ..Round::default()
    }
}

fn visit<'a>(graph: &'a CountedGraph, scope: &rayon::Scope<'a>, node: u32) {
    graph.run(node, |ready| scope.spawn(move |scope| visit(graph, scope, ready)));
}
