//! GroupQueryAttention: rotary embedding, cache append, attention.

use onnx_model::Node;

use super::only_attributes;
use crate::error::{IgpuError, Kind, Result};
use crate::options::MatvecShape;
use crate::program::{
    Binding, Compiler, Grid, KvShape, STRETCH, Value, View, model_error, required, unsupported,
};
use crate::shader::{KernelSpec, Shader};

/// Invocations of a workgroup of the attention kernel on a GPU.
const GPU_WORKGROUP: u32 = 64;

const KNOWN: [&str; 13] = [
    "num_heads",
    "kv_num_heads",
    "scale",
    "local_window_size",
    "softcap",
    "do_rotary",
    "rotary_interleaved",
    "smooth_softmax",
    "qk_output",
    "k_quant_type",
    "v_quant_type",
    "kv_cache_bit_width",
    "qk_norm_epsilon",
];

/// Inputs that hold the weights of norms over each query and key head, where the graph has them inside.
const Q_NORM: usize = 14;
const K_NORM: usize = 15;

/// What the node's attributes and inputs say.
struct Attention {
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    q: View,
    k: View,
    v: View,
    rotary: Option<Rotary>,
    interleaved: u32,
    window: u32,
    scale: f32,
    softcap: f32,
    layer: usize,
}

struct Rotary {
    cosines: Binding,
    sines: Binding,
    /// Values of a head that are rotated.
    size: u32,
}

/// Inputs: q or packed qkv, k, v, past key, past value, past length, total length, cosines, sines, position ids,
/// attention bias, head sink, key scale, value scale, query norm, key norm.
pub(super) fn compile(compiler: &mut Compiler, node: &Node) -> Result<()> {
    let attention = parse(compiler, node)?;
    let query = append(compiler, &attention);
    let y = attend(compiler, &attention, query);
    compiler.define(node.output(0).unwrap_or_default(), Value::Data(y));
    Ok(())
}

fn parse(compiler: &mut Compiler, node: &Node) -> Result<Attention> {
    only_attributes(node, &KNOWN)?;
    let int = |name, default| {
        node.int_opt(name)
            .map_err(model_error)
            .map(|value| value.unwrap_or(default))
    };
    let float = |name| {
        node.float_opt(name)
            .map_err(model_error)
            .map(|value| value.unwrap_or(0.0))
    };
    for (name, harmless) in [
        ("smooth_softmax", [0, -1]),
        ("qk_output", [0, 0]),
        ("kv_cache_bit_width", [0, 0]),
    ] {
        let value = int(name, 0)?;
        if !harmless.contains(&value) {
            return Err(unsupported(format!("GroupQueryAttention with {name}={value}")));
        }
    }
    for name in ["k_quant_type", "v_quant_type"] {
        let value = node.string_opt(name).map_err(model_error)?.unwrap_or("NONE");
        if value != "NONE" {
            return Err(unsupported(format!("GroupQueryAttention with {name}={value}")));
        }
    }
    let unknown = |&position: &usize| node.input(position).is_some() && ![Q_NORM, K_NORM].contains(&position);
    if let Some(position) = (10..node.inputs.len()).find(unknown) {
        return Err(unsupported(format!(
            "GroupQueryAttention with input {position} ({})",
            node.inputs[position]
        )));
    }
    if let Some(name) = node.input(9)
        && compiler.value(name)? != Value::Position
    {
        return Err(unsupported("GroupQueryAttention with position ids of its own"));
    }
    let lengths = [required(node, 5)?, required(node, 6)?];
    let lengths = [compiler.value(lengths[0])?, compiler.value(lengths[1])?];
    if lengths != [Value::PastLength, Value::TotalLength] {
        return Err(unsupported(
            "GroupQueryAttention with lengths that do not come from the attention mask",
        ));
    }
    let (heads, kv_heads) = (
        node.int("num_heads").map_err(model_error)?,
        node.int("kv_num_heads").map_err(model_error)?,
    );
    if !(1..=4096).contains(&heads) || !(1..=heads).contains(&kv_heads) || heads % kv_heads != 0 {
        return Err(IgpuError::new(
            Kind::Model,
            format!("{heads} query heads over {kv_heads} key heads"),
        ));
    }
    let (heads, kv_heads) = (heads as u32, kv_heads as u32);
    let (mut q, mut k, v, head_dim) = inputs(compiler, node, heads, kv_heads)?;
    if let (Some(q_norm), Some(k_norm)) = (node.input(Q_NORM), node.input(K_NORM)) {
        let epsilon = node
            .float_opt("qk_norm_epsilon")
            .map_err(model_error)?
            .unwrap_or(1e-6);
        q = super::norm::rows(compiler, q, q_norm, epsilon)?;
        k = super::norm::rows(compiler, k, k_norm, epsilon)?;
    }
    let layer = cache_layer(
        compiler,
        node,
        KvShape {
            layers: 0,
            kv_heads,
            head_dim,
        },
    )?;
    let rotary = if int("do_rotary", 0)? == 0 {
        None
    } else {
        Some(rotary(compiler, node, head_dim)?)
    };
    let scale = float("scale")?;
    Ok(Attention {
        heads,
        kv_heads,
        head_dim,
        q,
        k,
        v,
        rotary,
        interleaved: int("rotary_interleaved", 0)? as u32,
        window: int("local_window_size", -1)?.max(0) as u32,
        scale: if scale == 0.0 {
            1.0 / (head_dim as f32).sqrt()
        } else {
            scale
        },
        softcap: float("softcap")?,
        layer,
    })
}

