//! The custom operator that ONNX Runtime sees.

use ort::Error;
use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorInput, OperatorOutput, ShapeInferenceContext,
};
use ort::value::{Shape, SymbolicDimensions, TensorElementType, ValueType};
use scheduler::{Handle, Intake, IntakeLane};

use super::matmul::{MatMulNBits, MatMulNBitsKernel};

/// `MatMulNBits` in this project's domain.
pub(super) struct CustomMatMulNBits {
    pub(super) intake: Intake,
    pub(super) lane: IntakeLane<MatMulNBits>,
}

impl Operator for CustomMatMulNBits {
    type Kernel<'attr> = CustomKernel;

    fn name(&self) -> &str {
        "MatMulNBits"
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [
            OperatorInput::required(TensorElementType::Float32),
            OperatorInput::required(TensorElementType::Uint8),
            OperatorInput::required(TensorElementType::Float32),
            OperatorInput::optional(TensorElementType::Uint8),
        ]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn infer_shape(&self, ctx: &mut ShapeInferenceContext) -> ort::Result<()> {
        let n: i64 = ctx.attr("N")?;
        let Some(ValueType::Tensor { shape, .. }) = ctx.inputs().into_iter().next() else {
            return Ok(());
        };
        let mut shape = shape.to_vec();
        if let Some(last) = shape.last_mut() {
            *last = n;
        }
        let product = ValueType::Tensor {
            ty: TensorElementType::Float32,
            dimension_symbols: SymbolicDimensions::empty(shape.len()),
            shape: Shape::new(shape),
        };
        ctx.set_output(0, &product)
    }

    /// The constructor: reads now, and leaves the device half to the lane (or does it too, if the intake is inline).
    fn create_kernel<'attr>(&self, node: &KernelContext<'attr>) -> ort::Result<CustomKernel> {
        let name = node.node_name()?;
        // SAFETY: the reference is only handed to `MatMulNBits::read`, which copies what it needs before this call returns; the
        // lifetime is a marker, without a part in the type's layout.
        let node = unsafe { std::mem::transmute::<&KernelContext<'attr>, &KernelContext<'static>>(node) };
        let kernel = self
            .intake
            .operator(&self.lane, name, node)
            .map_err(Error::wrap)?;
        Ok(CustomKernel { kernel })
    }
}

pub(super) struct CustomKernel {
    kernel: Handle<MatMulNBitsKernel>,
}

impl Kernel for CustomKernel {
    fn compute(&mut self, ctx: &ComputeContext) -> ort::Result<()> {
        let kernel = self.kernel.get().map_err(Error::wrap)?;
        let rows = ctx.input(0)?.ok_or_else(|| Error::new("input A is missing"))?;
        let (shape, rows) = rows.try_extract_tensor::<f32>()?;
        kernel.run(shape, rows, |shape, product| {
            let mut out = ctx
                .output(0, shape)?
                .ok_or_else(|| Error::new("output Y is missing"))?;
            out.try_extract_tensor_mut::<f32>()?.1.copy_from_slice(product);
            Ok(())
        })
    }
}
