//! The device: keys in, values out. It owns the parts and connects them, and each part does its own
//! work.

use std::sync::Arc;

use runstone_policy::filters::FilterAllocation;

use super::boot;
use super::catalog::{Catalog, read_meta};
use super::collection::budget::{limit_pages, live_pages};
use super::counters::{Cause, KvSsdAmplification, KvSsdCounters, Programs};
use super::format::meta_page::TableMeta;
use super::options::{Form, KvSsdOptions, max_key_bytes, max_value_bytes};
use super::pending::capacitor::Capacitor;
use super::pending::{Pending, Write};
use super::read::View;
use super::read::scan::{Direction, Visit};
use super::space::Space;
use super::tree::{Node, Tree};
use super::verify::{self, Verified};
use super::write::{Writer, check_size};
use crate::error::{Error, Result};
use crate::nand::{Geometry, Image, Nand, PageType, Timing};

/// A KVSSD.
pub struct KvSsd {
    catalog: Catalog,
    writer: Writer,
}

impl std::fmt::Debug for KvSsd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvSsd({:?}, {})", self.nand(), self.options().name())
    }
}

impl KvSsd {
    /// Makes an empty device over an empty image. `side` is where the capacitor saves the memtable.
    /// It stays empty with [`Durability::Log`](super::Durability::Log).
    pub fn create(
        image: Box<dyn Image>,
        side: Box<dyn Image>,
        geometry: Geometry,
        timing: Timing,
        options: KvSsdOptions,
    ) -> Result<KvSsd> {
        options.check(&geometry)?;
        let nand = Nand::create(image, geometry, timing)?;
        let pending = Pending::new(options.durability, Capacitor::create(side)?);
        let mut catalog = Catalog::new(Space::new(nand, true), options);
        catalog.tree.next_table_id = 1;
        catalog.checkpoint()?;
        let mut device = KvSsd { catalog, writer: Writer::new(pending) };
        device.sync()?;
        Ok(device)
    }

    /// Opens a device. `options` replace those of the last open. Only the place where acknowledged
    /// writes are saved stays the same.
    pub fn open(
        image: Box<dyn Image>,
        side: Box<dyn Image>,
        geometry: Option<Geometry>,
        timing: Timing,
        options: Option<KvSsdOptions>,
    ) -> Result<KvSsd> {
        let (catalog, pending) = boot::open(image, side, geometry, timing, options)?;
        Ok(KvSsd { catalog, writer: Writer::new(pending) })
    }

