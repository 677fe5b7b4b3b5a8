//! Checks of a graph against itself: operator sets, shapes against attributes, paths.

use std::collections::HashSet;

use crate::dtype::DataType;
use crate::error::{Error, Result, shown};
use crate::graph::{Graph, Initializer, Node};

/// Versions of the standard operator set whose decoders are known to read correctly; builders write 14 to 22.
const STANDARD_OPSETS: std::ops::RangeInclusive<i64> = 7..=28;

/// Whether the model's operator sets are known, and each node's is imported.
pub(crate) fn opsets(graph: &Graph) -> Result<()> {
    let mut domains = HashSet::new();
    for opset in &graph.opset_imports {
        let (domain, version) = (opset.domain.as_str(), opset.version);
        if !domains.insert(domain) {
            return Err(Error::malformed(format!(
                "operator set '{}' is imported twice",
                shown(domain)
            )));
        }
        let known = match domain {
            "" => STANDARD_OPSETS.contains(&version),
            "com.microsoft" => version == 1,
            _ => true,
        };
        if !known {
            let name = if domain.is_empty() { "ai.onnx" } else { domain };
            return Err(Error::unsupported(format!(
                "version {version} of operator set {name} is unknown; known are ai.onnx {} to {} and com.microsoft 1",
                STANDARD_OPSETS.start(),
                STANDARD_OPSETS.end()
            )));
        }
    }
    graph.nodes.iter().try_for_each(|node| node_opset(&domains, node))
}

fn node_opset(imported: &HashSet<&str>, node: &Node) -> Result<()> {
    if !matches!(node.domain.as_str(), "" | "com.microsoft") {
        return Err(node.error(Error::unsupported(format!(
            "unknown operator {}::{}",
            shown(&node.domain),
            shown(&node.op_type)
        ))));
    }
    if !imported.contains(node.domain.as_str()) {
        let domain = if node.domain.is_empty() {
            "ai.onnx"
        } else {
            &node.domain
        };
        return Err(node.error(Error::malformed(format!(
            "the model does not import operator set {domain}"
        ))));
    }
    for attribute in &node.attributes {
        if let crate::AttributeValue::Graph(inner) = &attribute.value {
            inner
                .nodes
                .iter()
                .try_for_each(|n| node_opset(imported, n))
                .map_err(|e| node.error(e))?;
        }
    }
    Ok(())
}

/// A path of external data must stay in the folder, as text; links are looked at when the file is opened.
pub(crate) fn location(location: &str) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::unsafe_path(format!(
            "external data path '{}' {why}",
            shown(location)
        )))
    };
    if location.is_empty() {
        return refuse("is empty");
    }
    if location.contains('\0') {
        return refuse("has a zero byte");
    }
    let drive =
        location.len() > 1 && location.as_bytes()[1] == b':' && location.as_bytes()[0].is_ascii_alphabetic();
    if location.starts_with(['/', '\\']) || drive {
        return refuse("is absolute; weights must lie in the model folder");
    }
    if location.split(['/', '\\']).any(|part| part == "..") {
        return refuse("leaves the model folder");
    }
    Ok(())
}

/// Shapes of constant inputs against attributes, for the operators of decoders.
pub(crate) fn nodes(graph: &Graph) -> Result<()> {
    for node in &graph.nodes {
        let checked = match (node.domain.as_str(), node.op_type.as_str()) {
            ("com.microsoft", "MatMulNBits") => mat_mul_n_bits(graph, node),
            ("com.microsoft", "GatherBlockQuantized") => gather_block_quantized(graph, node),
            ("com.microsoft", "GroupQueryAttention") => group_query_attention(graph, node),
            ("com.microsoft", "SkipSimplifiedLayerNormalization") => norm(graph, node, 2, 2),
            ("com.microsoft", "SkipLayerNormalization") => norm(graph, node, 2, 3),
            ("", "SimplifiedLayerNormalization" | "RMSNormalization") => norm(graph, node, 1, 1),
            ("", "LayerNormalization") => norm(graph, node, 1, 2),
            ("", "MatMul") => mat_mul(graph, node),
            ("", "DequantizeLinear") => dequantize_linear(graph, node),
            _ => Ok(()),
        };
        checked.map_err(|e| node.error(e))?;
    }
    Ok(())
}

