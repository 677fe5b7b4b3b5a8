//! The WGSL files: which there are, what they bind, and how one becomes a complete shader.
//!
//! A shader's text is its constants, then its file with every `//!include NAME` line replaced by that snippet.

use std::fmt::Write;

/// How a binding is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// A uniform buffer.
    Uniform,
    /// A storage buffer that is only read.
    Read,
    /// A storage buffer that is written.
    Write,
}

/// A WGSL file with an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shader {
    MatvecBlocks,
    MatvecWords,
    MatvecFloat,
    RmsNorm,
    SkipRmsNorm,
    EmbedFloat,
    EmbedColumns,
    EmbedQuantized,
    RopeAppend,
    AttentionPartial,
    AttentionCombine,
    Gated,
    Unary,
    Binary,
    Argmax,
    Copy,
}

impl Shader {
    /// The file's name, which also names the kernel in errors and traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shader::MatvecBlocks => "matvec_blocks",
            Shader::MatvecWords => "matvec_words",
            Shader::MatvecFloat => "matvec_float",
            Shader::RmsNorm => "rms_norm",
            Shader::SkipRmsNorm => "skip_rms_norm",
            Shader::EmbedFloat => "embed_float",
            Shader::EmbedColumns => "embed_columns",
            Shader::EmbedQuantized => "embed_quantized",
            Shader::RopeAppend => "rope_append",
            Shader::AttentionPartial => "attention_partial",
            Shader::AttentionCombine => "attention_combine",
            Shader::Gated => "gated",
            Shader::Unary => "unary",
            Shader::Binary => "binary",
            Shader::Argmax => "argmax",
            Shader::Copy => "copy",
        }
    }

    /// What the bindings of group 0 are, in order.
    pub(crate) fn bindings(self) -> &'static [Access] {
        use Access::{Read, Uniform, Write};
        match self {
            Shader::MatvecBlocks | Shader::MatvecWords => &[Uniform, Read, Read, Read, Read, Write],
            Shader::MatvecFloat | Shader::RmsNorm | Shader::Gated | Shader::Binary => {
                &[Uniform, Read, Read, Write]
            }
            Shader::SkipRmsNorm => &[Uniform, Read, Read, Read, Write, Write],
            Shader::EmbedFloat | Shader::EmbedColumns | Shader::AttentionCombine => {
                &[Uniform, Uniform, Read, Write]
            }
            Shader::EmbedQuantized | Shader::AttentionPartial => &[Uniform, Uniform, Read, Read, Read, Write],
            Shader::RopeAppend => &[
                Uniform, Uniform, Read, Read, Read, Read, Read, Write, Write, Write,
            ],
            Shader::Unary | Shader::Argmax | Shader::Copy => &[Uniform, Read, Write],
        }
    }

    /// Whether this is a matrix-vector product.
    pub(crate) fn is_matvec(self) -> bool {
        matches!(
            self,
            Shader::MatvecBlocks | Shader::MatvecWords | Shader::MatvecFloat
        )
    }

    fn source(self) -> &'static str {
        snippet(self.name()).expect("every shader has its file")
    }
}

/// Everything that makes one compiled kernel different from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelSpec {
    pub(crate) shader: Shader,
    pub(crate) constants: Vec<(&'static str, u32)>,
}

impl KernelSpec {
    pub(crate) fn new(shader: Shader, constants: impl Into<Vec<(&'static str, u32)>>) -> Self {
        Self {
            shader,
            constants: constants.into(),
        }
    }

    /// The kernel's name: the file and its constants.
    pub(crate) fn label(&self) -> String {
        let mut label = self.shader.name().to_owned();
        for (name, value) in &self.constants {
            let _ = write!(label, " {name}={value}");
        }
        label
    }

    /// The complete WGSL text.
    pub(crate) fn compose(&self, has_subgroups: bool) -> String {
        let mut text = String::new();
        let body = expand(self.shader.source(), has_subgroups);
        for (name, value) in &self.constants {
            let _ = writeln!(text, "const {name}: u32 = {value}u;");
        }
        text.push_str(&body);
        text
    }
}

const INCLUDE: &str = "//!include ";

fn expand(source: &str, has_subgroups: bool) -> String {
    let mut text = String::with_capacity(source.len() * 2);
    for line in source.lines() {
        match line.strip_prefix(INCLUDE) {
            Some("reduce") if has_subgroups => text.push_str(&expand(REDUCE_SUBGROUP, has_subgroups)),
            Some("reduce") => text.push_str(&expand(REDUCE_SHARED, has_subgroups)),
            Some(name) => {
                let included = snippet(name).unwrap_or_else(|| panic!("no snippet {name}"));
                text.push_str(&expand(included, has_subgroups));
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

const REDUCE_SHARED: &str = include_str!("shaders/reduce_shared.wgsl");
const REDUCE_SUBGROUP: &str = include_str!("shaders/reduce_subgroup.wgsl");

fn snippet(name: &str) -> Option<&'static str> {
    macro_rules! files {
        ($($name:literal),* $(,)?) => {
            match name {
                $($name => Some(include_str!(concat!("shaders/", $name, ".wgsl"))),)*
                _ => None,
            }
        };
    }
    files!(
        "activations",
        "argmax",
        "attention_combine",
        "attention_partial",
        "binary",
        "copy",
        "embed_columns",
        "embed_float",
        "embed_quantized",
        "floats",
        "gated",
        "matvec_bindings",
        "matvec_float",
        "matvec_words",
        "matvec_blocks",
        "quantized",
        "rms_norm",
        "rope_append",
        "skip_rms_norm",
        "state",
        "unary",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_expanded_and_constants_come_first() {
        let spec = KernelSpec::new(Shader::EmbedFloat, [("TABLE_TYPE", 1), ("WORKGROUP", 64)]);
        let text = spec.compose(false);
        assert!(
            text.starts_with("const TABLE_TYPE: u32 = 1u;\nconst WORKGROUP: u32 = 64u;\n"),
            "{text}"
        );
        assert!(
            text.contains("struct State") && text.contains("fn decode_float"),
            "{text}"
        );
        assert!(!text.contains(INCLUDE), "{text}");
    }

    #[test]
    fn the_reduction_follows_the_device() {
        let spec = KernelSpec::new(Shader::RmsNorm, [("WORKGROUP", 64)]);
        assert!(spec.compose(true).contains("subgroupAdd"));
        assert!(!spec.compose(false).contains("subgroup"));
    }
}
