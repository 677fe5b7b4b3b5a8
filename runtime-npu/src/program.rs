//! The order in which kernels run, with every value in a numbered slot: worked out once, so that a run looks nothing up.

use std::collections::{HashMap, HashSet};

use onnx_model::{DataType, ModelFolder, Operator, OperatorId, OperatorKind, layer_name};

use crate::error::{NpuError, Result};
use crate::joint::{self, Joint, Sessions};

/// Number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The engine's program.
pub(crate) struct Program {
    /// One step per kernel, in topological order; operators whose results nobody uses have none.
    pub(crate) steps: Vec<Step>,
    /// The steps of several operators.
    pub(crate) joints: Vec<Joint>,
    pub(crate) n_slots: usize,
    pub(crate) input_ids: Slot,
    pub(crate) attention_mask: Option<Slot>,
    pub(crate) position_ids: Option<Slot>,
    /// Per layer key, then value. Past and present have the same slot: the cache is written in place.
    pub(crate) kv: Vec<Slot>,
    /// By slot: whether kernels write to the value that it holds.
    pub(crate) in_place: Vec<bool>,
    pub(crate) logits: Slot,
    /// Index of the step that computes logits; with all after it, it needs only the positions whose logits are wanted.
    pub(crate) head: usize,
    pub(crate) input_dtype: DataType,
    /// Whether a prompt may be run in pieces. Not when the graph chooses something, such as a rotary table, by how long the
    /// sequence is: the pieces would choose differently from the whole.
    pub(crate) pieces: Pieces,
}

/// Whether a prompt may be run in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    Several,
    One,
}

/// One run of one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What the kernel computes; it is the last operator's.
    pub(crate) operators: Vec<OperatorId>,
    pub(crate) inputs: Vec<Slot>,
    pub(crate) outputs: Vec<Slot>,
    /// Slots whose last reader this is.
    pub(crate) last_use_of: Vec<Slot>,
    /// Whether the shapes of its outputs depend only on how many tokens are run, not on how many there were before.
    pub(crate) steady: bool,
}

impl Program {
    /// The operators that the steps run, in topological order.
    pub(crate) fn operators(&self) -> impl Iterator<Item = OperatorId> {
        self.steps.iter().flat_map(|step| step.operators.iter().copied())
    }

    /// # Errors
    /// The graph has an input that this engine does not know, or attention that cannot append to its cache in place.
    pub(crate) fn new(folder: &ModelFolder, sessions: Sessions) -> Result<Self> {
        let names = Names::of(folder);
        let mut slots = Slots::default();
        let mut steps = Vec::new();
        check_nodes(folder)?;
        // Builders leave nodes behind whose results nobody reads.
        for operator in folder
            .operators()?
            .iter()
            .filter(|operator| !operator.outputs.is_empty())
        {
            for input in &operator.inputs {
                if folder.graph().is_input(input) && !names.known(input) {
                    return Err(NpuError::unsupported(format!(
                        "graph input '{input}' is not one of token ids, attention mask, position ids and KV cache"
                    ))
                    .at_operator(&operator.name));
                }
            }
            steps.push(Step {
                operators: vec![operator.id],
                inputs: operator.inputs.iter().map(|name| slots.of(name)).collect(),
                outputs: operator
                    .outputs
                    .iter()
                    .map(|name| slots.of(names.in_place(name)))
                    .collect(),
                last_use_of: Vec::new(),
                steady: false,
            });
        }
        let operators = folder.operators()?;
        let mut steps = head_last(steps, operators);
        let input_ids = slots.of(&names.input_ids);
        let position_ids = names.position_ids.as_ref().and_then(|name| slots.find(name));
        mark_steady(&mut steps, operators, [Some(input_ids), position_ids]);
        let joints = match sessions {
            Sessions::Shared => {
                let order: Vec<&Operator> = steps.iter().map(|step| step.operator(operators)).collect();
                joint::find(folder, &order)?
            }
            Sessions::Apart => Vec::new(),
        };
        let steps = join(steps, &joints, |name| slots.of(names.in_place(name)));
        let head = steps
            .iter()
            .position(|step| step.operator(operators).kind == OperatorKind::LmHead);
        let head =
            head.ok_or_else(|| NpuError::unsupported("the graph has no operator that computes logits"))?;
        let mut program = Self {
            head,
            input_ids,
            attention_mask: slots.find(&names.attention_mask),
            position_ids,
            kv: names.past.iter().map(|name| slots.of(name)).collect(),
            logits: slots.of(&names.logits),
            n_slots: slots.0.len(),
            in_place: Vec::new(),
            pieces: match folder.graph().nodes.iter().any(|node| node.is("If")) {
                true => Pieces::One,
                false => Pieces::Several,
            },
            input_dtype: folder.value_type(&names.input_ids).unwrap_or(DataType::Int64),
            steps,
            joints,
        };
        program.in_place = vec![false; program.n_slots];
        program
            .kv
            .iter()
            .for_each(|slot| program.in_place[slot.index()] = true);
        program.check_head(folder)?;
        program.mark_last_uses();
        Ok(program)
    }