fn constant<'g>(graph: &'g Graph, node: &Node, position: usize) -> Option<&'g Initializer> {
    graph.initializer(node.input(position)?)
}

fn expect_type(tensor: &Initializer, allowed: &[DataType]) -> Result<()> {
    if allowed.contains(&tensor.dtype) {
        return Ok(());
    }
    let allowed = allowed.iter().map(|t| t.name()).collect::<Vec<_>>().join(" or ");
    Err(
        Error::malformed(format!("elements are {}, should be {allowed}", tensor.dtype))
            .at_tensor(&tensor.name),
    )
}

/// `what` says where the number comes from.
fn expect_elements(tensor: &Initializer, elements: Option<u64>, what: &str) -> Result<()> {
    let has = tensor.shape.iter().product::<u64>();
    if elements == Some(has) {
        return Ok(());
    }
    let should = elements.map_or("more than fit in memory".to_string(), |n| n.to_string());
    Err(Error::range(format!(
        "shape {:?} has {has} elements, but {what} means {should}",
        tensor.shape
    ))
    .at_tensor(&tensor.name))
}

fn positive(node: &Node, attribute: &str) -> Result<u64> {
    let value = node.int(attribute)?;
    u64::try_from(value)
        .ok()
        .filter(|&v| v > 0)
        .ok_or_else(|| Error::range(format!("attribute {attribute} = {value} should be positive")))
}

/// `bits` and `block_size`, as MatMulNBits and GatherBlockQuantized have them.
fn blocks(node: &Node) -> Result<(u64, u64)> {
    let bits = node.int_opt("bits")?.unwrap_or(4);
    if !matches!(bits, 2 | 4 | 8) {
        return Err(Error::unsupported(format!(
            "attribute bits = {bits} should be 2, 4 or 8"
        )));
    }
    let block = node.int_opt("block_size")?.unwrap_or(128);
    if !(16..=1 << 20).contains(&block) || block & (block - 1) != 0 {
        return Err(Error::range(format!(
            "attribute block_size = {block} should be a power of two, at least 16"
        )));
    }
    Ok((bits as u64, block as u64))
}

const FLOATS: [DataType; 3] = [DataType::Float32, DataType::Float16, DataType::BFloat16];

/// Layout: weights `[N, blocks, block_size * bits / 8]`, scales `[N, blocks]`, zero points `[N, ceil(blocks * bits / 8)]`
/// packed or of the type and shape of the scales, bias `[N]` (operator documentation of ONNX Runtime's contrib operators).
fn mat_mul_n_bits(graph: &Graph, node: &Node) -> Result<()> {
    let (k, n) = (positive(node, "K")?, positive(node, "N")?);
    let (bits, block) = blocks(node)?;
    let per_row = k.div_ceil(block);
    let what = format!("K={k} N={n} bits={bits} block_size={block}");
    if let Some(weight) = constant(graph, node, 1) {
        expect_type(weight, &[DataType::Uint8])?;
        expect_elements(
            weight,
            n.checked_mul(per_row)
                .and_then(|e| e.checked_mul(block * bits / 8)),
            &what,
        )?;
    }
    if let Some(scales) = constant(graph, node, 2) {
        expect_type(scales, &FLOATS)?;
        expect_elements(scales, n.checked_mul(per_row), &what)?;
    }
    if let Some(zeros) = constant(graph, node, 3) {
        // K is at most 2^63 and a block at least 16, so the product fits.
        let elements = match zeros.dtype {
            DataType::Uint8 => n.checked_mul((per_row * bits).div_ceil(8)),
            _ => n.checked_mul(per_row),
        };
        expect_type(
            zeros,
            &[
                DataType::Uint8,
                DataType::Float32,
                DataType::Float16,
                DataType::BFloat16,
            ],
        )?;
        expect_elements(zeros, elements, &what)?;
    }
    if let Some(bias) = constant(graph, node, 5) {
        expect_type(bias, &FLOATS)?;
        expect_elements(bias, Some(n), &what)?;
    }
    Ok(())
}

