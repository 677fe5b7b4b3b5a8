//! Operators that run in one session.
//!
//! Beside its kernels a session's run costs some microseconds, most of them for what it reads of its own: the weights that were
//! streamed since the token before have pushed that out of the caches. A norm of a small model computes for one microsecond, and
//! 184 sessions made a token of SmolLM2 a fifth slower than one. So on the CPU a layer takes two:
//!
//! ```text
//! input_layernorm + qkv_proj + attn + o_proj        post_attention_layernorm + mlp        ..        final_norm + lm_head
//! ```
//!
//! The last of them, the product, has the session. An operator runs in the session of the product that is the first to need it,
//! if it packs no weights, or if both are products of one operator type, thus one lane, in one layer. The nodes stay what they are,
//! and so do the results. Where an NPU may take the product, every operator has its own session: the product is placed there alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onnx_model::{ModelFolder, Operator, OperatorData, OperatorId, OperatorKind};

use crate::error::Result;
use crate::form;

/// Whether operators may share sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    Shared,
    Apart,
}

/// Operators with one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    /// In topological order; the last is the product, which has the kernel.
    pub(crate) operators: Vec<OperatorId>,
    /// Values from outside.
    pub(crate) inputs: Vec<String>,
    /// Values that others read, or graph outputs.
    pub(crate) outputs: Vec<String>,
}

impl Joint {
    pub(crate) fn product(&self) -> OperatorId {
        *self.operators.last().expect("a joint has operators")
    }

    /// All but the product.
    fn guests(&self) -> &[OperatorId] {
        &self.operators[..self.operators.len() - 1]
    }
}

/// The joints of a model whose operators run in this order; what is not among them is not run.
pub(crate) fn find(folder: &ModelFolder, order: &[&Operator]) -> Result<Vec<Joint>> {
    let order = Order::new(folder, order)?;
    let mut together: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (position, at) in order.runs_at().into_iter().enumerate() {
        together.entry(at).or_default().push(position);
    }
    let joints = together.values().filter(|positions| positions.len() > 1);
    Ok(joints.map(|positions| order.joint(positions)).collect())
}

/// Operators by position, and who reads what of them.
struct Order<'f> {
    folder: &'f ModelFolder,
    /// In topological order; then those that are not run.
    operators: Vec<&'f Operator>,
    readers: HashMap<&'f str, Vec<usize>>,
    /// Graph outputs.
    results: HashSet<&'f str>,
}

impl<'f> Order<'f> {
    fn new(folder: &'f ModelFolder, order: &[&'f Operator]) -> Result<Self> {
        let all = folder.operators()?.iter();
        let unused = all.filter(|operator| operator.outputs.is_empty());
        let operators: Vec<&Operator> = order.iter().copied().chain(unused).collect();
        let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (position, operator) in operators.iter().enumerate() {
            for input in &operator.inputs {
                readers.entry(input).or_default().push(position);
            }
        }
        Ok(Self {
            folder,
            operators,
            readers,
            results: folder.graph().outputs.iter().map(|v| v.name.as_str()).collect(),
        })
    }

    /// The position of the product in whose session each operator runs, or its own. Found from behind, so that an operator's
    /// readers are decided before it.
    fn runs_at(&self) -> Vec<usize> {
        let mut runs_at: Vec<usize> = (0..self.operators.len()).collect();
        for position in (0..self.operators.len()).rev() {
            let first = self.readers_of(position).min();
            if let Some(first) = first
                && self.may_run_at(position, runs_at[first], &runs_at)
            {
                runs_at[position] = runs_at[first];
            }
        }
        runs_at
    }

    fn may_run_at(&self, position: usize, at: usize, runs_at: &[usize]) -> bool {
        let (operator, product) = (self.operators[position], self.operators[at]);
        let kinds_agree = is_product(self.folder, product)
            && (is_light(self.folder, operator) || is_sibling(self.folder, operator, product));
        // The head runs over fewer rows than all others.
        let rows_agree = || {
            let result = |name: &String| self.results.contains(name.as_str());
            let others_read = || self.readers_of(position).any(|reader| runs_at[reader] != at);
            product.kind != OperatorKind::LmHead || !(operator.outputs.iter().any(result) || others_read())
        };
        let needed_before = || self.readers_of(position).any(|reader| runs_at[reader] < at);
        kinds_agree && rows_agree() && !needed_before()
    }

    fn joint(&self, positions: &[usize]) -> Joint {
        let operators = || positions.iter().map(|&position| self.operators[position]);
        let made: HashSet<&String> = operators().flat_map(|operator| &operator.outputs).collect();
        let mut seen = HashSet::new();
        let is_output = |name: &&String| {
            let elsewhere = |reader: &usize| !positions.contains(reader);
            self.results.contains(name.as_str()) || self.readers(name).iter().any(elsewhere)
        };
        Joint {
            operators: operators().map(|operator| operator.id).collect(),
            inputs: (operators().flat_map(|operator| &operator.inputs))
                .filter(|name| !made.contains(name) && seen.insert(*name))
                .cloned()
                .collect(),
            outputs: (operators().flat_map(|operator| &operator.outputs))
                .filter(is_output)
                .cloned()
                .collect(),
        }
    }

    fn readers(&self, name: &str) -> &[usize] {
        self.readers.get(name).map_or(&[], Vec::as_slice)
    }

    fn readers_of(&self, position: usize) -> impl Iterator<Item = usize> {
        let outputs = self.operators[position].outputs.iter();
        outputs.flat_map(|name| self.readers(name)).copied()
    }
}

