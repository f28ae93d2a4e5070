//! Where the values of a keyspace are stored, and the settings of each placement.

use std::ops::RangeInclusive;

use runstone_policy::options::{MAX_OPTION_BYTES, OptionDoc};
use runstone_policy::units::{Thousandths, decimal};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::options::setters::{default_doc, setter, with_setters};

/// Where values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ValuePlacement {
    /// In the tables, with their keys.
    #[default]
    Inline,
    /// Appended to one log. Collection reads the tail of the log and looks up in the tree what is
    /// live (WiscKey).
    Vlog,
    /// In groups by the hash of the key. Collection decides by the group alone (HashKV).
    HashGrouped,
}

impl ValuePlacement {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            ValuePlacement::Inline => "inline",
            ValuePlacement::Vlog => "vlog",
            ValuePlacement::HashGrouped => "hash-grouped",
        }
    }
}

/// How the tree follows records that a collection of `hash-grouped` moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GcPointers {
    /// A pointer names a place in a stream, and a record keeps this place when it moves. The tree
    /// is not written.
    #[default]
    Stable,
    /// Collections write new pointers into the tree, as in the paper (HashKV §3.3). This is for
    /// comparison. It costs about one pointer per user update. Each deletion and each inline value
    /// adds a marker to the value file, which takes 18 bytes and the key.
    Writeback,
}

impl GcPointers {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            GcPointers::Stable => "stable",
            GcPointers::Writeback => "writeback",
        }
    }
}

/// What happens when the space is used up and no collection can free any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WhenFull {
    /// The value file grows beyond its share.
    #[default]
    Grow,
    /// Flushes wait up to `stall_ms` for snapshots to be released. Then the file grows.
    Stall,
    /// While snapshots hold garbage, flushes fail as they do on a full disk: writes are refused
    /// until the snapshots are released (P9), and reads continue. If the live data exceed the
    /// capacity, the file grows.
    Error,
}

with_setters! {
    /// Value options of a keyspace. They are stored with the keyspace.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    pub struct ValueOptions {
        /// Where values are stored: `inline`, `vlog` (one log) or `hash-grouped` (by hash of the
        /// key).
        pub placement: ValuePlacement = ValuePlacement::Inline,
        /// Least size of a value that is separated from its key, in bytes.
        #[serde(with = "runstone_policy::units::size")]
        pub separate_at: u32 = 1024,
        /// Groups of segments by hash of the key, for `hash-grouped`; fixed once the keyspace has
        /// separated a value.
        pub groups: u32 = 64,
        /// Size of the slots of a value file (log segments), in bytes; fixed once the keyspace has
        /// separated a value. Groups get space in this unit.
        #[serde(with = "runstone_policy::units::size")]
        pub slot_bytes: u32 = 256 << 10,
        /// Value bytes that the file is made for; 0 for as many as are live. The file takes at most
        /// (1 + reserve) times as much.
        #[serde(with = "runstone_policy::units::size")]
        pub capacity_bytes: u64 = 0,
        /// Space for garbage, as a share of the capacity. 0.001 to 100, rounded to thousandths.
        pub reserve: Thousandths = Thousandths::from(0.3),
        /// What to do when the space is used up and none can be freed: `grow`, `stall` or `error`.
        pub when_full: WhenFull = WhenFull::Grow,
        /// Longest wait for snapshots with `when_full = "stall"`, in milliseconds.
        pub stall_ms: u32 = 1000,
        /// Whether collections of `hash-grouped` move what is not updated to a stream that all
        /// groups share. These are records that were not updated since they were written or last
        /// moved. The group keeps a tag of each. It pays if few keys get most updates and the
        /// reserve is ample. With `gc_pointers = "writeback"`, this changes the placement: the file
        /// needs the stream from the beginning.
        pub cold_stream: bool = false,
        /// How the tree follows records that collections of `hash-grouped` move: `stable` or
        /// `writeback`. A change of it changes the placement: a new value file is made, and
        /// compactions move the values there.
        pub gc_pointers: GcPointers = GcPointers::Stable,
        /// Whether large values of a `vlog` go to the file before their writes are logged. The log
        /// then holds only their places, and a value is written once. Otherwise it is written to
        /// the log, and by a flush to the file. Synced writes keep their values in the log, since
        /// one sync costs less than two. A power loss that takes such a value takes the write.
        pub early: bool = false,
        /// Bytes that one collection of a `vlog` takes from the tail.
        #[serde(with = "runstone_policy::units::size")]
        pub vlog_chunk_bytes: u64 = 16 << 20,
        /// Bytes of separated values that a scan reads at once; 0 reads each value when the scan
        /// reaches it. If it were larger, a scan that ends early would read more for nothing.
        #[serde(with = "runstone_policy::units::size")]
        pub scan_ahead_bytes: u64 = 256 << 10,
    }
}

