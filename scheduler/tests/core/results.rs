use std::sync::Arc;

use crate::support::{Deed, Diary, kind, source};
use scheduler::{BoxError, InitGraph, InitMode, OperatorType, RunOptions};

#[test]
fn every_mode_gives_the_same_values_in_lane_order_on_pinned_threads() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let (a, b) = (graph.lane(kind("A", &diary)), graph.lane(kind("B", &diary)));
        let names = ["a0", "b0", "a1", "b1", "a2", "a3"];
        let ops = names.map(|name| {
            let lane = if name.starts_with('a') { &a } else { &b };
            graph.operator(
                lane,
                name,
                source(name, if name == "a1" { Deed::Await } else { Deed::Work }),
            )
        });
        let run = graph.start(mode).unwrap();
        let mut ready = run.ready().wait().unwrap();
        for (name, op) in names.iter().zip(ops) {
            assert_eq!(ready.take(op).name, format!("device {name}"));
        }
        drop(run);
        assert_eq!(
            diary.lines_with("read"),
            names.map(|name| format!("read {name}")),
            "{mode}"
        );
        assert_eq!(
            diary.lines_with("setup a"),
            ["setup a0", "setup a1", "setup a2", "setup a3"],
            "{mode}"
        );
        assert_eq!(diary.lines_with("done b"), ["done b0 1", "done b1 2"], "{mode}");
        assert_eq!(diary.threads_of("read").len(), 1, "{mode}");
        for lane in ["A", "B"] {
            let lower = lane.to_lowercase();
            let mut threads = diary.threads_of(&format!("setup {lower}"));
            threads.extend(diary.threads_of(&format!("open {lane}")));
            threads.extend(diary.threads_of(&format!("close {lane}")));
            threads.dedup();
            assert_eq!(threads.len(), 1, "{mode}, lane {lane}");
        }
        let host_is_apart = diary.threads_of("read") != diary.threads_of("setup a");
        assert_eq!(host_is_apart, mode.has_lane_threads(), "{mode}");
    }
}

#[test]
fn inline_alternates_and_serial_reads_everything_first() {
    let order = |mode| {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let lane = graph.lane(kind("A", &diary));
        for name in ["x", "y"] {
            graph.operator(&lane, name, source(name, Deed::Work));
        }
        graph.start(mode).unwrap().ready().wait().unwrap();
        let mut lines = diary.lines();
        lines.retain(|line| line.starts_with("read") || line.starts_with("setup"));
        lines
    };
    assert_eq!(
        order(InitMode::Inline),
        ["read x", "setup x", "read y", "setup y"]
    );
    assert_eq!(
        order(InitMode::Serial),
        ["read x", "read y", "setup x", "setup y"]
    );
}

#[test]
fn two_phase_starts_no_lane_before_the_last_read() {
    let diary = Diary::default();
    let mut graph = InitGraph::new();
    let lane = graph.lane(kind("A", &diary));
    let other = graph.lane(kind("B", &diary));
    let note = diary.clone();
    graph.node(&other, "no reads", (), async move |_: &mut _, ()| {
        note.note("setup plain");
        Ok(())
    });
    for name in ["x", "y", "z"] {
        graph.operator(&lane, name, source(name, Deed::Work));
    }
    graph.start(InitMode::TwoPhase).unwrap().ready().wait().unwrap();
    let lines = diary.lines();
    let last_read = lines.iter().rposition(|line| line.starts_with("read")).unwrap();
    let first_other = lines.iter().position(|line| !line.starts_with("read")).unwrap();
    assert!(last_read < first_other, "{lines:?}");
}

#[test]
fn a_dependent_gets_the_values_it_names() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let lane = graph.lane(kind("A", &diary));
        let base = graph.read("base", (), |()| Ok(20));
        let text = graph.read("text", base, |base| Ok(format!("{base}!")));
        let list: Vec<_> = (0..3)
            .map(|i| graph.read(format!("r{i}"), (), move |()| Ok(i)))
            .collect();
        let sum = graph.node(
            &lane,
            "sum",
            (base, text, list),
            async |state: &mut crate::support::State, (base, text, list): (i32, String, Vec<i32>)| {
                assert_eq!((state.name, text.as_str()), ("A", "20!"));
                Ok(base + list.iter().sum::<i32>())
            },
        );
        let late = graph.read("late", sum, |sum| Ok(sum * 2));
        let later = graph.node(
            &lane,
            "later",
            [sum, late],
            async |_: &mut _, values: [i32; 2]| Ok(Arc::new(values)),
        );
        let run = graph.start(mode).unwrap();
        let mut ready = run.ready().wait().unwrap();
        assert_eq!(*ready.get(later).unwrap(), [23, 46], "{mode}");
        assert_eq!(*ready.take(later), [23, 46]);
        assert!(ready.try_take(later).unwrap_err().is_misuse());
        assert_eq!(ready.take(sum), 23);
        assert_eq!(ready.take(base), 20);
    }
}

