//! What can be wrong with the structure of a graph.

use onnx_model::proto::*;
use onnx_model::{DataType, Error, Graph};
use prost::Message;

use crate::support::*;

/// The error of the tiny graph after `breaking`.
#[track_caller]
fn broken(breaking: impl FnOnce(&mut GraphProto)) -> Error {
    let mut graph = tiny_graph();
    Graph::parse(encode(graph.clone())).expect("good before it is broken");
    breaking(&mut graph);
    Graph::parse(encode(graph)).expect_err("broken")
}

#[track_caller]
fn check(error: &Error, node: Option<&str>, tensor: Option<&str>, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.node(), node, "{text}");
    assert_eq!(error.tensor(), tensor, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} should say {word:?}");
    }
}

const QKV: &str = "/model/layers.0/attn/qkv_proj/MatMul";
const HEAD: &str = "/lm_head/MatMul";

#[test]
fn no_nodes() {
    let error = broken(|g| g.node.clear());
    assert!(error.is_malformed());
    check(&error, None, None, &["no nodes"]);
}

#[test]
fn a_cycle_prints_its_path() {
    let error = broken(|g| {
        g.node.push(node("Add", "c", &["vb", "vb"], &["vc"]));
        g.node.push(node("Add", "b", &["va", "va"], &["vb"]));
        g.node.push(node("Add", "a", &["vc", "logits"], &["va"]));
        g.node.push(node("Add", "after", &["va", "va"], &["end"]));
    });
    assert!(error.is_cycle());
    let path = error.cycle_path();
    assert_eq!((path.len(), &path[0]), (4, &path[3]));
    let turned = (0..3)
        .map(|i| path[i].as_str())
        .cycle()
        .skip_while(|&n| n != "a")
        .take(3);
    assert_eq!(turned.collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(
        error.to_string().contains("a -> b -> c") || error.to_string().contains("b -> c -> a"),
        "{error}"
    );
}

#[test]
fn a_node_that_needs_itself() {
    let error = broken(|g| g.node[5].input[0] = "logits".into());
    assert_eq!(error.cycle_path(), [HEAD, HEAD]);
}

#[test]
fn nodes_out_of_order_are_put_in_order() {
    let mut graph = tiny_graph();
    graph.node.reverse();
    let read = Graph::parse(encode(graph)).unwrap();
    check_partition(&read, &read.operators().unwrap());
}

#[test]
fn duplicate_names() {
    let error = broken(|g| g.node[5].output[0] = "qkv".into());
    check(
        &error,
        Some(HEAD),
        Some("qkv"),
        &["already produced by node", QKV],
    );
    let error = broken(|g| g.node[5].output[0] = "head".into());
    check(
        &error,
        Some(HEAD),
        Some("head"),
        &["already produced by an initializer"],
    );
    let error = broken(|g| g.node[5].output[0] = "input_ids".into());
    check(
        &error,
        Some(HEAD),
        Some("input_ids"),
        &["already produced by a graph input"],
    );
    let error = broken(|g| g.node[4].output[1] = "a".into());
    check(
        &error,
        Some("/model/layers.0/attn/GroupQueryAttention"),
        Some("a"),
        &["already produced"],
    );
    let error = broken(|g| g.initializer.push(g.initializer[0].clone()));
    check(&error, None, Some("embed"), &["two initializers"]);
    let error = broken(|g| g.input.push(g.input[0].clone()));
    check(&error, None, Some("input_ids"), &["two graph inputs"]);
    let error = broken(|g| g.node[3].attribute.push(int("K", 16)));
    check(&error, Some(QKV), None, &["'K' is given twice"]);
}

#[test]
fn missing_values() {
    let error = broken(|g| g.node[5].input[1] = "nowhere".into());
    assert!(error.is_malformed());
    check(&error, Some(HEAD), Some("nowhere"), &["no node's output"]);
    let error = broken(|g| g.output.push(value("nothing", DataType::Float32)));
    check(&error, None, Some("nothing"), &["no node produces"]);
    let error = broken(|g| g.initializer[3].name = None);
    check(&error, None, None, &["initializer has no name"]);
    let error = broken(|g| g.node[0].op_type = None);
    check(
        &error,
        Some("/model/embed_tokens/Gather"),
        None,
        &["no operator type"],
    );
}

#[test]
fn unknown_operator_sets() {
    let opset = |domain: &str, version| OperatorSetIdProto {
        domain: Some(domain.into()),
        version: Some(version),
    };
    let parse = |opsets: Vec<OperatorSetIdProto>| {
        let model = ModelProto {
            opset_import: opsets,
            ..model(tiny_graph())
        };
        Graph::parse(model.encode_to_vec())
    };
    parse(vec![
        opset("ai.onnx", 14),
        opset("com.microsoft", 1),
        opset("ai.onnx.ml", 3),
    ])
    .unwrap();
    for (opsets, words) in [
        (
            vec![opset("", 99), opset("com.microsoft", 1)],
            "version 99 of operator set ai.onnx is unknown",
        ),
        (
            vec![opset("", 1), opset("com.microsoft", 1)],
            "version 1 of operator set ai.onnx",
        ),
        (
            vec![opset("", 22), opset("com.microsoft", 2)],
            "com.microsoft is unknown",
        ),
        (vec![opset("", 22)], "does not import operator set com.microsoft"),
        (
            vec![opset("com.microsoft", 1)],
            "does not import operator set ai.onnx",
        ),
        (vec![opset("", 22), opset("ai.onnx", 22)], "imported twice"),
        (vec![], "does not import"),
    ] {
        let error = parse(opsets).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = broken(|g| g.node[0].domain = Some("my.company".into()));
    assert!(error.is_unsupported());
    check(
        &error,
        Some("/model/embed_tokens/Gather"),
        None,
        &["my.company::Gather"],
    );
}

#[test]
fn declared_types() {
    let error = broken(|g| g.input[0].r#type = None);
    check(&error, None, Some("input_ids"), &["not declared to be a tensor"]);
    let error = broken(|g| {
        g.input[0] = ValueInfoProto {
            name: None,
            ..g.input[0].clone()
        }
    });
    check(&error, None, None, &["no name"]);
    for code in [0, 14, 99, -1] {
        let error = broken(|g| g.initializer[0].data_type = Some(code));
        assert!(error.is_unsupported());
        check(
            &error,
            None,
            Some("embed"),
            &["unknown element type", &code.to_string()],
        );
    }
    // A value in between whose type is unknown is only not declared.
    let mut graph = tiny_graph();
    graph.value_info.push(ValueInfoProto {
        name: Some("qkv".into()),
        ..Default::default()
    });
    Graph::parse(encode(graph)).unwrap();
}

#[test]
fn attributes_of_the_wrong_kind() {
    let set = |g: &mut GraphProto, f: &dyn Fn(&mut AttributeProto)| f(&mut g.node[3].attribute[0]);
    let error = broken(|g| set(g, &|a| a.r#type = Some(AttributeType::Float as i32)));
    check(&error, Some(QKV), None, &["'K' should be an integer, is a float"]);
    let error = broken(|g| set(g, &|a| a.r#type = Some(AttributeType::Tensor as i32)));
    check(&error, Some(QKV), None, &["'K'", "has none"]);
    let error = broken(|g| set(g, &|a| a.r#type = Some(77)));
    check(&error, Some(QKV), None, &["'K' has unknown kind 77"]);
    let error = broken(|g| set(g, &|a| a.r#type = None));
    check(&error, Some(QKV), None, &["'K' has unknown kind 0"]);
    let error = broken(|g| set(g, &|a| a.name = None));
    check(&error, Some(QKV), None, &["no name"]);
    let error = broken(|g| {
        g.node[3].attribute.remove(0);
    });
    check(&error, Some(QKV), None, &["'K' is missing"]);
    let error = broken(|g| {
        set(g, &|a| {
            a.r#type = Some(AttributeType::String as i32);
            a.s = Some(vec![0xff].into());
        })
    });
    check(&error, Some(QKV), None, &["not UTF-8"]);
}

#[test]
fn sparse_tensors_and_functions_are_refused() {
    let error = broken(|g| g.sparse_initializer.push(vec![0].into()));
    assert!(
        error.is_unsupported() && error.to_string().contains("sparse"),
        "{error}"
    );
    let model = ModelProto {
        functions: vec![vec![].into()],
        ..model(tiny_graph())
    };
    let error = Graph::parse(model.encode_to_vec()).unwrap_err();
    assert!(
        error.is_unsupported() && error.to_string().contains("functions"),
        "{error}"
    );
}

/// Graphs inside graphs, as deep as asked.
fn nested(depth: usize) -> Vec<u8> {
    // By hand: encoding a deep message would itself recurse. Innermost first.
    let field = |number: u32, bytes: &[u8]| {
        let mut out = Vec::new();
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut out);
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend(bytes);
        out
    };
    let leaf = node("Identity", "leaf", &["input_ids"], &["y"]).encode_to_vec();
    let mut graph = field(1, &leaf);
    for _ in 0..depth {
        let mut attribute = field(1, b"then_branch");
        attribute.extend(field(6, &graph));
        attribute.extend([0xa0, 0x01, AttributeType::Graph as u8]);
        let mut node = field(4, b"If");
        node.extend(field(5, &attribute));
        graph = field(1, &node);
    }
    graph.extend(field(11, &value("input_ids", DataType::Int64).encode_to_vec()));
    let mut model = field(7, &graph);
    let opset = OperatorSetIdProto {
        domain: None,
        version: Some(22),
    };
    model.extend(field(8, &opset.encode_to_vec()));
    model
}

#[test]
fn nesting_bombs() {
    Graph::parse(nested(10)).unwrap();
    for depth in [40, 100, 3000] {
        let error = Graph::parse(nested(depth)).unwrap_err();
        assert!(
            error.to_string().contains("recursion") || error.to_string().contains("nested"),
            "{error}"
        );
    }
}

#[test]
fn graphs_in_attributes_are_checked_too() {
    let branch = |reads: &str| GraphProto {
        node: vec![node("Identity", "inner", &[reads], &["out"])],
        output: vec![value("out", DataType::Float32)],
        ..Default::default()
    };
    let with_branch = |g: &mut GraphProto, branch: GraphProto| {
        let mut choose = node("If", "choose", &["attention_mask"], &["chosen"]);
        choose.attribute = vec![
            graph_attribute("then_branch", branch.clone()),
            graph_attribute("else_branch", branch),
        ];
        g.node.push(choose);
    };
    let mut graph = tiny_graph();
    with_branch(&mut graph, branch("a"));
    let read = Graph::parse(encode(graph)).unwrap();
    let choose = read.nodes.iter().find(|n| n.name == "choose").unwrap();
    assert_eq!(choose.captures, ["a"]);
    check_partition(&read, &read.operators().unwrap());
    let error = broken(|g| with_branch(g, branch("nowhere")));
    check(&error, Some("choose"), Some("nowhere"), &["no node's output"]);
    let error = broken(|g| {
        with_branch(
            g,
            GraphProto {
                node: vec![node("X", "inner", &["out"], &["out"])],
                ..branch("a")
            },
        )
    });
    assert!(error.is_cycle(), "{error}");
    // The graph around is a cycle through what the branch reads.
    let error = broken(|g| with_branch(g, branch("chosen")));
    assert_eq!(error.cycle_path(), ["choose", "choose"]);
    let mut elsewhere = branch("a");
    let place = [("location", "model.onnx.data"), ("offset", "0"), ("length", "4")];
    elsewhere
        .initializer
        .push(external("e", DataType::Float32, &[1], &place));
    let error = broken(|g| with_branch(g, elsewhere));
    check(&error, Some("choose"), Some("e"), &["cannot be external"]);
    let mut unknown = branch("a");
    unknown.node[0].domain = Some("my.company".into());
    let error = broken(|g| with_branch(g, unknown));
    check(&error, Some("inner"), None, &["my.company"]);
}
