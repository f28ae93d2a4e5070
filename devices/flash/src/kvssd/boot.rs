//! Opening a device: after a shutdown, a power cut, or damage.
//!
//! 1. Read the spare bytes of the first page of every block to learn its type. In blocks of
//!    checkpoints, journal and log, and where the first page is damaged, read those of all pages.
//! 2. Load the newest checkpoint whose pages are all whole. If the newest is torn or corrupted,
//!    load the one before it: the journal since then is still there.
//! 3. Apply the journal pages of the transactions that follow, up to the first page that is missing
//!    or damaged. If a whole page follows it, that is corruption and not a power cut: the open is
//!    refused, because commits would be lost.
//! 4. Read the metadata page of every table. The lists, the reference counts and the live pages
//!    follow from these alone, so no page of an uncommitted transaction counts.
//! 5. Note where the separated values are: the tree names their pages.
//! 6. Fill the memtable from what the capacitor saved, or from the log. Sequence numbers have no
//!    gaps, so a gap in the log is damage. In what the capacitor saved, it is damage only if a sync
//!    covered the missing number.
//!
//! Nothing is programmed. The very last journal page, log group or checkpoint is a commit point. If
//! it is corrupted, it cannot be told from the torn program of a transaction that was not
//! acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::device::{KvSsd, Saved};
use crate::kvssd::format::kv_page::KvPage;
use crate::kvssd::options::{KvSsdOptions, ValuePlacement};
use crate::kvssd::pending::capacitor::Capacitor;
use crate::kvssd::pending::frames::{Decoded, Frame};
use crate::kvssd::pending::log::FoundGroup;
use crate::kvssd::space::Space;
use crate::kvssd::tree::journal;
use crate::kvssd::tree::{Commit, Node, Tree, ValueEntry};
use crate::kvssd::values::map::ValueMap;
use crate::nand::{Geometry, Image, Nand, Oob, PageTag, PageType, Ppa, SharedBytes, Spare, Timing};

/// A page that boot may need, as its spare bytes describe it.
#[derive(Clone, Copy)]
struct Found {
    page: u32,
    tag: PageTag,
}

/// What the blocks of the firmware's own types hold.
#[derive(Default)]
struct Scan {
    checkpoints: Vec<Found>,
    journal: Vec<Found>,
    log: Vec<Found>,
}

impl Scan {
    fn add(&mut self, page: u32, tag: PageTag) {
        let found = Found { page, tag };
        match tag.page_type {
            PageType::Checkpoint => self.checkpoints.push(found),
            PageType::Journal => self.journal.push(found),
            PageType::Log => self.log.push(found),
            PageType::Kv | PageType::Meta | PageType::Host | PageType::Value => {}
        }
    }
}

/// A checkpoint on flash.
struct Checkpoint {
    pages: Vec<u32>,
    options: KvSsdOptions,
    is_apart: bool,
    commit: Commit,
}

impl KvSsd {
    /// Opens a device. `options` replace those of the last open. Only the place where acknowledged
    /// writes are saved stays the same.
    pub fn open(
        image: Box<dyn Image>,
        side: Box<dyn Image>,
        geometry: Option<Geometry>,
        timing: Timing,
        options: Option<KvSsdOptions>,
    ) -> Result<KvSsd> {
        let is_whole = |bytes: &SharedBytes| KvPage::decode(bytes.clone(), bytes.len()).is_ok();
        let nand = Nand::open_checked(image, geometry, timing, &is_whole)?;
        let geometry = nand.geometry();
        let mut space = Space::new(nand, false);
        let scan = scan_blocks(&mut space)?;
        let checkpoints = load_checkpoints(&mut space, &scan)?;
        let newest = checkpoints.last().ok_or_else(|| no_checkpoint(&space))?;
        let durability = newest.options.durability;
        let mut tree = Tree::default();
        tree.apply(&newest.commit)?;
        let oldest_txn = checkpoints.first().map_or(0, |checkpoint| checkpoint.commit.txn);
        let live_journal = replay(&mut space, &scan.journal, &mut tree, oldest_txn)?;
        let options = options.unwrap_or_else(|| as_found(newest.options.clone(), &tree));
        let options = KvSsdOptions { durability, ..options };
        options.check(&geometry)?;
        let group_count = group_count(&options, &tree, &geometry)?;
        let is_saved_apart = newest.is_apart || tree.group_count().is_some();
        let (capacitor, saved) = Capacitor::open(side)?;
        let mut device = KvSsd::over(space, options, capacitor);
        (tree.bands, tree.max_key_bytes) = (device.tree.bands, device.tree.max_key_bytes);
        device.tree = tree;
        device.values = ValueMap::new(group_count);
        device.is_saved_apart = is_saved_apart;
        device.space.program_seq = device.space.nand.last_seq();
        // The number of a torn checkpoint is not reused, because its pages would mix with the new
        // ones.
        let numbers = scan.checkpoints.iter().map(|found| found.tag.owner);
        device.checkpoint_number = numbers.max().unwrap_or(0);
        device.adopt(checkpoints, live_journal);
        device.count_references()?;
        device.place_values()?;
        device.count_reserved();
        device.fill_memtable(saved, &scan.log)?;
        device.space.settle_all();
        device.space.deep_level = device.deepest_kv_level();
        Ok(device)
    }

