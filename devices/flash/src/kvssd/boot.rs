//! Opening a device: after a shutdown, a power cut, or damage.
//!
//! 1. Read the spare bytes of the first page of every block to learn its type. In blocks of
//!    checkpoints, journal and log, and where the first page is damaged, read the spare bytes of
//!    all pages.
//! 2. Load the newest checkpoint whose pages are all whole. If the newest is torn or corrupted,
//!    load the one before it: the journal since then is still there.
//! 3. Apply the journal pages of the transactions that follow, up to the first page that is missing
//!    or damaged. If a whole page follows it, that is corruption and not a power cut: the open is
//!    refused, because commits would be lost.
//! 4. Read the metadata page of every table. The lists, the reference counts and the live pages
//!    follow from these alone, so no page of an uncommitted transaction counts.
//! 5. Note where the separated values are: the tree names their pages.
//! 6. Fill the memtable from the file of the capacitor, or from the log. Sequence numbers have no
//!    gaps, so a gap in the log is damage. In the file of the capacitor, a gap is damage only if a
//!    sync covered the missing number.
//!
//! Nothing is programmed. The very last journal page, log group or checkpoint is a commit point. If
//! it is corrupted, it cannot be distinguished from the torn program of a transaction that was not
//! acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::catalog::{Catalog, History, read_meta};
use super::format::kv_page::KvPage;
use super::format::record::Version;
use super::options::{KvSsdOptions, ValuePlacement};
use super::pending::capacitor::Capacitor;
use super::pending::frames::{Decoded, Frame};
use super::pending::log::FoundGroup;
use super::pending::memtable::Memtable;
use super::pending::{Pending, Saved};
use super::space::Space;
use super::tree::{Commit, Node, Tree, ValueEntry, journal};
use super::values::ValueMap;
use crate::error::{Error, Result};
use crate::nand::{Geometry, Image, Nand, Oob, PageTag, PageType, Ppa, SharedBytes, Spare, Timing};

/// A page that boot may need, as its spare bytes describe it.
#[derive(Clone, Copy)]
struct Found {
    page: u32,
    tag: PageTag,
}

/// The pages in blocks of the firmware's own types.
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
    commit: Commit,
}

/// Opens a device. `options` replace those of the last open. Only the place where acknowledged
/// writes are saved stays the same.
pub(super) fn open(
    image: Box<dyn Image>,
    side: Box<dyn Image>,
    geometry: Option<Geometry>,
    timing: Timing,
    options: Option<KvSsdOptions>,
) -> Result<(Catalog, Pending)> {
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
    let apart_from = newest.options.apart_from();
    let oldest_txn = checkpoints.first().map_or(0, |checkpoint| checkpoint.commit.txn);
    let live_journal = replay(&mut space, &scan.journal, &mut tree, oldest_txn)?;
    let options = options.unwrap_or_else(|| as_found(newest.options.clone(), &tree));
    let options = KvSsdOptions { durability, ..options };
    options.check(&geometry)?;
    let group_count = group_count(&options, &tree, &geometry)?;
    let (capacitor, saved) = Capacitor::open(side)?;
    let mut catalog = Catalog::new(space, options);
    (tree.bands, tree.max_key_bytes) = (catalog.tree.bands, catalog.tree.max_key_bytes);
    catalog.tree = tree;
    catalog.values = ValueMap::new(group_count);
    catalog.space.program_seq = catalog.space.nand.last_seq();
    // The number of a torn checkpoint is not reused, because its pages would mix with the new ones.
    let numbers = scan.checkpoints.iter().map(|found| found.tag.owner);
    let last_number = numbers.max().unwrap_or(0);
    let checkpoints = checkpoints.into_iter().map(|one| (one.commit.txn, one.pages)).collect();
    catalog.history = History { journal: live_journal, checkpoints, last_number, apart_from };
    for (page, page_type) in catalog.history.pages() {
        hold(&mut catalog.space, page, 1, page_type);
    }
    count_references(&mut catalog)?;
    place_values(&mut catalog)?;
    catalog.count_reserved();
    let mut pending = Pending::new(durability, capacitor);
    fill_memtable(&mut catalog, &mut pending, saved, &scan.log)?;
    catalog.space.settle_all();
    catalog.space.deep_level = catalog.deepest_kv_level();
    Ok((catalog, pending))
}

fn hold(space: &mut Space, page: u32, page_count: u32, page_type: PageType) {
    space.assign(page / space.block_pages(), page_type);
    space.hold(page, page_count);
}

fn count_references(catalog: &mut Catalog) -> Result<()> {
    let page_limit = catalog.space.nand.geometry().page_count();
    let nodes: Vec<Arc<Node>> = catalog.tree.nodes().cloned().collect();
    for node in nodes {
        let table = read_meta(&mut catalog.space, &node)?;
        hold(&mut catalog.space, node.meta_page, 1, PageType::Meta);
        let mut groups = BTreeMap::new();
        let damaged = |page: u32| {
            let why = format!("page {page} of table {} cannot be", node.id);
            Err(Error::Corrupt { what: "metadata page", why })
        };
        for entry in &table.entries {
            let (page, page_count) = (entry.page, u32::from(entry.page_count));
            let is_inside = u64::from(page) + u64::from(page_count) <= page_limit;
            if !is_inside || catalog.references.count(page) > u8::MAX / 2 {
                return damaged(page);
            }
            if catalog.references.count(page) == 0 {
                groups.insert(page, page_count);
            }
        }
        for real in &table.reals {
            // A real table belongs to only one virtual table.
            if catalog.references.count(real.page) > 0 {
                return damaged(real.page);
            }
            hold(&mut catalog.space, real.page, 1, PageType::Meta);
        }
        catalog.references.add(&table);
        for (page, page_count) in groups {
            hold(&mut catalog.space, page, page_count, PageType::Kv);
        }
    }
    Ok(())
}

