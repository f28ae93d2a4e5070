//! The device: keys in, values out. Writes go to the memtable and its saved copy. Before the next
//! write is taken, a full memtable is flushed, a full log page is programmed, and levels over their
//! size are compacted. An error means that the write was not taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::counters::{Cause, KvSsdAmplification, KvSsdCounters, Programs};
use crate::kvssd::format::kv_page::{KvPage, page_room_bytes, record_bytes};
use crate::kvssd::format::meta_page::{Entry, Real, TableMeta};
use crate::kvssd::format::record::{Kind, Record, Version};
use crate::kvssd::options::{self, Durability, Form, KvSsdOptions, Placement};
use crate::kvssd::pending::Write;
use crate::kvssd::pending::capacitor::Capacitor;
use crate::kvssd::pending::log::Log;
use crate::kvssd::pending::memtable::Memtable;
use crate::kvssd::space::{Owner, Space, Stream};
use crate::kvssd::tables::lookup::find_record;
use crate::kvssd::tree::journal;
use crate::kvssd::tree::references::References;
use crate::kvssd::tree::{Commit, Node, Tree};
use crate::kvssd::values::map::{ValueChange, ValueMap};
use crate::nand::{Geometry, Image, Nand, PageType, SharedBytes, Timing};

/// How many checkpoints are kept. If the newest is damaged, the older one and the journal since
/// then give the same tree.
const KEPT_CHECKPOINTS: usize = 2;

/// How many metadata pages have their content kept in memory.
const KNOWN_METAS: usize = 4096;

/// Where acknowledged writes survive.
pub(super) enum Saved {
    Capacitor(Capacitor),
    Log(Log),
}

/// A KVSSD.
pub struct KvSsd {
    pub(super) space: Space,
    pub(super) options: KvSsdOptions,
    pub(super) tree: Tree,
    pub(super) references: References,
    pub(super) values: ValueMap,
    pub(super) memtable: Memtable,
    pub(super) saved: Saved,
    /// The snapshots that are held, by sequence number, and how many hold each.
    pub(super) snapshots: BTreeMap<u64, u32>,
    /// Bytes of the largest record written since snapshots were held. Starts again when no snapshot
    /// is held.
    largest_beside_snapshots: usize,
    /// Live journal pages: transaction and page.
    pub(super) journal: VecDeque<(u64, u32)>,
    /// Live checkpoints: transaction and pages.
    pub(super) checkpoints: VecDeque<(u64, Vec<u32>)>,
    pub(super) checkpoint_number: u64,
    pub(super) counters: KvSsdCounters,
    /// The content of the metadata pages that were written or read last, by page. It saves the
    /// emulator a read and a decoding per look-up. The device reads the page each time.
    known_metas: BTreeMap<u32, Arc<TableMeta>>,
    /// Pages that are reserved for segments of tables.
    pub(super) reserved_pages: u64,
    /// Whether the newest checkpoint has the format of devices with separated values.
    pub(super) is_saved_apart: bool,
    /// Whether nothing was removed since a search for space last failed.
    pub(super) is_squeezed: bool,
}

impl std::fmt::Debug for KvSsd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvSsd({:?}, {})", self.space.nand, self.options.name())
    }
}

/// What a commit does to page references.
#[derive(Default)]
pub(super) struct Change {
    /// Tables that are removed, with their metadata pages.
    pub(super) removed: Vec<(TableMeta, u32)>,
    /// Tables that are added.
    pub(super) added: Vec<TableMeta>,
    /// Values that move, are added, or lose their pointers.
    pub(super) values: ValueChange,
}

impl KvSsd {
    /// Makes an empty device over an empty image. `side` is where the capacitor saves the memtable.
    /// It stays empty with [`Durability::Log`].
    pub fn create(
        image: Box<dyn Image>,
        side: Box<dyn Image>,
        geometry: Geometry,
        timing: Timing,
        options: KvSsdOptions,
    ) -> Result<KvSsd> {
        options.check(&geometry)?;
        let nand = Nand::create(image, geometry, timing)?;
        let capacitor = Capacitor::create(side)?;
        let mut device = KvSsd::over(Space::new(nand, true), options, capacitor);
        device.tree.next_table_id = 1;
        device.checkpoint()?;
        device.sync()?;
        Ok(device)
    }

