//! A kernel's graph while it is being written: decoded, with its weights beside it.

use std::collections::{HashMap, HashSet};

use onnx_model::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use onnx_model::write::{Submodel, SubmodelOptions, submodel};
use onnx_model::{OperatorData, OperatorKind, Tensor};
use prost::Message;

use crate::error::{NpuError, Result};
use crate::kernel::{KernelSource, Packed, Rewriting, Rows, Weight};
use crate::names;
use crate::shapes::{WarmInput, WarmShapes};

/// A source while its model is being written.
pub(crate) type Draft = KernelSource<ModelProto>;

impl Draft {
    /// The operator's graph as the model has it.
    pub(crate) fn of(
        data: &OperatorData,
        options: &SubmodelOptions,
        warm_shapes: &WarmShapes,
    ) -> Result<Self> {
        let Submodel {
            bytes,
            external,
            inputs,
            outputs,
            ..
        } = submodel(data, options);
        let weights = external
            .iter()
            .map(|name| weight(name, data.tensor(name), packed(data)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            model: ModelProto::decode(bytes.as_slice()).expect("the model was encoded a moment ago"),
            weights,
            inputs,
            outputs,
            rewriting: Rewriting::None,
            rows: Rows::Any,
            warm_inputs: data
                .inputs()
                .iter()
                .map(|value| warm_shapes.input(value))
                .collect(),
        })
    }

    /// One graph of several, given in topological order, with these inputs and outputs out of theirs.
    ///
    /// # Panics
    /// If they have no such inputs and outputs.
    pub(crate) fn join(mut drafts: Vec<Self>, inputs: &[String], outputs: &[String]) -> Self {
        let mut values: HashMap<String, ValueInfoProto> = HashMap::new();
        let mut warm: HashMap<String, WarmInput> = HashMap::new();
        for draft in &mut drafts {
            let graph = draft.graph();
            let declared = graph.input.drain(..).chain(graph.output.drain(..));
            values.extend(declared.map(|value| (value.name.clone().unwrap_or_default(), value)));
            warm.extend(
                draft
                    .inputs
                    .drain(..)
                    .zip(draft.warm_inputs.take().into_iter().flatten()),
            );
        }
        let mut joined = Self {
            model: ModelProto::default(),
            weights: Vec::new(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            rewriting: Rewriting::None,
            rows: Rows::Any,
            warm_inputs: inputs.iter().map(|name| warm.remove(name)).collect(),
        };
        let mut graph = GraphProto::default();
        let mut take = |names: &[String]| -> Vec<ValueInfoProto> {
            let value = |name| values.remove(name).expect("an input or output of what is joined");
            names.iter().map(value).collect()
        };
        (graph.input, graph.output) = (take(inputs), take(outputs));
        graph.value_info = values.into_values().collect();
        let (mut constants, mut domains) = (HashSet::new(), HashSet::new());
        for mut draft in drafts {
            let part = std::mem::take(draft.graph());
            graph.name = part.name;
            graph.node.extend(part.node);
            let initializers = part.initializer.into_iter();
            graph
                .initializer
                .extend(initializers.filter(|tensor| constants.insert(tensor.name.clone())));
            let opsets = draft.model.opset_import.drain(..);
            joined
                .model
                .opset_import
                .extend(opsets.filter(|opset| domains.insert(opset.domain.clone())));
            joined.model.ir_version = draft.model.ir_version;
            joined.model.producer_name = draft.model.producer_name;
            joined.rewriting = joined.rewriting.max(draft.rewriting);
            for weight in draft.weights {
                if joined.weights.iter().all(|known| known.name != weight.name) {
                    joined.weights.push(weight);
                }
            }
        }
        joined.model.graph = Some(Box::new(graph));
        joined
    }

    pub(crate) fn graph(&mut self) -> &mut GraphProto {
        self.model
            .graph
            .as_mut()
            .expect("the model was written with a graph")
    }

    /// Drops initializers that no node reads any more, declared or held.
    pub(crate) fn drop_unused(&mut self) {
        let graph = self.graph();
        let used: HashSet<String> = graph.node.iter().flat_map(|node| node.input.clone()).collect();
        graph
            .initializer
            .retain(|tensor| used.contains(tensor.name.as_deref().unwrap_or_default()));
        self.weights.retain(|weight| used.contains(&weight.name));
    }

    /// The source, with short names for inputs and outputs.
    pub(crate) fn finish(mut self) -> KernelSource {
        self.shorten_names();
        // Optimizers look at shapes.
        if self.rewriting == Rewriting::None {
            self.forget_shapes();
        }
        KernelSource {
            model: self.model.encode_to_vec(),
            weights: self.weights,
            inputs: self.inputs,
            outputs: self.outputs,
            rewriting: self.rewriting,
            rows: self.rows,
            warm_inputs: self.warm_inputs,
        }
    }

    /// Takes the shapes off inputs and outputs: ONNX Runtime would check them in every run.
    fn forget_shapes(&mut self) {
        let graph = self.graph();
        (graph.input.iter_mut())
            .chain(&mut graph.output)
            .for_each(clear_shape);
    }

    fn has_short_name(&mut self) -> bool {
        let n_names = self.inputs.len().max(self.outputs.len());
        let short: HashSet<String> = [names::INPUT, names::OUTPUT]
            .into_iter()
            .flat_map(|letter| (0..n_names).map(move |position| names::short(letter, position)))
            .collect();
        let mut values = (self.graph().node.iter()).flat_map(|node| node.input.iter().chain(&node.output));
        values.any(|name| short.contains(name))
    }

    /// Graphs inside nodes may read inputs by name, and a value of the model's own may have a short name already: such an
    /// operator keeps its names.
    fn shorten_names(&mut self) {
        let has_graph = |node: &NodeProto| node.attribute.iter().any(|attribute| attribute.g.is_some());
        if self.graph().node.iter().any(has_graph) || self.has_short_name() {
            return;
        }
        let mut shortened = HashMap::new();
        for (values, letter) in [
            (&mut self.inputs, names::INPUT),
            (&mut self.outputs, names::OUTPUT),
        ] {
            for (position, name) in values.iter_mut().enumerate() {
                let short = names::short(letter, position);
                shortened.insert(std::mem::replace(name, short.clone()), short);
            }
        }
        let rename = |name: &mut String| {
            if let Some(short) = shortened.get(name) {
                name.clone_from(short);
            }
        };
        let graph = self.graph();
        for node in &mut graph.node {
            node.input.iter_mut().chain(&mut node.output).for_each(rename);
        }
        (graph.input.iter_mut())
            .chain(&mut graph.output)
            .filter_map(|value| value.name.as_mut())
            .for_each(rename);
    }
}

pub(crate) fn clear_shape(value: &mut ValueInfoProto) {
    if let Some(tensor) = value.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
        tensor.shape = None;
    }
}