    fn adopt(&mut self, checkpoints: Vec<Checkpoint>, journal: Vec<(u64, u32)>) {
        for checkpoint in checkpoints {
            for page in &checkpoint.pages {
                self.hold(*page, 1, PageType::Checkpoint);
            }
            self.checkpoints.push_back((checkpoint.commit.txn, checkpoint.pages));
        }
        for (txn, page) in journal {
            self.hold(page, 1, PageType::Journal);
            self.journal.push_back((txn, page));
        }
    }

    fn hold(&mut self, page: u32, page_count: u32, page_type: PageType) {
        self.space.assign(page / self.space.block_pages(), page_type);
        self.space.hold(page, page_count);
    }

    fn count_references(&mut self) -> Result<()> {
        let page_limit = self.space.nand.geometry().page_count();
        let nodes: Vec<Arc<Node>> = self.tree.nodes().cloned().collect();
        for node in nodes {
            let table = self.read_meta(&node)?;
            self.hold(node.meta_page, 1, PageType::Meta);
            let mut groups = BTreeMap::new();
            let damaged = |page: u32| {
                let why = format!("page {page} of table {} cannot be", node.id);
                Err(Error::Corrupt { what: "metadata page", why })
            };
            for entry in &table.entries {
                let (page, page_count) = (entry.page, u32::from(entry.page_count));
                let is_inside = u64::from(page) + u64::from(page_count) <= page_limit;
                if !is_inside || self.references.count(page) > u8::MAX / 2 {
                    return damaged(page);
                }
                if self.references.count(page) == 0 {
                    groups.insert(page, page_count);
                }
            }
            for real in &table.reals {
                // A real table stands behind only one virtual table.
                if self.references.count(real.page) > 0 {
                    return damaged(real.page);
                }
                self.hold(real.page, 1, PageType::Meta);
            }
            self.references.add(&table);
            for (page, page_count) in groups {
                self.hold(page, page_count, PageType::Kv);
            }
        }
        Ok(())
    }

    /// Finds the home of each separated value. Which of the values are needed is counted later.
    fn place_values(&mut self) -> Result<()> {
        let page_limit = self.space.nand.geometry().page_count();
        let entries: Vec<ValueEntry> = self.tree.value_pages().cloned().collect();
        self.values.is_counted = entries.is_empty();
        let mut free_from = 0;
        for entry in entries {
            let (page, page_count) = (entry.page, u32::from(entry.page_count));
            let end = u64::from(page) + u64::from(page_count);
            let pages = page..page.saturating_add(page_count);
            let is_free = u64::from(page) >= free_from
                && end <= page_limit
                && pages.clone().all(|page| self.references.count(page) == 0);
            let is_home = |start: &u64| self.values.is_start(entry.group, *start);
            if !is_free || entry.starts.iter().any(is_home) {
                let why = format!("page {page} of values cannot be");
                return Err(Error::Corrupt { what: "journal", why });
            }
            free_from = end;
            self.hold(page, page_count, PageType::Value);
            self.values.insert(entry);
        }
        Ok(())
    }

    fn fill_memtable(&mut self, saved: Decoded, log_pages: &[Found]) -> Result<()> {
        let flushed_seq = self.tree.flushed_seq;
        self.tree.last_seq = flushed_seq;
        let frames: Vec<Frame> = match &mut self.saved {
            Saved::Capacitor(_) => return self.take_saved(saved),
            Saved::Log(log) => {
                let found = read_groups(&mut self.space, log_pages)?;
                for group in &found {
                    let block = group.page / self.space.block_pages();
                    self.space.assign(block, PageType::Log);
                }
                log.recover(found, flushed_seq, &mut self.space)
            }
        };
        for frame in frames {
            if !self.take_frame(&frame) {
                let (first, last) = (self.tree.last_seq + 1, frame.first_seq - 1);
                let why = format!("writes {first} to {last} are missing");
                return Err(Error::Corrupt { what: "saved memtable", why });
            }
        }
        Ok(())
    }

