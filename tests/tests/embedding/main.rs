//! Custom operators inside stock ONNX Runtime: deferred or not, they compute what the stock operators do.

use examples::embed::{Embedded, Stock};
use onnx_model::ModelFolder;
use scheduler::{InitMode, Phase};
use tests::{FIXTURES, fixture, onnx_runtime};

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn outputs_are_bit_identical_in_every_mode_and_equal_to_the_stock_operators() {
    let runtime = onnx_runtime();
    runtime.start_threads();
    let environment = runtime.environment();
    for name in FIXTURES {
        let folder = ModelFolder::open(fixture(name)).unwrap();
        let mut stock = Stock::load(environment, &folder).unwrap();
        for mode in InitMode::ALL {
            let mut embedded = Embedded::load(environment, &folder, mode).unwrap();
            for n in [1_u32, 7, 65] {
                let tokens: Vec<u32> = (0..n).map(|i| (i * 131 + 7) % 2000).collect();
                let (custom, expected) = (embedded.run(&tokens).unwrap(), stock.run(&tokens).unwrap());
                assert_eq!(custom.len(), n as usize * folder.geometry().vocab);
                assert_eq!(bits(&custom), bits(&expected), "{name} {mode}: {n} tokens");
            }
        }
    }
}

#[test]
fn constructors_read_in_graph_order_on_one_thread_and_the_lane_sets_up_on_another() {
    let folder = ModelFolder::open(fixture("llama3-tiny-int4")).unwrap();
    for mode in InitMode::ALL {
        let embedded = Embedded::load(onnx_runtime().environment(), &folder, mode).unwrap();
        let trace = embedded.trace();
        let thread = |phase| {
            let nodes = trace.nodes().iter().filter(|node| node.phase == phase);
            let mut threads: Vec<_> = nodes.map(|node| trace.span(node.id).thread.unwrap()).collect();
            assert_eq!(threads.len(), embedded.n_custom);
            threads.dedup();
            assert_eq!(threads.len(), 1, "{mode} {phase}");
            threads[0]
        };
        let (host, device) = (thread(Phase::Host), thread(Phase::Device));
        assert_eq!(host == device, !mode.has_lane_threads(), "{mode}");
        for node in trace.nodes().iter().filter(|node| node.phase == Phase::Device) {
            assert!(
                trace.before(trace.find(&node.name, Phase::Host).unwrap(), node.id),
                "{mode} {}",
                node.name
            );
        }
    }
}
