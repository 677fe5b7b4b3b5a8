//! From graph nodes to dispatches: one file per family of node types.

pub(crate) mod activation;
mod attention;
mod embedding;
mod glue;
mod matmul;
mod norm;

use onnx_model::Node;

use crate::error::Result;
use crate::program::Compiler;

pub(crate) use matmul::MatvecChoice;
#[cfg(test)]
pub(crate) use matmul::ScaleType;

/// Compiles one node.
///
/// # Errors
///
/// The node's type, an attribute or an input is one that this engine has no kernel for.
pub(crate) fn compile_node(compiler: &mut Compiler, node: &Node) -> Result<()> {
    let contrib = node.domain == "com.microsoft";
    match node.op_type.as_str() {
        "MatMulNBits" if contrib => matmul::compile(compiler, node),
        "MatMul" => matmul::float(compiler, node),
        "GroupQueryAttention" if contrib => attention::compile(compiler, node),
        "SimplifiedLayerNormalization" => norm::simplified(compiler, node),
        "SkipSimplifiedLayerNormalization" if contrib => norm::skip_simplified(compiler, node),
        "GatherBlockQuantized" if contrib => embedding::quantized(compiler, node),
        "Gather" => embedding::gather(compiler, node),
        "Add" | "Sub" | "Mul" | "Div" => activation::binary(compiler, node),
        "Sigmoid" | "Tanh" | "Relu" | "Gelu" | "FastGelu" | "QuickGelu" => {
            activation::compile(compiler, node)
        }
        _ => glue::compile(compiler, node),
    }
}

/// Refuses attributes that are set and neither known nor harmless.
pub(crate) fn only_attributes(node: &Node, known: &[&str]) -> Result<()> {
    match node
        .attributes
        .iter()
        .find(|attribute| !known.contains(&attribute.name.as_str()))
    {
        Some(attribute) => {
            let message = format!(
                "{} has attribute {}, which this engine does not know",
                node.op_type, attribute.name
            );
            Err(crate::program::unsupported(message))
        }
        None => Ok(()),
    }
}