    /// Takes the frames that the capacitor saved, up to the first frame that is damaged or does not
    /// follow. A power loss of the machine may have taken later frames, if they were not synced.
    fn take_saved(&mut self, saved: Decoded) -> Result<()> {
        let mut used_bytes = 0;
        for (frame, end_bytes) in &saved.frames {
            if !self.take_frame(frame) {
                break;
            }
            used_bytes = *end_bytes as u64;
        }
        let Saved::Capacitor(capacitor) = &mut self.saved else { return Ok(()) };
        let (last_seq, synced_seq) = (self.tree.last_seq, self.space.nand.note());
        if last_seq < synced_seq {
            let (what, at) = saved.damage.unwrap_or(("the end", saved.used_bytes()));
            let place = capacitor.place();
            let first = last_seq + 1;
            let why = format!(
                "{what} at byte {at} of {place}; writes {first} to {synced_seq} were synced and \
                 are missing"
            );
            return Err(Error::Corrupt { what: "saved memtable", why });
        }
        capacitor.cut(used_bytes)
    }

    /// Takes the writes of a frame that are in no table. Returns false if other writes are missing
    /// before it.
    fn take_frame(&mut self, frame: &Frame) -> bool {
        if frame.last_seq() <= self.tree.flushed_seq {
            return true;
        }
        if frame.first_seq > self.tree.last_seq + 1 {
            return false;
        }
        for (seq, (kind, key, value)) in (frame.first_seq..).zip(&frame.writes) {
            if seq > self.tree.last_seq {
                self.insert(seq, *kind, key, value);
            }
        }
        true
    }
}

/// The options of a checkpoint, for a device that has other options by now. Those are saved with
/// the next checkpoint.
fn as_found(mut options: KvSsdOptions, tree: &Tree) -> KvSsdOptions {
    options.values = match (options.values, tree.group_count()) {
        (ValuePlacement::Inline, _) | (_, None) => options.values,
        (_, Some(1)) => ValuePlacement::Log,
        (_, Some(_)) => ValuePlacement::Groups,
    };
    options
}

/// The number of value groups: the groups of the device if it has any, which new options cannot
/// change.
fn group_count(options: &KvSsdOptions, tree: &Tree, geometry: &Geometry) -> Result<u8> {
    let wanted = options.group_count(geometry);
    let Some(found) = tree.group_count() else { return Ok(wanted) };
    if wanted > 0 && (wanted > 1) != (found > 1) {
        let (name, other) = match wanted {
            1 => ("log", "groups"),
            _ => ("groups", "a log"),
        };
        let why = format!(
            "{name}: the values of this device are in {other}; open it as it is, or with \
             values=inline until the last of them is overwritten"
        );
        return Err(Error::BadOption { name: "values", why });
    }
    Ok(found)
}

fn no_checkpoint(space: &Space) -> Error {
    let is_host = |block| {
        let ppa = Ppa { block, page: 0 };
        !space.nand.looks_erased(ppa.block) && space.nand.type_of(block) == Some(PageType::Host)
    };
    let why = match space.blocks().any(is_host) {
        true => "it holds a block SSD; open it as `blockssd:`",
        false => "no whole checkpoint is left on it",
    };
    Error::NotAKvSsd { place: space.nand.place(), why }
}

fn scan_blocks(space: &mut Space) -> Result<Scan> {
    let mut scan = Scan::default();
    for block in space.blocks() {
        let first = space.nand.read_spare(Ppa { block, page: 0 })?;
        let spares = match first {
            Spare::Erased => continue,
            Spare::Valid(oob) if !oob.tag.page_type.is_own() => {
                vec![first]
            }
            Spare::Valid(_) | Spare::Damaged => space.nand.read_spares(block)?,
        };
        for (page, spare) in (0..).zip(spares) {
            if let Spare::Valid(Oob { tag, .. }) = spare {
                scan.add(space.nand.geometry().flat(Ppa { block, page }), tag);
            }
        }
    }
    Ok(scan)
}

