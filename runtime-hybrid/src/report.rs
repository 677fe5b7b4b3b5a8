//! What loading took, and what runs where.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use scheduler::{InitMode, NodeId, Phase, Trace};

use crate::options::Engines;

/// What loading a model took, told apart by when each thing was ready, and what runs where.
///
/// Times count from the call of [`HybridRuntime::load`](crate::HybridRuntime::load). Its [`Display`](fmt::Display) is
/// a table for people.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// How the init graph was scheduled.
    pub mode: InitMode,
    /// Which engines serve: [`Engines::Hybrid`] or [`Engines::NpuOnly`].
    pub engines: Engines,
    /// When `load` returned.
    pub constructor: Duration,
    /// When the prefill engine could serve.
    pub prefill_ready: Option<Duration>,
    /// When the decode engine could serve.
    pub decode_ready: Option<Duration>,
    /// When everything was ready.
    pub ready: Option<Duration>,
    /// When the first token of the first request was out.
    pub first_token: Option<Duration>,
    /// What reads prompts: engine and execution provider.
    pub prefill_engine: String,
    /// What generates tokens: engine and adapter or execution provider.
    pub decode_engine: String,
    /// What a user should know, a line each: a missing adapter, an operator without a kernel, an adapter that is the CPU.
    pub notices: Vec<String>,
    /// Cost by engine and operator type, the most expensive first.
    pub operator_types: Vec<TypeCost>,
    /// What each operator runs on, in topological order.
    pub placements: Vec<Placement>,
    /// The most memory this process ever had resident, where the system says.
    pub peak_memory_bytes: Option<u64>,
    /// Bytes of weights that the decode engine keeps for itself, or keeps mapped because it reads them in place; `None` where the prefill engine decodes. On an adapter that shares
    /// the machine's memory they are part of the peak.
    pub decode_weight_bytes: Option<u64>,
    /// The [`StagingBudget`](crate::StagingBudget), in bytes; `None` if there is none.
    pub staging_budget_bytes: Option<u64>,
    /// The most bytes of weights that ever waited for device setup; `None` while loading.
    pub staged_peak_bytes: Option<u64>,
    /// The most bytes of weights that one read made wait.
    pub staged_largest_bytes: Option<u64>,
    /// Everything that happened, in order; `None` while loading.
    pub trace: Option<Trace>,
}

/// Which engine an operator belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// The prefill engine.
    Npu,
    /// The decode engine.
    Igpu,
    /// Neither: tokenizer and chat template.
    Text,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Npu => "NPU",
            Self::Igpu => "iGPU",
            Self::Text => "text",
        })
    }
}

/// What the operators of one type cost on one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeCost {
    /// The engine.
    pub engine: Engine,
    /// The operator type.
    pub operator_type: String,
    /// Device nodes.
    pub n: usize,
    /// Sum of their host reads. A read that both engines share is counted at the engine it was added for.
    pub host: Duration,
    /// Sum of their device setups.
    pub device: Duration,
    /// Sum of the times their device nodes waited for their lane when everything they need was there.
    pub queue: Duration,
    /// Bytes of weights that they set up. Where both engines share a read, both count its bytes.
    pub bytes: u64,
}

/// What one operator runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The operator's name.
    pub operator: String,
    /// The engine.
    pub engine: Engine,
    /// Execution provider or adapter.
    pub device: String,
}

/// Cost by engine and operator type. `engine_of` says whose a device node is; a host read is the NPU engine's if that uses
/// it, else its user's.
pub(crate) fn type_costs(trace: &Trace, engine_of: impl Fn(NodeId) -> Engine) -> Vec<TypeCost> {
    let mut readers: HashMap<NodeId, Engine> = HashMap::new();
    for node in trace.nodes().iter().filter(|node| node.phase == Phase::Device) {
        for &dep in &node.deps {
            let engine = readers.entry(dep).or_insert_with(|| engine_of(node.id));
            *engine = (*engine).min(engine_of(node.id));
        }
    }
    let mut costs: Vec<TypeCost> = Vec::new();
    for node in trace.nodes() {
        let name = node.operator_type.as_ref();
        let engine = match node.phase {
            Phase::Host => readers
                .get(&node.id)
                .copied()
                .unwrap_or_else(|| engine_of(node.id)),
            Phase::Device | Phase::Open => engine_of(node.id),
        };
        let place = costs
            .iter()
            .position(|cost| cost.engine == engine && cost.operator_type == name);
        let place = place.unwrap_or_else(|| {
            costs.push(TypeCost {
                engine,
                operator_type: name.to_owned(),
                n: 0,
                host: Duration::ZERO,
                device: Duration::ZERO,
                queue: Duration::ZERO,
                bytes: 0,
            });
            costs.len() - 1
        });
        let (cost, span) = (&mut costs[place], trace.span(node.id));
        match node.phase {
            Phase::Host => cost.host += span.duration(),
            Phase::Device | Phase::Open => {
                cost.n += 1;
                cost.device += span.duration();
                // Its host node has bytes; nothing else that it waits for has.
                cost.bytes += node.deps.iter().map(|&dep| trace.node(dep).bytes).sum::<u64>();
                let ready = node
                    .deps
                    .iter()
                    .filter_map(|&dep| trace.span(dep).end())
                    .max()
                    .unwrap_or_default();
                cost.queue += span
                    .start()
                    .map_or(Duration::ZERO, |start| start.saturating_sub(ready));
            }
        }
    }
    costs.sort_by_key(|cost| std::cmp::Reverse(cost.host + cost.device));
    costs
}