    /// From the head on, only single rows are run, so these steps may read nothing that the others made but the head's input.
    fn check_head(&self, folder: &ModelFolder) -> Result<()> {
        let made_before: Vec<Slot> = self.steps[..self.head]
            .iter()
            .flat_map(|step| step.outputs.clone())
            .collect();
        for step in &self.steps[self.head + 1..] {
            if step.inputs.iter().any(|input| made_before.contains(input)) {
                return Err(
                    NpuError::unsupported("reads both logits and values from before them")
                        .at_operator(&step.operator(folder.operators()?).name),
                );
            }
        }
        Ok(())
    }

    fn mark_last_uses(&mut self) {
        let mut seen = vec![false; self.n_slots];
        // Inputs, cache and result belong to the caller.
        let kept = [
            Some(self.input_ids),
            self.attention_mask,
            self.position_ids,
            Some(self.logits),
        ];
        kept.into_iter()
            .flatten()
            .chain(self.kv.iter().copied())
            .for_each(|slot| seen[slot.index()] = true);
        for step in self.steps.iter_mut().rev() {
            for &slot in step.inputs.iter().chain(&step.outputs) {
                if !std::mem::replace(&mut seen[slot.index()], true) {
                    step.last_use_of.push(slot);
                }
            }
        }
    }
}

impl Step {
    /// The operator that it is called after.
    pub(crate) fn operator<'o>(&self, operators: &'o [Operator]) -> &'o Operator {
        let id = self.operators.last().expect("a step computes an operator");
        &operators[id.index()]
    }
}

/// One step for each joint, in the place of its product.
fn join(steps: Vec<Step>, joints: &[Joint], mut slot: impl FnMut(&str) -> Slot) -> Vec<Step> {
    let joint_of: HashMap<OperatorId, &Joint> = joints
        .iter()
        .flat_map(|joint| joint.operators.iter().map(move |&id| (id, joint)))
        .collect();
    let mut steady: HashMap<OperatorId, bool> = HashMap::new();
    let mut joined = Vec::new();
    for step in steps {
        let id = step.operators[0];
        let Some(joint) = joint_of.get(&id) else {
            joined.push(step);
            continue;
        };
        let all_steady = steady.entry(joint.product()).or_insert(true);
        *all_steady &= step.steady;
        if id == joint.product() {
            joined.push(Step {
                operators: joint.operators.clone(),
                inputs: joint.inputs.iter().map(|name| slot(name)).collect(),
                outputs: joint.outputs.iter().map(|name| slot(name)).collect(),
                last_use_of: Vec::new(),
                steady: *all_steady,
            });
        }
    }
    joined
}

/// Marks steps over single operators, from the slots whose shapes do not depend on how many tokens there were before.
fn mark_steady(steps: &mut [Step], operators: &[Operator], inputs: [Option<Slot>; 2]) {
    let mut steady: HashSet<Slot> = inputs.into_iter().flatten().collect();
    for step in steps {
        // Attention gives one row per token whatever the length of its cache.
        let attention = step.operator(operators).kind == OperatorKind::GroupQueryAttention;
        step.steady = attention || step.inputs.iter().all(|slot| steady.contains(slot));
        if step.steady {
            steady.extend(&step.outputs);
        }
    }
}

