//! What idle lanes cost: the processor time of a run whose nodes sleep, as a share of its wall time. Each node blocks for
//! 50 ms in turn, one lane after the other, so that eight of nine lanes wait at any moment.

use std::time::{Duration, Instant};

use scheduler::{BoxError, InitGraph, InitMode, OperatorType};

const N_LANES: usize = 8;
const N_NODES: usize = 40;
const SLEEP: Duration = Duration::from_millis(50);

struct Sleepy;

impl OperatorType for Sleepy {
    type Source = ();
    type Host = ();
    type Device = ();
    type Lane = ();

    fn name(&self) -> &str {
        "Sleepy"
    }
    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }
    fn read(&self, _: &()) -> Result<(), BoxError> {
        Ok(())
    }
    async fn setup(&self, _: &mut (), _: ()) -> Result<(), BoxError> {
        std::thread::sleep(SLEEP);
        Ok(())
    }
}

fn main() {
    let mut graph = InitGraph::new();
    let lanes: Vec<_> = (0..N_LANES).map(|_| graph.lane(Sleepy)).collect();
    let mut last = None;
    for i in 0..N_NODES {
        let op = graph.operator(&lanes[i % N_LANES], "sleep", ());
        if let Some(last) = last.replace(op) {
            graph.after(op, last);
        }
    }
    let (cpu, begin) = (cpu_time(), Instant::now());
    graph
        .start(InitMode::Overlapped)
        .expect("a valid graph")
        .ready()
        .wait()
        .expect("nothing fails");
    let (cpu, wall) = (cpu_time() - cpu, begin.elapsed());
    let percent = 100.0 * cpu.as_secs_f64() / wall.as_secs_f64();
    println!(
        "{N_NODES} nodes of {SLEEP:?} on {N_LANES} lanes: {wall:.2?}, of which {percent:.2}% on a processor"
    );
}

/// Processor time of this process so far, in user and system mode.
fn cpu_time() -> Duration {
    // SAFETY: an all-zero rusage is valid, and getrusage writes one through the pointer.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