/// The most memory this process ever had resident.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = |time: Option<Duration>| time.map_or_else(|| "not yet".to_owned(), ms);
        writeln!(
            f,
            "init {}: constructor returned {}",
            self.mode,
            ms(self.constructor)
        )?;
        writeln!(
            f,
            "  prefill ready  {:>12}   {}",
            pending(self.prefill_ready),
            self.prefill_engine
        )?;
        writeln!(
            f,
            "  decode ready   {:>12}   {}",
            pending(self.decode_ready),
            self.decode_engine
        )?;
        writeln!(f, "  ready          {:>12}", pending(self.ready))?;
        writeln!(f, "  first token    {:>12}", pending(self.first_token))?;
        if let Some(peak) = self.peak_memory_bytes {
            writeln!(f, "  peak memory    {:>12}", mib(peak))?;
        }
        if let Some(peak) = self.staged_peak_bytes.filter(|peak| *peak > 0) {
            let budget = self.staging_budget_bytes.map_or_else(
                || "no budget".to_owned(),
                |bytes| format!("budget {}", mib(bytes)),
            );
            writeln!(f, "  staged at most {:>12}   {budget}", mib(peak))?;
        }
        for notice in &self.notices {
            writeln!(f, "  note: {notice}")?;
        }
        if !self.operator_types.is_empty() {
            writeln!(
                f,
                "\n  {:<6} {:<24} {:>5} {:>9} {:>9} {:>10} {:>7}",
                "engine", "operator type", "n", "host ms", "device ms", "queue ms", "MiB"
            )?;
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        for cost in &self.operator_types {
            writeln!(
                f,
                "  {:<6} {:<24} {:>5} {:>9.1} {:>9.1} {:>10.1} {:>7.1}",
                cost.engine,
                cost.operator_type,
                cost.n,
                ms(cost.host),
                ms(cost.device),
                ms(cost.queue),
                cost.bytes as f64 / f64::from(1 << 20)
            )?;
        }
        let mut devices: Vec<(&Placement, usize)> = Vec::new();
        for placement in &self.placements {
            match devices
                .iter_mut()
                .find(|(known, _)| (known.engine, &known.device) == (placement.engine, &placement.device))
            {
                Some((_, n)) => *n += 1,
                None => devices.push((placement, 1)),
            }
        }
        for (placement, n) in devices {
            writeln!(
                f,
                "  {n} operators of the {} engine run on {}",
                placement.engine, placement.device
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use scheduler::{BoxError, InitGraph, OperatorType, RunOptions};

    use super::*;

    struct Kind(&'static str);

    impl OperatorType for Kind {
        type Source = u64;
        type Host = u64;
        type Device = u64;
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

        async fn setup(&self, (): &mut (), bytes: u64) -> Result<u64, BoxError> {
            Ok(bytes)
        }
    }

    #[test]
    fn costs_are_told_apart_by_engine_and_a_shared_read_is_the_npus() {
        for mode in InitMode::ALL {
            let mut graph = InitGraph::new();
            let (npu, igpu, kernels) = (
                graph.lane(Kind("MatMul")),
                graph.lane(Kind("igpu.MatMul")),
                graph.lane(Kind("igpu.Kernel")),
            );
            let own = graph.operator(&kernels, "kernel", 5);
            let a = graph.operator(&npu, "a", 100);
            let a_igpu = graph.operator_from(&igpu, "a", a.host());
            let b = graph.operator(&npu, "b", 10);
            let b_igpu = graph.operator_from(&igpu, "b", b.host());
            let ids = [own.device().id(), a_igpu.device().id(), b_igpu.device().id()];
            let run = graph.start_with(mode, RunOptions::new().record()).unwrap();
            run.ready().wait().unwrap();
            let trace = Trace::new(run.record());
            let engine_of = |node| {
                if ids.contains(&node) {
                    Engine::Igpu
                } else {
                    Engine::Npu
                }
            };
            let mut rows: Vec<_> = type_costs(&trace, engine_of)
                .into_iter()
                .map(|cost| (cost.engine, cost.operator_type, cost.n, cost.bytes))
                .collect();
            rows.sort();
            assert_eq!(
                rows,
                [
                    (Engine::Npu, "MatMul".to_owned(), 2, 110),
                    (Engine::Igpu, "igpu.Kernel".to_owned(), 1, 5),
                    (Engine::Igpu, "igpu.MatMul".to_owned(), 2, 110),
                ]
            );
        }
    }

    #[test]
    fn the_system_says_how_much_memory_was_resident() {
        let peak = peak_memory_bytes();
        assert!(
            cfg!(not(target_os = "linux")) || peak.is_some_and(|bytes| bytes > 1 << 20),
            "{peak:?}"
        );
    }
}