/// Moves the operator that computes logits behind everything that does not need them. It usually is there already.
fn head_last(steps: Vec<Step>, operators: &[Operator]) -> Vec<Step> {
    let mut made = HashSet::new();
    let (head, before): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| {
        let head = step.operator(operators).kind == OperatorKind::LmHead;
        let after = head || step.inputs.iter().any(|slot| made.contains(slot));
        if after {
            made.extend(step.outputs.iter().copied());
        }
        after
    });
    [before, head].concat()
}

/// What ONNX Runtime's CPU kernels, which every model needs for some operators, cannot do, found before anything is set up.
fn check_nodes(folder: &ModelFolder) -> Result<()> {
    let graph = folder.graph();
    for operator in folder.operators()? {
        for node in operator.nodes.iter().map(|&id| graph.node(id)) {
            let refuse = |why: &str| {
                let node = format!("{} ({})", node.label(), node.op_type);
                Err(NpuError::unsupported(why)
                    .at_operator(&operator.name)
                    .at_node(node))
            };
            if node.op_type == "GroupQueryAttention" {
                if node.int_opt("sliding_window_cache")? == Some(1) {
                    return refuse(
                        "the KV cache is a ring buffer of the sliding window; build the model with windowed_kv_cache=false",
                    );
                }
                if node.input(14).or(node.input(15)).is_some() {
                    return refuse(
                        "query and key norms inside attention; build the model with fuse_qk_norm_gqa=false, or for cpu",
                    );
                }
            }
            if matches!(
                node.op_type.as_str(),
                "MultiHeadAttention" | "Attention" | "PagedAttention"
            ) {
                return refuse("attention cannot append to its KV cache in place");
            }
            let bfloat16 = node
                .outputs
                .iter()
                .any(|output| folder.value_type(output) == Some(DataType::BFloat16));
            if bfloat16 {
                return refuse(
                    "bfloat16 has no kernel on the CPU; build the model with float16, float32 or int4",
                );
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Slots(HashMap<String, Slot>);

impl Slots {
    fn of(&mut self, name: &str) -> Slot {
        let next = Slot(self.0.len() as u32);
        *self.0.entry(name.to_string()).or_insert(next)
    }

    fn find(&self, name: &str) -> Option<Slot> {
        self.0.get(name).copied()
    }
}

/// The graph's own inputs and outputs.
pub(crate) struct Names {
    pub(crate) input_ids: String,
    pub(crate) attention_mask: String,
    pub(crate) position_ids: Option<String>,
    pub(crate) logits: String,
    /// Per layer key, then value.
    pub(crate) past: Vec<String>,
    /// Past by present.
    past_of: HashMap<String, String>,
}

impl Names {
    pub(crate) fn of(folder: &ModelFolder) -> Self {
        let decoder = &folder.config().model.decoder;
        let (inputs, outputs) = (&decoder.inputs, &decoder.outputs);
        let mut past = Vec::new();
        let mut past_of = HashMap::new();
        for layer in 0..folder.geometry().layers {
            for (from, to) in [
                (&inputs.past_key_names, &outputs.present_key_names),
                (&inputs.past_value_names, &outputs.present_value_names),
            ] {
                past.push(layer_name(from, layer));
                past_of.insert(layer_name(to, layer), layer_name(from, layer));
            }
        }
        Self {
            input_ids: inputs.input_ids.clone(),
            attention_mask: inputs.attention_mask.clone(),
            position_ids: inputs.position_ids.clone(),
            logits: outputs.logits.clone(),
            past,
            past_of,
        }
    }

    fn known(&self, input: &str) -> bool {
        [
            Some(&self.input_ids),
            Some(&self.attention_mask),
            self.position_ids.as_ref(),
        ]
        .into_iter()
        .flatten()
        .any(|n| n == input)
            || self.past.iter().any(|name| name == input)
    }

    pub(crate) fn in_place<'n>(&'n self, output: &'n str) -> &'n str {
        self.past_of.get(output).map_or(output, String::as_str)
    }
}
