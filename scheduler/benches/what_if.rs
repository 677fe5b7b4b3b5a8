//! How well `what_if` predicts: the makespan simulated from an Inline run's costs beside a real run of the same layout.
//!
//! `cargo bench -p scheduler --bench what_if` prints a table; `-- --json` one JSON object per line instead. Nodes either sleep,
//! as those do that wait for a device, or spin, as those do that format weights; spinning nodes share the machine's cores,
//! with each other and with whatever else runs there.

use scheduler::{BoxError, InitGraph, InitMode, Lane, LaneId, Layout, OperatorType, RunOptions, Trace};
use std::time::{Duration, Instant};

/// Operators per graph, over three types.
const N_OPERATORS: usize = 60;
/// Rounds per layout; the median is reported.
const ROUNDS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Sleep,
    Spin,
}

/// An operator type whose work takes as long as its source says.
struct Timed {
    name: &'static str,
    work: Work,
}

impl OperatorType for Timed {
    /// Microseconds for the read and for the setup.
    type Source = (u64, u64);
    type Host = u64;
    type Device = ();
    type Lane = ();

    fn name(&self) -> &str {
        self.name
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, &(read_us, setup_us): &(u64, u64)) -> Result<u64, BoxError> {
        self.work.take(read_us);
        Ok(setup_us)
    }

    async fn setup(&self, _: &mut (), setup_us: u64) -> Result<(), BoxError> {
        self.work.take(setup_us);
        Ok(())
    }
}

impl Work {
    fn take(self, micros: u64) {
        let duration = Duration::from_micros(micros);
        match self {
            Work::Sleep => std::thread::sleep(duration),
            Work::Spin => {
                let begin = Instant::now();
                while begin.elapsed() < duration {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// A layout under test: a mode, and the stripes of the type that has most of the work.
#[derive(Clone, Copy)]
struct Plan {
    mode: InitMode,
    n_stripes: usize,
}

const PLANS: [Plan; 4] = [
    Plan {
        mode: InitMode::Serial,
        n_stripes: 1,
    },
    Plan {
        mode: InitMode::TwoPhase,
        n_stripes: 1,
    },
    Plan {
        mode: InitMode::Overlapped,
        n_stripes: 1,
    },
    Plan {
        mode: InitMode::Overlapped,
        n_stripes: 2,
    },
];

fn run(work: Work, plan: Plan) -> Trace {
    let mut graph = InitGraph::new();
    let matmul = graph.striped_lane(Timed { name: "MatMul", work }, plan.n_stripes);
    let others = [
        graph.lane(Timed { name: "Norm", work }),
        graph.lane(Timed {
            name: "Attention",
            work,
        }),
    ];
    let mut last = None;
    for index in 0..N_OPERATORS {
        let lane: &Lane<Timed> = if index % 2 == 0 {
            &matmul
        } else {
            &others[index / 2 % 2]
        };
        let (read_us, setup_us) = (150 + 10 * (index as u64 % 7), 300 + 130 * (index as u64 % 5));
        let operator = graph.operator(lane, format!("op{index}"), (read_us, setup_us));
        if index % 10 == 9 {
            // Now and then an operator of one type waits for one of another.
            last.into_iter()
                .for_each(|earlier| graph.after(operator, earlier));
        }
        last = Some(operator);
    }
    let run = graph
        .start_with(plan.mode, RunOptions::new().record())
        .expect("edges go to earlier nodes");
    run.ready().wait().expect("nothing goes wrong");
    run.trace()
}

fn main() {
    let is_json = std::env::args().any(|arg| arg == "--json");
    if !is_json {
        println!(
            "{:<6} {:<11} {:>7} {:>13} {:>12} {:>7}",
            "work", "mode", "stripes", "predicted ms", "measured ms", "ratio"
        );
    }
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    for work in [Work::Sleep, Work::Spin] {
        for plan in PLANS {
            let mut pairs: Vec<(Duration, Duration)> =
                (0..ROUNDS).map(|_| round(work, plan, n_cores)).collect();
            pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
            let median = pairs[ROUNDS / 2];
            let [predicted_ms, measured_ms] = [median.0, median.1].map(|time| time.as_secs_f64() * 1e3);
            let (mode, n_stripes, ratio) = (plan.mode, plan.n_stripes, ratio(&median));
            if is_json {
                let row = serde_json::json!({
                    "work": format!("{work:?}").to_lowercase(), "mode": mode.to_string(), "stripes": n_stripes,
                    "cores": n_cores, "predicted_ms": predicted_ms, "measured_ms": measured_ms, "measured_over_predicted": ratio,
                });
                println!("{row}");
            } else {
                println!(
                    "{work:<6?} {mode:<11} {n_stripes:>7} {predicted_ms:>13.2} {measured_ms:>12.2} {ratio:>7.3}"
                );
            }
        }
    }
}

/// Predicted from an Inline run, then measured, right after each other.
fn round(work: Work, plan: Plan, n_cores: usize) -> (Duration, Duration) {
    let inline = run(
        work,
        Plan {
            mode: InitMode::Inline,
            n_stripes: 1,
        },
    );
    let matmul: LaneId = inline.find_lane("MatMul").expect("the graph has this lane");
    let layout = Layout::of(&inline)
        .mode(plan.mode)
        .stripes(matmul, plan.n_stripes);
    // Sleeping nodes need no core.
    let layout = if work == Work::Spin {
        layout.cores(n_cores)
    } else {
        layout
    };
    (inline.what_if(&layout).wall(), run(work, plan).wall())
}

fn ratio((predicted, measured): &(Duration, Duration)) -> f64 {
    measured.as_secs_f64() / predicted.as_secs_f64()
}
