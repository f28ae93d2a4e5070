//! The numbers that merge policies share, and why a number is refused. Not the store's options:
//! those name a policy and carry these.

use serde::{Deserialize, Serialize};

/// What a merge policy may be told. A policy ignores what it has no use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOptions {
    /// T: how many times larger a level is than the one above it. At least 2. Default 10.
    pub size_ratio: u32,
    /// Number of level-0 runs that calls for a merge into level 1. At least 1. Default 8: with a
    /// filter probe of one cache miss a run costs a get little, and a byte is rewritten half as
    /// often as with 4.
    pub l0_trigger: u32,
    /// Capacity of level 1, in bytes. At least [`MIN_TABLE_BYTES`]. Default 256 MiB.
    pub base_bytes: u64,
    /// Size at which an output table is closed, in bytes. At least [`MIN_TABLE_BYTES`]. Default
    /// 64 MiB.
    pub table_bytes: u64,
}

/// One block: a table or a level below this size is all overhead.
pub const MIN_TABLE_BYTES: u64 = 4 << 10;

impl Default for PolicyOptions {
    fn default() -> Self {
        PolicyOptions {
            size_ratio: 10,
            l0_trigger: 8,
            base_bytes: 256 << 20,
            table_bytes: 64 << 20,
        }
    }
}

/// Why a policy refuses its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// A number is below the least that is allowed.
    #[error("option {option} is {value}, but must be at least {min}")]
    TooSmall {
        /// Name of the field of [`PolicyOptions`].
        option: &'static str,
        /// What it was.
        value: u64,
        /// The least value allowed.
        min: u64,
    },
}

impl PolicyOptions {
    /// The limits that hold for every policy. A policy's own `check` starts with this one.
    ///
    /// `base_bytes` may be below `table_bytes`: level 1 then passes each table on at once, which is
    /// wasteful but correct, and shapes in tests are easier to read that way.
    pub fn check_common(&self) -> Result<(), OptionError> {
        let least = [
            ("size_ratio", u64::from(self.size_ratio), 2),
            ("l0_trigger", u64::from(self.l0_trigger), 1),
            ("base_bytes", self.base_bytes, MIN_TABLE_BYTES),
            ("table_bytes", self.table_bytes, MIN_TABLE_BYTES),
        ];
        match least.into_iter().find(|(_, value, min)| value < min) {
            Some((option, value, min)) => Err(OptionError::TooSmall { option, value, min }),
            None => Ok(()),
        }
    }
}
