//! MatMulNBits, and quantized weights as it and the embedding have them.

use onnx_model::{DataType, Node};

use super::only_attributes;
use crate::error::{IgpuError, Kind, Result};
use crate::options::MatvecShape;
use crate::program::{Binding, Compiler, ConstantInfo, Value, WeightId, model_error, required, unsupported};
use crate::shader::{KernelSpec, Shader};

/// Type of scales and float zero points; the numbers are those of floats.wgsl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ScaleType {
    Float32 = 0,
    Float16 = 1,
    BFloat16 = 2,
}

impl ScaleType {
    pub(crate) fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::Float32 => Some(Self::Float32),
            DataType::Float16 => Some(Self::Float16),
            DataType::BFloat16 => Some(Self::BFloat16),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        if self == Self::Float32 { 4 } else { 2 }
    }
}

/// What zero points are; the numbers are those of quantized.wgsl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum ZeroType {
    None = 0,
    Packed = 1,
    Float = 2,
}

/// Block-quantized weights on the device, in the model's layout.
pub(crate) struct Quantized {
    rows: u64,
    rows_per_part: u64,
    /// Blocks per row.
    pub(crate) blocks: u64,
    bits: u32,
    block_size: u32,
    scale_type: ScaleType,
    zero_type: ZeroType,
    data: WeightId,
    scales: WeightId,
    zeros: Option<WeightId>,
}

/// Rows of a weight that share a binding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) first: u64,
    pub(crate) rows: u64,
}

impl Quantized {
    /// Checks the tensors against each other and has them uploaded.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        compiler: &mut Compiler,
        rows: u64,
        k: u64,
        bits: i64,
        block_size: i64,
        data: &ConstantInfo,
        scales: &ConstantInfo,
        zeros: Option<&str>,
    ) -> Result<Self> {
        if !matches!(bits, 4 | 8) {
            return Err(unsupported(format!("{bits}-bit weights")));
        }
        if !(16..=1024).contains(&block_size) || !(block_size as u64).is_power_of_two() {
            return Err(unsupported(format!("block size {block_size}")));
        }
        let (bits, block_size) = (bits as u32, block_size as u32);
        let blocks = k.div_ceil(u64::from(block_size));
        let row_bytes = blocks * u64::from(block_size) * u64::from(bits) / 8;
        expect(data, data.dtype == DataType::Uint8, rows * row_bytes)?;
        let scale_type = ScaleType::of(scales.dtype)
            .ok_or_else(|| unsupported(format!("scales {} of {}", scales.name, scales.dtype)))?;
        expect(scales, true, rows * blocks)?;
        let rows_per_part = compiler.rows_per_part(rows, row_bytes.max(blocks * 4))?;
        let zeros = zeros.map(|name| compiler.constant(name)).transpose()?;
        let zero_type = match &zeros {
            None => ZeroType::None,
            Some(zeros) if zeros.dtype == DataType::Uint8 => {
                expect(zeros, true, rows * (blocks * u64::from(bits)).div_ceil(8))?;
                ZeroType::Packed
            }
            Some(zeros) if zeros.dtype == scales.dtype => {
                expect(zeros, true, rows * blocks)?;
                ZeroType::Float
            }
            Some(zeros) => {
                let message = format!(
                    "zero points {} of {} beside scales of {}",
                    zeros.name, zeros.dtype, scales.dtype
                );
                return Err(unsupported(message));
            }
        };
        Ok(Self {
            rows,
            rows_per_part,
            blocks,
            bits,
            block_size,
            scale_type,
            zero_type,
            data: compiler.raw_weight(data, rows, rows_per_part)?,
            scales: compiler.raw_weight(scales, rows, rows_per_part)?,
            zeros: zeros
                .map(|zeros| compiler.raw_weight(&zeros, rows, rows_per_part))
                .transpose()?,
        })
    }

    /// The parts that the binding limit makes.
    pub(crate) fn parts(&self) -> Vec<Part> {
        parts(self.rows, self.rows_per_part)
    }

    /// Bindings of weights, scales and zero points; without zero points something else fills the place.
    pub(crate) fn bindings(&self, part: usize) -> [Binding; 3] {
        [self.data, self.scales, self.zeros.unwrap_or(self.scales)]
            .map(|weight| Binding::Weight(weight, part))
    }

    /// The constants of quantized.wgsl.
    pub(crate) fn constants(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("BITS", self.bits),
            ("BLOCK", self.block_size),
            ("SCALE_TYPE", self.scale_type as u32),
            ("ZERO_TYPE", self.zero_type as u32),
        ]
    }
}

