//! The contents of a value file, as metrics and users see them.

use crate::error::Result;
use crate::format::record::{first_key, record_bytes};
use crate::keys::MAX_KEY_BYTES;
use crate::options::values::ValuePlacement;
use crate::values::file::{ValueFile, values_name};
use crate::values::layout::Segment;
use crate::visibility::snapshot::Readers;

impl ValueFile {
    /// The contents of the file, and the garbage that collections know of, by group.
    pub(crate) fn usage(&self, readers: &Readers) -> ValueUsage {
        let disk_bytes = self.file_bytes();
        let mut state = self.state.lock();
        state.held.release(readers.oldest_epoch);
        let groups = (0..).zip(&state.layout.groups).map(|(i, group)| {
            let pinned = state.pinned_bytes(i, readers);
            GroupUsage {
                bytes: group.bytes(),
                records: group.records(),
                slots: group.slots(),
                garbage_bytes: group.garbage_bytes(),
                dead_bytes: group.dead_bytes(),
                pinned_bytes: pinned,
                cold_bytes: group.cold_bytes(),
                quarantined: state.quarantined.contains(&i),
            }
        });
        let mut groups: Vec<GroupUsage> = groups.collect();
        let cold = self.cold.and_then(|_| groups.pop());
        ValueUsage {
            file: values_name(self.number),
            placement: self.placement,
            retired: self.retired_at() != 0,
            slot_bytes: self.slot_bytes,
            used_slots: state.pool.used(),
            file_slots: state.pool.end().into(),
            disk_bytes,
            groups,
            cold,
        }
    }

    /// The segments that contain a single value each, because it is larger than a slot.
    pub(crate) fn single_values(&self) -> Vec<Segment> {
        let of_group = |group| Some(self.load(group)?.to_vec());
        let all = (0..).map_while(of_group).flatten();
        all.filter(|segment| segment.slots > 1 && segment.records == 1).collect()
    }

    /// The key of the first record of a segment. Nothing is checked, and the segment may have been
    /// replaced meanwhile. One read.
    pub(crate) fn key_of_first(&self, segment: &Segment) -> Result<Option<Vec<u8>>> {
        let most = record_bytes(MAX_KEY_BYTES, 0).min(segment.bytes);
        let bytes = self.file.read_vec(self.position(segment), most as usize)?;
        Ok(first_key(&bytes).map(<[u8]>::to_vec))
    }
}

/// How much a value file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ValueUsage {
    /// The name of the file inside the store.
    pub file: String,
    /// How the records are arranged.
    pub placement: ValuePlacement,
    /// Whether new values go elsewhere.
    pub retired: bool,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots that contain records.
    pub used_slots: u64,
    /// Slots of the file, including free ones.
    pub file_slots: u64,
    /// Bytes that the file takes on disk, without free slots that were returned to the file system.
    pub disk_bytes: u64,
    /// One entry per group.
    pub groups: Vec<GroupUsage>,
    /// The cold stream, which hash groups share.
    pub cold: Option<GroupUsage>,
}

/// How much a group of a value file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct GroupUsage {
    /// Bytes of records.
    pub bytes: u64,
    /// The number of records.
    pub records: u64,
    /// The number of slots.
    pub slots: u64,
    /// Bytes that a collection would probably free if no snapshot held them.
    pub garbage_bytes: u64,
    /// The part of the garbage that compactions found dead.
    pub dead_bytes: u64,
    /// The part of the garbage that the last collection kept for snapshots that are still alive.
    pub pinned_bytes: u64,
    /// Bytes of records that the group has in the cold stream; `bytes` does not include them.
    pub cold_bytes: u64,
    /// Whether a damaged record keeps the group from being collected.
    pub quarantined: bool,
}

impl ValueUsage {
    /// Bytes of records in all groups and the cold stream.
    pub fn bytes(&self) -> u64 {
        self.sum(|group| group.bytes)
    }

    /// Bytes that collection would probably free.
    pub fn garbage_bytes(&self) -> u64 {
        self.sum(|group| group.garbage_bytes)
    }

    /// The sum of a quantity over all groups and the cold stream.
    pub fn sum(&self, of: impl Fn(&GroupUsage) -> u64) -> u64 {
        self.groups.iter().chain(&self.cold).map(of).sum()
    }

    /// Bytes of the slots that contain records.
    pub fn used_bytes(&self) -> u64 {
        self.used_slots * self.slot_bytes
    }
}
