//! How many bytes of weights may wait for device setup.

use std::fmt;
use std::str::FromStr;

use onnx_model::ModelFolder;
use scheduler::{EventKind, InitMode, Trace};

use crate::error::{Error, Result};

/// How many bytes of weights may wait for device setup: read by the host lane, that is made resident, and not yet given back by
/// the engine that sets them up.
///
/// A reading host lane that has used it up pauses until an operator has been set up. An operator larger than all of it is read
/// when nothing else waits. So what waits never takes more than the budget or the largest operator, whichever is more; operators
/// that the NPU engine sets up as one count as one, and a constant that several operators read counts once. Where both engines
/// share a read (an iGPU with memory or cores of its own), a value waits until both have set it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StagingBudget {
    /// A quarter of the model's weights and its largest operator, so that this need not wait until nothing else does. None in the
    /// serial and two-phase modes, which a budget would make into several rounds of reading and setting up.
    #[default]
    Auto,
    /// None: the host lane reads ahead as far as it gets.
    Unlimited,
    /// So many bytes, in every mode.
    Bytes(u64),
}

impl StagingBudget {
    /// The budget for a model in a mode, `u64::MAX` if there is none.
    pub(crate) fn resolve(self, folder: &ModelFolder, mode: InitMode) -> Result<u64> {
        match self {
            Self::Unlimited => Ok(u64::MAX),
            Self::Bytes(bytes) => Ok(bytes),
            Self::Auto => Ok(match mode {
                InitMode::Serial | InitMode::TwoPhase => u64::MAX,
                InitMode::Inline | InitMode::Overlapped => {
                    let operators = folder.operators().map_err(Error::model)?;
                    let bytes = operators.iter().map(|operator| operator.weight_bytes);
                    bytes.clone().sum::<u64>() / 4 + bytes.max().unwrap_or(0)
                }
            }),
        }
    }
}

const UNITS: [(char, u64); 3] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

impl fmt::Display for StagingBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Unlimited => f.pad("unlimited"),
            Self::Bytes(bytes) => fmt::Display::fmt(bytes, f),
        }
    }
}

impl FromStr for StagingBudget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bytes = || {
            let unit = UNITS.iter().find(|(unit, _)| text.ends_with(*unit));
            let (number, unit) = unit.map_or((text, 1), |(_, bytes)| (&text[..text.len() - 1], *bytes));
            number.parse::<u64>().ok()?.checked_mul(unit)
        };
        match text {
            "auto" => Ok(Self::Auto),
            "unlimited" => Ok(Self::Unlimited),
            _ => bytes().map(Self::Bytes).ok_or_else(|| {
                Error::setting(format!(
                    "{text:?} is not a staging budget: use auto, unlimited, or bytes such as 268435456 or 256M (K, M, G)"
                ))
            }),
        }
    }
}

/// The most bytes that ever waited at once.
pub(crate) fn peak_bytes(trace: &Trace) -> u64 {
    let (mut staged, mut peak) = (0_u64, 0);
    for event in trace.events() {
        match event.kind {
            EventKind::BytesStaged(_, bytes) => staged += bytes,
            EventKind::BytesReleased(_, bytes) => staged = staged.saturating_sub(bytes),
            _ => {}
        }
        peak = peak.max(staged);
    }
    peak
}

/// The most bytes that one read made wait.
pub(crate) fn largest_bytes(trace: &Trace) -> u64 {
    let staged = trace.events().iter().filter_map(|event| match event.kind {
        EventKind::BytesStaged(_, bytes) => Some(bytes),
        _ => None,
    });
    staged.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_in_words() {
        for (text, budget) in [
            ("auto", StagingBudget::Auto),
            ("unlimited", StagingBudget::Unlimited),
            ("0", StagingBudget::Bytes(0)),
            ("4096", StagingBudget::Bytes(4096)),
            ("256M", StagingBudget::Bytes(256 << 20)),
            ("2G", StagingBudget::Bytes(2 << 30)),
        ] {
            assert_eq!(text.parse::<StagingBudget>().unwrap(), budget);
            assert_eq!(budget.to_string().parse::<StagingBudget>().unwrap(), budget);
        }
        for text in ["", "M", "-1", "1.5G", "99999999999G", "lots", "é"] {
            let error = text.parse::<StagingBudget>().unwrap_err();
            assert!(
                error.is_setting() && error.to_string().contains("unlimited"),
                "{error}"
            );
        }
    }
}
