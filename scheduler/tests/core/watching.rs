use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Deed, Diary, kind, source};
use futures::StreamExt;
use scheduler::{BoxError, InitGraph, InitMode, OperatorType, Phase, Progress, Quota, RunOptions, Status};

#[test]
fn progress_grows_and_ends_with_the_state_at_the_end() {
    for mode in InitMode::ALL {
        for fails in [false, true] {
            let diary = Diary::default();
            let mut graph = InitGraph::new();
            let lanes = [
                graph.lane(kind("A", &diary)),
                graph.ready_order_lane(kind("B", &diary)),
            ];
            for i in 0..20 {
                let deed = if fails && i == 15 {
                    Deed::FailSetup
                } else {
                    Deed::Await
                };
                graph.operator(&lanes[i % 2], format!("op{i}"), source("op", deed));
            }
            let run = graph.start(mode).unwrap();
            let (one, two) = (run.progress(), run.progress());
            let seen: Vec<Progress> = futures::executor::block_on(async {
                futures::join!(one.collect::<Vec<_>>(), two.collect::<Vec<_>>()).0
            });
            assert!(
                seen.is_sorted_by_key(|progress| progress.nodes_done),
                "{mode}: {seen:?}"
            );
            assert!(seen.iter().all(|progress| progress.nodes_total == 40));
            if fails {
                assert!(seen.last().unwrap().nodes_done < 40, "{mode}");
            } else {
                assert_eq!(seen.last().unwrap().nodes_done, 40, "{mode}");
                assert_eq!(run.progress_now(), *seen.last().unwrap());
            }
        }
    }
}

#[test]
fn the_stall_notice_names_the_silent_node_once_and_lets_it_live() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let (told, heard) = std::sync::mpsc::channel();
        let mut graph = InitGraph::new();
        let lane = graph.lane(kind("A", &diary));
        graph.operator(&lane, "quick", source("quick", Deed::Work));
        graph.node(&lane, "silent", (), async move |_: &mut _, ()| Ok(heard.recv()?));
        let list = notices.clone();
        let options = RunOptions::new().stall_notice(Duration::from_millis(5), move |stall| {
            list.lock()
                .unwrap()
                .push((stall.node().to_owned(), stall.lane().to_owned(), stall.phase()));
            assert!(stall.running_for() >= Duration::from_millis(5));
            let _ = told.send(());
        });
        let run = graph.start_with(mode, options).unwrap();
        run.ready().wait().unwrap();
        run.join();
        let notices = notices.lock().unwrap();
        let silent: Vec<_> = notices.iter().filter(|(node, ..)| node == "silent").collect();
        assert_eq!(
            silent,
            [&("silent".to_owned(), "A".to_owned(), Phase::Device)],
            "{mode}"
        );
    }
}

#[test]
fn anybody_can_ask_where_an_operator_is() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let (a, b) = (
            graph.lane(kind("A", &diary)),
            graph.ready_order_lane(kind("B", &diary)),
        );
        graph.operator(&a, "first", source("first", Deed::Work));
        graph.operator(&b, "never", source("never", Deed::Never));
        let last = graph.operator(&a, "last", source("last", Deed::Work));
        let plain = graph.node(&b, "plain", (), async |_: &mut _, ()| Ok(()));
        graph.after(plain, last);
        let run = graph.start(mode).unwrap();
        while run.status("never") != Some(Status::SettingUp) || run.status("first") != Some(Status::Done) {
            std::thread::yield_now();
        }
        assert_eq!(run.status("plain"), Some(Status::Waiting), "{mode}");
        assert_eq!(run.status("nobody"), None);
        run.cancel();
        assert_eq!(run.status("plain"), Some(Status::Abandoned), "{mode}");
        assert_eq!(run.status("first"), Some(Status::Done));
    }
    let diary = Diary::default();
    let mut graph = InitGraph::new();
    let a = graph.lane(kind("A", &diary));
    graph.operator(&a, "bad", source("bad", Deed::FailRead));
    let run = graph.start(InitMode::Overlapped).unwrap();
    run.ready().wait().unwrap_err();
    assert_eq!(run.status("bad"), Some(Status::Failed));
}

/// Needs a context while it is set up.
struct NeedsContext(Quota);

impl OperatorType for NeedsContext {
    type Source = ();
    type Host = ();
    type Device = usize;
    type Lane = ();

    fn name(&self) -> &str {
        "NeedsContext"
    }
    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }
    fn read(&self, _: &()) -> Result<(), BoxError> {
        Ok(())
    }
    async fn setup(&self, _: &mut (), _: ()) -> Result<usize, BoxError> {
        let _permit = self.0.acquire("setup").await;
        crate::support::woken_from_elsewhere().await;
        Ok(self.0.n_total() - self.0.n_free())
    }
}

#[test]
fn lanes_never_hold_more_than_the_quota_and_all_get_their_turn() {
    for mode in InitMode::ALL {
        let quota = Quota::new("contexts", 2);
        let mut graph = InitGraph::new();
        let lane = graph.striped_lane(NeedsContext(quota.clone()), 4);
        let ops: Vec<_> = (0..40)
            .map(|i| graph.operator(&lane, format!("op{i}"), ()))
            .collect();
        let run = graph.start(mode).unwrap();
        let mut ready = run.ready().wait().unwrap();
        assert!(
            ops.into_iter().all(|op| (1..=2).contains(&ready.take(op))),
            "{mode}"
        );
        assert_eq!(quota.n_free(), 2);
    }
}

#[test]
fn a_cancelled_wait_for_the_quota_leaves_the_queue() {
    for mode in [InitMode::TwoPhase, InitMode::Overlapped] {
        let quota = Quota::new("contexts", 1);
        let held = quota.try_acquire("the test").unwrap();
        let mut graph = InitGraph::new();
        let lane = graph.lane(NeedsContext(quota.clone()));
        graph.operator(&lane, "waits", ());
        let run = graph.start(mode).unwrap();
        run.cancel();
        run.join();
        drop(held);
        assert!(quota.try_acquire("another").is_ok());
    }
}

struct Sized(&'static str);

impl OperatorType for Sized {
    type Source = u64;
    type Host = u64;
    type Device = ();
    type Lane = ();

    fn name(&self) -> &str {
        self.0
    }

    fn host_bytes(&self, bytes: &u64) -> u64 {
        *bytes
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, bytes: &u64) -> Result<u64, BoxError> {
        Ok(*bytes)
    }

    async fn setup(&self, (): &mut (), _: u64) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn progress_lane_by_lane_counts_nodes_and_the_bytes_they_read_or_set_up() {
    for mode in InitMode::ALL {
        let mut graph = InitGraph::new();
        let (a, b) = (graph.lane(Sized("A")), graph.lane(Sized("B")));
        let first = graph.operator(&a, "first", 10);
        graph.operator(&a, "second", 20);
        graph.operator_from(&b, "shared", first.host());
        graph.node(&b, "plain", (), async |_: &mut (), ()| Ok(()));
        let run = graph.start(mode).unwrap();
        run.ready().wait().unwrap();
        let lanes: Vec<(String, u64, u64, u64, u64)> = run
            .lane_progress()
            .into_iter()
            .map(|lane| (lane.name, lane.progress))
            .map(|(name, p)| (name, p.nodes_done, p.nodes_total, p.bytes_read, p.bytes_total))
            .collect();
        let expected = [("host", 2, 30), ("A", 2, 30), ("B", 2, 10)];
        let expected = expected.map(|(name, nodes, bytes)| (name.to_owned(), nodes, nodes, bytes, bytes));
        assert_eq!(lanes, expected, "{mode}");
    }
}
