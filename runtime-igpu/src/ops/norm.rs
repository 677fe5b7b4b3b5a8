//! Norms, with and without the residual sum.

use onnx_model::Node;

use super::only_attributes;
use crate::error::{IgpuError, Kind, Result};
use crate::program::{Binding, Compiler, Grid, Value, View, model_error, required, unsupported};
use crate::shader::{KernelSpec, Shader};

/// Invocations per row.
const WORKGROUP: u32 = 64;

/// SimplifiedLayerNormalization: over the whole value, or head by head where the weight is that short.
pub(super) fn simplified(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &["epsilon", "axis", "stash_type"])?;
    if node
        .int_opt("axis")
        .map_err(model_error)?
        .is_some_and(|axis| axis != -1)
    {
        return Err(unsupported(
            "SimplifiedLayerNormalization over another axis than the last",
        ));
    }
    if node.output(1).is_some() {
        return Err(unsupported(
            "SimplifiedLayerNormalization with its inverse standard deviation as output",
        ));
    }
    let x = compiler.input(node, 0)?;
    let y = rows(compiler, x, required(node, 1)?, epsilon(node)?)?;
    compiler.define(required_output(node)?, Value::Data(y));
    Ok(())
}

/// Normalizes each row of `x`, a row being as long as the weight.
pub(super) fn rows(compiler: &mut Compiler, x: View, weight: &str, epsilon: f32) -> Result<View> {
    let (weight, size) = compiler.float_weight(weight)?;
    let size = size as u32;
    if size == 0 || !x.len.is_multiple_of(size) {
        return Err(IgpuError::new(
            Kind::Model,
            format!("{} values are not rows of {size}", x.len),
        ));
    }
    let y = compiler.new_value(x.len);
    let spec = KernelSpec::new(Shader::RmsNorm, [("WORKGROUP", WORKGROUP)]);
    let params = vec![size, epsilon.to_bits(), x.offset, y.offset];
    let bindings = vec![
        Binding::Params,
        Binding::Slot(x.base),
        weight,
        Binding::Slot(y.base),
    ];
    compiler.emit(spec, params, bindings, Grid::Fixed([x.len / size, 1, 1]));
    Ok(y)
}

/// SkipSimplifiedLayerNormalization: inputs x, skip, weight, bias; outputs y, -, -, sum.
pub(super) fn skip_simplified(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &["epsilon"])?;
    if node.output(1).is_some() || node.output(2).is_some() {
        return Err(unsupported(
            "SkipSimplifiedLayerNormalization with mean or inverse standard deviation as output",
        ));
    }
    let mut x = compiler.input(node, 0)?;
    if let Some(bias) = node.input(3) {
        x = super::activation::add_constant(compiler, x, bias)?;
    }
    let skip = compiler.input(node, 1)?;
    let (weight, size) = compiler.float_weight(required(node, 2)?)?;
    if u64::from(x.len) != size || x.len != skip.len {
        let message = format!(
            "norm of {} and {} values with a weight of {size}",
            x.len, skip.len
        );
        return Err(IgpuError::new(Kind::Model, message));
    }
    let (y, sum) = (compiler.new_value(x.len), compiler.new_value(x.len));
    let spec = KernelSpec::new(Shader::SkipRmsNorm, [("WORKGROUP", WORKGROUP)]);
    let params = vec![x.len, epsilon(node)?.to_bits(), x.offset, skip.offset];
    let slots = [x, skip].map(|view| Binding::Slot(view.base));
    let bindings = vec![
        Binding::Params,
        slots[0],
        slots[1],
        weight,
        Binding::Slot(y.base),
        Binding::Slot(sum.base),
    ];
    compiler.emit(spec, params, bindings, Grid::Fixed([1, 1, 1]));
    compiler.define(required_output(node)?, Value::Data(y));
    if let Some(name) = node.output(3) {
        compiler.define(name, Value::Data(sum));
    }
    Ok(())
}

fn epsilon(node: &Node) -> Result<f32> {
    Ok(node.float_opt("epsilon").map_err(model_error)?.unwrap_or(1e-5))
}

fn required_output(node: &Node) -> Result<&str> {
    node.output(0)
        .ok_or_else(|| IgpuError::new(Kind::Model, format!("{} lacks its output", node.op_type)))
}
