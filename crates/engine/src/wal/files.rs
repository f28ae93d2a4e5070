//! The files of log segments: prepared in the background, and used again. Not here: what is
//! written to them (`segments`).
//!
//! Segments are `NNNNNN.wal` files. The next ones are prepared in the background under their final
//! names: their blocks are reserved and their pages are present, but they have no header of their
//! own yet. So starting one costs only a header. A rename under the commit lock could wait for
//! the file system's journal, 20-30 ms on ext4. A segment that is no longer needed is renamed and
//! becomes a future segment: its pages are warm and its blocks are allocated. Sealed segments are
//! unmapped in the background too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use runstone_storage::{Category, Storage, StorageFile};

use crate::cache::{Cache, Reservation};
use crate::error::{Error, Result};
use crate::log::LogHeader;
use crate::options::store::WalMode;
use crate::sync::threads::Bell;
use crate::sync::{Mutex, rank};
use crate::wal::reserve::Reserve;
use crate::wal::segments::segment_name;

/// The number of files that are kept for future segments. Their pages are in the page cache and
/// their blocks are allocated, so it costs a tenth as much to reuse one as to make a new one. A
/// flush retires about this many, and the next memtable uses them again.
const MAX_PARKED: usize = 8;
/// The number of these files that are kept when nobody writes.
const IDLE_PARKED: usize = 1;

/// The files that segments are made from. The writer and the job that prepares spares share them.
#[derive(Debug)]
pub struct WalFiles {
    /// Where the files are.
    pub storage: Arc<dyn Storage>,
    pub(super) mode: WalMode,
    pub(super) segment_bytes: u64,
    /// The largest number of segments that are prepared.
    most_ready: usize,
    /// The store's file number counter.
    pub(super) next_file: Arc<AtomicU64>,
    /// The number of the manifest in force.
    manifest: Arc<AtomicU64>,
    /// Mapped segments count against the memory budget.
    cache: Arc<Cache>,
    /// Reserved space for writes that free space.
    pub reserve: Reserve,
    pub(super) spares: Mutex<rank::Spares, Spares>,
    /// Set when a quarter of the current segment is full. A store with few writes needs no spare.
    pub(super) spare_wanted: AtomicBool,
    /// Rung at the moment when `spare_wanted` is set.
    pub(super) bell: Arc<Bell>,
}

/// The segments that will be used next. The log is read in order of file numbers, so a segment is
/// used only after every used segment with a smaller number.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Prepared segments, by ascending number.
    pub(super) prepared: VecDeque<(u64, SegmentFile)>,
    /// Retired segments, under their old names.
    pub(super) parked: Vec<u64>,
    /// The largest number prepared or taken so far.
    pub(super) last_number: u64,
    /// Segments taken since the last time when nobody wrote for a while.
    taken: usize,
}

impl Spares {
    /// How many should be prepared: one for a store with few writes, more when writes are fast.
    fn target(&self, most: usize) -> usize {
        self.taken.clamp(1, most)
    }
}

/// A file with the memory that its mapping uses.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) reservation: Option<Reservation>,
}

impl WalFiles {
    /// The files of a log that has no spares yet.
    pub fn new(
        storage: Arc<dyn Storage>,
        mode: WalMode,
        (segment_bytes, most_ready): (u64, usize),
        (next_file, manifest): (Arc<AtomicU64>, Arc<AtomicU64>),
        cache: Arc<Cache>,
        bell: Arc<Bell>,
    ) -> WalFiles {
        WalFiles {
            reserve: Reserve::new(Arc::clone(&storage)),
            storage,
            mode,
            segment_bytes,
            most_ready,
            next_file,
            manifest,
            cache,
            spares: Mutex::default(),
            spare_wanted: AtomicBool::new(false),
            bell,
        }
    }

    /// The header of a segment that begins now.
    pub(super) fn header(&self, number: u64, id: u64) -> LogHeader {
        LogHeader { number, id, manifest: self.manifest.load(Acquire) }
    }

    /// Whether the background job should prepare a spare. With `urgent`: whether none is left.
    pub fn wants_spare(&self, urgent: bool) -> bool {
        self.spare_wanted.load(Relaxed) && {
            let spares = self.spares.lock();
            spares.prepared.len() < if urgent { 1 } else { spares.target(self.most_ready) }
        }
    }

    /// Removes all files without records, at close.
    pub fn remove_spares(&self) {
        let (prepared, parked) = {
            let mut spares = self.spares.lock();
            (std::mem::take(&mut spares.prepared), std::mem::take(&mut spares.parked))
        };
        self.remove_prepared(prepared);
        parked.into_iter().for_each(|number| self.remove_spare(number));
    }

    pub(super) fn remove_prepared(&self, prepared: VecDeque<(u64, SegmentFile)>) {
        for (number, file) in prepared {
            drop(file);
            self.remove_spare(number);
        }
    }

    /// Removes a segment whose records are not needed. If that fails, the next open removes it as
    /// an orphan, so it is no reason to stop.
    fn remove_spare(&self, number: u64) {
        if let Err(error) = self.storage.remove(&segment_name(number)) {
            tracing::warn!(%error, "a log segment that is not needed was left behind");
        }
    }

