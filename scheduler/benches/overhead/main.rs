//! What a node costs: building and running graphs of empty nodes, hostlane beside its peers in one process.
//!
//! `cargo bench -p scheduler --bench overhead` prints a table; `-- --json` one JSON object per line instead.
//! `--shape NAME` and `--peer NAME` (parts of names, both may be repeated) choose what runs, `--quick` leaves out the graphs
//! of a million nodes. Peers take turns, round by round, and the median of the rounds is reported: on a shared machine
//! absolute times drift by up to twofold, ratios within one process hold better.

mod memory;
mod options;
mod peers;
mod report;
mod shape;

use options::Options;
use peers::{PEERS, Peer, Round};
use report::{Report, Row};
use shape::Shape;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

/// (layers, operator types): the mission's two sizes.
const MISSIONS: [(usize, usize); 2] = [(36, 7), (10_000, 8)];
/// Nodes of the other shapes.
const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
/// About this many nodes are run per peer and shape, within the limits on rounds.
const NODES_PER_PEER: usize = 1_500_000;
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=61;

fn main() {
    let options = Options::from_args();
    let mut report = Report::new(options.format);
    for shape in shapes(&options) {
        measure(&shape(), &options, &mut report);
    }
}

type MakeShape = Box<dyn Fn() -> Shape>;

/// The chosen graphs, each made only when its turn comes: the large ones take a while and memory.
fn shapes(options: &Options) -> Vec<MakeShape> {
    let mut chosen: Vec<MakeShape> = Vec::new();
    for (layers, types) in MISSIONS {
        if options.wants_shape(&format!("mission-{layers}x{types}"), layers * types * 2) {
            chosen.push(Box::new(move || Shape::mission(layers, types)));
        }
    }
    for (name, make) in [
        ("chain", Shape::chain as fn(usize) -> Shape),
        ("hop", Shape::hop),
        ("fan-out", Shape::fan_out),
        ("layered", Shape::layered),
    ] {
        for size in SIZES {
            if options.wants_shape(&format!("{name}-{}", shape::short(size)), size) {
                chosen.push(Box::new(move || make(size)));
            }
        }
    }
    chosen
}

fn measure(shape: &Shape, options: &Options, report: &mut Report) {
    let peers: Vec<&Peer> = PEERS
        .iter()
        .filter(|peer| options.wants_peer(peer.name))
        .collect();
    let n_rounds = (NODES_PER_PEER / shape.n_nodes()).clamp(*ROUNDS.start(), *ROUNDS.end());
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); peers.len()];
    for _ in 0..n_rounds {
        for (peer, rounds) in peers.iter().zip(&mut rounds) {
            if shape.n_nodes() <= peer.max_nodes {
                rounds.push((peer.round)(shape));
            }
        }
    }
    for (peer, rounds) in peers.into_iter().zip(rounds) {
        report.row(&row(peer, shape, &rounds));
    }
}

fn row(peer: &Peer, shape: &Shape, rounds: &[Round]) -> Row {
    let n_nodes = shape.n_nodes();
    let mut row = Row {
        scheduler: peer.name,
        shape: shape.name.clone(),
        n_nodes,
        n_lanes: shape.n_lanes,
        lanes: peer.has_lanes,
        pinned: peer.is_pinned,
        n_rounds: rounds.len(),
        measured: None,
        left_out: None,
    };
    if rounds.is_empty() {
        row.left_out = Some(format!(
            "more than this peer's cap of {} nodes: too slow",
            peer.max_nodes
        ));
        return row;
    }
    let bytes = memory::peak_bytes(|| {
        (peer.round)(shape);
    });
    row.measured = Some(report::Measured {
        build_ns_per_node: median(rounds, |round| round.build) / n_nodes as f64,
        run_ns_per_node: median(rounds, |round| round.run) / n_nodes as f64,
        total_ns_per_node: median(rounds, |round| round.build + round.run) / n_nodes as f64,
        total_us: median(rounds, |round| round.build + round.run) / 1e3,
        run_us: median(rounds, |round| round.run) / 1e3,
        start_us: median(rounds, |round| round.start) / 1e3,
        bytes_per_node: bytes as f64 / n_nodes as f64,
    });
    row
}

/// The median over the rounds, in nanoseconds.
fn median(rounds: &[Round], part: impl Fn(&Round) -> Duration) -> f64 {
    let mut times: Vec<u128> = rounds.iter().map(|round| part(round).as_nanos()).collect();
    times.sort_unstable();
    times[times.len() / 2] as f64
}
