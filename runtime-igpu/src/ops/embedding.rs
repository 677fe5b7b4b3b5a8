//! Embedding tables: float or block-quantized; and the other uses of Gather.

use onnx_model::{DataType, Node};

use super::matmul::{FloatMatrix, Quantized, ScaleType};
use super::only_attributes;
use crate::error::{IgpuError, Kind, Result};
use crate::program::{Binding, Compiler, Value, View, model_error, required, unsupported};
use crate::shader::Shader;

/// Gather: an embedding lookup, the mask's length, or the last position of a sequence of one.
pub(super) fn gather(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &["axis"])?;
    let axis = node.int_opt("axis").map_err(model_error)?.unwrap_or(0);
    let output = node.output(0).unwrap_or_default().to_owned();
    let (table, indices) = (required(node, 0)?, required(node, 1)?);
    let value = match (compiler.value(table)?, compiler.value(indices)?) {
        (Value::Constant(_), Value::Tokens) if axis == 0 => Value::Data(float_table(compiler, table)?),
        (Value::Transposed(name), Value::Tokens) if axis == 0 => Value::Data(float_columns(compiler, &name)?),
        (Value::MaskShape, Value::Constant(_)) if compiler.integers(indices)? == [1] => Value::TotalLength,
        // One token is decoded at a time: its only position is the last.
        (Value::Data(view), Value::Constant(_))
            if axis == 1 && matches!(compiler.integers(indices)?[..], [0 | -1]) =>
        {
            Value::Data(view)
        }
        (from, by) => {
            return Err(unsupported(format!(
                "Gather from {} by {} along axis {axis}",
                from.what(),
                by.what()
            )));
        }
    };
    compiler.define(&output, value);
    Ok(())
}

fn float_table(compiler: &mut Compiler, name: &str) -> Result<View> {
    let table = compiler.constant(name)?;
    let kind = ScaleType::of(table.dtype)
        .ok_or_else(|| unsupported(format!("embedding table {} of {}", table.name, table.dtype)))?;
    let &[rows, size] = &table.shape[..] else {
        return Err(IgpuError::new(
            Kind::Model,
            format!("embedding table {} of shape {:?}", table.name, table.shape),
        ));
    };
    let row_bytes = size * kind.bytes();
    let rows_per_part = compiler.rows_per_part(rows, row_bytes)?;
    let weight = compiler.raw_weight(&table, rows, rows_per_part)?;
    let y = compiler.new_value(size as u32);
    for (part, first) in (0..rows).step_by(rows_per_part as usize).enumerate() {
        let n = rows_per_part.min(rows - first);
        let params = vec![size as u32, first as u32, n as u32];
        let bindings = vec![
            Binding::Params,
            Binding::State,
            Binding::Weight(weight, part),
            Binding::Slot(y.base),
        ];
        compiler.emit_elementwise(
            Shader::EmbedFloat,
            &[("TABLE_TYPE", kind as u32)],
            params,
            bindings,
            size as u32,
        );
    }
    Ok(y)
}

/// A lookup in the transpose of a table `[size, tokens]`, which the last product shares.
fn float_columns(compiler: &mut Compiler, name: &str) -> Result<View> {
    let matrix = FloatMatrix::new(compiler, name)?;
    let y = compiler.new_value(matrix.rows as u32);
    for part in matrix.parts() {
        let params = vec![matrix.columns as u32, part.first as u32, part.rows as u32];
        let weight = Binding::Weight(matrix.weight, part.index);
        let bindings = vec![Binding::Params, Binding::State, weight, Binding::Slot(y.base)];
        let constants = [("TABLE_TYPE", matrix.kind as u32)];
        compiler.emit_elementwise(
            Shader::EmbedColumns,
            &constants,
            params,
            bindings,
            part.rows as u32,
        );
    }
    Ok(y)
}

/// GatherBlockQuantized: inputs table, indices, scales, zero points.
pub(super) fn quantized(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &["bits", "block_size", "gather_axis", "quantize_axis"])?;
    let int = |name, default| {
        node.int_opt(name)
            .map_err(model_error)
            .map(|value| value.unwrap_or(default))
    };
    if int("gather_axis", 0)? != 0 || int("quantize_axis", 1)? != 1 {
        return Err(unsupported("GatherBlockQuantized along other axes than 0 and 1"));
    }
    if compiler.value(required(node, 1)?)? != Value::Tokens {
        return Err(unsupported(
            "GatherBlockQuantized by something else than the token ids",
        ));
    }
    let table = compiler.constant(required(node, 0)?)?;
    if table.dtype != DataType::Uint8 {
        return Err(unsupported(format!(
            "GatherBlockQuantized from a table of {}",
            table.dtype
        )));
    }
    let bits = int("bits", 4)?;
    let scales = compiler.constant(required(node, 2)?)?;
    let rows = *scales.shape.first().unwrap_or(&0);
    let table_bytes = table.len();
    if rows == 0 || !table_bytes.is_multiple_of(rows) || bits == 0 {
        return Err(IgpuError::new(
            Kind::Model,
            format!("table {} does not have {rows} rows", table.name),
        ));
    }
    let size = table_bytes / rows * 8 / bits as u64;
    let weights = Quantized::new(
        compiler,
        rows,
        size,
        bits,
        int("block_size", 128)?,
        &table,
        &scales,
        node.input(3),
    )?;
    let y = compiler.new_value(size as u32);
    for part in weights.parts() {
        let params = vec![
            size as u32,
            weights.blocks as u32,
            part.first as u32,
            part.rows as u32,
        ];
        let [data, scales, zeros] = weights.bindings(part.index);
        let bindings = vec![
            Binding::Params,
            Binding::State,
            data,
            scales,
            zeros,
            Binding::Slot(y.base),
        ];
        compiler.emit_elementwise(
            Shader::EmbedQuantized,
            &weights.constants(),
            params,
            bindings,
            size as u32,
        );
    }
    compiler.define(node.output(0).unwrap_or_default(), Value::Data(y));
    Ok(())
}
