use crate::record::{Node, record, sample};
use expect_test::expect;
use scheduler::{EventKind, NodeId, Trace, graph_dot};
use serde_json::Value;
use std::collections::HashMap;

fn chrome_events(trace: &Trace) -> Vec<Value> {
    let json: Value = serde_json::from_str(&trace.to_chrome_json()).expect("the export is JSON");
    json["traceEvents"].as_array().expect("an array").clone()
}

fn of_kind<'a>(events: &'a [Value], ph: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == ph).collect()
}

#[test]
fn chrome_names_its_process_and_threads_and_sorts_lanes() {
    let events = chrome_events(&sample());
    let metadata = of_kind(&events, "M");
    let named: Vec<_> = metadata
        .iter()
        .map(|event| (&event["name"], &event["tid"], &event["args"]))
        .collect();
    assert_eq!(
        format!("{named:?}").replace("String", ""),
        concat!(
            r#"[(("process_name"), Number(1), Object {"name": ("hostlane overlapped")}), "#,
            r#"(("thread_name"), Number(1), Object {"name": ("host")}), "#,
            r#"(("thread_sort_index"), Number(1), Object {"sort_index": Number(1)}), "#,
            r#"(("thread_name"), Number(2), Object {"name": ("MatMul")}), "#,
            r#"(("thread_sort_index"), Number(2), Object {"sort_index": Number(2)}), "#,
            r#"(("thread_name"), Number(3), Object {"name": ("Norm")}), "#,
            r#"(("thread_sort_index"), Number(3), Object {"sort_index": Number(3)})]"#,
        )
    );
    assert!(
        events.iter().all(|event| event["pid"] == 1),
        "process 0 is the idle task"
    );
}

#[test]
fn chrome_slices_of_a_thread_do_not_overlap() {
    let mut until: HashMap<u64, f64> = HashMap::new();
    let events = chrome_events(&sample());
    let mut slices = of_kind(&events, "X");
    assert_eq!(slices.len(), 6);
    slices.sort_by(|a, b| {
        a["ts"]
            .as_f64()
            .partial_cmp(&b["ts"].as_f64())
            .expect("times are numbers")
    });
    for slice in slices {
        let (start, length) = (
            slice["ts"].as_f64().expect("a time"),
            slice["dur"].as_f64().expect("a time"),
        );
        let end = until.entry(slice["tid"].as_u64().expect("a thread")).or_default();
        assert!(start >= *end, "{slice} starts before {end}");
        *end = start + length;
    }
}

#[test]
fn chrome_flows_bind_to_the_slices_of_their_edge() {
    let events = chrome_events(&sample());
    let holds = |slice: &Value, flow: &Value| {
        let (start, end) = (
            slice["ts"].as_f64().unwrap(),
            slice["ts"].as_f64().unwrap() + slice["dur"].as_f64().unwrap(),
        );
        slice["tid"] == flow["tid"] && (start..end).contains(&flow["ts"].as_f64().unwrap())
    };
    let slices = of_kind(&events, "X");
    let (starts, ends) = (of_kind(&events, "s"), of_kind(&events, "f"));
    assert_eq!((starts.len(), ends.len()), (3, 3));
    for (start, end) in starts.into_iter().zip(ends) {
        assert_eq!(
            (&start["id"], &start["name"], &start["cat"]),
            (&end["id"], &end["name"], &end["cat"])
        );
        assert_eq!(end["bp"], "e");
        let node = |flow| {
            slices
                .iter()
                .find(|slice| holds(slice, flow))
                .expect("a slice is open")["name"]
                .clone()
        };
        assert_eq!(node(start), node(end), "an operator's two nodes share its name");
    }
}