fn parts(rows: u64, rows_per_part: u64) -> Vec<Part> {
    let part = |(index, first): (usize, u64)| Part {
        index,
        first,
        rows: rows_per_part.min(rows - first),
    };
    (0..rows)
        .step_by(rows_per_part as usize)
        .enumerate()
        .map(part)
        .collect()
}

/// A float matrix on the device, in the model's layout `[rows, columns]`.
pub(crate) struct FloatMatrix {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    rows_per_part: u64,
    pub(crate) kind: ScaleType,
    pub(crate) weight: WeightId,
}

impl FloatMatrix {
    /// Has the constant uploaded.
    pub(crate) fn new(compiler: &mut Compiler, name: &str) -> Result<Self> {
        let matrix = compiler.constant(name)?;
        let kind = ScaleType::of(matrix.dtype)
            .ok_or_else(|| unsupported(format!("matrix {} of {}", matrix.name, matrix.dtype)))?;
        let &[rows, columns] = &matrix.shape[..] else {
            return Err(unsupported(format!(
                "matrix {} of shape {:?}",
                matrix.name, matrix.shape
            )));
        };
        // An invocation loops over a part's rows, and Mesa 22.3.6 stops loops after 65,535 iterations.
        let rows_per_part = compiler
            .rows_per_part(rows, columns * kind.bytes())?
            .min(MAX_LOOP_ROWS);
        let weight = compiler.raw_weight(&matrix, rows, rows_per_part)?;
        Ok(Self {
            rows,
            columns,
            rows_per_part,
            kind,
            weight,
        })
    }

    /// The parts that the binding limit makes.
    pub(crate) fn parts(&self) -> Vec<Part> {
        parts(self.rows, self.rows_per_part)
    }
}

/// Rows that one invocation goes through at most.
const MAX_LOOP_ROWS: u64 = 32_768;

/// MatMul with a constant matrix.
pub(super) fn float(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &[])?;
    let x = compiler.input(node, 0)?;
    let name = required(node, 1)?;
    match compiler.value(name)? {
        Value::Constant(_) => {}
        other => return Err(unsupported(format!("MatMul with {}", other.what()))),
    }
    let matrix = FloatMatrix::new(compiler, name)?;
    if u64::from(x.len) != matrix.rows {
        return Err(IgpuError::new(
            Kind::Model,
            format!("MatMul of {} values with {} rows", x.len, matrix.rows),
        ));
    }
    let y = compiler.new_value(matrix.columns as u32);
    let spec = KernelSpec::new(
        Shader::MatvecFloat,
        [
            ("WEIGHT_TYPE", matrix.kind as u32),
            ("WORKGROUP", FLOAT_WORKGROUP),
        ],
    );
    for part in matrix.parts() {
        let (grid, groups_x) = compiler.wide_grid((matrix.columns as u32).div_ceil(FLOAT_WORKGROUP));
        let params = vec![
            matrix.columns as u32,
            part.first as u32,
            part.rows as u32,
            x.offset,
            groups_x,
        ];
        let weight = Binding::Weight(matrix.weight, part.index);
        let bindings = vec![
            Binding::Params,
            Binding::Slot(x.base),
            weight,
            Binding::Slot(y.base),
        ];
        compiler.emit(spec.clone(), params, bindings, grid);
    }
    compiler.define(node.output(0).unwrap_or_default(), Value::Data(y));
    Ok(())
}

/// Invocations of a workgroup of the product with float weights.
const FLOAT_WORKGROUP: u32 = 64;

fn expect(constant: &ConstantInfo, type_fits: bool, len: u64) -> Result<()> {
    if type_fits && constant.len() == len {
        return Ok(());
    }
    let ConstantInfo { name, dtype, shape } = constant;
    Err(IgpuError::new(
        Kind::Model,
        format!("constant {name} is {dtype} of shape {shape:?}, {len} elements were expected"),
    ))
}