/// q, k and v apart or packed, and the head dimension.
fn inputs(
    compiler: &mut Compiler,
    node: &Node,
    heads: u32,
    kv_heads: u32,
) -> Result<(View, View, View, u32)> {
    let q = compiler.input(node, 0)?;
    let packed = node.input(1).is_none();
    let n = if packed { heads + 2 * kv_heads } else { heads };
    let head_dim = q.len / n;
    if head_dim == 0 || !q.len.is_multiple_of(n) || !head_dim.is_multiple_of(4) {
        return Err(IgpuError::new(
            Kind::Model,
            format!("{} values are not {n} heads", q.len),
        ));
    }
    if packed {
        let (q_len, kv_len) = (heads * head_dim, kv_heads * head_dim);
        return Ok((
            q.part(0, q_len),
            q.part(q_len, kv_len),
            q.part(q_len + kv_len, kv_len),
            head_dim,
        ));
    }
    let (k, v) = (compiler.input(node, 1)?, compiler.input(node, 2)?);
    if k.len != kv_heads * head_dim || v.len != k.len {
        let message = format!(
            "keys of {} and values of {} are not {kv_heads} heads of {head_dim}",
            k.len, v.len
        );
        return Err(IgpuError::new(Kind::Model, message));
    }
    Ok((q, k, v, head_dim))
}

/// The layer whose cache the node uses.
fn cache_layer(compiler: &mut Compiler, node: &Node, shape: KvShape) -> Result<usize> {
    let (Value::Cache(layer), Value::Cache(other)) = (
        compiler.value(required(node, 3)?)?,
        compiler.value(required(node, 4)?)?,
    ) else {
        return Err(unsupported("GroupQueryAttention without a KV cache of its own"));
    };
    let shape = KvShape {
        layers: compiler.folder.geometry().layers,
        ..shape
    };
    if layer != other || compiler.kv.is_some_and(|known| known != shape) {
        return Err(unsupported("layers whose KV caches differ in shape"));
    }
    compiler.kv = Some(shape);
    compiler.own_layer(layer);
    Ok(layer)
}

