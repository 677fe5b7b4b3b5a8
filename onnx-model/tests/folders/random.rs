//! Property: whatever the graph, its operators are a partition in topological order without cycles.

use onnx_model::proto::*;
use onnx_model::{DataType, Graph};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::*;

/// Operators that grouping treats differently.
const OPERATORS: [&str; 12] = [
    "RMSNormalization",
    "SkipSimplifiedLayerNormalization",
    "MatMul",
    "GroupQueryAttention",
    "Add",
    "Mul",
    "Sigmoid",
    "Gather",
    "Constant",
    "DequantizeLinear",
    "Split",
    "If",
];

#[derive(Clone, Debug)]
struct Made {
    operator: usize,
    /// Which of the values before it a node reads.
    reads: Vec<Index>,
    /// Where in the order of the file it stands.
    place: u32,
    layer: u8,
}

fn made() -> impl Strategy<Value = Made> {
    (
        0..OPERATORS.len(),
        prop::collection::vec(any::<Index>(), 1..4),
        any::<u32>(),
        0..3u8,
    )
        .prop_map(|(operator, reads, place, layer)| Made {
            operator,
            reads,
            place,
            layer,
        })
}

/// Reads lead backwards only, so there is no cycle of nodes; there may well be one of proposed groups.
fn graph(made: &[Made]) -> GraphProto {
    let mut values: Vec<String> = ["input_ids", "attention_mask", "x", "w1", "w2"]
        .map(String::from)
        .to_vec();
    let mut nodes = Vec::new();
    for (i, made) in made.iter().enumerate() {
        let op = OPERATORS[made.operator];
        let mut reads: Vec<&str> = made.reads.iter().map(|r| r.get(&values).as_str()).collect();
        let outputs = [format!("v{i}a"), format!("v{i}b")];
        let name = format!("/model/layers.{}/part/{op}", made.layer);
        let read = |i: usize| reads.get(i).copied().unwrap_or("x");
        let node = match op {
            "Constant" => {
                let mut node = node(op, &name, &[], &[&outputs[0]]);
                node.attribute.push(int("value_int", i as i64));
                node
            }
            "MatMul" => node(
                op,
                &name,
                &[read(0), if made.layer == 0 { "w1" } else { read(1) }],
                &[&outputs[0]],
            ),
            "Gather" => node(op, &name, &["w2", "input_ids"], &[&outputs[0]]),
            "GroupQueryAttention" => {
                reads.resize(7, "");
                contrib(
                    op,
                    &name,
                    &reads,
                    &[&outputs[0], &outputs[1]],
                    &[("num_heads", 2), ("kv_num_heads", 1)],
                )
            }
            "SkipSimplifiedLayerNormalization" => contrib(
                op,
                &name,
                &[read(0), read(1), "w1"],
                &[&outputs[0], "", "", &outputs[1]],
                &[],
            ),
            "Split" => node(op, &name, &reads, &[&outputs[0], &outputs[1]]),
            "If" => {
                let branch = GraphProto {
                    node: vec![node("Identity", "inner", &[read(1)], &["inner_out"])],
                    output: vec![value("inner_out", DataType::Float32)],
                    ..Default::default()
                };
                let mut node = node(op, &name, &[read(0)], &[&outputs[0]]);
                node.attribute.push(graph_attribute("then_branch", branch));
                node
            }
            _ => node(op, &name, &reads, &[&outputs[0]]),
        };
        values.extend(node.output.iter().filter(|o| !o.is_empty()).cloned());
        nodes.push((made.place, node));
    }
    nodes.sort_by_key(|&(place, _)| place);
    let last = values.last().cloned().unwrap();
    GraphProto {
        node: nodes.into_iter().map(|(_, node)| node).collect(),
        input: ["input_ids", "attention_mask", "x"]
            .map(|name| value(name, DataType::Float32))
            .to_vec(),
        output: vec![value(&last, DataType::Float32)],
        initializer: ["w1", "w2"]
            .map(|name| inline(name, DataType::Float32, &[1, 1], vec![0; 4]))
            .to_vec(),
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn operators_are_a_partition(made in prop::collection::vec(made(), 1..60)) {
        let graph = Graph::parse(encode(graph(&made))).unwrap();
        let operators = graph.operators().unwrap();
        check_partition(&graph, &operators);
    }
}

/// A product's result goes through a norm and meets itself again: product and sum are connected, but in one operator
/// they would need the norm, and the norm them.
#[test]
fn a_region_around_a_cut_is_split() {
    let graph = GraphProto {
        node: vec![
            node("MatMul", "product", &["x", "w"], &["y"]),
            node("RMSNormalization", "norm", &["y", "w"], &["n"]),
            node("Mul", "together", &["y", "n"], &["z"]),
        ],
        input: vec![value("x", DataType::Float32)],
        output: vec![value("z", DataType::Float32)],
        initializer: vec![inline("w", DataType::Float32, &[1, 1], vec![0; 4])],
        ..Default::default()
    };
    let graph = Graph::parse(encode(graph)).unwrap();
    let operators = graph.operators().unwrap();
    check_partition(&graph, &operators);
    let nodes: Vec<usize> = operators.iter().map(|o| o.nodes.len()).collect();
    assert_eq!(nodes, [1, 1, 1]);
}

/// Exporters that do not fuse the residual sum into the norm, and name nothing.
#[test]
fn explicit_residual_sums_and_no_names() {
    let mut nodes = vec![node("Gather", "", &["w", "input_ids"], &["r0"])];
    for layer in 0..3 {
        let v = |what: &str| format!("{what}{layer}");
        let (residual, next) = (format!("r{layer}"), format!("r{}", layer + 1));
        let mut add = |op: &str, inputs: &[&str], output: &str| nodes.push(node(op, "", inputs, &[output]));
        add("RMSNormalization", &[&residual, "w"], &v("n"));
        for projection in ["q", "k", "v"] {
            add("MatMul", &[&v("n"), "w"], &v(projection));
        }
        add("Attention", &[&v("q"), &v("k"), &v("v")], &v("a"));
        add("MatMul", &[&v("a"), "w"], &v("o"));
        add("Add", &[&residual, &v("o")], &v("s"));
        add("RMSNormalization", &[&v("s"), "w"], &v("m"));
        add("MatMul", &[&v("m"), "w"], &v("gate"));
        add("MatMul", &[&v("m"), "w"], &v("up"));
        add("Sigmoid", &[&v("gate")], &v("sig"));
        add("Mul", &[&v("sig"), &v("up")], &v("act"));
        add("MatMul", &[&v("act"), "w"], &v("down"));
        add("Add", &[&v("s"), &v("down")], &next);
    }
    nodes.push(node("RMSNormalization", "", &["r3", "w"], &["last"]));
    nodes.push(node("MatMul", "", &["last", "w"], &["logits"]));
    let graph = GraphProto {
        node: nodes,
        input: vec![value("input_ids", DataType::Int64)],
        output: vec![value("logits", DataType::Float32)],
        initializer: vec![inline("w", DataType::Float32, &[1, 1], vec![0; 4])],
        ..Default::default()
    };
    let graph = Graph::parse(encode(graph)).unwrap();
    let operators = graph.operators().unwrap();
    check_partition(&graph, &operators);
    let names: Vec<&str> = operators.iter().map(|o| o.name.as_str()).collect();
    let expected = expect_test::expect![[r#"
        embed_tokens
        norm
        layers.0.attn.qkv_proj
        layers.0.attn
        layers.0.attn.o_proj
        layers.0.norm
        layers.0.mlp
        layers.0.norm#2
        layers.1.attn.qkv_proj
        layers.1.attn
        layers.1.attn.o_proj
        layers.1.norm
        layers.1.mlp
        layers.1.norm#2
        layers.2.attn.qkv_proj
        layers.2.attn
        layers.2.attn.o_proj
        layers.2.norm
        layers.2.mlp
        layers.2.norm#2
        lm_head"#]];
    expected.assert_eq(&names.join("\n"));
}
