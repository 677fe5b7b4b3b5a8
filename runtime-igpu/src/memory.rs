//! What memory there is, so that a model that does not fit is refused before anything is allocated.

use crate::adapter::IgpuAdapter;
use crate::error::{IgpuError, Kind, Result};
use crate::options::IgpuOptions;

/// Device memory the engine may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    bytes: Option<u64>,
}

impl Budget {
    /// The caller's budget, else what the machine says is available to an adapter that shares its memory.
    pub(crate) fn of(adapter: &IgpuAdapter, options: &IgpuOptions) -> Self {
        let available = || {
            if adapter.is_unified() {
                available_bytes()
            } else {
                None
            }
        };
        Self {
            bytes: options.memory_budget_bytes.or_else(available),
        }
    }

    /// # Errors
    ///
    /// [`IgpuError::is_out_of_memory`] once the sum passes the budget, naming the item that does so.
    pub(crate) fn check<'a>(&self, items: impl IntoIterator<Item = (&'a str, u64)>) -> Result<u64> {
        let items: Vec<_> = items.into_iter().collect();
        let total: u64 = items.iter().map(|(_, bytes)| bytes).sum();
        let Some(budget) = self.bytes else {
            return Ok(total);
        };
        let mut sum = 0;
        for (name, bytes) in items {
            sum += bytes;
            if sum > budget {
                let message = format!(
                    "out of memory: the decode engine needs {} MiB of device memory, {} MiB are available, and this operator passes that",
                    total.div_ceil(MIB),
                    budget / MIB
                );
                return Err(IgpuError::new(Kind::Memory, message).at_operator(name));
            }
        }
        Ok(total)
    }
}

const MIB: u64 = 1 << 20;

/// Memory that can be had without swapping, where the system says so.
fn available_bytes() -> Option<u64> {
    parse_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kibibytes() {
        assert_eq!(
            parse_available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"),
            Some(12 * 1024)
        );
        assert_eq!(parse_available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn the_item_that_passes_the_budget_is_named() {
        let budget = Budget { bytes: Some(10) };
        assert_eq!(budget.check([("a", 4), ("b", 6)]).unwrap(), 10);
        let error = budget.check([("a", 4), ("b", 7), ("c", 1)]).unwrap_err();
        assert!(error.is_out_of_memory());
        assert_eq!(error.operator(), Some("b"));
    }
}