    /// Stores a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[Write::Put { key, value }])
    }

    /// Removes a key. The key may be absent.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(&[Write::Delete { key }])
    }

    /// Applies all writes or none. They survive a power cut of the device once this returns; with
    /// [`Durability::Log`](super::Durability::Log), once [`KvSsd::sync`] returns.
    pub fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        self.writer.write(&mut self.catalog, writes)
    }

    /// Longest key.
    pub fn max_key_bytes(&self) -> usize {
        max_key_bytes(&self.nand().geometry())
    }

    /// Longest value.
    pub fn max_value_bytes(&self) -> usize {
        max_value_bytes(&self.nand().geometry()) as usize
    }

    /// Whether the sizes of key and value are possible.
    pub fn check_size(&self, write: &Write<'_>) -> Result<()> {
        check_size(&self.nand().geometry(), write)
    }

    fn view(&mut self) -> View<'_> {
        View { catalog: &mut self.catalog, memtable: &self.writer.pending.memtable }
    }

    /// The newest value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_at(key, u64::MAX)
    }

    /// The value of a key as a snapshot sees it.
    pub fn get_at(&mut self, key: &[u8], snapshot: u64) -> Result<Option<Vec<u8>>> {
        self.view().get(key, snapshot)
    }

    /// Visits entries as the snapshot sees them, from the first key >= `from` until `visit` returns
    /// false. In reverse it starts at the last key <= `from`. If `from` is `None`, it starts at the
    /// first key, or in reverse at the last.
    pub fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        snapshot: u64,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.view().scan(from, direction, snapshot, visit)
    }

    /// Holds the present state for readers, until [`KvSsd::release`]. Snapshots are in RAM: they
    /// end with the device.
    pub fn snapshot(&mut self) -> u64 {
        let seq = self.catalog.tree.last_seq;
        self.catalog.snapshots.hold(seq);
        seq
    }

    /// Releases a snapshot.
    pub fn release(&mut self, snapshot: u64) {
        if self.catalog.snapshots.release(snapshot) {
            self.writer.search_again();
        }
    }

    /// Makes all earlier writes survive a power cut of the device. If the image allows it, they
    /// also survive a power loss of the machine that runs the emulator.
    pub fn sync(&mut self) -> Result<()> {
        self.writer.sync(&mut self.catalog)
    }

    /// Moves the memtable into a table, and compacts levels that are over their size.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush(&mut self.catalog)
    }

    /// Moves everything to the deepest level and rewrites it there, in its smallest form.
    pub fn compact(&mut self) -> Result<()> {
        self.writer.compact(&mut self.catalog)
    }

    /// Saves the tree.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.catalog.checkpoint()
    }

    /// Verifies the device. The first problem found is the error.
    pub fn verify(&mut self) -> Result<Verified> {
        verify::verify(&mut self.catalog, &self.writer.pending)
    }

    /// How many pages of tables, metadata and values leave room to work.
    pub fn limit_pages(&self) -> u64 {
        limit_pages(&self.catalog)
    }

    /// Pages that tables, metadata and values need now. Separated values count with the pages that
    /// they will need once they are collected.
    pub fn live_pages(&self) -> u64 {
        live_pages(&self.catalog)
    }

    /// Pages that contain separated values, and the pages that the needed values would take. Until
    /// the needed values are counted after an open, all values count as needed.
    pub fn value_pages(&self) -> (u64, u64) {
        let values = &self.catalog.values;
        (values.used_pages(), values.needed_pages(self.catalog.space.page_bytes()))
    }

    /// Pages that are reserved for segments of tables, in addition to live pages. Under lLSM each
    /// table below level 0 reserves the pages that it lacks to be full.
    pub fn reserved_pages(&self) -> u64 {
        self.catalog.reserved_pages
    }

    /// The pages of a table, as its metadata page gives them.
    pub fn table(&mut self, id: u64) -> Result<TableMeta> {
        let node = self.catalog.tree.node(id).cloned();
        let missing = || Error::Corrupt { what: "tree", why: format!("there is no table {id}") };
        read_meta(&mut self.catalog.space, &*node.ok_or_else(missing)?)
    }

    /// How many entries of tables refer to a page.
    pub fn reference_count(&self, page: u32) -> u8 {
        self.catalog.references.count(page)
    }

    /// Options of the device.
    pub fn options(&self) -> &KvSsdOptions {
        &self.catalog.options
    }

    /// The tables.
    pub fn tree(&self) -> &Tree {
        &self.catalog.tree
    }

    /// The flash below the device.
    pub fn nand(&self) -> &Nand {
        &self.catalog.space.nand
    }

    /// The flash below the device, so that tests can set faults.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.catalog.space.nand
    }

    /// What was done since the device was opened.
    pub fn counters(&self) -> KvSsdCounters {
        self.catalog.counters
    }

    /// Programs since the device was opened, by cause and type.
    pub fn programs(&self) -> Programs {
        self.catalog.space.programs
    }

    /// Write amplification since the device was opened. Asserts that the causes explain every
    /// program that the flash counted.
    pub fn write_amplification(&self) -> KvSsdAmplification {
        let programs = &self.catalog.space.programs;
        let flash = self.catalog.space.nand.counters().total().programs;
        assert_eq!(flash, programs.total(), "each program has a cause");
        let page_bytes = self.catalog.space.page_bytes() as u64;
        let bytes = |cause| programs.by(cause) * page_bytes;
        let tree_bytes = bytes(Cause::Flush) + bytes(Cause::Compaction) + bytes(Cause::Checkpoint);
        KvSsdAmplification {
            user_bytes: self.catalog.counters.user_bytes,
            tree_bytes,
            flash_bytes: tree_bytes + bytes(Cause::Collection),
            log_bytes: bytes(Cause::Log),
        }
    }

    /// RAM that a controller would need, in bytes: tree, lists, counters and values.
    pub fn ram(&self) -> RamReport {
        let (counter_bytes, list_bytes) = self.catalog.references.ram_parts();
        // A real table behind a virtual table takes as much RAM as any other table.
        let reals = |node: &Node| match self.catalog.options.form {
            Form::Delay => u64::from(node.counter),
            Form::Remap | Form::Append => 1,
        };
        // The rule for optimal filters needs the number of filter bits of each table.
        let filter_bytes = match self.catalog.options.filters {
            FilterAllocation::Optimal => 4,
            _ => 0,
        };
        let table_bytes = |node: &Arc<Node>| node.ram_bytes() * reals(node) + filter_bytes;
        let tree_bytes = self.catalog.tree.nodes().map(table_bytes).sum();
        let value_bytes = self.catalog.values.ram_bytes();
        RamReport { tree_bytes, list_bytes, counter_bytes, value_bytes }
    }

    /// Key and value bytes that wait in the memtable, and the bytes that are saved for it outside
    /// the flash.
    pub fn memtable_bytes(&self) -> (u64, u64) {
        let pending = &self.writer.pending;
        (pending.memtable.bytes(), pending.saved_bytes())
    }

    /// What a block contains, how many times it was erased, and whether it is bad. For pictures and
    /// checks.
    pub fn block(&self, block: u32) -> BlockReport {
        BlockReport {
            page_type: self.catalog.space.type_of(block),
            live_pages: self.catalog.space.live_in(block),
            tables: self.catalog.references.tables(block).count() as u32,
            level: self.deepest_of(block),
            erase_count: self.catalog.space.nand.erase_count(block),
            is_retired: self.catalog.space.nand.is_retired(block),
        }
    }

    fn deepest_of(&self, block: u32) -> Option<u8> {
        let nodes =
            self.catalog.references.tables(block).filter_map(|id| self.catalog.tree.node(id));
        nodes.map(|node| self.catalog.tree.band(node)).max()
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

/// What a block contains.
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
