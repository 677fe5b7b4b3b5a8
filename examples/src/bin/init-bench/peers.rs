//! Stock peers on the same folder, through Python, where it has them.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::row::Row;

/// A peer: what a Python script measures.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    script: &'static str,
}

pub(crate) const ALL: [Peer; 2] = [
    Peer {
        name: "onnxruntime",
        script: include_str!("../../../peers/onnxruntime_session.py"),
    },
    Peer {
        name: "onnxruntime-genai",
        script: include_str!("../../../peers/onnxruntime_genai.py"),
    },
];

impl Peer {
    /// One load in a process of its own.
    pub(crate) fn run(&self, model: &Path, prompt: &[u32], run: u32) -> Result<Row> {
        let spawned = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let tokens: Vec<String> = prompt.iter().map(u32::to_string).collect();
        // HOSTLANE_PYTHON names the Python that has the packages, if the first one on the path does not.
        let python = std::env::var_os("HOSTLANE_PYTHON").unwrap_or_else(|| "python3".into());
        let output = Command::new(&python)
            .args(["-c", self.script])
            .arg(model)
            .arg(tokens.join(","))
            .arg(spawned.to_string())
            .output()
            .with_context(|| format!("cannot start {}", python.display()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}",
                text.trim().lines().last().unwrap_or("it failed without a word")
            );
        }
        let mut row: Row = serde_json::from_slice(&output.stdout).context("the script wrote no row")?;
        (row.who, row.run) = (self.name.to_owned(), run);
        Ok(row)
    }
}
