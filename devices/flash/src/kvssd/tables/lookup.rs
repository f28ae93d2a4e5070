//! Lookups of a key in one table, stratum by stratum. The caller chooses the tables.

use std::cmp::Reverse;

use crate::error::Result;
use crate::kvssd::format::kv_page::find_in;
use crate::kvssd::format::meta_page::{Entry, TableMeta};
use crate::kvssd::format::record::Record;
use crate::kvssd::tables::PageReader;

/// Looks a key up in one table: from the highest stratum to the lowest, and only in entries whose
/// clips contain the key. The first version that a reader at `snapshot` sees wins, even if it is a
/// delete. If there is none, an older table may have one.
pub fn find_record(
    table: &TableMeta,
    key: &[u8],
    snapshot: u64,
    page_bytes: usize,
    reader: &mut dyn PageReader,
) -> Result<Option<Record>> {
    let mut entries = candidates(table, key);
    entries.sort_by_key(|entry| Reverse(entry.stratum));
    for entry in entries {
        if let Some(real) = table.reals.get(usize::from(entry.stratum)) {
            if *key >= *real.clip.hi {
                continue;
            }
            reader.look_at(real)?;
        }
        if *key >= *entry.clip.hi || !entry.filter.may_hold(key) {
            continue;
        }
        let bytes = reader.read_pages(entry)?;
        let found = find_in(&bytes, page_bytes, key, snapshot)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The entries that may have a key, if it is not beyond their clips. There is at most one in each
/// stratum, because the entries of one stratum are disjoint: the last entry that starts at or
/// before the key. So the search ends once each stratum has its entry.
fn candidates<'a>(table: &'a TableMeta, key: &[u8]) -> Vec<&'a Entry> {
    let begun = table.entries.partition_point(|entry| *entry.clip.lo <= *key);
    let mut is_met = [false; 1 << u8::BITS];
    let mut left = table.counter;
    let mut found = Vec::new();
    for entry in table.entries[..begun].iter().rev() {
        if left == 0 {
            break;
        }
        if !std::mem::replace(&mut is_met[usize::from(entry.stratum)], true) {
            left -= 1;
            found.push(entry);
        }
    }
    found
}
