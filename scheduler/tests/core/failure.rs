use std::time::Duration;

use crate::support::{Deed, Diary, Tracked, kind, source};
use scheduler::{EventKind, FailurePolicy, InitError, InitGraph, InitMode, Phase, Run, RunOptions};

/// Two lanes, five operators; `bad` is the one that does `deed`.
fn run_with(mode: InitMode, options: RunOptions, diary: &Diary, deed: Deed) -> Run {
    let mut graph = InitGraph::new();
    let (a, b) = (graph.lane(kind("A", diary)), graph.lane(kind("B", diary)));
    graph.operator(&a, "a0", source("a0", Deed::Work));
    graph.operator(&b, "b0", source("b0", Deed::Work));
    let bad = graph.operator(&a, "bad", source("bad", deed));
    let b1 = graph.operator(&b, "b1", source("b1", Deed::Work));
    graph.after(b1.device(), bad.device());
    graph.operator(&a, "a2", source("a2", Deed::Work));
    graph.start_with(mode, options).unwrap()
}

fn fail(mode: InitMode, deed: Deed) -> (InitError, Diary) {
    let diary = Diary::default();
    let run = run_with(mode, RunOptions::new(), &diary, deed);
    let error = run.ready().wait().unwrap_err();
    run.join();
    (error, diary)
}

#[test]
fn the_error_names_root_lane_type_phase_and_what_was_skipped() {
    for mode in InitMode::ALL {
        for (deed, phase, lane, panics, text) in [
            (Deed::FailRead, Phase::Host, "host", false, "bad weights"),
            (Deed::PanicRead, Phase::Host, "host", true, "read of bad exploded"),
            (Deed::FailSetup, Phase::Device, "A", false, "no memory"),
            (
                Deed::PanicSetup,
                Phase::Device,
                "A",
                true,
                "setup of bad exploded",
            ),
        ] {
            let (error, _) = fail(mode, deed);
            assert_eq!(error.node(), Some("bad"), "{mode} {deed:?}");
            assert_eq!(
                (error.lane(), error.operator_type()),
                (Some(lane), Some("A")),
                "{mode} {deed:?}"
            );
            assert_eq!(
                (error.phase(), error.is_panic()),
                (Some(phase), panics),
                "{mode} {deed:?}"
            );
            assert!(error.to_string().contains(text), "{error}");
            let skipped: &[&str] = if phase == Phase::Host {
                &["bad", "b1"]
            } else {
                &["b1"]
            };
            assert_eq!(error.skipped(), skipped, "{mode} {deed:?}");
            assert_eq!(std::error::Error::source(&error).is_some(), !panics);
        }
    }
}

#[test]
fn rollback_drops_each_value_once_newest_first_before_the_lane_state() {
    for mode in InitMode::ALL {
        for deed in [Deed::FailSetup, Deed::PanicSetup] {
            let (_, diary) = fail(mode, deed);
            let lines = diary.lines();
            let count = |what: &str| lines.iter().filter(|line| line == &what).count();
            for name in ["a0", "b0", "bad", "b1", "a2"] {
                let host = count(&format!("read {name}"));
                assert_eq!(count(&format!("drop host {name}")), host, "{mode}: {lines:?}");
                let done = lines
                    .iter()
                    .filter(|line| line.starts_with(&format!("done {name}")))
                    .count();
                assert_eq!(count(&format!("drop device {name}")), done, "{mode}: {lines:?}");
            }
            let at = |what: &str| lines.iter().position(|line| line == what);
            for (lane, first) in [("A", "a0"), ("B", "b0")] {
                if let (Some(value), Some(close)) =
                    (at(&format!("drop device {first}")), at(&format!("close {lane}")))
                {
                    assert!(value < close, "{mode}: {lines:?}");
                }
            }
        }
    }
}

#[test]
fn rollback_goes_backwards_within_a_lane_on_its_thread() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let lane = graph.lane(kind("A", &diary));
        for name in ["o0", "o1", "o2"] {
            graph.operator(&lane, name, source(name, Deed::Work));
        }
        let values = diary.clone();
        graph.node(&lane, "p", (), async move |_: &mut _, ()| {
            Ok(Tracked::new("device p", &values))
        });
        graph.operator(&lane, "bad", source("bad", Deed::FailSetup));
        let run = graph.start(mode).unwrap();
        run.ready().wait().unwrap_err();
        run.join();
        assert_eq!(
            diary
                .lines()
                .into_iter()
                .filter(|line| line.starts_with("drop device") || line.starts_with("close"))
                .collect::<Vec<_>>(),
            [
                "drop device p",
                "drop device o2",
                "drop device o1",
                "drop device o0",
                "close A"
            ],
            "{mode}"
        );
        assert_eq!(diary.threads_of("drop device"), diary.threads_of("close A"));
    }
}

#[test]
fn collect_all_runs_what_does_not_depend_and_reports_every_root() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let (a, b) = (graph.lane(kind("A", &diary)), graph.lane(kind("B", &diary)));
        let x = graph.operator(&a, "x", source("x", Deed::FailSetup));
        let y = graph.operator(&b, "y", source("y", Deed::Work));
        graph.after(y.device(), x.device());
        let z = graph.operator(&b, "z", source("z", Deed::Work));
        graph.operator(&a, "w", source("w", Deed::PanicRead));
        let last = graph.operator(&a, "last", source("last", Deed::Work));
        let bad = graph.barrier("bad", [y]);
        let good = graph.barrier("good", [z, last]);
        let options = RunOptions::new()
            .failure_policy(FailurePolicy::CollectAll)
            .record();
        let run = graph.start_with(mode, options).unwrap();
        let error = run.ready().wait().unwrap_err();
        assert_eq!(
            (error.node(), error.skipped()),
            (Some("x"), &["y".to_owned()][..]),
            "{mode}"
        );
        assert_eq!(error.others().len(), 1, "{mode}");
        assert_eq!(error.others()[0].node(), Some("w"));
        assert_eq!(error.others()[0].skipped(), ["w"]);
        assert_eq!(run.barrier(bad).wait().unwrap_err().node(), Some("x"));
        run.barrier(good).wait().unwrap();
        assert_eq!(diary.lines_with("done").len(), 2, "{mode}");
        let record = run.record();
        let skipped: Vec<_> = record
            .events
            .iter()
            .filter_map(|e| match e.kind {
                EventKind::NodeSkipped(id) => Some(&*record.nodes[id.index()].name),
                _ => None,
            })
            .collect();
        let mut sorted = skipped.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ["w", "y"], "{mode}");
    }
}

