//! The one environment variable this crate reads.

use std::ffi::OsStr;

use scheduler::{InitMode, OnOff};

use crate::error::{Error, Result};

/// Name of the variable that opts in to deferred initialisation.
pub const DEFERRED_INIT_VARIABLE: &str = "HOSTLANE_DEFERRED_INIT";

/// What [`DEFERRED_INIT_VARIABLE`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferredInit {
    /// The variable is not set: the inline path, unless the caller chose a mode itself.
    Unset,
    /// `0`, `false`, `off`, `no` or empty: the inline path.
    Off,
    /// `1`, `true`, `on` or `yes`: deferred and overlapped.
    On,
}

impl DeferredInit {
    /// Reads the variable.
    ///
    /// # Errors
    ///
    /// The variable is set to something else; the message lists what it may be.
    pub fn from_env() -> Result<Self> {
        Self::parse(std::env::var_os(DEFERRED_INIT_VARIABLE).as_deref())
    }

    /// What a value of the variable means; `None` is an unset variable.
    ///
    /// Letter case and white space around the value do not matter.
    ///
    /// # Errors
    ///
    /// The value is none of those listed at the variants.
    ///
    /// ```
    /// use runtime_hybrid::DeferredInit;
    /// assert_eq!(DeferredInit::parse(Some("1".as_ref())).unwrap(), DeferredInit::On);
    /// assert_eq!(DeferredInit::parse(Some("0".as_ref())).unwrap(), DeferredInit::Off);
    /// assert!(DeferredInit::parse(Some("2".as_ref())).is_err());
    /// ```
    pub fn parse(value: Option<&OsStr>) -> Result<Self> {
        let Some(value) = value else {
            return Ok(Self::Unset);
        };
        match value.to_string_lossy().parse() {
            Ok(OnOff::On) => Ok(Self::On),
            Ok(OnOff::Off) => Ok(Self::Off),
            Err(e) => Err(Error::setting(format!(
                "environment variable {DEFERRED_INIT_VARIABLE}: {e}"
            ))),
        }
    }

    /// The init mode this asks for: overlapped if on, else inline.
    pub fn mode(self) -> InitMode {
        match self {
            Self::On => InitMode::Overlapped,
            Self::Off | Self::Unset => InitMode::Inline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: DeferredInit, mode: InitMode) {
        let parsed = DeferredInit::parse(Some(value.as_ref())).unwrap();
        assert_eq!((parsed, parsed.mode()), (expected, mode), "{value:?}");
    }

    #[test]
    fn every_listed_value_is_understood() {
        for value in ["1", "true", "on", "yes", "TRUE", " Yes "] {
            check(value, DeferredInit::On, InitMode::Overlapped);
        }
        for value in ["0", "false", "off", "no", "", "OFF", "  "] {
            check(value, DeferredInit::Off, InitMode::Inline);
        }
        assert_eq!(DeferredInit::parse(None).unwrap(), DeferredInit::Unset);
        assert_eq!(DeferredInit::Unset.mode(), InitMode::Inline);
    }

    #[test]
    fn anything_else_is_an_error_that_lists_the_values() {
        for value in ["2", "overlapped", "enable", "t", "truee"] {
            let error = DeferredInit::parse(Some(value.as_ref())).unwrap_err();
            assert!(error.is_setting());
            let text = error.to_string();
            for part in [
                value,
                DEFERRED_INIT_VARIABLE,
                "1, true, on, yes",
                "0, false, off, no",
            ] {
                assert!(text.contains(part), "{part:?} is not in {text:?}");
            }
        }
    }
}