    pub(super) fn over(space: Space, options: KvSsdOptions, capacitor: Capacitor) -> KvSsd {
        let geometry = space.nand.geometry();
        let saved = match options.durability {
            Durability::Capacitor => Saved::Capacitor(capacitor),
            Durability::Log => Saved::Log(Log::default()),
        };
        let bands = options.bands().expect("the options were checked");
        let tree = Tree::new(bands, options::max_key_bytes(&geometry));
        KvSsd {
            tree,
            references: References::new(geometry.block_count, geometry.block_pages),
            values: ValueMap::new(options.group_count(&geometry)),
            memtable: Memtable::default(),
            saved,
            snapshots: BTreeMap::new(),
            largest_beside_snapshots: 0,
            journal: VecDeque::new(),
            checkpoints: VecDeque::new(),
            checkpoint_number: 0,
            counters: KvSsdCounters::default(),
            known_metas: BTreeMap::new(),
            reserved_pages: 0,
            is_saved_apart: false,
            is_squeezed: false,
            space,
            options,
        }
    }

    /// Stores a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[Write::Put { key, value }])
    }

    /// Removes a key. It is allowed to remove an absent key.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(&[Write::Delete { key }])
    }

    /// Applies all writes or none. They survive a power cut of the device once this returns; with
    /// [`Durability::Log`], once [`KvSsd::sync`] returns.
    pub fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let more_pages = self.check_sizes(writes)?;
        self.check_held_versions(writes)?;
        self.make_writable(more_pages, writes)?;
        // Done once a page of the log waits. After the write it could no longer be refused.
        self.write_log(self.space.page_bytes())?;
        let first_seq = self.tree.last_seq + 1;
        match &mut self.saved {
            Saved::Capacitor(capacitor) => capacitor.save(first_seq, writes)?,
            Saved::Log(log) => log.append(first_seq, writes),
        }
        for (seq, write) in (first_seq..).zip(writes) {
            let (kind, key, value) = write.parts();
            self.insert(seq, kind, key, value);
            self.counters.writes += 1;
            self.counters.user_bytes += (key.len() + value.len()) as u64;
            self.is_squeezed &= kind == Kind::Put;
            if !self.snapshots.is_empty() {
                let bytes = record_bytes(key.len(), value.len());
                self.largest_beside_snapshots = self.largest_beside_snapshots.max(bytes);
            }
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, seq: u64, kind: Kind, key: &[u8], value: &[u8]) {
        let version = Version::new(seq, kind, value);
        let newest_snapshot = self.snapshots.last_key_value().map(|(seq, _)| *seq);
        self.memtable.insert(key, version, newest_snapshot, self.space.page_bytes());
        self.tree.last_seq = seq;
    }

    /// Longest key.
    pub fn max_key_bytes(&self) -> usize {
        options::max_key_bytes(&self.space.nand.geometry())
    }

    /// Longest value.
    pub fn max_value_bytes(&self) -> usize {
        options::max_value_bytes(&self.space.nand.geometry()) as usize
    }

    /// Whether the sizes of key and value are possible.
    pub fn check_size(&self, write: &Write<'_>) -> Result<()> {
        let (_, key, value) = write.parts();
        let (max_key, max_value) = (self.max_key_bytes(), self.max_value_bytes());
        if key.is_empty() || key.len() > max_key {
            return Err(Error::KeySize { bytes: key.len(), limit_bytes: max_key });
        }
        if value.len() > max_value {
            return Err(Error::ValueSize { bytes: value.len(), limit_bytes: max_value });
        }
        Ok(())
    }

    /// How many pages the writes may take.
    fn check_sizes(&self, writes: &[Write<'_>]) -> Result<u64> {
        let mut bytes = 0;
        for write in writes {
            self.check_size(write)?;
            let (_, key, value) = write.parts();
            bytes += record_bytes(key.len(), value.len());
        }
        Ok(bytes.div_ceil(page_room_bytes(self.space.page_bytes())) as u64)
    }

    /// Refuses writes that would leave a key with more versions than fit a block. Sooner or later a
    /// compaction brings the versions that snapshots hold and the newest version into one page
    /// group. A compaction of fewer tables sees no more versions: the newest version there was the
    /// newest when it was written.
    ///
    /// Few writes need a close look. Of the versions of a key that snapshots see, at most one was
    /// there before there were snapshots. The others are no larger than the largest record since.
    fn check_held_versions(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let Some(others) = self.snapshots.len().checked_sub(1) else { return Ok(()) };
        let most_record = options::max_record_bytes(&self.space.nand.geometry());
        let most_held = most_record + others * self.largest_beside_snapshots;
        let block_bytes = self.space.block_pages() as usize * self.space.page_bytes();
        let limit_bytes = page_room_bytes(block_bytes);
        for write in writes {
            let (_, key, value) = write.parts();
            let new_bytes = record_bytes(key.len(), value.len());
            if new_bytes + most_held <= limit_bytes {
                continue;
            }
            let bytes = new_bytes + self.held_bytes(key)?;
            if bytes > limit_bytes {
                return Err(Error::VersionsHeld { bytes, limit_bytes });
            }
        }
        Ok(())
    }

    /// Bytes of the records of a key that snapshots see.
    fn held_bytes(&mut self, key: &[u8]) -> Result<usize> {
        let (mut bytes, mut end) = (0, u64::MAX);
        while let Some((&snapshot, _)) = self.snapshots.range(..end).next_back() {
            let found = self.find(key, snapshot, &mut PagesRead::default())?;
            let Some(version) = found else { break };
            bytes += record_bytes(key.len(), version.value.len());
            // All snapshots from this number on see the same version.
            end = version.seq;
        }
        Ok(bytes)
    }

    /// The newest value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_at(key, u64::MAX)
    }

    /// The value of a key as a snapshot sees it.
    pub fn get_at(&mut self, key: &[u8], snapshot: u64) -> Result<Option<Vec<u8>>> {
        self.counters.gets += 1;
        let mut read = PagesRead::default();
        let found = self.find(key, snapshot, &mut read);
        self.counters.get_pages += read.pages;
        self.counters.get_meta_pages += read.meta_pages;
        let before = self.counters.value_pages_read;
        let value = self.value_of(key, found?)?;
        self.counters.get_pages += self.counters.value_pages_read - before;
        let bytes = value.as_ref().map_or(0, |value| key.len() + value.len());
        self.counters.get_bytes += bytes as u64;
        Ok(value)
    }

    /// The version of a key that a snapshot sees; it may be a delete.
    pub(super) fn find(
        &mut self,
        key: &[u8],
        snapshot: u64,
        read: &mut PagesRead,
    ) -> Result<Option<Version>> {
        if let Some(version) = self.memtable.get(key, snapshot) {
            return Ok(Some(version.clone()));
        }
        let page_bytes = self.space.page_bytes();
        for node in self.tree.candidates(key) {
            let table = self.read_known_meta(&node)?;
            // RAM holds which real tables stand behind a virtual one.
            let own_pages = u64::from(table.reals.is_empty());
            let mut reader = Reader { space: &mut self.space, pages: 0, meta_pages: own_pages };
            let found = find_record(&table, key, snapshot, page_bytes, &mut reader);
            read.pages += reader.pages + reader.meta_pages;
            read.meta_pages += reader.meta_pages;
            if let Some(record) = found? {
                return Ok(Some(record.version().clone()));
            }
        }
        Ok(None)
    }

    /// Holds the present state for readers, until [`KvSsd::release`]. Snapshots are in RAM: they
    /// end with the device.
    pub fn snapshot(&mut self) -> u64 {
        if self.snapshots.is_empty() {
            self.largest_beside_snapshots = 0;
        }
        let seq = self.tree.last_seq;
        *self.snapshots.entry(seq).or_insert(0) += 1;
        seq
    }

    /// Releases a snapshot.
    pub fn release(&mut self, snapshot: u64) {
        if let Some(count) = self.snapshots.get_mut(&snapshot) {
            *count -= 1;
            if *count == 0 {
                self.snapshots.remove(&snapshot);
                self.is_squeezed = false;
            }
        }
    }

    /// Makes all earlier writes survive a power cut of the device. As far as the image allows, they
    /// also survive a power loss of the machine that runs the emulator.
    pub fn sync(&mut self) -> Result<()> {
        self.write_log(1)?;
        if let Saved::Capacitor(capacitor) = &mut self.saved {
            capacitor.sync()?;
        }
        // If saved writes are missing at open, this number shows it.
        self.space.nand.set_note(self.tree.last_seq);
        self.space.nand.sync()
    }

    /// Programs the waiting part of the log, if it has at least this many bytes. A log needs room
    /// like any other stream.
    fn write_log(&mut self, least_bytes: usize) -> Result<()> {
        let waiting_bytes = match &self.saved {
            Saved::Log(log) if log.waiting_bytes() >= least_bytes => log.waiting_bytes(),
            _ => return Ok(()),
        };
        let pages = waiting_bytes.div_ceil(self.space.page_bytes()) as u32;
        if pages > self.space.block_pages() {
            return self.flush_memtable();
        }
        if pages > self.space.room_in(Stream::Log) && !self.make_room(1)? {
            return self.flush_memtable();
        }
        let txn = self.tree.txn;
        if let Saved::Log(log) = &mut self.saved {
            self.space.cause = Cause::Log;
            log.write_out(&mut self.space, txn)?;
        }
        Ok(())
    }

    /// Moves the memtable into a table, and compacts levels that are over their size.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_memtable()?;
        self.settle()
    }

    /// Runs the steps of a transaction. If one fails, what the transaction programmed is garbage.
    pub(super) fn transact<T>(
        &mut self,
        cause: Cause,
        steps: impl FnOnce(&mut KvSsd) -> Result<T>,
    ) -> Result<T> {
        self.space.cause = cause;
        let done = steps(self);
        if done.is_err() {
            self.space.give_up();
        }
        done
    }

    /// Programs the journal page, which is the only commit point, and applies the commit. A commit
    /// that does not fit a page becomes a checkpoint of the resulting tree, which is also either
    /// whole or absent.
    pub(super) fn commit(&mut self, commit: &Commit, change: Change) -> Result<()> {
        match journal::encode_commit(commit, self.space.page_bytes()) {
            Some(bytes) => {
                let owner = Owner { txn: commit.txn, ..Owner::default() };
                let page = self.space.program(Stream::Journal, bytes.into(), owner)?;
                self.space.keep();
                self.journal.push_back((commit.txn, page));
                self.tree.apply(commit)?;
            }
            None => {
                let mut tree = self.tree.clone();
                tree.apply(commit)?;
                let pages = self.program_checkpoint(&tree.snapshot())?;
                self.tree = tree;
                self.keep_checkpoint(pages);
            }
        }
        self.install_values(change.values);
        change.added.iter().for_each(|table| self.references.add(table));
        for (table, meta_page) in change.removed {
            self.drop_references(&table);
            // The metadata page of a table that became a real one is still referred to.
            if self.references.count(meta_page) == 0 {
                self.space.release(meta_page, 1);
            }
        }
        self.space.deep_level = self.deepest_kv_level();
        self.count_reserved();
        Ok(())
    }

    fn drop_references(&mut self, table: &TableMeta) {
        let garbage = self.references.remove(table);
        let sizes: BTreeMap<u32, u16> =
            table.entries.iter().map(|entry| (entry.page, entry.page_count)).collect();
        for page in garbage {
            self.space.release(page, sizes.get(&page).map_or(1, |count| u32::from(*count)));
        }
    }

    /// Saves the tree if enough was committed since the last save.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<()> {
        let last_txn = self.checkpoints.back().map_or(0, |(txn, _)| *txn);
        let is_due = self.tree.txn - last_txn >= self.checkpoint_interval();
        if is_due { self.checkpoint() } else { Ok(()) }
    }

    /// How many commits there are from one checkpoint to the next. There are fewer on a small
    /// device, where the journal between two checkpoints would take too much of it.
    pub(super) fn checkpoint_interval(&self) -> u64 {
        const DEVICE_PART: u64 = 64;
        let most = (self.space.nand.geometry().page_count() / DEVICE_PART).max(1);
        u64::from(self.options.checkpoint_commits).min(most)
    }

    /// Saves the tree.
    pub fn checkpoint(&mut self) -> Result<()> {
        let pages = self.program_checkpoint(&self.tree.snapshot())?;
        self.keep_checkpoint(pages);
        Ok(())
    }

    fn program_checkpoint(&mut self, saved: &Commit) -> Result<Vec<u32>> {
        let page_bytes = self.space.page_bytes();
        let is_apart = self.is_format_apart();
        let bytes = journal::encode_checkpoint(&self.options, is_apart, saved, page_bytes);
        self.checkpoint_number += 1;
        let (id, txn) = (self.checkpoint_number, saved.txn);
        self.transact(Cause::Checkpoint, |device| {
            let mut pages = Vec::new();
            for (index, page) in (0..).zip(bytes.chunks_exact(page_bytes)) {
                let owner = Owner { level: 0, txn, id, index };
                pages.push(device.space.program(
                    Stream::Checkpoint,
                    page.to_vec().into(),
                    owner,
                )?);
            }
            device.space.keep();
            Ok(pages)
        })
    }

    /// Called after the tree is saved. All older checkpoints but one become garbage, and so does
    /// the journal before that one.
    fn keep_checkpoint(&mut self, pages: Vec<u32>) {
        self.checkpoints.push_back((self.tree.txn, pages));
        self.is_saved_apart = self.is_format_apart();
        self.counters.checkpoints += 1;
        if self.checkpoints.len() > KEPT_CHECKPOINTS {
            let old = self.checkpoints.pop_front();
            old.into_iter().flat_map(|(_, pages)| pages).for_each(|p| self.space.release(p, 1));
        }
        let kept_txn = self.checkpoints.front().map_or(0, |(txn, _)| *txn);
        while self.journal.front().is_some_and(|(txn, _)| *txn <= kept_txn) {
            if let Some((_, page)) = self.journal.pop_front() {
                self.space.release(page, 1);
            }
        }
    }

    /// Whether checkpoints have the format of devices with separated values. Once they have it,
    /// they keep it: a pointer may stay in pages that remapping shares, long after its value is
    /// gone.
    fn is_format_apart(&self) -> bool {
        self.is_saved_apart || self.apart_from().is_some()
    }

    /// Reads the metadata page of a table for a get; its content may be known already.
    fn read_known_meta(&mut self, node: &Node) -> Result<Arc<TableMeta>> {
        let known = self.known_metas.get(&node.meta_page).filter(|table| table.id == node.id);
        if let Some(table) = known {
            if table.reals.is_empty() {
                self.space.nand.read_again(self.space.nand.geometry().page(node.meta_page))?;
            }
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(self.read_meta(node)?);
        // This is more tables than a device of many gigabytes has. It is simple to forget all of
        // them, and rarely needed.
        if self.known_metas.len() >= KNOWN_METAS {
            self.known_metas.clear();
        }
        self.known_metas.insert(node.meta_page, Arc::clone(&table));
        Ok(table)
    }

    /// Forgets a page that was programmed with different content.
    pub(super) fn forget_meta(&mut self, page: u32) {
        self.known_metas.remove(&page);
    }

    /// Reads the metadata page of a table.
    pub(super) fn read_meta(&mut self, node: &Node) -> Result<TableMeta> {
        let mut table = TableMeta::decode(&self.space.read(node.meta_page, 1)?.flat())?;
        for stratum in 0..table.reals.len() {
            let page = table.reals[stratum].page;
            let real = TableMeta::decode(&self.space.read(page, 1)?.flat())?;
            table.expand(stratum as u8, &real);
        }
        table.sort();
        let wrong = |why: &str| Error::Corrupt { what: "metadata page", why: why.to_string() };
        table.check().map_err(wrong)?;
        if table.id != node.id {
            let why = format!("page {} is of table {}, not {}", node.meta_page, table.id, node.id);
            return Err(Error::Corrupt { what: "metadata page", why });
        }
        Ok(table)
    }

    /// Reads a metadata page whose content is known. The device reads it; the emulator need not.
    pub(super) fn read_meta_again(&mut self, node: &Node, known: TableMeta) -> Result<TableMeta> {
        self.space.nand.read_again(self.space.nand.geometry().page(node.meta_page))?;
        Ok(known)
    }

    pub(super) fn read_metas(&mut self, nodes: &[Arc<Node>]) -> Result<Vec<TableMeta>> {
        nodes.iter().map(|node| self.read_meta(node)).collect()
    }

    /// Programs the metadata page of a table and returns what the tree must know of it.
    pub(super) fn write_meta(&mut self, table: &TableMeta) -> Result<Node> {
        let bytes = table.encode(self.space.page_bytes()).ok_or(Error::JournalFull)?;
        let owner = Owner { level: table.level, txn: table.txn, id: table.id, index: 0 };
        let meta_page = self.space.program(Stream::Meta, bytes.into(), owner)?;
        self.forget_meta(meta_page);
        let empty = || Error::Corrupt { what: "table", why: "it has no entries".to_string() };
        Ok(Node {
            id: table.id,
            level: table.level,
            meta_page,
            counter: table.counter,
            charged_pages: table.charged_pages(),
            record_count: table.entries.iter().map(|entry| u64::from(entry.record_count)).sum(),
            tombstones: table.tombstones,
            min_seq: table.min_seq,
            max_seq: table.max_seq,
            fence: table.fence().ok_or_else(empty)?,
        })
    }

    /// The stream of a level's pages of keys and values.
    pub(super) fn kv_stream(&self, level: u8) -> Stream {
        Stream::Kv(self.kv_level(level))
    }

    /// The deepest level that has a stream of its own.
    pub(super) fn deepest_kv_level(&self) -> u8 {
        self.kv_level(self.tree.level_count().saturating_sub(1).max(1) as u8)
    }

    /// The runs of one policy level become garbage together, so they share a stream. If a policy
    /// finds the runs of another, there may be more levels than a device needs. Then the deep ones
    /// share one stream.
    fn kv_level(&self, level: u8) -> u8 {
        const DEEPEST: u8 = 7;
        match self.options.placement {
            Placement::PerLevel => (self.tree.bands.band(level.into()) as u8).min(DEEPEST),
            Placement::Mixed | Placement::PerTable => 0,
        }
    }

    /// The pages of a table, as its metadata page gives them.
    pub fn table(&mut self, id: u64) -> Result<TableMeta> {
        let node = self.tree.node(id).cloned();
        let missing = || Error::Corrupt { what: "tree", why: format!("there is no table {id}") };
        self.read_meta(&*node.ok_or_else(missing)?)
    }

    /// How many entries of tables refer to a page.
    pub fn reference_count(&self, page: u32) -> u8 {
        self.references.count(page)
    }

    /// Options of the device.
    pub fn options(&self) -> &KvSsdOptions {
        &self.options
    }

    /// The tables.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The flash below the device.
    pub fn nand(&self) -> &Nand {
        &self.space.nand
    }

    /// The flash below the device, so that tests can set faults.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.space.nand
    }

    /// What was done since the device was opened.
    pub fn counters(&self) -> KvSsdCounters {
        self.counters
    }

    /// Programs since the device was opened, by cause and type.
    pub fn programs(&self) -> Programs {
        self.space.programs
    }

    /// Write amplification since the device was opened. Asserts that the causes explain every
    /// program that the flash counted.
    pub fn write_amplification(&self) -> KvSsdAmplification {
        let programs = &self.space.programs;
        let flash = self.space.nand.counters().total().programs;
        assert_eq!(flash, programs.total(), "each program has a cause");
        let page_bytes = self.space.page_bytes() as u64;
        let bytes = |cause| programs.by(cause) * page_bytes;
        let tree_bytes = bytes(Cause::Flush) + bytes(Cause::Compaction) + bytes(Cause::Checkpoint);
        KvSsdAmplification {
            user_bytes: self.counters.user_bytes,
            tree_bytes,
            flash_bytes: tree_bytes + bytes(Cause::Collection),
            log_bytes: bytes(Cause::Log),
        }
    }

    /// RAM that a controller would need, in bytes: tree, lists and counters.
    pub fn ram(&self) -> RamReport {
        let (counter_bytes, list_bytes) = self.references.ram_parts();
        // A real table behind a virtual one takes as much as any table.
        let reals = |node: &Node| match self.options.form {
            Form::Delay => u64::from(node.counter),
            Form::Remap | Form::Append => 1,
        };
        let tree_bytes = self.tree.nodes().map(|node| node.ram_bytes() * reals(node)).sum();
        let value_bytes = self.values.ram_bytes();
        RamReport { tree_bytes, list_bytes, counter_bytes, value_bytes }
    }

    /// Key and value bytes that wait in the memtable, and the bytes that are saved for it outside
    /// the flash.
    pub fn memtable_bytes(&self) -> (u64, u64) {
        let saved = match &self.saved {
            Saved::Capacitor(capacitor) => capacitor.len_bytes(),
            Saved::Log(_) => 0,
        };
        (self.memtable.bytes(), saved)
    }

    /// Live pages of the log.
    pub(super) fn log_pages(&self) -> Vec<u32> {
        match &self.saved {
            Saved::Capacitor(_) => Vec::new(),
            Saved::Log(log) => log.pages().collect(),
        }
    }

    /// For a block: its type, its live pages, and whether it is bad. For pictures and checks.
    pub fn block(&self, block: u32) -> BlockReport {
        BlockReport {
            page_type: self.space.type_of(block),
            live_pages: self.space.live_in(block),
            tables: self.references.tables(block).count() as u32,
            level: self.deepest_of(block),
            erase_count: self.space.nand.erase_count(block),
            is_retired: self.space.nand.is_retired(block),
        }
    }

    fn deepest_of(&self, block: u32) -> Option<u8> {
        let nodes = self.references.tables(block).filter_map(|id| self.tree.node(id));
        nodes.map(|node| self.tree.band(node)).max()
    }
}

