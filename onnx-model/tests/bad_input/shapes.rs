//! Types and shapes against attributes and data.

use onnx_model::proto::*;
use onnx_model::{DataType, Error, Graph};

use crate::support::*;

#[track_caller]
fn broken(breaking: impl FnOnce(&mut GraphProto)) -> Error {
    let mut graph = tiny_graph();
    breaking(&mut graph);
    Graph::parse(encode(graph)).expect_err("broken")
}

#[track_caller]
fn check(error: &Error, node: Option<&str>, tensor: &str, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.node(), node, "{text}");
    assert_eq!(error.tensor(), Some(tensor), "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} should say {word:?}");
    }
}

const QKV: Option<&str> = Some("/model/layers.0/attn/qkv_proj/MatMul");

fn zeros(name: &str, dtype: DataType, dims: &[i64]) -> TensorProto {
    let shape: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
    inline(
        name,
        dtype,
        dims,
        vec![0; dtype.byte_len(&shape).unwrap() as usize],
    )
}

#[test]
fn mat_mul_n_bits_against_its_attributes() {
    let error = broken(|g| g.initializer[1] = zeros("w", DataType::Uint8, &[48, 1, 9]));
    check(
        &error,
        QKV,
        "w",
        &["432 elements", "K=16 N=48 bits=4 block_size=16", "384"],
    );
    let error = broken(|g| g.initializer[1] = zeros("w", DataType::Float32, &[48, 1, 8]));
    check(&error, QKV, "w", &["float32", "uint8"]);
    let error = broken(|g| g.initializer[2] = zeros("scales", DataType::Float32, &[48, 2]));
    check(&error, QKV, "scales", &["96 elements", "48"]);
    let error = broken(|g| g.initializer[2] = zeros("scales", DataType::Int64, &[48, 1]));
    check(&error, QKV, "scales", &["int64"]);
    let extra = |position: usize, tensor: TensorProto| {
        broken(|g| {
            g.node[3].input.resize(position, String::new());
            g.node[3].input.push(tensor.name.clone().unwrap());
            g.initializer.push(tensor);
        })
    };
    check(
        &extra(3, zeros("zp", DataType::Uint8, &[48, 2])),
        QKV,
        "zp",
        &["96 elements", "48"],
    );
    check(
        &extra(3, zeros("zp", DataType::Int32, &[48])),
        QKV,
        "zp",
        &["int32"],
    );
    check(
        &extra(5, zeros("bias", DataType::Float32, &[47])),
        QKV,
        "bias",
        &["47 elements", "48"],
    );
}

#[test]
fn attributes_out_of_range() {
    for (attribute, value, word) in [
        ("K", 0, "positive"),
        ("N", -3, "positive"),
        ("bits", 5, "2, 4 or 8"),
        ("block_size", 8, "power of two"),
        ("block_size", 48, "power of two"),
        ("block_size", i64::MIN, "power of two"),
        ("K", i64::MAX, "more than fit"),
        ("N", i64::MAX, "more than fit"),
    ] {
        let error = broken(|g| {
            let attributes = &mut g.node[3].attribute;
            attributes
                .iter_mut()
                .find(|a| a.name.as_deref() == Some(attribute))
                .unwrap()
                .i = Some(value);
        });
        assert_eq!(error.node(), QKV, "{error}");
        assert!(error.to_string().contains(word), "{attribute}={value}: {error}");
    }
    let error = broken(|g| g.node[4].attribute[0].i = Some(0));
    assert!(error.to_string().contains("num_heads = 0"), "{error}");
    let error = broken(|g| g.node[4].attribute[1].i = Some(2));
    assert!(
        error.to_string().contains("multiple of kv_num_heads = 2"),
        "{error}"
    );
}

#[test]
fn rotary_tables_must_match() {
    let tables = |g: &mut GraphProto, cos: &[i64], sin: &[i64]| {
        g.node[4].input.extend(["cos".to_string(), "sin".to_string()]);
        g.initializer.extend([
            zeros("cos", DataType::Float32, cos),
            zeros("sin", DataType::Float32, sin),
        ]);
    };
    let attention = Some("/model/layers.0/attn/GroupQueryAttention");
    check(
        &broken(|g| tables(g, &[8, 8], &[8, 7])),
        attention,
        "sin",
        &["[8, 8]", "[8, 7]"],
    );
    check(
        &broken(|g| tables(g, &[8], &[8])),
        attention,
        "cos",
        &["[positions, half"],
    );
}

