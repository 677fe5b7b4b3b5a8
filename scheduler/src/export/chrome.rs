//! Chrome's Trace Event Format, as Perfetto's importer and `chrome://tracing` read it.
//!
//! The rules that this keeps (from the format's definition and from what Perfetto's JSON importer accepts):
//!
//! - the file is an object with `traceEvents`; times are microseconds, fractions allowed: three digits keep the nanosecond;
//! - `M` events name the process and its threads; `thread_sort_index` puts the host lane on top;
//! - `X` events have `ts` and `dur`; those of one thread must nest, which the spans of one lane do, since they never overlap;
//! - a flow is an `s` and an `f` of one `id`, `name` and `cat`; each binds to the slice that is open on its thread at its `ts`, so `s`
//!   lies inside the slice it leaves, and `f` at the beginning of the slice it enters needs `"bp":"e"`;
//! - at equal times the order in the file counts: a slice comes before the flow events that bind to it;
//! - process id 0 means the kernel's idle task to Perfetto, so ids count from 1.

use crate::event::{EventKind, NodeId, Settled};
use crate::trace::Trace;
use std::fmt::Write;

const PID: u32 = 1;

impl Trace {
    /// The trace as Chrome trace JSON: open it in <https://ui.perfetto.dev> or `chrome://tracing`.
    ///
    /// Lanes are threads, nodes are slices with their operator type, phase and outcome as arguments, dependency
    /// edges between lanes are flow arrows, barriers are instants, and staged bytes are a counter.
    pub fn to_chrome_json(&self) -> String {
        let mut out = Events::new();
        let process = format!("hostlane {}", self.mode());
        out.push(format_args!(
            r#""ph":"M","name":"process_name","pid":{PID},"tid":1,"args":{{"name":{}}}"#,
            quoted(&process)
        ));
        for lane in self.lanes() {
            let tid = lane.id.index() + 1;
            let name = quoted(&lane.name);
            out.push(format_args!(
                r#""ph":"M","name":"thread_name","pid":{PID},"tid":{tid},"args":{{"name":{name}}}"#
            ));
            out.push(format_args!(
                r#""ph":"M","name":"thread_sort_index","pid":{PID},"tid":{tid},"args":{{"sort_index":{tid}}}"#
            ));
        }
        for node in self.nodes() {
            self.push_slice(&mut out, node.id);
        }
        let mut n_flows = 0_u64;
        for node in self.nodes() {
            for &dep in &node.deps {
                if self.node(dep).lane != node.lane {
                    n_flows += 1;
                    self.push_flow(&mut out, n_flows, dep, node.id);
                }
            }
        }
        self.push_run_events(&mut out);
        out.finish()
    }

    fn push_slice(&self, out: &mut Events, id: NodeId) {
        let Some(range) = self.span(id).range_ns() else {
            return;
        };
        let node = self.node(id);
        let (ts, dur) = (Micros(range.start), Micros(range.end - range.start));
        let tid = node.lane.index() + 1;
        let name = quoted(&node.name);
        let operator_type = quoted(&node.operator_type);
        let (phase, bytes, outcome) = (node.phase, node.bytes, self.outcome(id).name());
        out.push(format_args!(
            r#""ph":"X","name":{name},"cat":"{phase}","ts":{ts},"dur":{dur},"pid":{PID},"tid":{tid},"args":{{"operator_type":{operator_type},"phase":"{phase}","node":{},"bytes":{bytes},"outcome":"{outcome}"}}"#,
            id.index(),
        ));
    }

    fn push_flow(&self, out: &mut Events, id: u64, from: NodeId, to: NodeId) {
        let (Some(source), Some(target)) = (self.span(from).range_ns(), self.span(to).range_ns()) else {
            return;
        };
        // The last nanosecond inside the slice: at its end the slice is already closed.
        let leaves = Micros(source.end.saturating_sub(1).max(source.start));
        let enters = Micros(target.start);
        let (from_tid, to_tid) = (self.node(from).lane.index() + 1, self.node(to).lane.index() + 1);
        out.push(format_args!(
            r#""ph":"s","id":{id},"name":"dependency","cat":"flow","ts":{leaves},"pid":{PID},"tid":{from_tid}"#
        ));
        out.push(format_args!(
            r#""ph":"f","bp":"e","id":{id},"name":"dependency","cat":"flow","ts":{enters},"pid":{PID},"tid":{to_tid}"#
        ));
    }

    fn push_run_events(&self, out: &mut Events) {
        let mut staged = 0_u64;
        for event in self.events() {
            let ts = Micros(event.at_ns);
            let tid = event.lane.index() + 1;
            let text = match event.kind {
                EventKind::BytesStaged(_, bytes) | EventKind::BytesReleased(_, bytes) => {
                    let is_staged = matches!(event.kind, EventKind::BytesStaged(..));
                    staged = if is_staged {
                        staged + bytes
                    } else {
                        staged.saturating_sub(bytes)
                    };
                    out.push(format_args!(
                        r#""ph":"C","name":"staged bytes","ts":{ts},"pid":{PID},"tid":1,"args":{{"bytes":{staged}}}"#
                    ));
                    continue;
                }
                EventKind::BarrierSettled(barrier, settled) => {
                    let name = self
                        .barriers()
                        .get(barrier.index())
                        .map_or("?", |info| &info.name);
                    let how = if settled == Settled::Ready {
                        "ready"
                    } else {
                        "failed"
                    };
                    format!("barrier {name} {how}")
                }
                EventKind::RunCancelled => "cancelled".to_owned(),
                EventKind::HostPhaseEnded => "host phase ended".to_owned(),
                _ => continue,
            };
            let name = quoted(&text);
            out.push(format_args!(
                r#""ph":"i","s":"p","name":{name},"cat":"run","ts":{ts},"pid":{PID},"tid":{tid}"#
            ));
        }
    }
}

/// The array under construction.
struct Events {
    text: String,
}

impl Events {
    fn new() -> Events {
        Events {
            text: "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n".to_owned(),
        }
    }

    fn push(&mut self, fields: std::fmt::Arguments<'_>) {
        if self.text.ends_with('}') {
            self.text.push_str(",\n");
        }
        write!(self.text, "{{{fields}}}").expect("writing to a string succeeds");
    }

    fn finish(mut self) -> String {
        self.text.push_str("\n]}\n");
        self.text
    }
}

/// Nanoseconds, written as microseconds with three digits.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            char if u32::from(char) < 0x20 => {
                write!(out, "\\u{:04x}", u32::from(char)).expect("writing to a string succeeds");
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}