/// Without weights to pack, and nothing for an optimizer to do.
fn is_light(folder: &ModelFolder, operator: &Operator) -> bool {
    let kind = matches!(
        operator.kind,
        OperatorKind::Norm | OperatorKind::GroupQueryAttention
    );
    kind && form::is_efficient(folder, operator)
}

fn is_product(folder: &ModelFolder, operator: &Operator) -> bool {
    let kind = matches!(
        operator.kind,
        OperatorKind::MatMulNBits | OperatorKind::Mlp | OperatorKind::LmHead
    );
    let graph = folder.graph();
    let quantized = || (operator.nodes.iter()).any(|&id| graph.node(id).is_contrib("MatMulNBits"));
    kind && !operator.outputs.is_empty() && quantized() && form::is_efficient(folder, operator)
}

/// Whether both are products of one operator type in one layer.
fn is_sibling(folder: &ModelFolder, operator: &Operator, product: &Operator) -> bool {
    let alike = operator.kind == product.kind && operator.layer == product.layer;
    alike && operator.layer.is_some() && is_product(folder, operator)
}

/// The joints of a model, and on its way from host lane to device setup what was read for them.
pub(crate) struct Joints {
    by_product: HashMap<OperatorId, Joint>,
    /// Operators that run in another's session.
    guests: HashSet<OperatorId>,
    /// By product, its guests.
    read: Mutex<HashMap<OperatorId, Vec<OperatorData>>>,
}

impl Joints {
    pub(crate) fn new(joints: Vec<Joint>) -> Self {
        Self {
            guests: joints.iter().flat_map(Joint::guests).copied().collect(),
            by_product: joints.into_iter().map(|joint| (joint.product(), joint)).collect(),
            read: Mutex::default(),
        }
    }

    /// Whether the operator runs in another's session.
    pub(crate) fn is_guest(&self, operator: OperatorId) -> bool {
        self.guests.contains(&operator)
    }

    /// Operators that run in this one's session beside itself.
    pub(crate) fn guests_of(&self, product: OperatorId) -> &[OperatorId] {
        self.by_product.get(&product).map_or(&[], Joint::guests)
    }

    /// Keeps the guests of a product, read on the host lane with it, for its device setup.
    pub(crate) fn put(&self, product: OperatorId, guests: Vec<OperatorData>) {
        if !guests.is_empty() {
            self.lock().insert(product, guests);
        }
    }

