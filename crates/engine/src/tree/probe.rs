//! Tables that a get will probe. Several tables are looked up before the first one is probed, so
//! that the cache lines of their filters are loaded from memory together instead of one after
//! another. The price is that a get that finds its key has looked up a few tables in vain. It has
//! read nothing from them, however.

use std::sync::Arc;

use crate::error::Result;
use crate::format::block::{Block, Found};
use crate::table::handle::TableHandle;
use crate::table::reader::ProbeStats;

/// The most tables that can wait for their probe.
pub(super) const MOST_PROBES: usize = 8;

/// The key that a get searches for.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    /// The trailer of the newest version that the get may see.
    pub(super) trailer: u64,
}

/// A version that was found, and the block that holds it.
pub(super) type Hit = (Found, Arc<Block>);

/// A table that is about to be probed.
#[derive(Clone, Copy)]
pub(super) struct Probe<'a> {
    pub(super) table: &'a TableHandle,
    /// The partition that may contain the key. `None` if nobody has opened the table yet. The table
    /// is opened only when its turn comes, because a newer table may contain the key.
    part: Option<usize>,
}

impl<'a> Probe<'a> {
    /// Looks up the key's partition, and prefetches the memory that the probe reads first.
    #[inline]
    pub(super) fn new(table: &'a TableHandle, lookup: Lookup) -> Probe<'a> {
        let part = table.opened().map(|reader| reader.find_ahead(lookup.key, lookup.hash));
        Probe { table, part }
    }

    /// Probes the table.
    #[inline]
    pub(super) fn probe(&self, lookup: Lookup, stats: &mut ProbeStats) -> Result<Option<Hit>> {
        let reader = self.table.reader()?;
        let part = self.part.unwrap_or_else(|| reader.find_partition(lookup.key));
        reader.get(part, lookup.key, lookup.hash, lookup.trailer, stats)
    }
}

/// Tables of runs, newest first, that wait for their probe, each with its level.
pub(super) struct ProbeQueue<'a> {
    lookup: Lookup<'a>,
    probes: [Option<(usize, Probe<'a>)>; MOST_PROBES],
    len: usize,
}

impl<'a> ProbeQueue<'a> {
    pub(super) fn new(lookup: Lookup<'a>) -> ProbeQueue<'a> {
        ProbeQueue { lookup, probes: [None; MOST_PROBES], len: 0 }
    }

    /// Adds the next older table. Probes all waiting tables if there is no more room.
    #[inline]
    pub(super) fn push(
        &mut self,
        level: usize,
        table: &'a TableHandle,
        stats: &mut ProbeStats,
    ) -> Result<Option<Hit>> {
        self.probes[self.len] = Some((level, Probe::new(table, self.lookup)));
        self.len += 1;
        if self.len == MOST_PROBES { self.probe_all(stats) } else { Ok(None) }
    }

    /// Probes the waiting tables in order, until one of them contains the key. Its version is the
    /// newest (I1).
    #[inline]
    pub(super) fn probe_all(&mut self, stats: &mut ProbeStats) -> Result<Option<Hit>> {
        let waiting = std::mem::take(&mut self.len);
        for (level, look) in self.probes[..waiting].iter().flatten() {
            let hit = look.probe(self.lookup, stats)?;
            if hit.is_some() {
                stats.hit_level = Some(*level);
                return Ok(hit);
            }
        }
        Ok(None)
    }
}
