//! A new operator type is one trait impl; then graphs, modes, errors and traces come for free.
//!
//!     cargo run -p examples --bin custom_operator_type
//!
//! The operators are 2-bit lookup tables for an imaginary device. Reading one takes its table out of the model file; setting
//! one up expands it into the layout that the device wants, through a queue that must stay on one thread.

use scheduler::{BoxError, InitGraph, InitMode, OperatorType, RunOptions};
use std::rc::Rc;

/// The operator type: what its lane needs to know.
struct LookupTable {
    device: &'static str,
}

/// Phase 1's result: owned, so that nothing of the model is borrowed.
struct PackedTable {
    bytes: Vec<u8>,
}

/// Phase 2's result: the kernel that the engine will call.
struct TableKernel {
    values: Vec<f32>,
}

/// The lane's state. The `Rc` makes it stay on its thread, as handles of many device libraries must.
struct DeviceQueue {
    scratch: Rc<Vec<f32>>,
    n_uploads: usize,
}

impl OperatorType for LookupTable {
    type Source = &'static [u8];
    type Host = PackedTable;
    type Device = TableKernel;
    type Lane = DeviceQueue;

    fn name(&self) -> &str {
        "LookupTable"
    }

    fn host_bytes(&self, source: &&'static [u8]) -> u64 {
        source.len() as u64
    }

    fn open(&self) -> Result<DeviceQueue, BoxError> {
        println!(
            "opened a queue on {} ({:?})",
            self.device,
            std::thread::current().name()
        );
        Ok(DeviceQueue {
            scratch: Rc::new(vec![-1.0, -0.25, 0.25, 1.0]),
            n_uploads: 0,
        })
    }

    fn read(&self, source: &&'static [u8]) -> Result<PackedTable, BoxError> {
        if source.is_empty() {
            return Err("the table is empty".into());
        }
        Ok(PackedTable {
            bytes: source.to_vec(),
        })
    }

    async fn setup(&self, queue: &mut DeviceQueue, packed: PackedTable) -> Result<TableKernel, BoxError> {
        let expand = |byte: &u8| [0, 2, 4, 6].map(|shift| queue.scratch[usize::from(byte >> shift & 3)]);
        let values = packed.bytes.iter().flat_map(expand).collect();
        queue.n_uploads += 1;
        Ok(TableKernel { values })
    }
}

const MODEL: [&[u8]; 3] = [
    &[0b00_01_10_11; 20_000],
    &[0b11_11_00_00; 30_000],
    &[0b01_01_01_01; 10_000],
];

fn main() -> Result<(), scheduler::InitError> {
    for mode in InitMode::ALL {
        let mut graph = InitGraph::new();
        let tables = graph.lane(LookupTable { device: "imaginary0" });
        let operators: Vec<_> = (MODEL.iter().enumerate())
            .map(|(layer, &source)| graph.operator(&tables, format!("layers.{layer}.table"), source))
            .collect();
        // A plain node on the same lane: it gets the lane's state, after every operator before it.
        let n_uploads = graph.node(&tables, "count", (), async |queue, ()| Ok(queue.n_uploads));

        let run = graph.start_with(mode, RunOptions::new().record())?;
        let mut ready = run.ready().wait()?;
        let kernels: Vec<TableKernel> = operators
            .into_iter()
            .map(|operator| ready.take(operator))
            .collect();
        let n_values: usize = kernels.iter().map(|kernel| kernel.values.len()).sum();
        println!("{mode}: {n_values} values in {} uploads", ready.take(n_uploads));
        println!("{}", run.trace().timeline(80));
    }

    // Something goes wrong in phase 1 of one operator: the error says what, where, and what was skipped because of it.
    let mut graph = InitGraph::new();
    let tables = graph.lane(LookupTable { device: "imaginary0" });
    let broken = graph.operator(&tables, "layers.0.table", &[][..]);
    let after = graph.operator(&tables, "layers.1.table", MODEL[1]);
    graph.after(after, broken);
    let error = graph
        .start(InitMode::Overlapped)?
        .ready()
        .wait()
        .expect_err("an empty table cannot be read");
    println!("error: {error}");
    println!("skipped: {:?}", error.skipped());
    Ok(())
}