    /// Makes a spare whose pages are all present.
    pub fn prepare_spare(&self) -> Result<()> {
        let number = self.next_file.fetch_add(1, Relaxed);
        let parked = self.spares.lock().parked.pop();
        let file = self.make(number, parked, self.segment_bytes)?;
        let prepared = file.file.prepare(0, self.segment_bytes);
        prepared.inspect_err(|_| self.leave(&segment_name(number)))?;
        self.offer(number, file);
        Ok(())
    }

    /// Makes a segment from a parked one, or else a new file. A sync that began before the parked
    /// segment was retired may still hold its file. Such a file cannot be mapped again.
    pub(super) fn make(
        &self,
        number: u64,
        parked: Option<u64>,
        capacity_bytes: u64,
    ) -> Result<SegmentFile> {
        let name = segment_name(number);
        let Some(parked) = parked else { return self.create(&name, capacity_bytes) };
        self.storage.rename(&segment_name(parked), &name)?;
        match self.reopen(&name) {
            Err(Error::Storage(error)) if error.is_busy() => {
                self.storage.remove(&name)?;
                self.create(&name, capacity_bytes)
            }
            // Nobody refers to the file under its new name.
            outcome => outcome.inspect_err(|_| self.leave(&name)),
        }
    }

    /// Adds a prepared segment, unless one with a larger number was taken meanwhile. Recovery would
    /// read the prepared segment before the taken one, although it would be written later.
    fn offer(&self, number: u64, file: SegmentFile) {
        let mut spares = self.spares.lock();
        if number < spares.last_number {
            drop(spares);
            return self.remove_prepared(VecDeque::from([(number, file)]));
        }
        spares.last_number = number;
        spares.prepared.push_back((number, file));
        if spares.prepared.len() >= spares.target(self.most_ready) {
            self.spare_wanted.store(false, Relaxed);
        }
    }

    fn create(&self, name: &str, capacity_bytes: u64) -> Result<SegmentFile> {
        Ok(match self.mode {
            WalMode::Mapped => SegmentFile {
                file: self.storage.create_mapped(name, Category::Wal, capacity_bytes)?,
                reservation: Some(self.cache.reserve(capacity_bytes)),
            },
            WalMode::Write | WalMode::Off => {
                let file = self.storage.create(name, Category::Wal)?;
                let sized = file.allocate(0, capacity_bytes);
                sized
                    .and_then(|()| file.set_len(capacity_bytes))
                    .inspect_err(|_| self.leave(name))?;
                SegmentFile { file, reservation: None }
            }
        })
    }

    /// Removes a file that nothing uses. Otherwise the file would use space, even on a full disk.
    pub(super) fn leave(&self, name: &str) {
        let _ = self.storage.remove(name);
    }

    /// Opens a file that `create` made in an earlier use.
    fn reopen(&self, name: &str) -> Result<SegmentFile> {
        Ok(match self.mode {
            WalMode::Mapped => SegmentFile {
                file: self.storage.open_mapped(name, Category::Wal)?,
                reservation: Some(self.cache.reserve(self.segment_bytes)),
            },
            WalMode::Write | WalMode::Off => {
                SegmentFile { file: self.storage.open(name, Category::Wal)?, reservation: None }
            }
        })
    }

    /// Returns the next segment, with room for `capacity_bytes`: a prepared one if it is large
    /// enough.
    pub(super) fn take(&self, capacity_bytes: u64) -> Result<(u64, SegmentFile)> {
        let fits = capacity_bytes <= self.segment_bytes;
        let (number, passed_over, parked) = {
            let mut spares = self.spares.lock();
            spares.taken += 1;
            if fits && let Some(prepared) = spares.prepared.pop_front() {
                return Ok(prepared);
            }
            // Prepared segments have smaller numbers than the one made here. They are removed in
            // the same step in which the new number is drawn. Otherwise a segment that is offered
            // in between would be used after the new one.
            spares.last_number = self.next_file.fetch_add(1, Relaxed);
            let parked = if fits { spares.parked.pop() } else { None };
            (spares.last_number, std::mem::take(&mut spares.prepared), parked)
        };
        self.remove_prepared(passed_over);
        Ok((number, self.make(number, parked, capacity_bytes.max(self.segment_bytes))?))
    }

    /// Takes a small segment on a full disk. It uses the reserve and all files kept for later.
    pub(super) fn take_small(&self, capacity_bytes: u64) -> Result<(u64, SegmentFile)> {
        self.reserve.spend();
        self.remove_spares();
        let number = {
            let mut spares = self.spares.lock();
            spares.last_number = self.next_file.fetch_add(1, Relaxed);
            spares.last_number
        };
        Ok((number, self.create(&segment_name(number), capacity_bytes)?))
    }

    /// Nobody has written for a while, so this removes all prepared segments but one, because they
    /// use memory, and all parked files but a few.
    pub fn trim(&self) {
        let (prepared, parked) = {
            let mut spares = self.spares.lock();
            spares.taken = 0;
            let ready = spares.target(self.most_ready).min(spares.prepared.len());
            let kept = IDLE_PARKED.min(spares.parked.len());
            (spares.prepared.split_off(ready), spares.parked.split_off(kept))
        };
        self.remove_prepared(prepared);
        parked.into_iter().for_each(|number| self.remove_spare(number));
    }

    /// Keeps the file of an obsolete segment for a future one, or removes it.
    pub fn retire(&self, number: u64, recyclable: bool) {
        if recyclable {
            let mut spares = self.spares.lock();
            if spares.parked.len() < MAX_PARKED {
                spares.parked.push(number);
                return;
            }
        }
        self.remove_spare(number);
    }
}
