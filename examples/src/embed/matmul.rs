//! The operator type: how a `MatMulNBits` node is read, and how its kernel is made.

use std::sync::{Mutex, PoisonError};

use ort::editor::{Graph, Model, Node, Opset};
use ort::environment::Environment;
use ort::memory::Allocator;
use ort::operator::{Attribute, KernelContext};
use ort::session::Session;
use ort::value::{
    DowncastableTarget, IntoTensorElementType, Outlet, PrimitiveTensorElementType, Shape, SymbolicDimensions,
    Tensor, TensorElementType, TensorRef, TensorValueType, ValueType,
};
use scheduler::{BoxError, OperatorType};

/// The attributes that ONNX Runtime's `com.microsoft.MatMulNBits` has, all integers.
const ATTRIBUTES: [&str; 5] = ["K", "N", "bits", "block_size", "accuracy_level"];

/// Multiplication with a matrix of few-bit numbers. Here the device is a session of ONNX Runtime itself over that one
/// node, so that results can be compared bit by bit.
#[derive(Debug)]
pub struct MatMulNBits {
    pub(super) environment: Environment,
}

impl OperatorType for MatMulNBits {
    /// The node that ONNX Runtime shows its constructor. It is gone when the constructor returns.
    type Source = KernelContext<'static>;
    type Host = MatMulNBitsWeights;
    type Device = MatMulNBitsKernel;
    type Lane = ();

    fn name(&self) -> &str {
        "MatMulNBits"
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, node: &KernelContext<'static>) -> Result<MatMulNBitsWeights, BoxError> {
        Ok(MatMulNBitsWeights::read(node)?)
    }

    async fn setup(&self, (): &mut (), weights: MatMulNBitsWeights) -> Result<MatMulNBitsKernel, BoxError> {
        Ok(self.create(weights)?)
    }
}

/// What a constructor reads: everything the kernel needs, owned, since the node is out of reach later.
#[derive(Debug)]
pub struct MatMulNBitsWeights {
    name: String,
    attributes: Vec<(&'static str, i64)>,
    packed: Tensor<u8>,
    scales: Tensor<f32>,
    zero_points: Option<Tensor<u8>>,
}

impl MatMulNBitsWeights {
    fn read(node: &KernelContext<'_>) -> ort::Result<Self> {
        Ok(Self {
            name: node.node_name()?,
            attributes: ATTRIBUTES
                .into_iter()
                .filter_map(|name| Some((name, node.get::<i64>(name)?)))
                .collect(),
            packed: constant(node, 1)?,
            scales: constant(node, 2)?,
            zero_points: if node.inputs()?.len() > 3 {
                Some(constant(node, 3)?)
            } else {
                None
            },
        })
    }

    fn attribute(&self, name: &str) -> ort::Result<i64> {
        let found = self.attributes.iter().find(|(attribute, _)| *attribute == name);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| ort::Error::new(format!("{}: no attribute {name}", self.name)))
    }
}

/// A constant input, copied: the outer session frees what it holds of it.
fn constant<T>(node: &KernelContext<'_>, index: usize) -> ort::Result<Tensor<T>>
where
    T: PrimitiveTensorElementType + IntoTensorElementType + Copy + std::fmt::Debug + 'static,
    TensorValueType<T>: DowncastableTarget,
{
    let value = node.constant_input::<TensorValueType<T>>(index)?;
    let (shape, data) = value.extract_tensor();
    let mut copy = Tensor::<T>::new(&Allocator::default(), shape.clone())?;
    copy.extract_tensor_mut().1.copy_from_slice(data);
    Ok(copy)
}

/// A kernel that is ready to run.
#[derive(Debug)]
pub struct MatMulNBitsKernel {
    n: i64,
    session: Mutex<Session>,
}

impl MatMulNBits {
    /// Creates the kernel: ONNX Runtime packs the weights for this CPU.
    fn create(&self, weights: MatMulNBitsWeights) -> ort::Result<MatMulNBitsKernel> {
        let (k, n) = (weights.attribute("K")?, weights.attribute("N")?);
        let mut graph = Graph::new()?;
        graph.set_inputs([rows("A", k)])?;
        graph.set_outputs([rows("Y", n)])?;
        let mut inputs = vec!["A", "B", "scales"];
        graph.add_initializer("B", weights.packed, false)?;
        graph.add_initializer("scales", weights.scales, false)?;
        if let Some(zero_points) = weights.zero_points {
            inputs.push("zero_points");
            graph.add_initializer("zero_points", zero_points, false)?;
        }
        let attributes = weights
            .attributes
            .iter()
            .map(|&(name, value)| Attribute::new(name, value));
        let attributes = attributes.collect::<ort::Result<Vec<_>>>()?;
        graph.add_node(Node::new(
            "MatMulNBits",
            "com.microsoft",
            &weights.name,
            &inputs,
            ["Y"],
            attributes,
        )?)?;
        let mut model = Model::new([Opset::new("", 21)?, Opset::new("com.microsoft", 1)?])?;
        model.set_graph(graph)?;
        let session = model.into_session(&Session::builder(&self.environment)?)?;
        Ok(MatMulNBitsKernel {
            n,
            session: Mutex::new(session),
        })
    }
}

/// A graph input or output `[batch, sequence, width]`.
fn rows(name: &str, width: i64) -> Outlet {
    let shape = Shape::new([-1, -1, width]);
    let dimension_symbols = SymbolicDimensions::new(["batch", "sequence", ""].map(str::to_owned));
    Outlet::new(
        name,
        ValueType::Tensor {
            ty: TensorElementType::Float32,
            shape,
            dimension_symbols,
        },
    )
}

impl MatMulNBitsKernel {
    /// Multiplies rows `[batch, sequence, K]`, giving shape and values of `[batch, sequence, N]` to `write`.
    pub(super) fn run(
        &self,
        shape: &Shape,
        rows: &[f32],
        write: impl FnOnce(Vec<i64>, &[f32]) -> ort::Result<()>,
    ) -> ort::Result<()> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session.run(ort::inputs![TensorRef::from_array_view((shape.clone(), rows))?])?;
        let mut out = shape.to_vec();
        if let Some(last) = out.last_mut() {
            *last = self.n;
        }
        write(out, outputs[0].try_extract_tensor::<f32>()?.1)
    }
}