    /// The joint of a product, and the data of all its operators; nothing if the product is alone.
    pub(crate) fn take(&self, product: &OperatorData) -> Option<(&Joint, Vec<OperatorData>)> {
        let id = product.operator().id;
        let mut data = self.lock().remove(&id)?;
        data.push(product.clone());
        Some((&self.by_product[&id], data))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OperatorId, Vec<OperatorData>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use scheduler::{InitGraph, InitMode};

    use super::*;
    use crate::engine::NpuEngine;
    use crate::library::LibrarySearch;
    use crate::options::{NpuOptions, Provider};
    use crate::plan::NpuPlan;
    use crate::program::Program;

    fn folder(name: &str) -> ModelFolder {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
        ModelFolder::open(models.join(name)).unwrap()
    }

    /// The names of those that share a session.
    fn joints(name: &str) -> Vec<String> {
        let folder = folder(name);
        let program = Program::new(&folder, Sessions::Shared).unwrap();
        let names = |joint: &Joint| {
            let names = joint
                .operators
                .iter()
                .map(|&id| folder.operator(id).unwrap().name.clone());
            names.collect::<Vec<_>>().join(" + ")
        };
        program.joints.iter().map(names).collect()
    }

    #[test]
    fn a_layer_takes_two_sessions() {
        let joints = joints("qwen3-tiny-int4");
        assert_eq!(
            joints[..2],
            [
                "layers.0.input_layernorm + layers.0.attn.qkv_proj + layers.0.attn + layers.0.attn.o_proj",
                "layers.0.post_attention_layernorm + layers.0.mlp",
            ]
        );
        assert_eq!(joints.last().unwrap(), "final_norm_layernorm + lm_head");
    }

    #[test]
    fn an_optimizer_sees_one_operator_at_a_time() {
        for kind in ["kinds/qwen3-fp32", "kinds/qwen3-int4-qdq"] {
            assert_eq!(joints(kind), Vec::<String>::new(), "{kind}");
        }
    }

    #[test]
    fn what_nobody_but_an_unused_operator_reads_is_still_an_output() {
        // Its final norm is read by nobody, so it is not run.
        let folder = folder("kinds/phi3-long-int4");
        let program = Program::new(&folder, Sessions::Shared).unwrap();
        assert!(program.steps.iter().all(|step| !step.outputs.is_empty()));
    }

    #[test]
    fn none_where_an_npu_may_take_the_product() {
        for provider in [Provider::VitisAi, Provider::Qnn, Provider::OpenVino] {
            assert_eq!(crate::provider::sessions(provider), Sessions::Apart);
        }
        assert_eq!(crate::provider::sessions(Provider::Cpu), Sessions::Shared);
    }

    fn load(folder: &ModelFolder, sessions: Sessions) -> NpuEngine {
        let library = examples::setup::library(&()).expect("the ONNX Runtime library");
        let library = library.candidates().unwrap().remove(0);
        let mut options = NpuOptions::new(LibrarySearch::exactly(library));
        options.provider = Provider::Cpu;
        let mut graph = InitGraph::new();
        let setup = NpuPlan::with_sessions(folder, options, sessions)
            .unwrap()
            .add_to(&mut graph);
        let run = graph.start(InitMode::Overlapped).unwrap();
        setup.finish(&mut run.ready().wait().unwrap()).unwrap()
    }

    #[test]
    fn results_are_the_same_bit_for_bit() {
        for name in [
            "qwen3-tiny-int4",
            "qwen3-tiny-int4-asym",
            "llama3-tiny-int4",
            "phi3-tiny-int4",
        ] {
            let folder = folder(name);
            let run = |sessions| {
                let engine = load(&folder, sessions);
                let n_operators = engine.placements().count();
                assert_eq!(engine.n_sessions() < n_operators, sessions == Sessions::Shared);
                let mut cache = engine.new_cache(40).unwrap();
                let prompt: Vec<u32> = (0..30).map(|i| (i * 37 + 11) % 100).collect();
                let mut logits = engine.prefill(&mut cache, &prompt).unwrap();
                for token in 0..8 {
                    logits.extend(engine.decode(&mut cache, token).unwrap());
                }
                logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            assert!(run(Sessions::Shared) == run(Sessions::Apart), "{name}");
        }
    }
}
