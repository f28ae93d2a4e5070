//! The path of a write: what is refused, what makes room for it, and where it waits. Before a write
//! is accepted, a full memtable is flushed, a full log page is programmed, and levels over their
//! size are compacted. An error means that the write was not accepted.

use super::catalog::Catalog;
use super::collection::budget::{blocks_for, full, limit_pages, needed_pages};
use super::collection::{after_commit, look_at_values, make_room};
use super::compaction::{flush, settle, squeeze};
use super::counters::Cause;
use super::format::kv_page::{page_room_bytes, record_bytes};
use super::format::record::{Kind, Version};
use super::options::{max_key_bytes, max_record_bytes, max_value_bytes};
use super::pending::{Pending, Saved, Write};
use super::read::View;
use super::space::Stream;
use crate::error::{Error, Result};
use crate::nand::Geometry;

/// Accepts writes.
pub(super) struct Writer {
    pub(super) pending: Pending,
    /// The least number of needed pages that a search for space can reach: the number after the
    /// last search, if it failed and nothing was removed since. Overwritten versions need pages
    /// too, but another search frees them.
    squeezed_pages: Option<u64>,
}

impl Writer {
    pub(super) fn new(pending: Pending) -> Writer {
        Writer { pending, squeezed_pages: None }
    }

    /// Applies all writes or none.
    pub(super) fn write(&mut self, catalog: &mut Catalog, writes: &[Write<'_>]) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let page_bytes = catalog.space.page_bytes();
        let more_pages = check_sizes(catalog, writes)?;
        self.check_held_versions(catalog, writes)?;
        self.make_writable(catalog, more_pages, writes)?;
        // This programs the waiting part of the log once it fills a page. It comes first, because
        // after `append` the write could no longer be refused.
        self.write_log(catalog, page_bytes)?;
        let first_seq = catalog.tree.last_seq + 1;
        match &mut self.pending.saved {
            Saved::Capacitor(capacitor) => capacitor.save(first_seq, writes)?,
            Saved::Log(log) => log.append(first_seq, writes),
        }
        let newest_snapshot = catalog.snapshots.newest();
        for (seq, write) in (first_seq..).zip(writes) {
            let (kind, key, value) = write.parts();
            let version = Version::new(seq, kind, value);
            self.pending.memtable.insert(key, version, newest_snapshot, page_bytes);
            catalog.tree.last_seq = seq;
            catalog.counters.writes += 1;
            catalog.counters.user_bytes += (key.len() + value.len()) as u64;
            if kind == Kind::Delete {
                self.squeezed_pages = None;
            }
            catalog.snapshots.note(record_bytes(key.len(), value.len()));
        }
        Ok(())
    }

    /// Notes that something that was needed when a search for space failed may now be removed, so
    /// that another search may succeed.
    pub(super) fn search_again(&mut self) {
        self.squeezed_pages = None;
    }

    /// Refuses writes that would leave a key with more versions than fit a block. Sooner or later a
    /// compaction brings the versions that snapshots hold and the newest version into one page
    /// group. A compaction of fewer tables sees no more versions: the newest version there was the
    /// newest when it was written. Few writes need a close look.
    fn check_held_versions(&self, catalog: &mut Catalog, writes: &[Write<'_>]) -> Result<()> {
        let most_record = max_record_bytes(&catalog.space.nand.geometry());
        let Some(most_held) = catalog.snapshots.most_bytes(most_record) else { return Ok(()) };
        let block_bytes = catalog.space.block_pages() as usize * catalog.space.page_bytes();
        let limit_bytes = page_room_bytes(block_bytes);
        for write in writes {
            let (_, key, value) = write.parts();
            let new_bytes = record_bytes(key.len(), value.len());
            if new_bytes + most_held <= limit_bytes {
                continue;
            }
            let bytes = new_bytes + self.held_bytes(catalog, key)?;
            if bytes > limit_bytes {
                return Err(Error::VersionsHeld { bytes, limit_bytes });
            }
        }
        Ok(())
    }

    /// Bytes of the records of a key that snapshots see.
    fn held_bytes(&self, catalog: &mut Catalog, key: &[u8]) -> Result<usize> {
        let (mut bytes, mut end) = (0, u64::MAX);
        while let Some(snapshot) = catalog.snapshots.newest_before(end) {
            let mut view = View { catalog, memtable: &self.pending.memtable };
            let Some(version) = view.find(key, snapshot)? else { break };
            bytes += record_bytes(key.len(), version.value.len());
            // All snapshots from this number on see the same version.
            end = version.seq;
        }
        Ok(bytes)
    }

    /// Flushes a full memtable, and refuses writes for which there is no room. Deletes may exceed
    /// the limit by one memtable, so that a full device can be emptied. If blocks that turned bad
    /// have lowered the limit, deletes may continue as long as blocks can be freed for a flush.
    fn make_writable(
        &mut self,
        catalog: &mut Catalog,
        more_pages: u64,
        writes: &[Write<'_>],
    ) -> Result<()> {
        let most_pages = u64::from(catalog.options.memtable_pages);
        let page_bytes = catalog.space.page_bytes();
        let memtable = &self.pending.memtable;
        if !memtable.is_empty() && memtable.page_count(page_bytes) >= most_pages {
            self.flush(catalog)?;
        }
        let is_delete = |write: &Write<'_>| write.parts().0 == Kind::Delete;
        let extra_pages = if writes.iter().all(is_delete) { most_pages } else { 0 };
        if self.has_room(catalog, more_pages, extra_pages) {
            return Ok(());
        }
        look_at_values(catalog, true)?;
        if !self.has_room(catalog, more_pages, extra_pages) {
            self.search(catalog, more_pages + most_pages)?;
        }
        if self.has_room(catalog, more_pages, extra_pages) {
            return Ok(());
        }
        let flushed_blocks = blocks_for(catalog, most_pages + more_pages, 1);
        match extra_pages > 0 && make_room(catalog, flushed_blocks)? {
            true => Ok(()),
            false => Err(full(catalog)),
        }
    }

    /// Rewrites tables until there is room for this many pages, unless the search is known to be in
    /// vain.
    fn search(&mut self, catalog: &mut Catalog, more_pages: u64) -> Result<()> {
        let limit_pages = limit_pages(catalog);
        if self.squeezed_pages.is_some_and(|least| least + more_pages > limit_pages) {
            return Ok(());
        }
        catalog.counters.squeezes += 1;
        self.flush_memtable(catalog)?;
        // A table that cannot be read gives no room. Its readers get the error.
        squeeze(catalog, |catalog| self.has_room(catalog, more_pages, 0))?;
        let is_in_vain = !self.has_room(catalog, more_pages, 0);
        self.squeezed_pages = is_in_vain.then(|| needed_pages(catalog));
        Ok(())
    }

    fn has_room(&self, catalog: &Catalog, more_pages: u64, extra_pages: u64) -> bool {
        let waiting = self.pending.memtable.page_count(catalog.space.page_bytes());
        let needed = needed_pages(catalog) + waiting + more_pages;
        needed <= limit_pages(catalog) + extra_pages
    }

    /// Makes all earlier writes survive a power cut of the device. If the image allows it, they
    /// also survive a power loss of the machine that runs the emulator.
    pub(super) fn sync(&mut self, catalog: &mut Catalog) -> Result<()> {
        self.write_log(catalog, 1)?;
        if let Saved::Capacitor(capacitor) = &mut self.pending.saved {
            capacitor.sync()?;
        }
        // If saved writes are missing at open, this number shows it.
        catalog.space.nand.set_note(catalog.tree.last_seq);
        catalog.space.nand.sync()
    }

    /// Programs the waiting part of the log, if it has at least this many bytes. A log needs room
    /// like any other stream.
    fn write_log(&mut self, catalog: &mut Catalog, least_bytes: usize) -> Result<()> {
        let waiting_bytes = match &self.pending.saved {
            Saved::Log(log) if log.waiting_bytes() >= least_bytes => log.waiting_bytes(),
            _ => return Ok(()),
        };
        let pages = waiting_bytes.div_ceil(catalog.space.page_bytes()) as u32;
        if pages > catalog.space.block_pages() {
            return self.flush_memtable(catalog);
        }
        if pages > catalog.space.room_in(Stream::Log) && !make_room(catalog, 1)? {
            return self.flush_memtable(catalog);
        }
        if let Saved::Log(log) = &mut self.pending.saved {
            catalog.space.cause = Cause::Log;
            log.write_out(&mut catalog.space, catalog.tree.txn)?;
        }
        Ok(())
    }

    /// Moves the memtable into a table, and compacts levels that are over their size.
    pub(super) fn flush(&mut self, catalog: &mut Catalog) -> Result<()> {
        self.flush_memtable(catalog)?;
        settle(catalog)
    }

    /// Moves everything to the deepest level and rewrites it there, in its smallest form. If a page
    /// cannot be read, the tables with this page stay, and the error is returned at the end.
    pub(super) fn compact(&mut self, catalog: &mut Catalog) -> Result<()> {
        self.flush_memtable(catalog)?;
        catalog.stuck.clear();
        squeeze(catalog, |_| false)?.map_or(Ok(()), Err)
    }

    fn flush_memtable(&mut self, catalog: &mut Catalog) -> Result<()> {
        if self.pending.memtable.is_empty() {
            return Ok(());
        }
        flush(catalog, &self.pending.memtable)?;
        self.pending.forget(&mut catalog.space, catalog.tree.flushed_seq)?;
        after_commit(catalog)
    }
}

/// Whether the sizes of key and value are possible.
pub(super) fn check_size(geometry: &Geometry, write: &Write<'_>) -> Result<()> {
    let (_, key, value) = write.parts();
    let (max_key, max_value) = (max_key_bytes(geometry), max_value_bytes(geometry) as usize);
    if key.is_empty() || key.len() > max_key {
        return Err(Error::KeySize { bytes: key.len(), limit_bytes: max_key });
    }
    if value.len() > max_value {
        return Err(Error::ValueSize { bytes: value.len(), limit_bytes: max_value });
    }
    Ok(())
}

/// How many pages the writes may take.
fn check_sizes(catalog: &Catalog, writes: &[Write<'_>]) -> Result<u64> {
    let geometry = catalog.space.nand.geometry();
    let mut bytes = 0;
    for write in writes {
        check_size(&geometry, write)?;
        let (_, key, value) = write.parts();
        bytes += record_bytes(key.len(), value.len());
    }
    Ok(bytes.div_ceil(page_room_bytes(catalog.space.page_bytes())) as u64)
}
