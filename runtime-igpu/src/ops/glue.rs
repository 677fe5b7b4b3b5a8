//! Nodes that compute nothing on floats: views, and the arithmetic on the attention mask.
//!
//! In decoding, the mask is all ones up to the new token, so its sum and its length are the position plus one. The nodes
//! that derive the two lengths from it are recognised one by one and stand for the engine's own position.

use onnx_model::Node;

use crate::error::{IgpuError, Kind, Result};
use crate::program::{Compiler, Value, model_error, required, unsupported};

pub(super) fn compile(compiler: &mut Compiler, node: &Node) -> Result<()> {
    if !node.domain.is_empty() {
        return Err(no_kernel(node));
    }
    match node.op_type.as_str() {
        "Constant" => Ok(()),
        "Split" => split(compiler, node),
        "Reshape" | "Identity" | "Squeeze" | "Unsqueeze" | "Flatten" | "Cast" => {
            let value = compiler.value(required(node, 0)?)?;
            check_view(node, &value)?;
            compiler.define(node.output(0).unwrap_or_default(), value);
            Ok(())
        }
        "Transpose" => {
            let value = match compiler.value(required(node, 0)?)? {
                Value::Constant(name) if node.ints_opt("perm").map_err(model_error)? == Some(&[1, 0]) => {
                    Value::Transposed(name)
                }
                other => return Err(unsupported(format!("Transpose of {}", other.what()))),
            };
            compiler.define(node.output(0).unwrap_or_default(), value);
            Ok(())
        }
        "Shape" => {
            let value = match compiler.value(required(node, 0)?)? {
                Value::Mask => Value::MaskShape,
                other => return Err(unsupported(format!("Shape of {}", other.what()))),
            };
            compiler.define(node.output(0).unwrap_or_default(), value);
            Ok(())
        }
        "ReduceSum" => {
            let value = match compiler.value(required(node, 0)?)? {
                Value::Mask => Value::MaskSum,
                other => return Err(unsupported(format!("ReduceSum of {}", other.what()))),
            };
            compiler.define(node.output(0).unwrap_or_default(), value);
            Ok(())
        }
        _ => Err(no_kernel(node)),
    }
}

/// Sub of one from the mask's sum: the past length. `None` if this is arithmetic on floats.
pub(super) fn arithmetic(compiler: &Compiler, node: &Node, values: &[Value; 2]) -> Result<Option<Value>> {
    match values {
        [Value::MaskSum, Value::Constant(name)]
            if node.op_type == "Sub" && compiler.integers(name)? == [1] =>
        {
            Ok(Some(Value::PastLength))
        }
        [
            Value::Data(_) | Value::Activated(..) | Value::Constant(_),
            Value::Data(_) | Value::Activated(..) | Value::Constant(_),
        ] => Ok(None),
        [a, b] => Err(unsupported(format!(
            "{} of {} and {}",
            node.op_type,
            a.what(),
            b.what()
        ))),
    }
}

/// A view keeps its elements; a conversion between float types does too, since all floats here are float32.
fn check_view(node: &Node, value: &Value) -> Result<()> {
    if node.op_type != "Cast" {
        return Ok(());
    }
    let to = node.int("to").map_err(model_error)?;
    let float = matches!(to, FLOAT | FLOAT16 | BFLOAT16);
    let fits = match value {
        Value::Data(_) | Value::Activated(..) => float,
        Value::Constant(_) | Value::Transposed(_) => false,
        _ => matches!(to, INT32 | INT64),
    };
    if fits {
        Ok(())
    } else {
        Err(unsupported(format!("Cast of {} to type {to}", value.what())))
    }
}

const FLOAT: i64 = 1;
const INT32: i64 = 6;
const INT64: i64 = 7;
const FLOAT16: i64 = 10;
const BFLOAT16: i64 = 16;

/// Split along the last axis: the outputs are views.
fn split(compiler: &mut Compiler, node: &Node) -> Result<()> {
    let axis = node.int_opt("axis").map_err(model_error)?.unwrap_or(0);
    if axis != -1 && axis != 2 {
        return Err(unsupported(format!("Split along axis {axis}")));
    }
    let x = compiler.input(node, 0)?;
    let sizes = match node.input(1) {
        Some(sizes) => compiler.integers(sizes)?,
        None => {
            let n = node.outputs.len().max(1) as i64;
            vec![i64::from(x.len) / n; n as usize]
        }
    };
    if sizes.len() != node.outputs.len()
        || sizes.iter().any(|&size| size < 0)
        || sizes.iter().sum::<i64>() != i64::from(x.len)
    {
        return Err(IgpuError::new(
            Kind::Model,
            format!("Split of {} values into {sizes:?}", x.len),
        ));
    }
    let mut offset = 0;
    for (output, size) in node.outputs.iter().zip(sizes) {
        compiler.define(output, Value::Data(x.part(offset, size as u32)));
        offset += size as u32;
    }
    Ok(())
}

fn no_kernel(node: &Node) -> IgpuError {
    let domain = if node.domain.is_empty() { "" } else { " of domain " };
    unsupported(format!("no kernel for {}{domain}{}", node.op_type, node.domain))
}