/// MatMulNBits: inputs x, weights, scales, zero points, g_idx, bias.
pub(super) fn compile(compiler: &mut Compiler, node: &Node) -> Result<()> {
    only_attributes(node, &["K", "N", "bits", "block_size", "accuracy_level"])?;
    if node.input(4).is_some() {
        return Err(unsupported("MatMulNBits with g_idx"));
    }
    let int = |name| node.int(name).map_err(model_error);
    let bits = node.int_opt("bits").map_err(model_error)?.unwrap_or(4);
    let (k, n) = (int("K")?, int("N")?);
    if !(1..=MAX_SIZE).contains(&k) || !(1..=MAX_SIZE).contains(&n) {
        return Err(IgpuError::new(
            Kind::Model,
            format!("MatMulNBits with K={k}, N={n}"),
        ));
    }
    let (k, n) = (k as u64, n as u64);
    let x = compiler.input(node, 0)?;
    if u64::from(x.len) != k {
        return Err(IgpuError::new(
            Kind::Model,
            format!("MatMulNBits with K={k} of {} values", x.len),
        ));
    }
    let (data, scales) = (
        compiler.constant(required(node, 1)?)?,
        compiler.constant(required(node, 2)?)?,
    );
    let weights = Quantized::new(
        compiler,
        n,
        k,
        bits,
        int("block_size")?,
        &data,
        &scales,
        node.input(3),
    )?;
    let mut y = compiler.new_value(n as u32);
    for part in weights.parts() {
        let shape = MatvecChoice {
            k,
            x_offset: x.offset,
            bits: weights.bits,
            block_size: weights.block_size,
        };
        let (spec, rows_per_group) = shape.kernel(
            compiler.options.matvec,
            compiler.options.narrow_workgroup,
            weights.constants(),
        );
        let (grid, groups_x) = compiler.wide_grid((part.rows as u32).div_ceil(rows_per_group));
        let params = vec![
            part.rows as u32,
            k as u32,
            weights.blocks as u32,
            x.offset,
            part.first as u32,
            groups_x,
        ];
        let [data, scales, zeros] = weights.bindings(part.index);
        let bindings = vec![
            Binding::Params,
            Binding::Slot(x.base),
            data,
            scales,
            zeros,
            Binding::Slot(y.base),
        ];
        compiler.emit(spec, params, bindings, grid);
    }
    if let Some(bias) = node.input(5) {
        y = super::activation::add_constant(compiler, y, bias)?;
    }
    compiler.define(node.output(0).unwrap_or_default(), Value::Data(y));
    Ok(())
}

/// Keeps every element index of a weight inside 32 bits, together with the binding limit.
const MAX_SIZE: i64 = 1 << 26;

/// What decides which matrix-vector kernel fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatvecChoice {
    pub(crate) k: u64,
    pub(crate) x_offset: u32,
    pub(crate) bits: u32,
    pub(crate) block_size: u32,
}

impl MatvecChoice {
    /// The kernel and how many rows a workgroup of it owns.
    pub(crate) fn kernel(
        self,
        shape: MatvecShape,
        narrow: u32,
        mut constants: Vec<(&'static str, u32)>,
    ) -> (KernelSpec, u32) {
        let values_per_load = 128 / self.bits;
        let ragged = !self.k.is_multiple_of(u64::from(self.block_size));
        let whole_loads =
            self.block_size.is_multiple_of(values_per_load) && !ragged && self.x_offset.is_multiple_of(4);
        let (shader, workgroup, rows) = match shape {
            MatvecShape::CpuAdapter if whole_loads => (Shader::MatvecBlocks, narrow, 16),
            MatvecShape::CpuAdapter => (Shader::MatvecWords, narrow, 16),
            MatvecShape::Gpu => (Shader::MatvecWords, 64, 4),
        };
        constants.extend([("WORKGROUP", workgroup), ("ROWS", rows)]);
        if shader == Shader::MatvecWords {
            constants.push(("RAGGED", u32::from(ragged)));
        }
        (KernelSpec::new(shader, constants), rows)
    }
}