/// RAM that a controller needs for the structures of the tree, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamReport {
    /// Key-range tree.
    pub tree_bytes: u64,
    /// Tables of each block.
    pub list_bytes: u64,
    /// References of each page.
    pub counter_bytes: u64,
    /// Where separated values are, and which of them are needed.
    pub value_bytes: u64,
}

impl RamReport {
    /// The sum of all parts.
    pub fn total_bytes(&self) -> u64 {
        self.tree_bytes + self.list_bytes + self.counter_bytes + self.value_bytes
    }
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// Type of its pages; `None` if it is free.
    pub page_type: Option<PageType>,
    /// Pages that are needed.
    pub live_pages: u32,
    /// Tables with pages here.
    pub tables: u32,
    /// Deepest level of these tables, as the policy counts levels.
    pub level: Option<u8>,
    /// Erases in its life.
    pub erase_count: u64,
    /// Whether it is bad.
    pub is_retired: bool,
}

/// Counts of pages that a look-up read.
#[derive(Default)]
pub(super) struct PagesRead {
    pages: u64,
    /// How many of these are pages of metadata.
    meta_pages: u64,
}

/// Reads the pages of entries, and counts them.
pub(super) struct Reader<'a> {
    pub(super) space: &'a mut Space,
    pub(super) pages: u64,
    pub(super) meta_pages: u64,
}

impl crate::kvssd::tables::PageReader for Reader<'_> {
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
        self.pages += u64::from(entry.page_count);
        self.space.read(entry.page, u32::from(entry.page_count))
    }

    fn look_at(&mut self, real: &Real) -> Result<()> {
        self.meta_pages += 1;
        let page = self.space.nand.geometry().page(real.page);
        self.space.nand.read_again(page).map(|_| ())
    }
}

/// The records of an entry that are inside its clip.
pub(super) fn read_records(space: &mut Space, entry: &Entry) -> Result<Vec<Record>> {
    let bytes = space.read(entry.page, u32::from(entry.page_count))?;
    let page = KvPage::decode(bytes, space.page_bytes())?;
    Ok(page.records_in(page.inside(&entry.clip)).collect())
}