#[test]
fn chrome_escapes_names_and_counts_staged_bytes() {
    let mut record = record(&[Node("a\"\\\n\u{1}é", 0, &[], 0..10)]);
    let staged = record.events[0];
    record.events.push(scheduler::Event {
        kind: EventKind::BytesStaged(NodeId::from_index(0), 100),
        ..staged
    });
    record.events.push(scheduler::Event {
        kind: EventKind::BytesReleased(NodeId::from_index(0), 40),
        ..staged
    });
    let events = chrome_events(&Trace::new(record));
    assert_eq!(of_kind(&events, "X")[0]["name"], "a\"\\\n\u{1}é");
    let bytes: Vec<_> = of_kind(&events, "C")
        .iter()
        .map(|event| event["args"]["bytes"].as_u64())
        .collect();
    assert_eq!(bytes, [Some(100), Some(60)]);
    assert_eq!(of_kind(&events, "i")[0]["name"], "barrier all ready");
}

#[test]
fn an_empty_run_exports() {
    let trace = Trace::new(record(&[]));
    assert_eq!(of_kind(&chrome_events(&trace), "X").len(), 0);
    assert!(trace.timeline(0).starts_with("lane"));
    assert!(trace.to_dot().starts_with("digraph"));
}

#[test]
fn timeline() {
    expect![[r#"
        lane   0 ms                             0.060 ms  busy nodes
        host   █████████████▓      ▓██████▒                50%     3
        MatMul       ░█████████████▒      ▓█████████████   67%     2
        Norm                ▒██████▒                       17%     1
        all                                            ^
    "#]]
    .assert_eq(&sample().timeline(60));
}

#[test]
fn timeline_marks_what_went_wrong_and_keeps_to_its_width() {
    let mut record = record(&[
        Node("q", 0, &[], 0..10),
        Node("q", 1, &[0], 10..30),
        Node("n", 2, &[0], 10..60),
    ]);
    record.lanes[1].name = "AVeryLongOperatorTypeName".to_owned();
    record
        .events
        .retain(|event| event.kind != EventKind::NodeFinished(NodeId::from_index(2)));
    for event in &mut record.events {
        if event.kind == EventKind::NodeFinished(NodeId::from_index(1)) {
            event.kind = EventKind::NodeFailed(NodeId::from_index(1));
        }
    }
    let text = Trace::new(record).timeline(50);
    assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
    expect![[r#"
        lane                 0 ms     0.060 ms  busy nodes
        host                 ███                 17%     1
        AVeryLongOperatorTy~   ░█████!           33%     1
        Norm                   ░█████████████?   83%     1
        all                                  ^
    "#]]
    .assert_eq(&text);
}

#[test]
fn dot() {
    expect![[r#"
        digraph init {
            node [shape = box style = filled]
            0 [ label = "q\nhost · 0.010 ms" group = "lane0" fillcolor = "0.000 0.25 0.95" penwidth = 3]
            1 [ label = "q\nMatMul · 0.020 ms" group = "lane1" fillcolor = "0.083 0.25 0.95" penwidth = 1]
            2 [ label = "n\nhost · 0.010 ms" group = "lane0" fillcolor = "0.000 0.25 0.95" penwidth = 3]
            3 [ label = "n\nNorm · 0.010 ms" group = "lane2" fillcolor = "0.167 0.25 0.95" penwidth = 1]
            4 [ label = "k\nhost · 0.010 ms" group = "lane0" fillcolor = "0.000 0.25 0.95" penwidth = 3]
            5 [ label = "k\nMatMul · 0.020 ms" group = "lane1" fillcolor = "0.083 0.25 0.95" penwidth = 3]
            0 -> 1 [ ]
            2 -> 3 [ ]
            4 -> 5 [ penwidth = 3]
        }
    "#]]
    .assert_eq(&sample().to_dot());
}

#[test]
fn a_graph_that_has_not_run_is_drawn_with_phases() {
    let trace = sample();
    let text = graph_dot(trace.lanes(), trace.nodes());
    assert!(
        text.contains(r"q\nhost · host") && text.contains(r"k\nMatMul · device"),
        "{text}"
    );
    assert!(!text.contains("penwidth = 3"), "{text}");
}