fn gather_block_quantized(graph: &Graph, node: &Node) -> Result<()> {
    let (bits, block) = blocks(node)?;
    let Some(data) = constant(graph, node, 0) else {
        return Ok(());
    };
    expect_type(data, &[DataType::Uint8, DataType::Uint4, DataType::Int4])?;
    let per_element = if data.dtype == DataType::Uint8 {
        8 / bits
    } else {
        1
    };
    let what = format!("bits={bits} block_size={block}");
    if let (Some(scales), Some((columns, rows))) = (constant(graph, node, 2), data.shape.split_last()) {
        expect_type(scales, &FLOATS)?;
        let per_row = columns.checked_mul(per_element).map(|c| c.div_ceil(block));
        let rows = rows.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        expect_elements(
            scales,
            rows.zip(per_row).and_then(|(r, c)| r.checked_mul(c)),
            &what,
        )?;
    }
    Ok(())
}

fn group_query_attention(graph: &Graph, node: &Node) -> Result<()> {
    let (heads, kv_heads) = (positive(node, "num_heads")?, positive(node, "kv_num_heads")?);
    if !heads.is_multiple_of(kv_heads) {
        return Err(Error::range(format!(
            "num_heads = {heads} should be a multiple of kv_num_heads = {kv_heads}"
        )));
    }
    let [cos, sin] = [7, 8].map(|i| constant(graph, node, i));
    for cache in [cos, sin].into_iter().flatten() {
        expect_type(cache, &FLOATS)?;
        if cache.shape.len() != 2 {
            return Err(Error::range(format!(
                "shape {:?} should be [positions, half of the rotary size]",
                cache.shape
            ))
            .at_tensor(&cache.name));
        }
    }
    match (cos, sin) {
        (Some(cos), Some(sin)) if cos.shape != sin.shape => Err(Error::range(format!(
            "cosines have shape {:?}, sines {:?}",
            cos.shape, sin.shape
        ))
        .at_tensor(&sin.name)),
        _ => Ok(()),
    }
}

fn norm(graph: &Graph, node: &Node, first: usize, last: usize) -> Result<()> {
    if let Some(epsilon) = node.float_opt("epsilon")?
        && !(0.0..=1.0).contains(&epsilon)
    {
        return Err(Error::range(format!(
            "attribute epsilon = {epsilon} should be between 0 and 1"
        )));
    }
    let mut size = None;
    for tensor in (first..=last).filter_map(|i| constant(graph, node, i)) {
        expect_type(tensor, &FLOATS)?;
        expect_elements(
            tensor,
            Some(*size.get_or_insert(tensor.shape.iter().product())),
            "the scale",
        )?;
    }
    Ok(())
}

fn mat_mul(graph: &Graph, node: &Node) -> Result<()> {
    match constant(graph, node, 1) {
        Some(weight) if weight.shape.is_empty() => {
            Err(Error::range("a scalar cannot be multiplied as a matrix").at_tensor(&weight.name))
        }
        _ => Ok(()),
    }
}

/// Scales (and zero points) have one element per tensor, per channel or per block.
fn dequantize_linear(graph: &Graph, node: &Node) -> Result<()> {
    let (Some(data), Some(scales)) = (constant(graph, node, 0), constant(graph, node, 1)) else {
        return Ok(());
    };
    expect_type(scales, &FLOATS)?;
    let block = node.int_opt("block_size")?.unwrap_or(0);
    let block = u64::try_from(block)
        .map_err(|_| Error::range(format!("attribute block_size = {block} is negative")))?;
    let axis = node.int_opt("axis")?.unwrap_or(1);
    let rank = data.shape.len() as i64;
    let elements = if scales.shape.iter().product::<u64>() == 1 && block == 0 {
        1
    } else if !(-rank..rank).contains(&axis) {
        return Err(Error::range(format!(
            "attribute axis = {axis} does not fit shape {:?}",
            data.shape
        ))
        .at_tensor(&data.name));
    } else {
        let axis = axis.rem_euclid(rank) as usize;
        match block {
            0 => data.shape[axis],
            block => (data.shape.iter().enumerate())
                .map(|(i, &d)| if i == axis { d.div_ceil(block) } else { d })
                .product(),
        }
    };
    expect_elements(
        scales,
        Some(elements),
        &format!("shape {:?} with axis={axis} block_size={block}", data.shape),
    )?;
    if let Some(zeros) = constant(graph, node, 2) {
        expect_type(zeros, &[data.dtype])?;
        expect_elements(zeros, Some(elements), "the scale")?;
    }
    Ok(())
}
