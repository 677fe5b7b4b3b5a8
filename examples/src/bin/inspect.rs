//! Shows what a model folder holds and how it would be initialised, without loading weights.

use anyhow::{Context, Result};
use clap::Parser;
use onnx_model::ModelFolder;
use scheduler::{LaneId, LaneInfo, LaneOrder, NodeId, NodeInfo, Phase, graph_dot};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show a model folder's operators, types and bytes, and its init graph.
///
/// Only the graph is read; no page of the weights is touched.
#[derive(Parser)]
struct Arguments {
    /// Folder with genai_config.json and model.onnx.
    dir: PathBuf,
    /// Write the init graph in Graphviz' DOT language: a host-read and a device-setup node per operator.
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    examples::cli::run(|| inspect(&arguments))
}

fn inspect(arguments: &Arguments) -> Result<()> {
    let folder = ModelFolder::open(&arguments.dir)?;
    let summary = folder.summary()?;
    if let Some(path) = &arguments.dot {
        let dot = init_graph(&folder)?;
        std::fs::write(path, dot).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut text = String::new();
    if arguments.json {
        writeln!(text, "{}", serde_json::to_string_pretty(&summary)?)?;
    } else {
        writeln!(
            text,
            "{summary}\n{:<36} {:<20} {:>6} {:>12}",
            "operator", "type", "nodes", "bytes"
        )?;
        for operator in &summary.operators {
            let (kind, bytes) = (operator.kind.name(), operator.weight_bytes);
            writeln!(
                text,
                "{:<36} {kind:<20} {:>6} {bytes:>12}",
                operator.name, operator.nodes
            )?;
        }
    }
    examples::cli::print(&text)?;
    Ok(())
}

/// One host-read node and one device-setup node per operator, one lane per operator type.
fn init_graph(folder: &ModelFolder) -> Result<String> {
    let lane_info = |index: usize, name: &'static str| LaneInfo {
        id: LaneId::from_index(index),
        name: name.into(),
        operator_type: name.into(),
        order: LaneOrder::Fifo,
        stripe: None,
    };
    let mut lanes = vec![lane_info(LaneId::HOST.index(), "host")];
    let mut lane_of = BTreeMap::new();
    let mut nodes: Vec<NodeInfo> = Vec::new();
    for operator in folder.operators()? {
        let name = operator.kind.name();
        let device_lane = *lane_of.entry(name).or_insert_with(|| {
            lanes.push(lane_info(lanes.len(), name));
            lanes[lanes.len() - 1].id
        });
        let host = NodeId::from_index(nodes.len());
        let mut add = |phase, lane, deps, bytes| {
            nodes.push(NodeInfo {
                id: NodeId::from_index(nodes.len()),
                name: operator.name.clone().into(),
                phase,
                lane,
                operator_type: name.into(),
                deps,
                bytes,
            });
        };
        add(Phase::Host, LaneId::HOST, vec![], operator.weight_bytes);
        add(Phase::Device, device_lane, vec![host], 0);
    }
    Ok(graph_dot(&lanes, &nodes))
}
