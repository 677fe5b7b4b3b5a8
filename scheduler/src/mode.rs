//! How a graph is to be run, and how such choices are spelled as text.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// How the host and device halves of a graph are scheduled.
///
/// Every mode gives the same values; they differ in what overlaps, so that the gain can be attributed:
/// Serial against Inline isolates cache separation, TwoPhase against Serial isolates lane
/// parallelism, Overlapped against TwoPhase isolates overlap.
///
/// ```
/// use scheduler::InitMode;
///
/// assert_eq!("two-phase".parse(), Ok(InitMode::TwoPhase));
/// assert_eq!(
///     "fast".parse::<InitMode>().unwrap_err().to_string(),
///     "\"fast\" is not an init mode: use inline, serial, two-phase or overlapped",
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InitMode {
    /// Submission order on one thread, host and device alternating: the untouched constructor path, and the reference.
    #[default]
    Inline,
    /// All host reads, then all device setup, in submission order on one thread.
    Serial,
    /// All host reads, then the device lanes, each on its own thread.
    TwoPhase,
    /// Device lanes, each on its own thread, start a node as soon as it is ready.
    Overlapped,
}

impl InitMode {
    /// All modes, the reference first.
    pub const ALL: [InitMode; 4] = [
        InitMode::Inline,
        InitMode::Serial,
        InitMode::TwoPhase,
        InitMode::Overlapped,
    ];

    /// Whether this mode gives each lane its own thread.
    pub fn has_lane_threads(self) -> bool {
        matches!(self, InitMode::TwoPhase | InitMode::Overlapped)
    }
}

impl fmt::Display for InitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            InitMode::Inline => "inline",
            InitMode::Serial => "serial",
            InitMode::TwoPhase => "two-phase",
            InitMode::Overlapped => "overlapped",
        })
    }
}

impl FromStr for InitMode {
    type Err = ParseChoiceError;

    /// Reads what [`Display`](fmt::Display) writes, in any letter case, also `twophase` and `two_phase`.
    fn from_str(text: &str) -> Result<Self, ParseChoiceError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "inline" => Ok(InitMode::Inline),
            "serial" => Ok(InitMode::Serial),
            "two-phase" | "twophase" | "two_phase" => Ok(InitMode::TwoPhase),
            "overlapped" => Ok(InitMode::Overlapped),
            _ => Err(ParseChoiceError {
                text: text.to_owned(),
                what: "an init mode",
                accepted: "inline, serial, two-phase or overlapped",
            }),
        }
    }
}

/// A switch as people write it in configuration.
///
/// ```
/// use scheduler::OnOff;
///
/// assert_eq!("YES".parse(), Ok(OnOff::On));
/// assert_eq!("".parse(), Ok(OnOff::Off));
/// assert!("2".parse::<OnOff>().unwrap_err().to_string().contains("1, true, on, yes"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnOff {
    /// `1`, `true`, `on` or `yes`.
    On,
    /// `0`, `false`, `off`, `no` or nothing.
    #[default]
    Off,
}

impl OnOff {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == OnOff::On
    }
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.is_on() { "on" } else { "off" })
    }
}

impl FromStr for OnOff {
    type Err = ParseChoiceError;

    /// Any letter case; white space around the word does not count.
    fn from_str(text: &str) -> Result<Self, ParseChoiceError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" => Ok(OnOff::On),
            "0" | "false" | "off" | "no" | "" => Ok(OnOff::Off),
            _ => Err(ParseChoiceError {
                text: text.to_owned(),
                what: "an on/off value",
                accepted: "1, true, on, yes for on and 0, false, off, no or nothing for off",
            }),
        }
    }
}

/// Text that names none of the accepted choices; the message lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseChoiceError {
    text: String,
    what: &'static str,
    accepted: &'static str,
}

impl fmt::Display for ParseChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}: use {}", self.text, self.what, self.accepted)
    }
}

impl Error for ParseChoiceError {}

/// What a run does when a node fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// Start nothing more, and stop what is waiting at an await point.
    #[default]
    FailFast,
    /// Skip only what depends on the failed node, run the rest, and report every failure.
    CollectAll,
}
