//! The crate dagx: typed tasks on a tokio runtime, no lanes.

use super::{Round, tokio_lanes::runtime};
use crate::shape::Shape;
use dagx::{DagRunner, Task, TaskHandle, task};
use std::hint::black_box;
use std::time::Instant;

struct Root(u32);
struct After1(u32);
struct After2(u32);
struct After3(u32);

#[task]
impl Root {
    async fn run(&self) -> u32 {
        black_box(self.0)
    }
}

#[task]
impl After1 {
    async fn run(&self, _a: &u32) -> u32 {
        black_box(self.0)
    }
}

#[task]
impl After2 {
    async fn run(&self, _a: &u32, _b: &u32) -> u32 {
        black_box(self.0)
    }
}

#[task]
impl After3 {
    async fn run(&self, _a: &u32, _b: &u32, _c: &u32) -> u32 {
        black_box(self.0)
    }
}

pub fn round(shape: &Shape) -> Round {
    let runtime = runtime();
    let begin = Instant::now();
    let dag = DagRunner::new();
    let mut handles: Vec<TaskHandle<u32>> = Vec::with_capacity(shape.n_nodes());
    for node in 0..shape.n_nodes() {
        let body = node as u32;
        let handle = match *shape.deps(node) {
            [] => (&dag.add_task(Root(body))).into(),
            [a] => dag.add_task(After1(body)).depends_on(handles[a as usize]),
            [a, b] => dag
                .add_task(After2(body))
                .depends_on((&handles[a as usize], &handles[b as usize])),
            [a, b, c] => dag.add_task(After3(body)).depends_on((
                &handles[a as usize],
                &handles[b as usize],
                &handles[c as usize],
            )),
            _ => unreachable!("the shapes have at most three dependencies per node"),
        };
        handles.push(handle);
    }
    let build = begin.elapsed();

    let begin = Instant::now();
    runtime
        .block_on(dag.run(|task| {
            runtime.spawn(task);
        }))
        .expect("no task fails");
    let run = begin.elapsed();
    Round {
        build,
        run,
        ..Round::default()
    }
}
