//! The floor: boxed closures called in order on one thread.

use super::Round;
use crate::shape::Shape;
use std::hint::black_box;
use std::time::Instant;

pub fn round(shape: &Shape) -> Round {
    let begin = Instant::now();
    let nodes: Vec<Box<dyn FnOnce() + Send>> = (0..shape.n_nodes())
        .map(|node| {
            Box::new(move || {
                black_box(node);
            }) as Box<dyn FnOnce() + Send>
        })
        .collect();
    let build = begin.elapsed();

    let begin = Instant::now();
    for node in nodes {
        node();
    }
    Round {
        build,
        run: begin.elapsed(),
        ..Round::default()
    }
}
