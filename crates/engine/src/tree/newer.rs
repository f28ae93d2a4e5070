//! Finds what was written after some sequence number. It reads only a few tables, because most
//! tables are older.

use std::iter;
use std::sync::Arc;

use crate::error::Result;
use crate::format::filter;
use crate::keys::{MAX_SEQ, SeqNo, seek_trailer};
use crate::table::handle::TableHandle;
use crate::table::reader::ProbeStats;
use crate::tree::level::{ReadLevel, RunTables};
use crate::tree::probe::{Lookup, Probe};
use crate::tree::version::Version;

impl Version {
    /// The tables that may contain an entry newer than `seq`, for keys from `low` on and, if `high`
    /// is given, below it. O(runs log tables + tables inside).
    pub fn newer_tables<'a>(
        &'a self,
        seq: SeqNo,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a Arc<TableHandle>> {
        let inside = move |run: &'a RunTables| {
            let tables = run.tables.get(run.lower_bound(low)..).unwrap_or_default();
            let is_inside = move |table: &&Arc<TableHandle>| {
                high.is_none_or(|high| *table.meta().min_key < *high)
            };
            tables.iter().take_while(is_inside)
        };
        self.runs().flat_map(inside).filter(move |table| table.meta().max_seq > seq)
    }

    /// The trailer of the newest entry of a key, if that entry is newer than `seq`.
    pub fn newest_after(&self, key: &[u8], seq: SeqNo) -> Result<Option<u64>> {
        let behind: Vec<u8> = key.iter().copied().chain(iter::once(0)).collect();
        let wanted = Lookup { key, hash: filter::hash(key), trailer: seek_trailer(MAX_SEQ) };
        let mut newest = None;
        for table in self.newer_tables(seq, key, Some(&behind)) {
            let hit = Probe::new(table, wanted).probe(wanted, &mut ProbeStats::default())?;
            newest = newest.max(hit.map(|(found, _)| found.trailer));
        }
        Ok(newest.filter(|trailer| *trailer > seek_trailer(seq)))
    }

    /// All runs, and all chains of levels whose tables overlap.
    fn runs(&self) -> impl Iterator<Item = &RunTables> {
        self.levels
            .iter()
            .flat_map(|level| match &**level {
                ReadLevel::Runs(runs) => &runs[..],
                ReadLevel::Overlapping(index) => &index.chains[..],
            })
            .map(|run| &**run)
    }
}
