use crate::support::{Diary, woken_from_elsewhere};
use scheduler::testing::check_guarantees;
use scheduler::{BoxError, EventKind, InitGraph, InitMode, NodeRef, OperatorType, Run, RunOptions};

/// Reads a number of bytes.
struct Sized(&'static str);

impl OperatorType for Sized {
    type Source = u64;
    type Host = u64;
    type Device = u64;
    type Lane = ();

    fn name(&self) -> &str {
        self.0
    }
    fn host_bytes(&self, source: &u64) -> u64 {
        *source
    }
    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }
    fn read(&self, source: &u64) -> Result<u64, BoxError> {
        Ok(*source)
    }
    async fn setup(&self, _: &mut (), host: u64) -> Result<u64, BoxError> {
        woken_from_elsewhere().await;
        Ok(host)
    }
}

/// The most bytes that were staged at once.
fn peak(run: &Run) -> u64 {
    let (mut now, mut peak) = (0, 0);
    for event in run.record().events {
        match event.kind {
            EventKind::BytesStaged(_, bytes) => now += bytes,
            EventKind::BytesReleased(_, bytes) => now -= bytes,
            _ => {}
        }
        peak = peak.max(now);
    }
    assert_eq!(now, 0, "every byte is given back");
    peak
}

#[test]
fn staged_bytes_stay_within_the_budget_and_one_value_is_always_admitted() {
    for mode in InitMode::ALL {
        for (budget, most) in [(0, 9), (1, 9), (8, 9), (10, 10), (25, 25), (1000, 1000)] {
            let mut graph = InitGraph::new();
            let lanes = [
                graph.lane(Sized("A")),
                graph.lane(Sized("B")),
                graph.lane(Sized("C")),
            ];
            for i in 0..12 {
                let bytes = [3, 0, 5, 9][i % 4];
                graph.operator(&lanes[i % 3], format!("op{i}"), bytes);
            }
            assert_eq!(graph.total_bytes(), 51);
            let run = graph
                .start_with(mode, RunOptions::new().staging_budget_bytes(budget).record())
                .unwrap();
            run.ready().wait().unwrap();
            let peak = peak(&run);
            assert!(peak <= most, "{mode}, budget {budget}: {peak}");
            assert_eq!(
                check_guarantees(&run.trace()).map_err(|v| v.to_string()),
                Ok(()),
                "{mode}, {budget}"
            );
        }
    }
}

#[test]
fn a_value_shared_with_an_operator_behind_later_reads_does_not_deadlock() {
    for mode in InitMode::ALL {
        let mut graph = InitGraph::new();
        let (a, b) = (graph.lane(Sized("A")), graph.lane(Sized("B")));
        let x = graph.operator(&a, "x", 10);
        // On lane B the reader of x comes after y, whose read comes after x: x is staged until y has been read.
        let y = graph.operator(&b, "y", 10);
        let shared = graph.operator_from(&b, "x again", x.host());
        let z = graph.operator(&a, "z", 10);
        let run = graph
            .start_with(mode, RunOptions::new().staging_budget_bytes(10).record())
            .unwrap();
        let mut ready = run.ready().wait().unwrap();
        assert_eq!([x, y, shared, z].map(|op| ready.take(op)), [10; 4]);
        assert!(peak(&run) <= 20, "{mode}");
    }
}

#[test]
fn a_full_budget_gives_its_bytes_back_when_nodes_fail_and_when_the_run_is_cancelled() {
    for mode in InitMode::ALL {
        let mut graph = InitGraph::new();
        let a = graph.lane(Sized("A"));
        let bad: NodeRef<u32> = graph.read("bad", (), |()| Err("bad".into()));
        for i in 0..5 {
            let op = graph.operator(&a, format!("op{i}"), 7);
            if i % 2 == 0 {
                graph.after(op.device(), bad);
            }
        }
        let options = RunOptions::new()
            .staging_budget_bytes(7)
            .record()
            .failure_policy(scheduler::FailurePolicy::CollectAll);
        let run = graph.start_with(mode, options).unwrap();
        assert_eq!(run.ready().wait().unwrap_err().skipped(), ["op0", "op2", "op4"]);
        assert!(peak(&run) <= 7, "{mode}");
    }
    for mode in InitMode::ALL {
        let mut graph = InitGraph::new();
        let a = graph.lane(Sized("A"));
        graph.node(&a, "never", (), async |_: &mut (), ()| {
            let () = std::future::pending().await;
            Ok(())
        });
        for i in 0..5 {
            graph.operator(&a, format!("op{i}"), 7);
        }
        let run = graph
            .start_with(mode, RunOptions::new().staging_budget_bytes(7))
            .unwrap();
        run.cancel();
        assert!(run.ready().wait().unwrap_err().is_cancelled());
        run.join();
    }
}

#[test]
fn a_ready_order_lane_starts_what_is_ready() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let (open, opened) = std::sync::mpsc::channel();
        let mut graph = InitGraph::new();
        let (fifo, ready) = (graph.lane(Sized("F")), graph.ready_order_lane(Sized("R")));
        let slow = graph.node(&fifo, "slow", (), async move |_: &mut (), ()| {
            if mode.has_lane_threads() {
                opened.recv()?;
            }
            Ok(1)
        });
        let note = diary.clone();
        let first = graph.node(&ready, "first", slow, async move |_: &mut (), one| {
            note.note("first");
            Ok(one + 1)
        });
        let note = diary.clone();
        graph.node(&ready, "second", (), async move |_: &mut (), ()| {
            note.note("second");
            open.send(()).ok();
            Ok(())
        });
        let op = graph.operator(&ready, "op", 4);
        let after_op = graph.node(&fifo, "after op", op.device(), async move |_: &mut (), four| {
            Ok(four + 1)
        });
        let partial = graph.barrier("partial", [first.id(), op.device().id()]);
        let run = graph.start_with(mode, RunOptions::new().record()).unwrap();
        run.barrier(partial).wait().unwrap();
        let mut values = run.ready().wait().unwrap();
        assert_eq!(
            (values.take(first), values.take(op), values.take(after_op)),
            (2, 4, 5)
        );
        let want = if mode.has_lane_threads() {
            ["second", "first"]
        } else {
            ["first", "second"]
        };
        assert_eq!(diary.lines(), want, "{mode}");
        assert_eq!(
            check_guarantees(&run.trace()).map_err(|v| v.to_string()),
            Ok(()),
            "{mode}"
        );
    }
}
