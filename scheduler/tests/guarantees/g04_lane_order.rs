use crate::{engine, harness, model};
use proptest::prelude::*;
use scheduler::testing::{Call, Guarantee};
use scheduler::{LaneOrder, Phase};

#[test]
fn g4_nodes_of_a_lane_start_in_the_order_they_were_added() {
    engine::check(harness::cases(harness::every_fault()), |case| {
        let finished = harness::run(case);
        finished.upholds(Guarantee::G4)?;
        let entered = finished.script.entered();
        let is_fifo = |&(node, phase): &Call| {
            let order = case.spec.lanes[case.spec.nodes[node].lane].order;
            phase == Phase::Host || order == LaneOrder::Fifo || !case.mode.has_lane_threads()
        };
        let n_lanes = 1 + case.spec.lanes.iter().map(|lane| lane.n_stripes).sum::<usize>();
        for lane in 0..n_lanes {
            let on_lane = entered
                .iter()
                .filter(|&&call| model::lane(&case.spec, call) == lane);
            let order: Vec<Call> = on_lane.filter(|call| is_fifo(call)).copied().collect();
            prop_assert!(
                order.is_sorted_by_key(|call| call.0),
                "lane {}: {:?}",
                lane,
                order
            );
        }
        Ok(())
    });
}