/// The two newest complete checkpoints, older first.
fn load_checkpoints(space: &mut Space, scan: &Scan) -> Result<Vec<Checkpoint>> {
    let mut by_number: BTreeMap<u64, BTreeMap<u32, Found>> = BTreeMap::new();
    for found in &scan.checkpoints {
        // A page whose program failed was programmed again: the later page counts.
        let pages = by_number.entry(found.tag.owner).or_default();
        keep_newest(pages.entry(found.tag.index).or_insert(*found), found);
    }
    let mut loaded = Vec::new();
    for pages in by_number.values().rev() {
        match load_checkpoint(space, pages) {
            Ok(Some(checkpoint)) => loaded.push(checkpoint),
            Err(error @ Error::NewerFormat { .. }) => return Err(error),
            Ok(None) | Err(Error::PageDamaged(..) | Error::Uncorrectable(_)) => {}
            Err(other) => return Err(other),
        }
        if loaded.len() == 2 {
            break;
        }
    }
    loaded.reverse();
    Ok(loaded)
}

fn keep_newest(kept: &mut Found, found: &Found) {
    if found.tag.program_seq > kept.tag.program_seq {
        *kept = *found;
    }
}

/// `None` if pages are missing.
fn load_checkpoint(space: &mut Space, pages: &BTreeMap<u32, Found>) -> Result<Option<Checkpoint>> {
    let mut bytes = Vec::new();
    let mut numbers = Vec::new();
    let mut page_count = 1;
    for index in 0.. {
        if index as usize == page_count {
            break;
        }
        let Some(found) = pages.get(&index) else { return Ok(None) };
        bytes.extend_from_slice(&space.read(found.page, 1)?.flat());
        numbers.push(found.page);
        if index == 0 {
            page_count = journal::checkpoint_pages(&bytes)?;
        }
    }
    let (options, is_apart, commit) = journal::decode_checkpoint(&bytes)?;
    Ok(Some(Checkpoint { pages: numbers, options, is_apart, commit }))
}

/// Applies the commits that follow the tree's. Returns all that are newer than `oldest_txn`; they
/// stay as long as the older checkpoint does.
fn replay(
    space: &mut Space,
    journal: &[Found],
    tree: &mut Tree,
    oldest_txn: u64,
) -> Result<Vec<(u64, u32)>> {
    let mut by_txn: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
    for found in journal.iter().filter(|found| found.tag.txn > oldest_txn) {
        by_txn.entry(found.tag.txn).or_default().push(*found);
    }
    let mut live = Vec::new();
    for (txn, mut pages) in by_txn {
        pages.sort_by_key(|found| std::cmp::Reverse(found.tag.program_seq));
        let whole = pages.iter().find_map(|found| {
            let read = space.read(found.page, 1);
            let commit = read.and_then(|bytes| journal::decode_commit(&bytes.flat()));
            commit.ok().filter(|commit| commit.txn == txn).map(|commit| (commit, found.page))
        });
        let Some((commit, page)) = whole else { continue };
        if txn > tree.txn + 1 {
            let why = format!("transactions {} to {} cannot be read", tree.txn + 1, txn - 1);
            return Err(Error::Corrupt { what: "journal", why });
        }
        if txn == tree.txn + 1 {
            tree.apply(&commit)?;
        }
        live.push((txn, page));
    }
    Ok(live)
}

/// The groups of the log, with their bytes if all pages are whole.
fn read_groups(space: &mut Space, pages: &[Found]) -> Result<Vec<FoundGroup>> {
    let mut first_pages: BTreeMap<u64, Found> = BTreeMap::new();
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for found in pages {
        if found.tag.index == 0 {
            keep_newest(first_pages.entry(found.tag.owner).or_insert(*found), found);
        }
        let count = counts.entry(found.tag.owner).or_insert(0);
        *count = (*count).max(found.tag.index + 1);
    }
    let mut groups = Vec::new();
    for (number, page_count) in counts {
        let Some(first) = first_pages.get(&number) else {
            groups.push(FoundGroup { number, page: pages[0].page, bytes: None });
            continue;
        };
        let bytes = match space.read(first.page, page_count) {
            Ok(bytes) => Some(bytes),
            Err(Error::PageDamaged(..) | Error::Uncorrectable(_) | Error::PageErased(_)) => None,
            Err(other) => return Err(other),
        };
        groups.push(FoundGroup { number, page: first.page, bytes });
    }
    Ok(groups)
}