struct Copying(&'static str);

impl OperatorType for Copying {
    type Source = [u8];
    type Host = Arc<Vec<u8>>;
    type Device = Vec<u8>;
    type Lane = ();

    fn name(&self) -> &str {
        self.0
    }
    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }
    fn read(&self, source: &[u8]) -> Result<Arc<Vec<u8>>, BoxError> {
        Ok(Arc::new(source.to_vec()))
    }
    async fn setup(&self, _: &mut (), host: Arc<Vec<u8>>) -> Result<Vec<u8>, BoxError> {
        Ok(host.iter().rev().copied().collect())
    }
}

#[test]
fn the_calling_thread_may_be_the_host_lane_over_borrowed_unsized_sources() {
    for mode in InitMode::ALL {
        let model = [1, 2, 3];
        let not_send = std::rc::Rc::new(5);
        let mut graph = InitGraph::on_this_thread();
        let npu = graph.lane(Copying("Npu"));
        let igpu = graph.lane(Copying("Igpu"));
        let x = graph.operator(&npu, "x", &model[..2]);
        let y = graph.operator(&npu, "y", &model[1..]);
        let shared = graph.operator_from(&igpu, "x on igpu", x.host());
        let plain = graph.read("plain", (), |()| Ok(*not_send));
        let run = graph.start(mode).unwrap();
        let mut ready = run.ready().wait().unwrap();
        assert_eq!((ready.take(x), ready.take(y)), (vec![2, 1], vec![3, 2]), "{mode}");
        assert_eq!((ready.take(shared), ready.take(plain)), (vec![2, 1], 5), "{mode}");
    }
}

#[test]
fn a_striped_lane_deals_its_operators_out_in_turn() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let lane = graph.striped_lane(kind("A", &diary), 3);
        let names = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];
        let ops = names.map(|name| graph.operator(&lane, name, source(name, Deed::Work)));
        let run = graph.start_with(mode, RunOptions::new().record()).unwrap();
        let mut ready = run.ready().wait().unwrap();
        for (name, op) in names.iter().zip(ops) {
            assert_eq!(ready.take(op).name, format!("device {name}"));
        }
        let record = run.record();
        let lane_of = |op: scheduler::Operator<_>| record.nodes[op.device().id().index()].lane.index();
        assert_eq!(ops.map(lane_of), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(record.lanes[3].name, "A#2");
        assert_eq!(record.lanes[3].stripe, Some((2, 3)));
        assert_eq!(diary.lines_with("close").len(), 3);
    }
}

#[test]
fn an_empty_graph_is_ready_at_once() {
    for mode in InitMode::ALL {
        InitGraph::new().start(mode).unwrap().ready().wait().unwrap();
    }
}

#[test]
fn handles_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<scheduler::Run>();
    check::<scheduler::Barrier>();
    check::<scheduler::Ready>();
    check::<scheduler::InitError>();
    check::<scheduler::NodeRef<std::rc::Rc<()>>>();
    fn send<T: Send>() {}
    send::<InitGraph>();
}

#[test]
fn threads_may_be_kept_between_runs_and_end_with_their_last_handle() {
    let threads = scheduler::LaneThreads::new();
    let diary = Diary::default();
    for round in 0..3 {
        let mut graph = InitGraph::new();
        let lane = graph.lane(kind("A", &diary));
        let op = graph.operator(&lane, "x", source("x", Deed::Await));
        let options = RunOptions::new().threads(&threads).pin_to_cores();
        let run = graph.start_with(InitMode::Overlapped, options).unwrap();
        assert_eq!(run.ready().wait().unwrap().take(op).name, "device x");
        run.join();
        assert_eq!(diary.lines_with("close").len(), round + 1);
    }
    let mut used = diary.threads_of("setup");
    used.extend(diary.threads_of("read"));
    used.sort_by_key(|id| format!("{id:?}"));
    used.dedup();
    assert!(used.len() <= 2 || threads.n_parked() == used.len());
}

#[test]
fn a_node_may_await_tokio_timers_of_the_runtime_around_the_start() {
    async fn init(mode: InitMode) -> u32 {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let lane = graph.lane(kind("A", &diary));
        let slow = graph.node(&lane, "slow", (), async |_: &mut _, ()| {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok(7)
        });
        graph.start(mode).unwrap().ready().await.unwrap().take(slow)
    }
    let current = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let multi = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    for mode in InitMode::ALL {
        assert_eq!(current().block_on(init(mode)), 7, "{mode}");
        assert_eq!(multi().block_on(init(mode)), 7, "{mode}");
    }
}
