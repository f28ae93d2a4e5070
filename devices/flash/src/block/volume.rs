//! The file system of the block SSD: directory, files, write-back, commits. It serves one thread at
//! a time: the handles in `mod.rs` share it under a lock.
//!
//! 1. Written blocks wait in their file until there are 16 of them. Then the longest contiguous
//!    stretch is written as one request of up to 64 KiB. Space is reserved when a block begins to
//!    wait, so the write itself detects a full device.
//! 2. `sync` writes the waiting blocks and commits; `sync_dir` only commits. A commit is one
//!    transaction of the journal with the names that changed and the whole block list of each file
//!    that changed.
//! 3. Blocks of removed files become free after the commit that records the removal, not before:
//!    until then a power cut brings the file back.
//!
//! Data are written before the commit that makes them reachable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use runstone_storage::Category;

use super::ahead::{Ahead, Arrival};
use super::counters::BlockCounters;
use super::extents::{Extents, FreeSpace, Run};
use super::journal::{Journal, REQUEST_BLOCKS};
use super::records::{Path, Record, corrupt};
use crate::error::{Error, Result};
use crate::ftl::{Ftl, HOST_BLOCK_BYTES};

const BLOCK: u64 = HOST_BLOCK_BYTES as u64;
/// Journal blocks of a file's creation: descriptor, metadata, commit.
const CREATE_BLOCKS: u64 = 3;
/// Journal blocks of the removals that end a compaction.
const REMOVAL_BLOCKS: u64 = 4;

type Waiting = Box<[u8]>;

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) category: Category,
    pub(super) len_bytes: u64,
    extents: Extents,
    /// Blocks that are newer than their copies on the device.
    waiting: BTreeMap<u64, Waiting>,
    /// Blocks whose copy on the device may contain bytes after a former end of the file. These
    /// bytes do not belong to the file: they were cut off, or were appended before a power cut and
    /// not committed.
    dirty_ends: BTreeSet<u64>,
    pub(super) handle_count: u32,
    is_named: bool,
    /// Whether length or blocks differ from the committed state.
    is_changed: bool,
}

/// All files, and the device below them.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) ftl: Ftl,
    journal: Journal,
    free: FreeSpace,
    /// Blocks that are free after the next commit.
    freed: Vec<Run>,
    ahead: Ahead,
    pub(super) names: BTreeMap<Path, u64>,
    inodes: BTreeMap<u64, Inode>,
    next_id: u64,
    name_changes: Vec<Record>,
    created_count: u64,
    removed_count: u64,
    /// Waiting blocks that have no device block yet.
    promised_count: u64,
    pub(super) counters: BlockCounters,
    /// Whether a write or a commit failed: then nothing more is accepted until the device is opened
    /// again.
    has_failed: bool,
}

impl Volume {
    pub(super) fn create(ftl: Ftl) -> Result<Volume> {
        let journal = Journal::new(ftl.block_count());
        let mut volume = Volume::over(ftl, journal)?;
        volume.begin_epoch().map_err(from_io)?;
        volume.ftl.sync()?;
        Ok(volume)
    }

    pub(super) fn open(mut ftl: Ftl) -> Result<Volume> {
        let (journal, records) = Journal::recover(&mut ftl)?;
        let mut volume = Volume::over(ftl, journal)?;
        for record in records {
            volume.apply(record)?;
        }
        volume.claim_blocks()?;
        volume.begin_epoch().map_err(from_io)?;
        Ok(volume)
    }

    fn over(ftl: Ftl, journal: Journal) -> Result<Volume> {
        let block_count = ftl.block_count();
        let first = 2 * Journal::area_blocks(block_count);
        if first >= block_count {
            return Err(Error::BadGeometry("the device is too small for a directory"));
        }
        Ok(Volume {
            ftl,
            journal,
            free: FreeSpace::new(first..block_count),
            freed: Vec::new(),
            ahead: Ahead::default(),
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_id: 1,
            name_changes: Vec::new(),
            created_count: 0,
            removed_count: 0,
            promised_count: 0,
            counters: BlockCounters::default(),
            has_failed: false,
        })
    }

