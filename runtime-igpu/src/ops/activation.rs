//! Element by element: activations, gates, sums, products, soft caps.

use onnx_model::Node;

use super::only_attributes;
use crate::error::{IgpuError, Kind, Result};
use crate::program::{Binding, Compiler, Value, View, model_error, required, unsupported};
use crate::shader::Shader;

/// An activation function; the numbers are those of activations.wgsl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Activation {
    Sigmoid = 0,
    Silu = 1,
    GeluErf = 2,
    GeluTanh = 3,
    QuickGelu = 4,
    Tanh = 5,
    Relu = 6,
}

/// An activation node. It is computed when somebody asks for it: mostly a product follows that fuses it.
pub(super) fn compile(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &["approximate", "alpha"])?;
    let activation = match node.op_type.as_str() {
        "Sigmoid" => Activation::Sigmoid,
        "Tanh" => Activation::Tanh,
        "Relu" => Activation::Relu,
        "FastGelu" => Activation::GeluTanh,
        "Gelu" => match node
            .string_opt("approximate")
            .map_err(model_error)?
            .unwrap_or("none")
        {
            "none" => Activation::GeluErf,
            "tanh" => Activation::GeluTanh,
            other => return Err(unsupported(format!("Gelu with approximate={other}"))),
        },
        "QuickGelu" => {
            let alpha = node.float_opt("alpha").map_err(model_error)?.unwrap_or(1.702);
            match alpha {
                1.0 => Activation::Silu,
                alpha if (alpha - 1.702).abs() < 1e-6 => Activation::QuickGelu,
                other => return Err(unsupported(format!("QuickGelu with alpha={other}"))),
            }
        }
        other => return Err(unsupported(format!("no kernel for activation {other}"))),
    };
    let mut x = compiler.input(node, 0)?;
    if let Some(bias) = node.input(1) {
        x = add_constant(compiler, x, bias)?;
    }
    compiler.define(output(node)?, Value::Activated(activation, x));
    Ok(())
}

/// Add, Sub, Mul or Div. Products with an activation become a gate.
pub(super) fn binary(compiler: &mut Compiler, node: &Node) -> Result<()> {
    let names = [required(node, 0)?, required(node, 1)?];
    let values = [compiler.value(names[0])?, compiler.value(names[1])?];
    if let Some(glue) = super::glue::arithmetic(compiler, node, &values)? {
        compiler.define(output(node)?, glue);
        return Ok(());
    }
    if node.op_type == "Mul"
        && let Some(value) = gate(compiler, names, &values)?
    {
        compiler.define(output(node)?, value);
        return Ok(());
    }
    let operation = match node.op_type.as_str() {
        "Add" => Operation::Add,
        "Sub" => Operation::Sub,
        "Mul" => Operation::Mul,
        _ => Operation::Div,
    };
    let a = operand(compiler, names[0], &values[0])?;
    let b = operand(compiler, names[1], &values[1])?;
    let y = combine(compiler, operation, a, b)?;
    compiler.define(output(node)?, Value::Data(y));
    Ok(())
}

/// `x * sigmoid(x)` is SiLU, put off further; `activation(gate) * up` is one dispatch.
fn gate(compiler: &mut Compiler, names: [&str; 2], values: &[Value; 2]) -> Result<Option<Value>> {
    for (i, j) in [(0, 1), (1, 0)] {
        let Value::Activated(activation, x) = values[i] else {
            continue;
        };
        if activation == Activation::Sigmoid && values[j] == Value::Data(x) {
            return Ok(Some(Value::Activated(Activation::Silu, x)));
        }
        if !matches!(values[j], Value::Data(_) | Value::Activated(..)) {
            continue;
        }
        let up = compiler.data(names[j])?;
        if up.len != x.len {
            continue;
        }
        let y = compiler.new_value(x.len);
        let params = vec![x.len, x.offset, up.offset];
        let bindings = vec![
            Binding::Params,
            Binding::Slot(x.base),
            Binding::Slot(up.base),
            Binding::Slot(y.base),
        ];
        compiler.emit_elementwise(
            Shader::Gated,
            &[("ACTIVATION", activation as u32)],
            params,
            bindings,
            x.len,
        );
        return Ok(Some(Value::Data(y)));
    }
    Ok(None)
}

/// `activation(x)` on its own.
pub(crate) fn unary(compiler: &mut Compiler, activation: Activation, x: View) -> Result<View> {
    let y = compiler.new_value(x.len);
    let bindings = vec![Binding::Params, Binding::Slot(x.base), Binding::Slot(y.base)];
    compiler.emit_elementwise(
        Shader::Unary,
        &[("ACTIVATION", activation as u32)],
        vec![x.len, x.offset],
        bindings,
        x.len,
    );
    Ok(y)
}

/// `x + constant`, as biases are added.
pub(super) fn add_constant(compiler: &mut Compiler, x: View, constant: &str) -> Result<View> {
    let (binding, len) = compiler.float_weight(constant)?;
    let a = Operand {
        binding: Binding::Slot(x.base),
        offset: x.offset,
        len: x.len,
    };
    combine(
        compiler,
        Operation::Add,
        a,
        Operand {
            binding,
            offset: 0,
            len: len as u32,
        },
    )
}

/// An operation of two operands; the numbers are those of binary.wgsl.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Operation {
    Add = 0,
    Sub = 1,
    Mul = 2,
    Div = 3,
}

struct Operand {
    binding: Binding,
    offset: u32,
    len: u32,
}

fn operand(compiler: &mut Compiler, name: &str, value: &Value) -> Result<Operand> {
    if let Value::Constant(_) = value {
        let (binding, len) = compiler.float_weight(name)?;
        return Ok(Operand {
            binding,
            offset: 0,
            len: len as u32,
        });
    }
    let view = compiler.data(name)?;
    Ok(Operand {
        binding: Binding::Slot(view.base),
        offset: view.offset,
        len: view.len,
    })
}

fn combine(compiler: &mut Compiler, operation: Operation, a: Operand, b: Operand) -> Result<View> {
    let size = a.len.max(b.len);
    // One token has no batch to broadcast over: an operand is whole, or repeats along the last axis.
    if a.len == 0 || b.len == 0 || !size.is_multiple_of(a.len) || !size.is_multiple_of(b.len) {
        return Err(IgpuError::new(
            Kind::Model,
            format!("{} and {} elements do not go together", a.len, b.len),
        ));
    }
    let y = compiler.new_value(size);
    let params = vec![size, a.offset, a.len, b.offset, b.len];
    let bindings = vec![Binding::Params, a.binding, b.binding, Binding::Slot(y.base)];
    compiler.emit_elementwise(
        Shader::Binary,
        &[("OPERATION", operation as u32)],
        params,
        bindings,
        size,
    );
    Ok(y)
}

fn output(node: &Node) -> Result<&str> {
    node.output(0)
        .ok_or_else(|| IgpuError::new(Kind::Model, format!("{} lacks its output", node.op_type)))
}
