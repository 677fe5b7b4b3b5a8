//! Operators that run in the session of the product that reads them.
//!
//! Beside its kernels a session's run costs some microseconds, most of them for what it reads of its own: the weights that were
//! streamed since the token before have pushed that out of the caches. A norm of a small model computes for one microsecond. So
//! an operator that packs no weights has no session of its own if a product of quantized weights is the first to read it:
//!
//! ```text
//! input_layernorm + qkv_proj    attn + o_proj    post_attention_layernorm + mlp    ..    final_norm + lm_head
//! ```
//!
//! The nodes stay what they are, and so do the results. Where an NPU may take the product, every operator has its own session:
//! the product is placed there alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

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
}

/// The joints of a model whose operators run in this order; what is not among them is not run.
pub(crate) fn find(folder: &ModelFolder, order: &[&Operator]) -> Result<Vec<Joint>> {
    let unused = folder
        .operators()?
        .iter()
        .filter(|operator| operator.outputs.is_empty());
    let order: Vec<&Operator> = order.iter().copied().chain(unused).collect();
    let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
    for (position, operator) in order.iter().enumerate() {
        for input in &operator.inputs {
            readers.entry(input).or_default().push(position);
        }
    }
    let results: HashSet<&str> = folder.graph().outputs.iter().map(|v| v.name.as_str()).collect();
    let readers = |name: &str| readers.get(name).map_or(&[][..], Vec::as_slice);

    // Positions of the others by that of the product.
    let mut joined: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (position, light) in order.iter().enumerate() {
        // Nothing that reads it comes before its first reader, so it may as well run just before that.
        let first = light.outputs.iter().filter_map(|o| readers(o).first()).min();
        let Some(&first) = first.filter(|_| is_light(folder, light)) else {
            continue;
        };
        // The head runs over fewer rows than all others.
        let for_the_head_alone =
            || (light.outputs.iter()).all(|o| !results.contains(o.as_str()) && readers(o) == [first]);
        let product = order[first];
        if is_product(folder, product) && (product.kind != OperatorKind::LmHead || for_the_head_alone()) {
            joined.entry(first).or_default().push(position);
        }
    }
    let joint = |(product, mut positions): (usize, Vec<usize>)| {
        positions.push(product);
        let operators: Vec<&Operator> = positions.iter().map(|&position| order[position]).collect();
        let outside = |name: &&String| {
            results.contains(name.as_str()) || readers(name).iter().any(|reader| !positions.contains(reader))
        };
        Joint {
            inputs: inputs(&operators),
            outputs: (operators.iter().flat_map(|operator| &operator.outputs))
                .filter(outside)
                .cloned()
                .collect(),
            operators: operators.iter().map(|operator| operator.id).collect(),
        }
    };
    Ok(joined.into_iter().map(joint).collect())
}

/// What the operators read and none of them makes.
fn inputs(operators: &[&Operator]) -> Vec<String> {
    let made: HashSet<&String> = operators.iter().flat_map(|operator| &operator.outputs).collect();
    let mut seen = HashSet::new();
    (operators.iter().flat_map(|operator| &operator.inputs))
        .filter(|name| !made.contains(name) && seen.insert(*name))
        .cloned()
        .collect()
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

/// The joints of a model, and on its way from host lane to device setup what was read for them.
pub(crate) struct Joints {
    by_product: HashMap<OperatorId, Joint>,
    light: HashSet<OperatorId>,
    /// By product, the operators that run in its session.
    read: Mutex<HashMap<OperatorId, Vec<OperatorData>>>,
}

impl Joints {
    pub(crate) fn new(joints: Vec<Joint>) -> Self {
        let light = (joints.iter())
            .flat_map(|joint| &joint.operators[..joint.operators.len() - 1])
            .copied()
            .collect();
        Self {
            by_product: joints.into_iter().map(|joint| (joint.product(), joint)).collect(),
            light,
            read: Mutex::default(),
        }
    }

    /// Whether the operator has no session of its own.
    pub(crate) fn is_light(&self, operator: OperatorId) -> bool {
        self.light.contains(&operator)
    }

    /// Reads what runs in the session of `product`, on the host lane just before its device setup may begin.
    pub(crate) fn read(&self, folder: &ModelFolder, product: OperatorId) -> Result<()> {
        let Some(joint) = self.by_product.get(&product) else {
            return Ok(());
        };
        let light = &joint.operators[..joint.operators.len() - 1];
        let data = light.iter().map(|&id| Ok(folder.read(folder.operator(id)?)?));
        let data = data.collect::<Result<Vec<_>>>()?;
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(product, data);
        Ok(())
    }

    /// The joint of a product that was read, and the data of all its operators; nothing if the product is alone.
    pub(crate) fn take(&self, product: &OperatorData) -> Option<(&Joint, Vec<OperatorData>)> {
        let id = product.operator().id;
        let mut data = self
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)?;
        data.push(product.clone());
        Some((&self.by_product[&id], data))
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
    fn light_operators_run_with_the_product_that_reads_them() {
        let joints = joints("qwen3-tiny-int4");
        assert_eq!(
            joints[..3],
            [
                "layers.0.input_layernorm + layers.0.attn.qkv_proj",
                "layers.0.attn + layers.0.attn.o_proj",
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