    fn apply(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Volume { block_count } if block_count != self.ftl.block_count() => {
                let found = self.ftl.block_count();
                return Err(corrupt(format!("made with {block_count} host blocks, not {found}")));
            }
            Record::Volume { .. } => {}
            Record::Inode { id, category, len_bytes, extents } => {
                let mut inode = Inode { len_bytes, extents, ..Inode::new(category) };
                inode.mark_end(len_bytes);
                self.next_id = self.next_id.max(id.saturating_add(1));
                self.inodes.insert(id, inode);
            }
            Record::Name { id, path } => {
                self.names.insert(path, id);
            }
            Record::NoName { path } => {
                self.names.remove(&path);
            }
        }
        Ok(())
    }

    /// Removes the blocks of every file from the free space, and drops files without a name.
    fn claim_blocks(&mut self) -> Result<()> {
        for (path, id) in &self.names {
            let named = self.inodes.get_mut(id).filter(|inode| !inode.is_named);
            let inode =
                named.ok_or_else(|| corrupt(format!("{} has no file of its own", path.1)))?;
            inode.is_named = true;
        }
        self.inodes.retain(|_, inode| inode.is_named);
        for inode in self.inodes.values() {
            for (_, run) in inode.extents.iter() {
                if !self.free.claim(run) {
                    let start = run.start;
                    return Err(corrupt(format!("blocks from {start} on belong to two files")));
                }
            }
        }
        Ok(())
    }

    /// The number of blocks that can be written before the device is full.
    pub(super) fn available_count(&self) -> u64 {
        let freed: u64 = self.freed.iter().map(|run| run.count).sum();
        (self.free.count() + freed).saturating_sub(self.promised_count)
    }

    // Names.

    pub(super) fn create_file(&mut self, path: Path, category: Category) -> io::Result<u64> {
        self.check_alive()?;
        if self.names.contains_key(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.next_id;
        self.next_id += 1;
        let inode =
            Inode { handle_count: 1, is_named: true, is_changed: true, ..Inode::new(category) };
        self.inodes.insert(id, inode);
        self.names.insert(path.clone(), id);
        self.name_changes.push(Record::Name { id, path });
        self.created_count += 1;
        Ok(id)
    }

    pub(super) fn open_file(&mut self, path: &Path) -> io::Result<u64> {
        let id = *self.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        self.inode_mut(id)?.handle_count += 1;
        Ok(id)
    }

    pub(super) fn rename(&mut self, from: Path, to: Path) -> io::Result<()> {
        self.check_alive()?;
        let id = *self.names.get(&from).ok_or(io::ErrorKind::NotFound)?;
        if from == to {
            return Ok(());
        }
        self.names.remove(&from);
        let replaced = self.names.insert(to.clone(), id);
        self.name_changes.push(Record::NoName { path: from });
        self.name_changes.push(Record::Name { id, path: to });
        if let Some(replaced) = replaced {
            self.removed_count += 1;
            self.unname(replaced)?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.check_alive()?;
        self.remove_name(path)
    }

    /// Undoes the creation of a file.
    pub(super) fn discard_file(&mut self, path: &Path, id: u64) {
        // It is fine if the name is missing already.
        let _ = self.remove_name(path);
        self.close_file(id);
    }

    fn remove_name(&mut self, path: &Path) -> io::Result<()> {
        let id = self.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        self.name_changes.push(Record::NoName { path: path.clone() });
        self.removed_count += 1;
        self.unname(id)
    }

    pub(super) fn close_file(&mut self, id: u64) {
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        inode.handle_count -= 1;
        if inode.handle_count == 0 && !inode.is_named {
            self.drop_file(id);
        }
    }

    fn unname(&mut self, id: u64) -> io::Result<()> {
        let inode = self.inode_mut(id)?;
        inode.is_named = false;
        if inode.handle_count == 0 {
            self.drop_file(id);
        }
        Ok(())
    }

    fn drop_file(&mut self, id: u64) {
        let Some(mut inode) = self.inodes.remove(&id) else { return };
        self.promised_count -= inode.promised(0..u64::MAX);
        self.freed.append(&mut inode.extents.remove(0..u64::MAX));
    }

    pub(super) fn inode(&self, id: u64) -> io::Result<&Inode> {
        self.inodes.get(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn inode_mut(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    // Content.

    /// Fills `buf` with bytes that are inside the file. Like a block layer, this sends the requests
    /// for all extents before it waits for the first: the values of a group are in many short
    /// extents.
    pub(super) fn read(&mut self, id: u64, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (mut done, mut last_ns) = (0, 0);
        while done < buf.len() {
            let at = offset + done as u64;
            let (file_block, inside) = (at / BLOCK, (at % BLOCK) as usize);
            let wanted = (inside + buf.len() - done).div_ceil(BLOCK as usize) as u64;
            let inode = self.inodes.get(&id).ok_or(io::ErrorKind::NotFound)?;
            let next_waiting =
                inode.waiting.range(file_block..).next().map_or(u64::MAX, |(&b, _)| b);
            let limit = wanted.min(next_waiting - file_block).min(256);
            let rest = &mut buf[done..];
            done += if let Some(block) = inode.waiting.get(&file_block) {
                copy_part(&block[inside..], rest)
            } else if let Some(run) = inode.extents.find(file_block) {
                if let Some(arrival) = self.ahead.get(run.start) {
                    last_ns = last_ns.max(arrival.at_ns);
                    copy_part(&arrival.bytes[inside..], rest)
                } else {
                    let count = self.ahead.missing(run.start, limit.min(run.count));
                    let mut bytes = vec![0; (count * BLOCK) as usize];
                    let mut arrives = |_, ns| last_ns = last_ns.max(ns);
                    let read = self.ftl.read_queued(run.start, &mut bytes, &mut arrives);
                    read.map_err(as_io)?;
                    copy_part(&bytes[inside..], rest)
                }
            } else {
                let count = inode.extents.hole(file_block, limit);
                let len = rest.len().min((count * BLOCK) as usize - inside);
                rest[..len].fill(0);
                len
            };
        }
        self.ftl.nand_mut().wait_until(last_ns);
        Ok(())
    }

    /// Begins to read those blocks of a range that are only on the device. Best effort: a later
    /// read of the bytes returns the error.
    pub(super) fn read_ahead(&mut self, id: u64, offset: u64, len_bytes: u64) -> io::Result<()> {
        let inode = self.inodes.get(&id).ok_or(io::ErrorKind::NotFound)?;
        let end = offset.saturating_add(len_bytes).min(inode.len_bytes);
        for file_block in offset / BLOCK..end.div_ceil(BLOCK) {
            let Some(run) = inode.extents.find(file_block) else { continue };
            if inode.waiting.contains_key(&file_block) || self.ahead.get(run.start).is_some() {
                continue;
            }
            let (mut bytes, mut at_ns) = (vec![0; BLOCK as usize], 0);
            self.ftl.read_queued(run.start, &mut bytes, &mut |_, ns| at_ns = ns).map_err(as_io)?;
            self.ahead.insert(run.start, Arrival { bytes: bytes.into(), at_ns });
        }
        Ok(())
    }

    /// Writes bytes, and extends the file if necessary. If the device is full, nothing changes.
    pub(super) fn write(&mut self, id: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_alive()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        self.promise(id, offset / BLOCK..end.div_ceil(BLOCK))?;
        self.clear_behind_end(id, end)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (file_block, inside) = (at / BLOCK, (at % BLOCK) as usize);
            let len = (BLOCK as usize - inside).min(data.len() - done);
            let is_whole = len == BLOCK as usize;
            let block = self.waiting_block(id, file_block, is_whole)?;
            block[inside..inside + len].copy_from_slice(&data[done..done + len]);
            done += len;
            let inode = self.inode_mut(id)?;
            if inode.len_bytes < at + len as u64 {
                inode.len_bytes = at + len as u64;
                inode.is_changed = true;
            }
            if inode.waiting.len() > REQUEST_BLOCKS {
                self.write_longest(id)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, id: u64, len_bytes: u64) -> io::Result<()> {
        self.check_alive()?;
        let old_bytes = self.inode(id)?.len_bytes;
        if len_bytes < old_bytes {
            self.make_hole(id, len_bytes, old_bytes)?;
            self.inode_mut(id)?.mark_end(len_bytes);
        }
        self.clear_behind_end(id, len_bytes)?;
        let inode = self.inode_mut(id)?;
        inode.len_bytes = len_bytes;
        inode.is_changed = true;
        Ok(())
    }

    /// Fills a range, which is inside the file, with zeros. Whole blocks become free. If the range
    /// reaches the end of the file, so does the file's last block.
    pub(super) fn make_hole(&mut self, id: u64, start: u64, end: u64) -> io::Result<()> {
        self.check_alive()?;
        let last_whole =
            if end >= self.inode(id)?.len_bytes { end.div_ceil(BLOCK) } else { end / BLOCK };
        let first_whole = start.div_ceil(BLOCK);
        if first_whole > last_whole {
            return self.clear(id, start, end);
        }
        self.clear(id, start, (first_whole * BLOCK).min(end))?;
        self.clear(id, last_whole * BLOCK, end)?;
        let range = first_whole..last_whole;
        let inode = self.inodes.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
        self.promised_count -= inode.promised(range.clone());
        inode.waiting.retain(|block, _| !range.contains(block));
        inode.dirty_ends.retain(|block| !range.contains(block));
        self.freed.append(&mut inode.extents.remove(range));
        inode.is_changed = true;
        Ok(())
    }

    /// Overwrites bytes of one block with zeros, if the block exists. This needs no space.
    fn clear(&mut self, id: u64, start: u64, end: u64) -> io::Result<()> {
        let inode = self.inode(id)?;
        let block = start / BLOCK;
        let is_hole = !inode.waiting.contains_key(&block) && inode.extents.find(block).is_none();
        if start >= end || is_hole {
            return Ok(());
        }
        self.write(id, start, &[0; BLOCK as usize][..(end - start) as usize])
    }

    /// Clears the bytes of the last block after the end of the file, before the file grows over
    /// them.
    fn clear_behind_end(&mut self, id: u64, new_bytes: u64) -> io::Result<()> {
        let inode = self.inode(id)?;
        let block = inode.len_bytes / BLOCK;
        if new_bytes > inode.len_bytes && inode.dirty_ends.contains(&block) {
            self.waiting_block(id, block, false)?;
        }
        Ok(())
    }

    /// Writes dirty ends before a commit, because the commit may record that files are longer.
    fn write_dirty_ends(&mut self) -> io::Result<()> {
        let mut ends = Vec::new();
        for (&id, inode) in self.inodes.iter().filter(|(_, inode)| inode.is_named) {
            let waiting = inode.dirty_ends.iter().filter(|block| inode.waiting.contains_key(block));
            ends.extend(waiting.map(|&block| (id, block)));
        }
        ends.into_iter().try_for_each(|(id, block)| self.write_run(id, block, 1))
    }

    // Durability.

    /// Writes the waiting blocks of a file, and commits if anything changed.
    pub(super) fn sync_file(&mut self, id: u64) -> io::Result<()> {
        self.check_alive()?;
        self.write_waiting(id)?;
        let inode = self.inode(id)?;
        if inode.is_named && inode.is_changed {
            self.commit()?;
        }
        self.sync_image()
    }

    pub(super) fn sync_dir(&mut self) -> io::Result<()> {
        self.check_alive()?;
        self.commit()?;
        self.sync_image()
    }

    /// Writes and commits everything, as a clean shutdown does.
    pub(super) fn sync_all(&mut self) -> io::Result<()> {
        let ids: Vec<u64> = self.inodes.keys().copied().collect();
        for id in ids {
            self.write_waiting(id)?;
        }
        self.sync_dir()
    }

    fn sync_image(&mut self) -> io::Result<()> {
        let synced = self.ftl.sync();
        self.note(synced)
    }

    /// Writes one transaction with all changes since the last commit. The creation of a file takes
    /// 3 blocks of the ring, and the removals of a compaction take 4, as in a journalling file
    /// system.
    fn commit(&mut self) -> io::Result<()> {
        self.write_dirty_ends()?;
        let mut records: Vec<Record> = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.is_named && inode.is_changed)
            .map(|(&id, inode)| inode.record(id))
            .collect();
        records.extend(self.name_changes.iter().cloned());
        if !records.is_empty() {
            let removal_blocks = if self.removed_count > 0 { REMOVAL_BLOCKS } else { 0 };
            let modelled = self.created_count * CREATE_BLOCKS + removal_blocks;
            let mut block_count = Journal::transaction_blocks(&records).max(modelled);
            if !self.journal.has_room(block_count) {
                self.begin_epoch()?;
                // The snapshot contains every change. If the modelled blocks of a transaction
                // exceed the rest of the area, fewer are written.
                while !self.journal.has_room(block_count) {
                    records.clear();
                    block_count /= 2;
                }
            }
            if block_count > 0 {
                self.ftl.nand_mut().drain();
                let written = self.journal.append(&mut self.ftl, &records, block_count);
                self.note(written)?;
                self.counters.journal_blocks += block_count;
            }
        }
        self.settle();
        Ok(())
    }

    fn begin_epoch(&mut self) -> io::Result<()> {
        let mut records = vec![Record::Volume { block_count: self.ftl.block_count() }];
        let named = self.inodes.iter().filter(|(_, inode)| inode.is_named);
        records.extend(named.map(|(&id, inode)| inode.record(id)));
        let names = self.names.iter();
        records.extend(names.map(|(path, &id)| Record::Name { id, path: path.clone() }));
        let written = self.journal.write_snapshot(&mut self.ftl, &records);
        let block_count = self.note(written)?.ok_or_else(no_space)?;
        self.counters.snapshot_blocks += block_count;
        Ok(())
    }

    /// Called after a commit. All changes are committed, so blocks that were given up become free.
    fn settle(&mut self) {
        self.name_changes.clear();
        (self.created_count, self.removed_count) = (0, 0);
        for inode in self.inodes.values_mut().filter(|inode| inode.is_named) {
            inode.is_changed = false;
        }
        for run in self.freed.drain(..) {
            self.free.release(run);
            // A trim is a hint, so a device that refuses it is no worse off.
            let _ = self.ftl.trim(run.start, run.count);
        }
    }

    // Write-back.

    /// Makes sure that the blocks of a range can be written. If that may need blocks that only a
    /// commit frees, the commit happens now: a full directory must not leave half a write.
    fn promise(&mut self, id: u64, range: std::ops::Range<u64>) -> io::Result<()> {
        let inode = self.inode(id)?;
        let mut missing = 0;
        let mut at = range.start;
        while at < range.end {
            match inode.extents.find(at) {
                Some(run) => at += run.count,
                None => {
                    let count = inode.extents.hole(at, range.end - at);
                    missing += count - inode.waiting.range(at..at + count).count() as u64;
                    at += count;
                }
            }
        }
        if missing > self.available_count() {
            return Err(no_space());
        }
        let waiting_count = inode.waiting.len() as u64 + range.end - range.start;
        let leaves = waiting_count > REQUEST_BLOCKS as u64;
        if leaves && self.promised_count + missing > self.free.count() {
            self.commit()?;
        }
        Ok(())
    }

    /// The waiting copy of a block. It is read from the device unless all of it will be written. A
    /// dirty end is cleared: the file did not grow since, or its block would be waiting already.
    fn waiting_block(
        &mut self,
        id: u64,
        file_block: u64,
        is_whole: bool,
    ) -> io::Result<&mut Waiting> {
        let inode = self.inodes.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
        if !inode.waiting.contains_key(&file_block) {
            let mut block = vec![0; BLOCK as usize].into_boxed_slice();
            match inode.extents.find(file_block) {
                Some(run) if !is_whole => {
                    // With a queue the host does not wait: an operating system has the block of a
                    // log that is used again, or the end of a file, in its page cache.
                    let mut arrives = |_, _| {};
                    let read = self.ftl.read_queued(run.start, &mut block, &mut arrives);
                    read.map_err(as_io)?;
                    let inside = inode.len_bytes.saturating_sub(file_block * BLOCK);
                    if inside < BLOCK && inode.dirty_ends.contains(&file_block) {
                        block[inside as usize..].fill(0);
                    }
                }
                Some(_) => {}
                None => self.promised_count += 1,
            }
            inode.waiting.insert(file_block, block);
        }
        inode.waiting.get_mut(&file_block).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Writes all waiting blocks of a file, in order.
    fn write_waiting(&mut self, id: u64) -> io::Result<()> {
        while let Some(&(first, count)) = self.inode(id)?.waiting_runs().first() {
            self.check_alive()?;
            self.write_run(id, first, count)?;
        }
        Ok(())
    }

    /// Writes the longest contiguous stretch of waiting blocks of a file. The first stretch would
    /// be wrong: it may be the block that is being appended to, while a stretch elsewhere keeps the
    /// file at its limit.
    fn write_longest(&mut self, id: u64) -> io::Result<()> {
        let runs = self.inode(id)?.waiting_runs();
        match runs.into_iter().rev().max_by_key(|&(_, count)| count) {
            Some((first, count)) => self.write_run(id, first, count),
            None => Ok(()),
        }
    }

    /// Writes waiting blocks, at most one request per device run. They stay waiting until the
    /// device has them: if it fails, readers must not see the older bytes.
    fn write_run(&mut self, id: u64, first: u64, count: u64) -> io::Result<()> {
        let mut at = first;
        while at < first + count {
            let waiting = &self.inode(id)?.waiting;
            let is_waiting = |block: &u64| waiting.contains_key(block);
            let waiting_count = (at..first + count).take_while(is_waiting).count() as u64;
            if waiting_count == 0 {
                // The commit that freed blocks for the earlier part wrote this dirty end.
                at += 1;
                continue;
            }
            let run = self.device_run(id, at, waiting_count)?;
            let waiting = &self.inode(id)?.waiting;
            let mut data = Vec::with_capacity((run.count * BLOCK) as usize);
            waiting.range(at..at + run.count).for_each(|(_, bytes)| data.extend_from_slice(bytes));
            self.ahead.drop_run(run);
            let written = self.ftl.write(run.start, &data);
            self.note(written)?;
            let inode = self.inode_mut(id)?;
            for block in at..at + run.count {
                inode.waiting.remove(&block);
                inode.dirty_ends.remove(&block);
            }
            let category = inode.category;
            self.counters.wrote(category, run.count);
            at += run.count;
        }
        Ok(())
    }

    /// Device blocks of up to `limit` file blocks, allocated if they have none.
    fn device_run(&mut self, id: u64, file_block: u64, limit: u64) -> io::Result<Run> {
        let found = self.inode(id)?.extents.find(file_block);
        if let Some(run) = found {
            return Ok(Run { count: run.count.min(limit), ..run });
        }
        let wanted = self.inode(id)?.extents.hole(file_block, limit);
        if self.free.count() == 0 && !self.freed.is_empty() {
            self.commit()?;
        }
        let run = self.free.take(wanted).ok_or_else(no_space)?;
        self.promised_count -= run.count;
        let inode = self.inode_mut(id)?;
        inode.extents.insert(file_block, run);
        inode.is_changed = true;
        Ok(run)
    }

    fn check_alive(&self) -> io::Result<()> {
        match self.has_failed {
            true => Err(io::Error::other("the device has failed; open it again")),
            false => Ok(()),
        }
    }

    fn note<T>(&mut self, result: Result<T>) -> io::Result<T> {
        self.has_failed |= result.is_err();
        result.map_err(as_io)
    }
}

impl Inode {
    fn new(category: Category) -> Inode {
        Inode {
            category,
            len_bytes: 0,
            extents: Extents::default(),
            waiting: BTreeMap::new(),
            dirty_ends: BTreeSet::new(),
            handle_count: 0,
            is_named: false,
            is_changed: false,
        }
    }

    /// Notes that the device's copy of the last block may contain bytes after the end of the file.
    fn mark_end(&mut self, len_bytes: u64) {
        let block = len_bytes / BLOCK;
        if !len_bytes.is_multiple_of(BLOCK) && self.extents.find(block).is_some() {
            self.dirty_ends.insert(block);
        }
    }

    fn record(&self, id: u64) -> Record {
        let Inode { category, len_bytes, .. } = *self;
        Record::Inode { id, category, len_bytes, extents: self.extents.clone() }
    }

    /// Stretches of contiguous waiting blocks as (first, count), in order, none longer than a
    /// request.
    fn waiting_runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &block in self.waiting.keys() {
            match runs.last_mut() {
                Some((first, count))
                    if *first + *count == block && *count < REQUEST_BLOCKS as u64 =>
                {
                    *count += 1;
                }
                _ => runs.push((block, 1)),
            }
        }
        runs
    }

    /// Waiting blocks of a range that have no device block.
    fn promised(&self, range: std::ops::Range<u64>) -> u64 {
        let waiting = self.waiting.range(range);
        waiting.filter(|&(&block, _)| self.extents.find(block).is_none()).count() as u64
    }
}

fn copy_part(from: &[u8], to: &mut [u8]) -> usize {
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    len
}

pub(super) fn no_space() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn as_io(error: Error) -> io::Error {
    io::Error::other(error)
}

/// Returns the device's own error if there is one, else an error of the file system.
fn from_io(error: io::Error) -> Error {
    error.downcast().unwrap_or_else(|error| corrupt(format!("it cannot be written: {error}")))
}