/// Refuses a number that is out of its range. The error shows the number as users write it: an
/// option that is kept in thousandths, for example, is shown as a decimal.
pub(crate) fn check_range(
    name: &str,
    number: impl Into<i128>,
    allowed: RangeInclusive<i128>,
    parts: u32,
) -> Result<()> {
    let number = number.into();
    if allowed.contains(&number) {
        return Ok(());
    }
    let [number, min, max] =
        [number, *allowed.start(), *allowed.end()].map(|number| decimal(number, parts));
    Err(Error::invalid(
        format!("option {name} is {number}; allowed are {min} to {max}"),
        format!("set {name} between {min} and {max}"),
    ))
}

impl ValueOptions {
    /// Refuses numbers that cannot work.
    pub fn check(&self) -> Result<()> {
        check_range("values.reserve", self.reserve.signed_parts(), 1..=100_000, 1000)?;
        let ranges: [(&str, u64, u64, u64); 6] = [
            ("values.groups", self.groups.into(), 1, 1 << 16),
            ("values.slot_bytes", self.slot_bytes.into(), 4 << 10, 1 << 30),
            ("values.separate_at", self.separate_at.into(), 1, u32::MAX.into()),
            ("values.scan_ahead_bytes", self.scan_ahead_bytes, 0, 1 << 30),
            ("values.vlog_chunk_bytes", self.vlog_chunk_bytes, 4 << 10, 1 << 40),
            ("values.capacity_bytes", self.capacity_bytes, 0, MAX_OPTION_BYTES),
        ];
        for (name, value, min, max) in ranges {
            check_range(name, value, min.into()..=max.into(), 1)?;
        }
        let least = self.least_capacity_bytes();
        if self.capacity_bytes != 0 && self.capacity_bytes < least {
            return Err(Error::invalid(
                format!(
                    "option values.capacity_bytes is {}; {} groups with slots of {} bytes need \
                     {least} or more",
                    self.capacity_bytes, self.groups, self.slot_bytes
                ),
                "raise it, lower values.groups or values.slot_bytes, or set 0 to follow the data",
            ));
        }
        Ok(())
    }

    /// See [`KeyspaceCore`](crate::catalog::keyspace::KeyspaceCore).
    pub(crate) fn early_at(&self) -> u64 {
        let is_early = self.early && self.placement == ValuePlacement::Vlog;
        if is_early { self.separate_at.into() } else { u64::MAX }
    }

    /// Whether collections write pointers into the tree.
    pub(crate) fn relocates(&self) -> bool {
        self.placement == ValuePlacement::Vlog || self.writes_back()
    }

    /// Whether collections of hash groups write pointers.
    pub fn writes_back(&self) -> bool {
        self.placement == ValuePlacement::HashGrouped && self.gc_pointers == GcPointers::Writeback
    }

    /// Groups of this placement; 0 for inline.
    pub fn group_count(&self) -> u32 {
        match self.placement {
            ValuePlacement::Inline => 0,
            ValuePlacement::Vlog => 1,
            ValuePlacement::HashGrouped => self.groups,
        }
    }

    /// Two slots per group: one being filled, and one full.
    fn least_capacity_bytes(&self) -> u64 {
        2 * u64::from(self.group_count()) * u64::from(self.slot_bytes)
    }
}
