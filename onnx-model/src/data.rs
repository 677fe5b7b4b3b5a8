//! What the host lane produces for one operator: owned attributes and reference-counted constants.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::graph::{Dimension, Node, OpsetImport, ValueInfo};
use crate::operators::Operator;
use crate::tensor::Tensor;

/// An operator as owned data. Cloning is one atomic increment; weights are shared with the mapping.
#[derive(Clone, Debug)]
pub struct OperatorData(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    operator: Operator,
    nodes: Vec<Node>,
    tensors: BTreeMap<String, Tensor>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    opset_imports: Vec<OpsetImport>,
    ir_version: i64,
}

impl OperatorData {
    pub(crate) fn read(folder: &ModelFolder, operator: &Operator) -> Result<Self> {
        let graph = folder.graph();
        let nodes: Vec<Node> = operator.nodes.iter().map(|&id| graph.node(id).clone()).collect();
        let mut tensors = BTreeMap::new();
        for (node, name) in nodes.iter().flat_map(|n| n.reads().map(move |r| (n, r))) {
            if tensors.contains_key(name)
                || (graph.initializer(name).is_none() && graph.constant(name).is_none())
            {
                continue;
            }
            let tensor = folder
                .tensor(name)
                .map_err(|e| node.error(e).in_file(folder.graph_path()))?;
            tensors.insert(name.to_string(), tensor);
        }
        let values = |names: &[String]| {
            names
                .iter()
                .map(|name| value_info(folder, name))
                .collect::<Result<Vec<_>>>()
        };
        Ok(OperatorData(Arc::new(Inner {
            inputs: values(&operator.inputs)?,
            outputs: values(&operator.outputs)?,
            operator: operator.clone(),
            nodes,
            tensors,
            opset_imports: graph.opset_imports.clone(),
            ir_version: graph.ir_version,
        })))
    }

    /// The operator.
    pub fn operator(&self) -> &Operator {
        &self.0.operator
    }

    /// Its nodes, in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// The constants that its nodes read, initializers and `Constant` nodes' values alike, by name.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.0.tensors
    }

    /// The constant of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.0.tensors.get(name)
    }

    /// Values that come from other operators or are graph inputs, typed; in the order of [`Operator::inputs`].
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.0.inputs
    }

    /// Values that other operators use or are graph outputs, typed; in the order of [`Operator::outputs`].
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.0.outputs
    }

    /// The model's operator sets.
    pub fn opset_imports(&self) -> &[OpsetImport] {
        &self.0.opset_imports
    }

    /// The model's ONNX IR version.
    pub fn ir_version(&self) -> i64 {
        self.0.ir_version
    }

    /// Makes the constants' pages resident, so that device setup does not wait for the disk.
    ///
    /// # Errors
    /// The weight file shrank, or the disk cannot read it; never a signal.
    pub fn prefault(&self) -> Result<()> {
        self.0
            .tensors
            .values()
            .try_for_each(|t| t.bytes.prefault().map_err(|e| e.at_tensor(&t.name)))
    }
}

/// What is known of a value, its shape as far as it is declared.
fn value_info(folder: &ModelFolder, name: &str) -> Result<ValueInfo> {
    let graph = folder.graph();
    if let Some(declared) = graph.declared(name) {
        return Ok(declared.clone());
    }
    let dtype = folder.value_type(name).ok_or_else(|| {
        let node = graph
            .producer(name)
            .map(|id| graph.node(id).label())
            .unwrap_or_default();
        Error::unsupported("the element type of this value is not declared and cannot be inferred")
            .at_tensor(name)
            .at_node(node)
            .in_file(folder.graph_path())
    })?;
    let shape = graph
        .initializer(name)
        .map(|t| t.shape.iter().map(|&d| Dimension::Fixed(d)).collect());
    Ok(ValueInfo {
        name: name.to_string(),
        dtype,
        shape,
    })
}
