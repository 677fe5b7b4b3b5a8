//! What a name in the graph stands for while its nodes are compiled.

use crate::ops::activation::Activation;

/// Floats that some step computes: part of a base value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The base value; after slots are assigned, the slot.
    pub(crate) base: usize,
    /// First element in it.
    pub(crate) offset: u32,
    /// Elements.
    pub(crate) len: u32,
}

impl View {
    /// Part of this view.
    pub(crate) fn part(self, offset: u32, len: u32) -> View {
        View {
            base: self.base,
            offset: self.offset + offset,
            len,
        }
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Floats on the device.
    Data(View),
    /// An activation of floats that nobody has asked for yet, so that a gate can be fused.
    Activated(Activation, View),
    /// A constant of the model, by its tensor's name; a reshaped one is the same bytes.
    Constant(String),
    /// The transpose of a constant matrix.
    Transposed(String),
    /// The token to decode.
    Tokens,
    /// The attention mask, which is all ones up to the new token.
    Mask,
    /// The mask's shape.
    MaskShape,
    /// The mask's sum: positions so far, the new one included.
    MaskSum,
    /// Positions before the new token, as attention wants it.
    PastLength,
    /// Positions so far, the new one included.
    TotalLength,
    /// The new token's position.
    Position,
    /// A layer's cached keys or values, as a graph input.
    Cache(usize),
}

impl Value {
    /// The kind, in words.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Value::Data(_) | Value::Activated(..) => "computed floats",
            Value::Constant(_) => "a constant",
            Value::Transposed(_) => "a transposed constant",
            Value::Tokens => "the token ids",
            Value::Mask => "the attention mask",
            Value::MaskShape => "the attention mask's shape",
            Value::MaskSum => "the attention mask's sum",
            Value::PastLength => "the past length",
            Value::TotalLength => "the total length",
            Value::Position => "the position",
            Value::Cache(_) => "a KV cache",
        }
    }
}
