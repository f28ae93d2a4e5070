//! Finds the newest version of a key in a tree, as far as it is known in memory. This is the search
//! of `Version::search` without reads. It charges no table, because a policy should not count
//! look-ups that cost nothing, and it looks up no table ahead.

use crate::error::Result;
use crate::keys::{SeqNo, seek_trailer, seq_of};
use crate::table::handle::TableHandle;
use crate::table::reader::Seen;
use crate::tree::level::{IntervalIndex, ReadLevel};
use crate::tree::probe::Lookup;
use crate::tree::version::Version;

impl Version {
    /// The newest entry of `key` visible at `seq`, and its level. The search ends at the first
    /// table whose answer is not in memory, because an older version in a later table would be the
    /// wrong answer.
    pub(crate) fn search_in_memory(
        &self,
        key: &[u8],
        hash: u64,
        seq: SeqNo,
    ) -> Result<(Seen, usize)> {
        let lookup = Lookup { key, hash, trailer: seek_trailer(seq) };
        for (index, level) in self.levels.iter().enumerate() {
            let seen = match &**level {
                ReadLevel::Runs(runs) => {
                    let mut tables = runs.iter().filter_map(|run| run.find(key));
                    let first = tables.find_map(|table| match in_table(table, lookup) {
                        Ok(Seen::Nothing) => None,
                        seen => Some(seen),
                    });
                    first.unwrap_or(Ok(Seen::Nothing))?
                }
                ReadLevel::Overlapping(tables) => in_overlapping(tables, lookup, seq)?,
            };
            if !matches!(seen, Seen::Nothing) {
                return Ok((seen, index));
            }
        }
        Ok((Seen::Nothing, 0))
    }
}

fn in_table(table: &TableHandle, lookup: Lookup) -> Result<Seen> {
    match table.opened() {
        Some(reader) => reader.get_in_memory(lookup.key, lookup.hash, lookup.trailer),
        None => Ok(Seen::NotInMemory),
    }
}

/// Rule I3, as in `IntervalIndex::get`.
fn in_overlapping(index: &IntervalIndex, lookup: Lookup, seq: SeqNo) -> Result<Seen> {
    let mut best = Seen::Nothing;
    for at in index.cover(lookup.key) {
        let (min_seq, max_seq) = index.seqs_of(*at);
        if matches!(&best, Seen::Hit(found, _) if max_seq < seq_of(found.trailer)) {
            break;
        }
        if min_seq > seq {
            continue;
        }
        match (in_table(&index.tables[*at as usize], lookup)?, &best) {
            (Seen::NotInMemory, _) => return Ok(Seen::NotInMemory),
            (Seen::Hit(found, _), Seen::Hit(old, _)) if found.trailer <= old.trailer => {}
            (hit @ Seen::Hit(..), _) => best = hit,
            (Seen::Nothing, _) => {}
        }
    }
    Ok(best)
}
