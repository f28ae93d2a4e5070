//! Reads the write batches of logs and keeps the newest version of each key in memory.
//!
//! ```text
//! sequence number (8)  count (4)  { kind (1)  [family]  key  [value] }
//! ```
//!
//! Each entry has the next sequence number, including entries of a dropped family.

use std::collections::BTreeMap;

use crate::bytes::Input;
use crate::error::Fault;
use crate::keys::{Dialect, Kind};
use crate::tombstones::Tombstone;

const FLUSH: &str =
    "open it with RocksDB, commit or roll back the prepared transactions, flush, and import";

/// The newest version of a key.
#[derive(Clone, Debug)]
pub struct Held {
    pub seq: u64,
    pub kind: Kind,
    pub value: Vec<u8>,
}

/// The entries of one family in the logs.
#[derive(Debug, Default)]
pub struct Memory {
    pub entries: BTreeMap<Vec<u8>, Held>,
    pub tombstones: Vec<Tombstone>,
}

/// First sequence number of a batch, and the one after its last.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub first: u64,
    pub next: u64,
}

/// Adds a batch to the memories of the families that it names. If the log is too old for a family,
/// `memories` has no entry for that family.
pub fn add(
    record: &[u8],
    dialect: Dialect,
    memories: &mut BTreeMap<u32, &mut Memory>,
) -> Result<Numbers, Fault> {
    let mut input = Input(record);
    let (Some(first), Some(count)) = (input.fixed64(), input.fixed32()) else {
        return Err(Fault::damaged("a write batch without its header"));
    };
    let mut seq = first;
    while let Some(number) = input.byte() {
        if add_one(number, &mut input, dialect, seq, memories)? {
            seq = seq.wrapping_add(1);
        }
    }
    let found = seq.wrapping_sub(first);
    if found != u64::from(count) {
        let what = format!("a write batch of {count} entries holds {found}");
        return Err(Fault::damaged(what));
    }
    Ok(Numbers { first, next: seq })
}

/// The parts of an entry.
struct Form {
    kind: Kind,
    has_family: bool,
    has_value: bool,
}

fn form(number: u8, dialect: Dialect) -> Option<Form> {
    let (kind, has_family) = match (number, dialect) {
        (0 | 1, _) => (Kind::of(number, dialect)?, false),
        (_, Dialect::LevelDb) => return None,
        (0x02 | 0x07 | 0x0f | 0x11 | 0x16 | 0x18, _) => (Kind::of(number, dialect)?, false),
        (0x04, _) => (Kind::Delete, true),
        (0x05, _) => (Kind::Value, true),
        (0x06, _) => (Kind::Merge, true),
        (0x08, _) => (Kind::SingleDelete, true),
        (0x0e, _) => (Kind::RangeDelete, true),
        (0x10, _) => (Kind::BlobIndex, true),
        (0x17, _) => (Kind::Entity, true),
        (0x19, _) => (Kind::TimedValue, true),
        _ => return None,
    };
    let has_value = !matches!(kind, Kind::Delete | Kind::SingleDelete);
    Some(Form { kind, has_family, has_value })
}

/// Adds one entry. Returns whether it has a sequence number; other entries are only annotations.
fn add_one(
    number: u8,
    input: &mut Input<'_>,
    dialect: Dialect,
    seq: u64,
    memories: &mut BTreeMap<u32, &mut Memory>,
) -> Result<bool, Fault> {
    const SHORT: &str = "a write batch ends within an entry";
    let Some(Form { kind, has_family, has_value }) = form(number, dialect) else {
        return match (number, dialect) {
            // Text for readers of logs (0x03), and an entry without effect (0x0d).
            (0x03, Dialect::RocksDb) => {
                input.string().map(|_| false).ok_or_else(|| Fault::damaged(SHORT))
            }
            (0x0d, Dialect::RocksDb) => Ok(false),
            (0x09..=0x0c | 0x12 | 0x13 | 0x15, Dialect::RocksDb) => {
                Err(Fault::unsupported("the log holds two-phase transactions", FLUSH))
            }
            _ => Err(Fault::damaged(format!("a write batch with unknown entry kind {number}"))),
        };
    };
    let family = if has_family { input.varint32() } else { Some(0) };
    let key = input.string();
    let value = if has_value { input.string() } else { Some(&[][..]) };
    let (Some(family), Some(key), Some(value)) = (family, key, value) else {
        return Err(Fault::damaged(SHORT));
    };
    if let Some(memory) = memories.get_mut(&family) {
        match kind {
            Kind::RangeDelete => {
                let (start, end) = (key.to_vec(), value.to_vec());
                memory.tombstones.push(Tombstone { start, end, seq });
            }
            _ => {
                let held = Held { seq, kind, value: value.to_vec() };
                memory.entries.insert(key.to_vec(), held);
            }
        }
    }
    Ok(true)
}
