//! How much memory decoding would need, found out before decoding.
//!
//! In protobuf's wire format an empty message costs two bytes, but some hundreds once decoded. A few megabytes of
//! them could ask for all memory of a machine, so the messages are counted first (without building anything), and a
//! file that would need far more than any real model of its size is refused. Format:
//! [Protobuf encoding](https://protobuf.dev/programming-guides/encoding/).

use std::mem::size_of;

use crate::error::{Error, Result};
use crate::proto::*;

/// Real graphs decode to 4 to 12 bytes per byte of file.
const PER_BYTE: u64 = 32;
/// What any file may need.
const FREE: u64 = 16 << 20;

/// Refuses models whose messages would need more than 16 MiB and 32 bytes per byte of file.
pub(crate) fn check_decoded_size(bytes: &[u8]) -> Result<()> {
    let limit = FREE + PER_BYTE * bytes.len() as u64;
    match decoded_size(bytes) {
        needed if needed > limit => Err(Error::unsupported(format!(
            "decoding this file of {} bytes would need {needed} bytes of memory; real models need at most {limit}",
            bytes.len()
        ))),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Dimension,
    Entry,
}

/// What a length-delimited field holds.
enum Field {
    Message(Message),
    /// One string or byte string of a repeated field.
    Text,
    /// Packed numbers: smallest encoded size and decoded size.
    Packed(u64, u64),
}

impl Message {
    fn size(self) -> u64 {
        (match self {
            Message::Model => size_of::<ModelProto>(),
            Message::Graph => size_of::<GraphProto>(),
            Message::Node => size_of::<NodeProto>(),
            Message::Attribute => size_of::<AttributeProto>(),
            Message::Tensor => size_of::<TensorProto>(),
            Message::ValueInfo => size_of::<ValueInfoProto>(),
            // Inside the message around them.
            Message::Type | Message::TensorType | Message::Shape => 0,
            Message::Dimension => size_of::<DimensionProto>(),
            Message::Entry => size_of::<StringStringEntryProto>(),
        }) as u64
    }

    fn field(self, number: u64) -> Field {
        use Field::{Message as M, Packed, Text};
        match (self, number) {
            (Message::Model, 7) => M(Message::Graph),
            (Message::Model, 8 | 14) => M(Message::Entry),
            (Message::Graph, 1) => M(Message::Node),
            (Message::Graph, 5) => M(Message::Tensor),
            (Message::Graph, 11..=13) => M(Message::ValueInfo),
            (Message::Graph, 16) | (Message::Node, 9) => M(Message::Entry),
            (Message::Node, 5) => M(Message::Attribute),
            (Message::Attribute, 5 | 10) => M(Message::Tensor),
            (Message::Attribute, 6 | 11) => M(Message::Graph),
            (Message::Attribute, 7) | (Message::Tensor, 4) => Packed(4, 4),
            (Message::Attribute, 8) | (Message::Tensor, 1 | 7 | 11) => Packed(1, 8),
            (Message::Tensor, 5) => Packed(1, 4),
            (Message::Tensor, 10) => Packed(8, 8),
            (Message::Tensor, 13) => M(Message::Entry),
            (Message::ValueInfo, 2) => M(Message::Type),
            (Message::Type, 1) => M(Message::TensorType),
            (Message::TensorType, 2) => M(Message::Shape),
            (Message::Shape, 1) => M(Message::Dimension),
            _ => Text,
        }
    }
}

/// Bytes that the decoded model would take, roughly; whatever is malformed ends the walk, since decoding ends there too.
fn decoded_size(bytes: &[u8]) -> u64 {
    /// As deep as prost goes.
    const DEPTH: usize = 100;
    let mut total = 0u64;
    // Messages begun and not ended: kind and end.
    let mut open = vec![(Message::Model, bytes.len())];
    let mut at = 0;
    while let Some(&(message, end)) = open.last() {
        if at >= end {
            open.pop();
            continue;
        }
        let Some(key) = varint(bytes, &mut at) else {
            return total;
        };
        match key & 7 {
            0 => {
                if varint(bytes, &mut at).is_none() {
                    return total;
                }
                // An unpacked number of a repeated field.
                total += 8;
            }
            1 => {
                at += 8;
                total += 8;
            }
            5 => {
                at += 4;
                total += 4;
            }
            2 => {
                let Some(len) = varint(bytes, &mut at).and_then(|len| usize::try_from(len).ok()) else {
                    return total;
                };
                let Some(stop) = at.checked_add(len).filter(|&stop| stop <= end) else {
                    return total;
                };
                match message.field(key >> 3) {
                    Field::Message(inner) if open.len() < DEPTH => {
                        total += inner.size();
                        open.push((inner, stop));
                        continue;
                    }
                    Field::Message(_) => return total,
                    Field::Text => total += (size_of::<String>() + 8 + len) as u64,
                    Field::Packed(encoded, decoded) => total += len as u64 / encoded * decoded,
                }
                at = stop;
            }
            _ => return total,
        }
    }
    total
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn real_models_are_far_below_the_limit() {
        for name in ["qwen3-tiny-int4", "phi3-tiny-int4"] {
            let path = format!(
                "{}/../tests/fixtures/models/{name}/model.onnx",
                env!("CARGO_MANIFEST_DIR")
            );
            let bytes = std::fs::read(path).unwrap();
            let ratio = decoded_size(&bytes) / bytes.len() as u64;
            assert!((2..PER_BYTE / 2).contains(&ratio), "{name}: {ratio}");
        }
    }

    #[test]
    fn a_bomb_of_empty_messages_is_refused() {
        let node = NodeProto {
            attribute: vec![AttributeProto::default(); 1_000_000],
            ..Default::default()
        };
        let graph = GraphProto {
            node: vec![node],
            ..Default::default()
        };
        let bytes = ModelProto {
            graph: Some(Box::new(graph)),
            ..Default::default()
        }
        .encode_to_vec();
        let error = check_decoded_size(&bytes).unwrap_err();
        assert!(
            error.is_unsupported() && error.to_string().contains("would need"),
            "{error}"
        );
    }

    #[test]
    fn garbage_ends_the_walk() {
        assert_eq!(decoded_size(&[]), 0);
        assert_eq!(decoded_size(&[0xff; 100]), 0);
        assert_eq!(decoded_size(&[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f]), 0);
        let graphs_in_graphs: Vec<u8> = std::iter::repeat_n([0x3a, 0x7f], 64).flatten().collect();
        decoded_size(&graphs_in_graphs);
    }
}