fn rotary(compiler: &mut Compiler, node: &Node, head_dim: u32) -> Result<Rotary> {
    let (cosines, sines) = (required(node, 7)?, required(node, 8)?);
    let shape = compiler.constant(cosines)?.shape;
    let &[positions, half] = &shape[..] else {
        return Err(IgpuError::new(
            Kind::Model,
            format!("cosine table {cosines} of shape {shape:?}"),
        ));
    };
    if compiler.constant(sines)?.shape != shape || half * 2 > u64::from(head_dim) {
        return Err(IgpuError::new(
            Kind::Model,
            format!("rotary tables of shape {shape:?} for heads of {head_dim}"),
        ));
    }
    if positions < u64::from(compiler.options.context_length) {
        let context = compiler.options.context_length;
        return Err(IgpuError::new(
            Kind::Limit,
            format!("rotary tables for {positions} positions, the context is {context}"),
        ));
    }
    Ok(Rotary {
        cosines: compiler.float_weight(cosines)?.0,
        sines: compiler.float_weight(sines)?.0,
        size: half as u32 * 2,
    })
}

/// Rotates query and key and appends to the cache; gives the rotated query.
fn append(compiler: &mut Compiler, attention: &Attention) -> View {
    let Attention {
        heads,
        kv_heads,
        head_dim,
        q,
        k,
        v,
        layer,
        ..
    } = *attention;
    let query = compiler.new_value(heads * head_dim);
    let filler = Binding::Slot(q.base);
    let (cosines, sines, size) = attention
        .rotary
        .as_ref()
        .map_or((filler, filler, 0), |r| (r.cosines, r.sines, r.size));
    let constants = [
        ("HEAD_DIM", head_dim),
        ("ROTARY", size),
        ("INTERLEAVED", attention.interleaved),
    ];
    let params = vec![heads, kv_heads, q.offset, k.offset, v.offset];
    let bindings = vec![
        Binding::Params,
        Binding::State,
        Binding::Slot(q.base),
        Binding::Slot(k.base),
        Binding::Slot(v.base),
        cosines,
        sines,
        Binding::Slot(query.base),
        Binding::Keys(layer),
        Binding::Values(layer),
    ];
    compiler.emit_elementwise(
        Shader::RopeAppend,
        &constants,
        params,
        bindings,
        (heads + 2 * kv_heads) * head_dim,
    );
    query
}

/// Attention over the cache, in stretches that are then put together.
fn attend(compiler: &mut Compiler, attention: &Attention, query: View) -> View {
    let Attention {
        heads,
        kv_heads,
        head_dim,
        window,
        layer,
        ..
    } = *attention;
    let context = compiler.options.context_length;
    let longest = if window == 0 { context } else { context.min(window) };
    let max_stretches = longest.div_ceil(STRETCH);
    let partials = compiler.new_value(heads * max_stretches * (head_dim + 4));
    // On a CPU adapter an invocation with many positions keeps the query in registers across them.
    let (workgroup, touch) = match compiler.options.matvec {
        MatvecShape::Gpu => (GPU_WORKGROUP, 0),
        MatvecShape::CpuAdapter => (compiler.options.narrow_workgroup, 1),
    };
    let spec = KernelSpec::new(
        Shader::AttentionPartial,
        [
            ("WORKGROUP", workgroup),
            ("HEAD_DIM", head_dim),
            ("STRETCH", STRETCH),
            ("TOUCH", touch),
        ],
    );
    let params = vec![
        heads / kv_heads,
        max_stretches,
        window,
        attention.scale.to_bits(),
        attention.softcap.to_bits(),
    ];
    let bindings = vec![
        Binding::Params,
        Binding::State,
        Binding::Slot(query.base),
        Binding::Keys(layer),
        Binding::Values(layer),
        Binding::Slot(partials.base),
    ];
    compiler.emit(spec, params, bindings, Grid::Stretches { heads, window });
    let y = compiler.new_value(heads * head_dim);
    let constants = [("HEAD_DIM", head_dim), ("STRETCH", STRETCH)];
    let bindings = vec![
        Binding::Params,
        Binding::State,
        Binding::Slot(partials.base),
        Binding::Slot(y.base),
    ];
    compiler.emit_elementwise(
        Shader::AttentionCombine,
        &constants,
        vec![heads, max_stretches, window],
        bindings,
        heads * head_dim,
    );
    y
}