#[test]
fn a_lane_that_does_not_open_fails_its_first_node_in_phase_open() {
    for mode in InitMode::ALL {
        for policy in [FailurePolicy::FailFast, FailurePolicy::CollectAll] {
            let diary = Diary::default();
            let mut graph = InitGraph::new();
            let closed = graph.lane(kind("closed", &diary));
            let other = graph.lane(kind("B", &diary));
            graph.operator(&closed, "c0", source("c0", Deed::Work));
            graph.operator(&closed, "c1", source("c1", Deed::Work));
            graph.operator(&other, "b0", source("b0", Deed::Work));
            let run = graph
                .start_with(mode, RunOptions::new().failure_policy(policy))
                .unwrap();
            let error = run.ready().wait().unwrap_err();
            run.join();
            assert_eq!(
                (error.node(), error.phase(), error.lane()),
                (Some("c0"), Some(Phase::Open), Some("closed"))
            );
            assert_eq!(error.skipped(), ["c0", "c1"], "{mode}");
            let b0_ran = !diary.lines_with("done b0").is_empty();
            assert!(b0_ran || policy == FailurePolicy::FailFast, "{mode}");
            assert!(diary.lines_with("setup c").is_empty());
        }
    }
}

#[test]
fn a_node_that_never_returns_is_cancelled_at_its_await() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let run = run_with(mode, RunOptions::new().record(), &diary, Deed::Never);
        while diary.lines_with("setup bad").is_empty() {
            std::thread::yield_now();
        }
        assert!(run.ready().wait_timeout(Duration::from_millis(1)).is_none());
        run.cancel();
        let error = run.ready().wait().unwrap_err();
        assert!(error.is_cancelled(), "{mode}: {error}");
        assert_eq!(error.node(), Some("bad"), "{mode}: {error}");
        assert!(error.skipped().contains(&"b1".to_owned()), "{mode}: {error:?}");
        let record = run.record();
        assert!(
            record
                .events
                .iter()
                .any(|e| matches!(e.kind, EventKind::NodeCancelled(_))),
            "{mode}"
        );
        assert_eq!(
            diary.lines_with("done").len(),
            diary.lines_with("drop device").len(),
            "{mode}"
        );
        assert_eq!(
            diary.lines_with("read").len(),
            diary.lines_with("drop host").len(),
            "{mode}"
        );
    }
}

#[test]
fn another_nodes_failure_stops_a_node_that_never_returns() {
    for mode in [InitMode::TwoPhase, InitMode::Overlapped] {
        let diary = Diary::default();
        let mut graph = InitGraph::new();
        let (a, b) = (graph.lane(kind("A", &diary)), graph.lane(kind("B", &diary)));
        graph.operator(&a, "never", source("never", Deed::Never));
        graph.operator(&b, "bad", source("bad", Deed::FailSetup));
        let run = graph.start(mode).unwrap();
        assert_eq!(run.ready().wait().unwrap_err().node(), Some("bad"));
        run.join();
    }
}

#[test]
fn dropping_the_run_cancels_it_and_leaves_no_value_behind() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        drop(run_with(mode, RunOptions::new(), &diary, Deed::Never));
        assert_eq!(
            diary.lines_with("open").len(),
            diary.lines_with("close").len(),
            "{mode}"
        );
        assert_eq!(
            diary.lines_with("done").len(),
            diary.lines_with("drop device").len(),
            "{mode}"
        );
        assert_eq!(
            diary.lines_with("read").len(),
            diary.lines_with("drop host").len(),
            "{mode}"
        );
    }
}

#[test]
fn cancelling_a_run_that_has_succeeded_changes_nothing() {
    for mode in InitMode::ALL {
        let diary = Diary::default();
        let run = run_with(mode, RunOptions::new(), &diary, Deed::Work);
        run.ready().wait().unwrap();
        run.cancel();
        run.ready().wait().unwrap();
        assert!(diary.lines_with("drop device").is_empty());
    }
}

#[test]
fn an_edge_to_a_later_node_is_refused_with_the_cycle_if_there_is_one() {
    let graph = |edges: &[(usize, usize)]| {
        let mut graph = InitGraph::new();
        let nodes: Vec<_> = ["a", "b", "c"]
            .map(|name| graph.read(name, (), |()| Ok(())))
            .to_vec();
        for &(node, on) in edges {
            graph.after(nodes[node], nodes[on]);
        }
        graph.start(InitMode::Inline).map(drop)
    };
    assert!(graph(&[(1, 0), (2, 0), (2, 1)]).is_ok());
    let error = graph(&[(0, 2)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a waits for c, which was added later: add a node after what it waits for"
    );
    let error = graph(&[(1, 0), (2, 1), (0, 2)]).unwrap_err();
    assert_eq!(error.to_string(), "the graph has a cycle: a -> b -> c -> a");
    assert_eq!(
        graph(&[(1, 1)]).unwrap_err().to_string(),
        "the graph has a cycle: b -> b"
    );
}
