//! Rows as a table for people or as JSON lines for programs.

use serde_json::json;

#[derive(Clone, Copy, PartialEq)]
pub enum Format {
    Table,
    Json,
}

pub struct Row {
    pub scheduler: &'static str,
    pub shape: String,
    pub n_nodes: usize,
    pub n_lanes: usize,
    pub lanes: bool,
    pub pinned: bool,
    pub n_rounds: usize,
    /// Absent when left out.
    pub measured: Option<Measured>,
    pub left_out: Option<String>,
}

pub struct Measured {
    pub build_ns_per_node: f64,
    pub run_ns_per_node: f64,
    pub total_ns_per_node: f64,
    pub total_us: f64,
    pub run_us: f64,
    pub start_us: f64,
    pub bytes_per_node: f64,
}

pub struct Report {
    format: Format,
    last_shape: String,
}

impl Report {
    pub fn new(format: Format) -> Report {
        Report {
            format,
            last_shape: String::new(),
        }
    }

    pub fn row(&mut self, row: &Row) {
        match self.format {
            Format::Json => println!("{}", to_json(row)),
            Format::Table => {
                if self.last_shape != row.shape {
                    self.last_shape.clone_from(&row.shape);
                    println!("\n{} ({} nodes, {} lanes)", row.shape, row.n_nodes, row.n_lanes);
                    println!(
                        "  {:<22} {:>7} {:>7} {:>9} {:>9} {:>9} {:>12} {:>10} {:>8}",
                        "scheduler",
                        "lanes",
                        "pinned",
                        "build ns",
                        "run ns",
                        "total ns",
                        "total us",
                        "start us",
                        "bytes"
                    );
                }
                println!("{}", to_line(row));
            }
        }
    }
}

fn to_json(row: &Row) -> serde_json::Value {
    let mut value = json!({
        "scheduler": row.scheduler,
        "shape": row.shape,
        "n_nodes": row.n_nodes,
        "n_lanes": row.n_lanes,
        "lanes": row.lanes,
        "pinned": row.pinned,
        "rounds": row.n_rounds,
    });
    if let Some(measured) = &row.measured {
        value["build_ns_per_node"] = tenths(measured.build_ns_per_node);
        value["run_ns_per_node"] = tenths(measured.run_ns_per_node);
        value["total_ns_per_node"] = tenths(measured.total_ns_per_node);
        value["bytes_per_node"] = tenths(measured.bytes_per_node);
        value["run_us"] = tenths(measured.run_us);
        value["total_us"] = tenths(measured.total_us);
        value["start_us"] = tenths(measured.start_us);
    }
    if let Some(why) = &row.left_out {
        value["left_out"] = why.as_str().into();
    }
    value
}

fn to_line(row: &Row) -> String {
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let head = format!(
        "  {:<22} {:>7} {:>7}",
        row.scheduler,
        yes(row.lanes),
        yes(row.pinned)
    );
    match (&row.measured, &row.left_out) {
        (Some(m), _) => format!(
            "{head} {:>9.1} {:>9.1} {:>9.1} {:>12.1} {:>10.1} {:>8.0}",
            m.build_ns_per_node,
            m.run_ns_per_node,
            m.total_ns_per_node,
            m.total_us,
            m.start_us,
            m.bytes_per_node
        ),
        (None, why) => format!("{head}   left out: {}", why.as_deref().unwrap_or("not measured")),
    }
}

fn tenths(value: f64) -> serde_json::Value {
    ((value * 10.0).round() / 10.0).into()
}