fn weight(name: &str, tensor: Option<&Tensor>, packed: Packed) -> Result<Weight> {
    let tensor =
        tensor.ok_or_else(|| NpuError::unsupported(format!("constant {name} is declared but not there")))?;
    Ok(Weight {
        name: name.to_string(),
        dtype: tensor.dtype,
        shape: tensor.shape.iter().map(|&d| d as i64).collect(),
        bytes: tensor.bytes.clone(),
        packed,
    })
}

/// Weights that only products read are packed; a table is read where it is.
fn packed(data: &OperatorData) -> Packed {
    match data.operator().kind {
        OperatorKind::MatMulNBits | OperatorKind::Mlp | OperatorKind::LmHead => Packed::ByProvider,
        _ => Packed::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One node from an input and a constant to an output.
    fn draft(constant: &str) -> Draft {
        let node = NodeProto {
            op_type: Some("Add".into()),
            input: vec!["/model/in".into(), constant.into()],
            output: vec!["/model/out".into()],
            ..NodeProto::default()
        };
        let mut model = ModelProto::default();
        model.graph.get_or_insert_default().node.push(node);
        Draft {
            model,
            weights: Vec::new(),
            inputs: vec!["/model/in".into()],
            outputs: vec!["/model/out".into()],
            rewriting: Rewriting::None,
            rows: Rows::Any,
            warm_inputs: None,
        }
    }

    #[test]
    fn names_are_shortened_unless_the_model_has_such_a_name() {
        let mut shortened = draft("/model/constant");
        shortened.shorten_names();
        assert_eq!(
            (&*shortened.inputs, &*shortened.outputs),
            (&["i0".to_owned()][..], &["o0".to_owned()][..])
        );
        assert_eq!(shortened.graph().node[0].input, ["i0", "/model/constant"]);

        // Else the node would read its input twice.
        for taken in ["i0", "o0"] {
            let mut kept = draft(taken);
            kept.shorten_names();
            assert_eq!(kept.inputs, ["/model/in"]);
            assert_eq!(kept.graph().node[0].input, ["/model/in", taken]);
        }
    }
}