/// Finds the home of each separated value. Which of the values are needed is counted later.
fn place_values(catalog: &mut Catalog) -> Result<()> {
    let page_limit = catalog.space.nand.geometry().page_count();
    let entries: Vec<ValueEntry> = catalog.tree.value_pages().cloned().collect();
    catalog.values.is_counted = entries.is_empty();
    let mut free_from = 0;
    for entry in entries {
        let (page, page_count) = (entry.page, u32::from(entry.page_count));
        let end = u64::from(page) + u64::from(page_count);
        let pages = page..page.saturating_add(page_count);
        let is_free = u64::from(page) >= free_from
            && end <= page_limit
            && pages.clone().all(|page| catalog.references.count(page) == 0);
        let is_home = |start: &u64| catalog.values.is_start(entry.group, *start);
        if !is_free || entry.starts.iter().any(is_home) {
            let why = format!("page {page} of values cannot be");
            return Err(Error::Corrupt { what: "journal", why });
        }
        free_from = end;
        hold(&mut catalog.space, page, page_count, PageType::Value);
        catalog.values.insert(entry);
    }
    Ok(())
}

fn fill_memtable(
    catalog: &mut Catalog,
    pending: &mut Pending,
    saved: Decoded,
    log_pages: &[Found],
) -> Result<()> {
    let flushed_seq = catalog.tree.flushed_seq;
    catalog.tree.last_seq = flushed_seq;
    let Pending { memtable, saved: place } = pending;
    let frames: Vec<Frame> = match place {
        Saved::Capacitor(capacitor) => return take_saved(catalog, memtable, capacitor, saved),
        Saved::Log(log) => {
            let found = read_groups(&mut catalog.space, log_pages)?;
            for group in &found {
                let block = group.page / catalog.space.block_pages();
                catalog.space.assign(block, PageType::Log);
            }
            log.recover(found, flushed_seq, &mut catalog.space)
        }
    };
    for frame in frames {
        if !take_frame(catalog, memtable, &frame) {
            let (first, last) = (catalog.tree.last_seq + 1, frame.first_seq - 1);
            let why = format!("writes {first} to {last} are missing");
            return Err(Error::Corrupt { what: "saved memtable", why });
        }
    }
    Ok(())
}

/// Loads the frames that the capacitor saved, up to the first frame that is damaged or does not
/// follow the one before. A power loss of the machine may have destroyed later frames, if they were
/// not synced.
fn take_saved(
    catalog: &mut Catalog,
    memtable: &mut Memtable,
    capacitor: &mut Capacitor,
    saved: Decoded,
) -> Result<()> {
    let mut used_bytes = 0;
    for (frame, end_bytes) in &saved.frames {
        if !take_frame(catalog, memtable, frame) {
            break;
        }
        used_bytes = *end_bytes as u64;
    }
    let (last_seq, synced_seq) = (catalog.tree.last_seq, catalog.space.nand.note());
    if last_seq < synced_seq {
        let (what, at) = saved.damage.unwrap_or(("the end", saved.used_bytes()));
        let place = capacitor.place();
        let first = last_seq + 1;
        let why = format!(
            "{what} at byte {at} of {place}; writes {first} to {synced_seq} were synced and are \
             missing"
        );
        return Err(Error::Corrupt { what: "saved memtable", why });
    }
    capacitor.cut(used_bytes)
}

/// Loads the writes of a frame that are in no table. Returns false if writes before the frame are
/// missing.
fn take_frame(catalog: &mut Catalog, memtable: &mut Memtable, frame: &Frame) -> bool {
    if frame.last_seq() <= catalog.tree.flushed_seq {
        return true;
    }
    if frame.first_seq > catalog.tree.last_seq + 1 {
        return false;
    }
    for (seq, (kind, key, value)) in (frame.first_seq..).zip(&frame.writes) {
        if seq > catalog.tree.last_seq {
            let version = Version::new(seq, *kind, value);
            memtable.insert(key, version, None, catalog.space.page_bytes());
            catalog.tree.last_seq = seq;
        }
    }
    true
}

/// The options of a checkpoint, for an open without options. Options of the last open that no
/// checkpoint saved are lost, so the placement of values follows the values in the tree.
fn as_found(mut options: KvSsdOptions, tree: &Tree) -> KvSsdOptions {
    options.values = match (options.values, tree.group_count()) {
        (ValuePlacement::Inline, _) | (_, None) => options.values,
        (_, Some(1)) => ValuePlacement::Log,
        (_, Some(_)) => ValuePlacement::Groups,
    };
    options
}

/// The number of value groups. A device that has groups keeps their number, because new options
/// cannot change it.
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

/// Loads a checkpoint; `None` if pages are missing.
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
    let (options, commit) = journal::decode_checkpoint(&bytes)?;
    Ok(Some(Checkpoint { pages: numbers, options, commit }))
}

/// Applies the commits that follow the last one in the tree. Returns all commits newer than
/// `oldest_txn`. They are kept as long as the older checkpoint.
fn replay(
    space: &mut Space,
    journal: &[Found],
    tree: &mut Tree,
    oldest_txn: u64,
) -> Result<VecDeque<(u64, u32)>> {
    let mut by_txn: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
    for found in journal.iter().filter(|found| found.tag.txn > oldest_txn) {
        by_txn.entry(found.tag.txn).or_default().push(*found);
    }
    let mut live = VecDeque::new();
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
        live.push_back((txn, page));
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
