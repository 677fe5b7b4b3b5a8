//! `x * sigmoid(x)` as one node.
//!
//! ONNX Runtime's optimizer writes the activation of a gated MLP as QuickGelu with alpha 1, which computes the same in one pass
//! over its memory instead of two. Kernels here are created without the optimizer, so it is done while their graph is written.

use onnx_model::proto::{AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto};

const DOMAIN: &str = "com.microsoft";

/// Replaces every `Sigmoid` whose only reader multiplies its result with what it was made of. For float32 graphs: other types
/// have no such kernel everywhere.
pub(crate) fn fuse(model: &mut ModelProto) {
    if !model
        .opset_import
        .iter()
        .any(|opset| opset.domain.as_deref() == Some(DOMAIN))
    {
        return;
    }
    let Some(graph) = model.graph.as_mut() else {
        return;
    };
    let sigmoids: Vec<usize> = (0..graph.node.len())
        .filter(|&i| graph.node[i].op_type.as_deref() == Some("Sigmoid") && is_standard(&graph.node[i]))
        .collect();
    let mut fused = vec![false; graph.node.len()];
    for i in sigmoids {
        if let Some(product) = product_of(graph, i) {
            let x = graph.node[i].input[0].clone();
            let node = &mut graph.node[product];
            node.input = vec![x];
            (node.op_type, node.domain) = (Some("QuickGelu".into()), Some(DOMAIN.into()));
            node.attribute = vec![AttributeProto {
                name: Some("alpha".into()),
                f: Some(1.0),
                r#type: Some(AttributeType::Float as i32),
                ..AttributeProto::default()
            }];
            fused[i] = true;
        }
    }
    let mut fused = fused.into_iter();
    graph.node.retain(|_| !fused.next().unwrap_or(false));
}

/// The one node that reads the sigmoid's result, if it is the product of that and of the sigmoid's input.
fn product_of(graph: &GraphProto, sigmoid: usize) -> Option<usize> {
    let (x, y) = (
        graph.node[sigmoid].input.first()?,
        graph.node[sigmoid].output.first()?,
    );
    if graph
        .output
        .iter()
        .any(|output| output.name.as_deref() == Some(y))
    {
        return None;
    }
    let mut readers = graph
        .node
        .iter()
        .enumerate()
        .filter(|(_, node)| node.input.contains(y));
    let (index, product) = readers.next()?;
    let is_product = product.op_type.as_deref() == Some("Mul") && is_standard(product);
    let of_both = product.input.len() == 2 && product.input.contains(x) && x != y;
    (readers.next().is_none() && is_product && of_both).then_some(index)
}

fn is_standard(node: &NodeProto) -> bool {
    matches!(node.domain.as_deref(), None | Some("" | "ai.onnx"))
}

#[cfg(test)]
mod tests {
    use onnx_model::proto::{OperatorSetIdProto, ValueInfoProto};

    use super::*;

    /// Nodes as `op(inputs) -> output`, before and after.
    #[track_caller]
    fn check(nodes: &[(&str, &[&str], &str)], domain: &str, output: &str, expected: &[&str]) {
        let node = |&(op_type, inputs, output): &(&str, &[&str], &str)| NodeProto {
            op_type: Some(op_type.into()),
            input: inputs.iter().map(|name| name.to_string()).collect(),
            output: vec![output.into()],
            ..NodeProto::default()
        };
        let mut model = ModelProto {
            graph: Some(Box::new(GraphProto {
                node: nodes.iter().map(node).collect(),
                output: vec![ValueInfoProto {
                    name: Some(output.into()),
                    ..ValueInfoProto::default()
                }],
                ..GraphProto::default()
            })),
            opset_import: vec![OperatorSetIdProto {
                domain: Some(domain.into()),
                version: Some(1),
            }],
            ..ModelProto::default()
        };
        fuse(&mut model);
        let text = |node: &NodeProto| {
            format!(
                "{}({}) -> {}",
                node.op_type.as_deref().unwrap_or_default(),
                node.input.join(", "),
                node.output.join(", ")
            )
        };
        let nodes: Vec<String> = model.graph.unwrap().node.iter().map(text).collect();
        assert_eq!(nodes, expected);
    }

    #[test]
    fn a_gate_becomes_one_node() {
        let gate: &[(&str, &[&str], &str)] = &[
            ("Sigmoid", &["x"], "s"),
            ("Mul", &["x", "s"], "g"),
            ("Mul", &["g", "up"], "y"),
        ];
        check(gate, DOMAIN, "y", &["QuickGelu(x) -> g", "Mul(g, up) -> y"]);
        let swapped: &[(&str, &[&str], &str)] = &[("Sigmoid", &["x"], "s"), ("Mul", &["s", "x"], "y")];
        check(swapped, DOMAIN, "y", &["QuickGelu(x) -> y"]);
    }

    #[test]
    fn anything_else_stays() {
        let other: &[(&str, &[&str], &str)] = &[("Sigmoid", &["x"], "s"), ("Mul", &["z", "s"], "y")];
        check(other, DOMAIN, "y", &["Sigmoid(x) -> s", "Mul(z, s) -> y"]);
        let gate: &[(&str, &[&str], &str)] = &[("Sigmoid", &["x"], "s"), ("Mul", &["x", "s"], "y")];
        check(gate, DOMAIN, "s", &["Sigmoid(x) -> s", "Mul(x, s) -> y"]);
        check(
            gate,
            "another domain",
            "y",
            &["Sigmoid(x) -> s", "Mul(x, s) -> y"],
        );
        let twice: &[(&str, &[&str], &str)] = &[
            ("Sigmoid", &["x"], "s"),
            ("Mul", &["x", "s"], "y"),
            ("Neg", &["s"], "z"),
        ];
        check(
            twice,
            DOMAIN,
            "y",
            &["Sigmoid(x) -> s", "Mul(x, s) -> y", "Neg(s) -> z"],
        );
    }
}