#[test]
fn norms_and_dequantization() {
    let norm = |g: &mut GraphProto, scale: TensorProto, epsilon: f32| {
        let mut n = node("SimplifiedLayerNormalization", "norm", &["x", "scale"], &["y"]);
        let kind = Some(AttributeType::Float as i32);
        let epsilon = AttributeProto {
            name: Some("epsilon".into()),
            f: Some(epsilon),
            r#type: kind,
            ..Default::default()
        };
        n.attribute.push(epsilon);
        g.node.push(n);
        g.initializer.push(scale);
    };
    let error = broken(|g| norm(g, zeros("scale", DataType::Int8, &[16]), 1e-5));
    check(&error, Some("norm"), "scale", &["int8"]);
    for epsilon in [f32::NAN, -1.0, f32::INFINITY] {
        let error = broken(|g| norm(g, zeros("scale", DataType::Float32, &[16]), epsilon));
        assert!(error.to_string().contains("epsilon"), "{error}");
    }
    let dequantize = |g: &mut GraphProto, scales: &[i64], attributes: &[(&str, i64)]| {
        let mut n = node("DequantizeLinear", "dq", &["q", "s"], &["y"]);
        n.attribute = attributes.iter().map(|&(name, value)| int(name, value)).collect();
        g.node.push(n);
        g.initializer.extend([
            zeros("q", DataType::Uint4, &[32, 8]),
            zeros("s", DataType::Float32, scales),
        ]);
    };
    for (scales, attributes, ok) in [
        (&[2, 8][..], &[("axis", 0), ("block_size", 16)][..], true),
        (&[3, 8], &[("axis", 0), ("block_size", 16)], false),
        (&[], &[], true),
        (&[8], &[("axis", -1)], true),
        (&[7], &[("axis", 1)], false),
        (&[8], &[("axis", 2)], false),
        (&[8], &[("axis", 0), ("block_size", -16)], false),
    ] {
        let mut graph = tiny_graph();
        dequantize(&mut graph, scales, attributes);
        let parsed = Graph::parse(encode(graph));
        assert_eq!(parsed.is_ok(), ok, "{scales:?} {attributes:?}: {parsed:?}");
        if let Err(error) = parsed {
            assert_eq!(error.node(), Some("dq"));
        }
    }
}

#[test]
fn data_against_shape() {
    let f = DataType::Float32;
    let error = broken(|g| g.initializer[3] = inline("head", f, &[16, 8], vec![0; 511]));
    check(&error, None, "head", &["511 bytes", "needs 512"]);
    let error = broken(|g| g.initializer[3] = inline("head", f, &[16, -8], vec![0; 512]));
    check(&error, None, "head", &["negative"]);
    let error = broken(|g| g.initializer[3] = inline("head", f, &[i64::MAX, i64::MAX], vec![0; 512]));
    check(&error, None, "head", &["larger than any memory"]);
    let error = broken(|g| g.initializer[3] = inline("head", f, &[i64::MAX / 8, 2], vec![0; 512]));
    check(&error, None, "head", &["larger than any memory"]);
    let error = broken(|g| g.initializer[3] = inline("head", DataType::String, &[1], vec![0; 8]));
    check(&error, None, "head", &["strings"]);
    let error = broken(|g| {
        g.initializer[3] = TensorProto {
            raw_data: None,
            ..inline("head", f, &[16, 8], vec![])
        }
    });
    check(&error, None, "head", &["0 bytes", "needs 512"]);
    let error = broken(|g| g.initializer[3].data_location = Some(5));
    check(&error, None, "head", &["data location 5"]);
}

#[test]
fn elements_in_typed_fields() {
    let typed = |dtype: DataType, tensor: TensorProto| {
        let mut graph = tiny_graph();
        graph.initializer.push(TensorProto {
            raw_data: None,
            ..tensor
        });
        let read = Graph::parse(encode(graph)).unwrap();
        let initializer = read.initializer("t").unwrap();
        assert_eq!(initializer.dtype, dtype);
        match &initializer.data {
            onnx_model::InitializerData::Inline(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let of = |dtype, n: i64| inline("t", dtype, &[n], vec![]);
    let bytes = typed(
        DataType::Int64,
        TensorProto {
            int64_data: vec![-1, 2],
            ..of(DataType::Int64, 2)
        },
    );
    assert_eq!(bytes, [(-1i64).to_le_bytes(), 2i64.to_le_bytes()].concat());
    let bytes = typed(
        DataType::Float32,
        TensorProto {
            float_data: vec![0.5],
            ..of(DataType::Float32, 1)
        },
    );
    assert_eq!(bytes, 0.5f32.to_le_bytes());
    let bytes = typed(
        DataType::Uint8,
        TensorProto {
            int32_data: vec![255, 1],
            ..of(DataType::Uint8, 2)
        },
    );
    assert_eq!(bytes, [255, 1]);
    let bytes = typed(
        DataType::Float16,
        TensorProto {
            int32_data: vec![0x3c00],
            ..of(DataType::Float16, 1)
        },
    );
    assert_eq!(bytes, [0, 0x3c]);
}
