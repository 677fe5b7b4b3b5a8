//! One property per guarantee, named after it, over random graphs, lanes, modes, budgets and fault plans.
//!
//! The same bodies run on real threads and, with `--cfg shuttle`, under a scheduler that chooses every switch between threads.
//! README.md in the folder above says how to run more cases and how to run a failure again.

mod engine;
mod harness;
mod model;

mod g01_exactly_once;
mod g02_dependencies;
mod g03_serialized_lanes;
mod g04_lane_order;
mod g05_pinning;
mod g06_lane_state;
mod g07_barrier;
mod g08_always_settles;
mod g09_waiter_drop;
mod g10_rollback;
mod g11_same_result;
mod g12_no_deadlock;
mod g13_bounded_staging;
mod intake;
