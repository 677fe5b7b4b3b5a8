//! A million nodes in shapes that would make a quadratic or recursive algorithm fail: it would run for hours or
//! overflow the stack, which the test harness then reports.

use onnx_model::proto::*;
use onnx_model::{DataType, Graph};

use crate::counting;
use crate::support::*;

const N: usize = 1_000_000;
/// For shapes that are slower to make than to read.
const FEWER: usize = 250_000;

/// Parsed, taken apart, and checked to be a partition.
#[track_caller]
fn check(nodes: Vec<NodeProto>, outputs: &[&str]) -> usize {
    let graph = GraphProto {
        node: nodes,
        input: vec![
            value("x0", DataType::Float32),
            value("input_ids", DataType::Int64),
        ],
        output: outputs
            .iter()
            .map(|name| value(name, DataType::Float32))
            .collect(),
        initializer: vec![inline("w", DataType::Float32, &[1, 1], vec![0; 4])],
        ..Default::default()
    };
    let bytes = encode(graph);
    let len = bytes.len();
    let ((graph, operators), peak) = counting::peak(|| {
        let graph = Graph::parse(bytes).unwrap();
        let operators = graph.operators().unwrap();
        (graph, operators)
    });
    check_partition(&graph, &operators);
    println!(
        "{len} bytes of graph, {} operators, peak {peak}, {} a byte",
        operators.len(),
        peak / len
    );
    assert!(peak <= FREE + PER_BYTE * len, "{peak} bytes for a graph of {len}");
    operators.len()
}

/// The bound that the crate's documentation promises.
const FREE: usize = 16 << 20;
const PER_BYTE: usize = 64;

fn x(i: usize) -> String {
    format!("x{i}")
}

#[test]
fn a_chain() {
    let nodes = (0..N).map(|i| node("Relu", "", &[&x(i)], &[&x(i + 1)])).collect();
    assert_eq!(check(nodes, &[&x(N)]), 1);
}

#[test]
fn a_chain_written_backwards() {
    let nodes = (0..FEWER)
        .rev()
        .map(|i| node("MatMul", "", &[&x(i), "w"], &[&x(i + 1)]))
        .collect();
    assert_eq!(check(nodes, &[&x(FEWER)]), 1);
}

#[test]
fn a_chain_of_cuts() {
    // Norm, product, norm, product: as many operators as nodes.
    let step = |i| match i % 2 {
        0 => node("RMSNormalization", "/model/norm/n", &[&x(i), "w"], &[&x(i + 1)]),
        _ => node("MatMul", "/model/product/m", &[&x(i), "w"], &[&x(i + 1)]),
    };
    assert_eq!(check((0..FEWER).map(step).collect(), &[&x(FEWER)]), FEWER);
}

#[test]
fn one_value_read_by_all() {
    let mut nodes: Vec<NodeProto> = (1..N).map(|i| node("Relu", "", &["x0"], &[&x(i)])).collect();
    let names: Vec<String> = (1..N).map(x).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    nodes.push(node("Concat", "", &all, &["all"]));
    check(nodes, &["all"]);
}

#[test]
fn one_norm_read_by_norms() {
    let mut nodes = vec![node("RMSNormalization", "first", &["x0", "w"], &["y"])];
    nodes.extend((1..FEWER).map(|i| node("RMSNormalization", "", &["y", "w"], &[&x(i)])));
    check(nodes, &["x1"]);
}

#[test]
fn a_node_of_many_attributes_read_by_many() {
    let mut one = node("Relu", "", &["x0"], &["y"]);
    one.attribute = (0..FEWER).map(|i| int(&format!("a{i}"), 1)).collect();
    let mut nodes = vec![one];
    nodes.extend((1..FEWER).map(|i| node("Relu", "", &["y"], &[&x(i)])));
    check(nodes, &["x1"]);
}

#[test]
fn many_attributes_on_one_node() {
    let mut one = node("Relu", "", &["x0"], &["y"]);
    one.attribute = (0..FEWER).map(|i| int(&format!("a{i}"), 1)).collect();
    check(vec![one], &["y"]);
}

#[test]
fn a_long_cycle() {
    let mut nodes: Vec<NodeProto> = (0..FEWER)
        .map(|i| node("Relu", &format!("n{i}"), &[&x(i)], &[&x(i + 1)]))
        .collect();
    nodes[0].input[0] = x(FEWER);
    let error = Graph::parse(encode(GraphProto {
        node: nodes,
        ..Default::default()
    }))
    .unwrap_err();
    assert_eq!(error.cycle_path().len(), FEWER + 1);
    assert!(error.to_string().len() < 1000);
}

#[test]
fn many_of_everything_else() {
    let mut graph = tiny_graph();
    for i in 0..FEWER {
        graph
            .initializer
            .push(inline(&format!("i{i}"), DataType::Float32, &[1], vec![0; 4]));
        graph.value_info.push(value(&format!("v{i}"), DataType::Float32));
        graph.input.push(value(&format!("in{i}"), DataType::Float32));
    }
    let graph = Graph::parse(encode(graph)).unwrap();
    assert!(graph.initializer("i7").is_some() && graph.is_input("in9"));
}
