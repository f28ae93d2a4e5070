//! What a power cut leaves: the fault model's choices, all made by one seed. Synced bytes and names
//! always stay; each pending change may stay, be lost, or be damaged.
//!
//! 1. One seed in eight drops everything pending and one keeps everything; the others mix.
//! 2. Per directory: either a prefix of the changes stays (a journal), or any subset in which no
//!    change follows a dropped one of the same name. A rename changes both its names or neither.
//! 3. Per file: a prefix with a damaged next write, or a subset in order, or a subset shuffled.
//!    Damage: torn at 512 B or 4 KiB, torn with garbage in the first missing sector, or the length
//!    extended over bytes that are zero.
//! 4. A mapped file has no writes at this level, only pages: each stays as it was at some moment.
//!
//! 2 and 3 are independent, so a rename may be durable while the data is not.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::{Directory, EntryOp, Inode, Pending, State};
use crate::image::Image;
use runstone_random::Random;

/// What a power cut did to the pending changes (for a mapped file, to its pages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Changes to files that stayed whole.
    pub kept_count: u64,
    /// Changes to files that left no trace.
    pub dropped_count: u64,
    /// Writes that kept some of their sectors.
    pub torn_count: u64,
    /// Writes that kept some of their sectors, one of them as garbage.
    pub garbage_count: u64,
    /// Writes that extended the file and left zeros.
    pub zero_extended_count: u64,
    /// Files whose surviving changes were applied in another order.
    pub reordered_count: u64,
    /// Changes to directories that stayed.
    pub entries_kept_count: u64,
    /// Changes to directories that were lost.
    pub entries_lost_count: u64,
}

/// Whether all pending changes are lost, all stay, or the seed decides about each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Nothing,
    Everything,
    Some,
}

/// The disk as the next boot finds it.
pub(super) fn power_cut(state: &State, seed: u64) -> (State, CrashReport) {
    let extent = match seed % 8 {
        0 => Extent::Nothing,
        1 => Extent::Everything,
        _ => Extent::Some,
    };
    let mut next = state.next_boot(seed);
    let mut cut = Cut { extent, random: Random::new(!seed), report: CrashReport::default() };
    for (place, directory) in &state.directories {
        let entries = cut.entries(directory);
        let survivor = Directory { synced: entries.clone(), live: entries, pending: Vec::new() };
        next.directories.insert(place.clone(), survivor);
    }
    let names = next.directories.values().flat_map(|directory| directory.live.values());
    let reachable: BTreeSet<u64> = names.copied().collect();
    for (&id, inode) in state.inodes.iter().filter(|(id, _)| reachable.contains(id)) {
        let image = cut.content(inode);
        let mut survivor = Inode::new(inode.category);
        survivor.synced = image.clone();
        survivor.live = image;
        survivor.is_mapped = inode.is_mapped;
        survivor.reserved_bytes = inode.reserved_bytes.min(survivor.live.len_bytes());
        next.inodes.insert(id, survivor);
    }
    (next, cut.report)
}

struct Cut {
    extent: Extent,
    random: Random,
    report: CrashReport,
}

impl Cut {
    fn entries(&mut self, directory: &Directory) -> BTreeMap<String, u64> {
        let ops = &directory.pending;
        let prefix_len = match self.extent {
            Extent::Nothing => 0,
            Extent::Everything => ops.len(),
            Extent::Some if self.random.chance(50) => {
                self.random.below(ops.len() as u64 + 1) as usize
            }
            Extent::Some => return self.entry_subset(directory),
        };
        let mut entries = directory.synced.clone();
        for op in &ops[..prefix_len] {
            op.apply(&mut entries);
        }
        self.report.entries_kept_count += prefix_len as u64;
        self.report.entries_lost_count += (ops.len() - prefix_len) as u64;
        entries
    }

    /// Applies any changes, except those that follow a lost change of the same name.
    fn entry_subset(&mut self, directory: &Directory) -> BTreeMap<String, u64> {
        let mut entries = directory.synced.clone();
        let mut lost_names: BTreeSet<&str> = BTreeSet::new();
        for op in &directory.pending {
            let follows_lost = op.names().iter().any(|name| lost_names.contains(name));
            if follows_lost || self.random.chance(40) {
                lost_names.extend(EntryOp::names(op));
                self.report.entries_lost_count += 1;
            } else {
                op.apply(&mut entries);
                self.report.entries_kept_count += 1;
            }
        }
        entries
    }

    fn content(&mut self, inode: &Inode) -> Image {
        let mut image = inode.synced.clone();
        match self.extent {
            Extent::Nothing => self.report.dropped_count += inode.pending.len() as u64,
            Extent::Everything => self.keep(&mut image, &inode.pending),
            Extent::Some => match split_mapped(inode) {
                Some((lengths, writes)) => self.pages(&mut image, lengths, writes),
                None => self.changes(&mut image, &inode.pending),
            },
        }
        image
    }

    fn keep(&mut self, image: &mut Image, changes: &[Pending]) {
        changes.iter().for_each(|change| change.apply(image));
        self.report.kept_count += changes.len() as u64;
    }

    fn keep_or_drop(&mut self, image: &mut Image, change: &Pending, keep_percent: u64) {
        match self.random.chance(keep_percent) {
            true => self.keep(image, std::slice::from_ref(change)),
            false => self.report.dropped_count += 1,
        }
    }

    fn changes(&mut self, image: &mut Image, pending: &[Pending]) {
        match self.random.below(4) {
            0 => {
                let kept_len = self.random.below(pending.len() as u64 + 1) as usize;
                let (kept, rest) = pending.split_at(kept_len);
                self.keep(image, kept);
                if let Some((torn, dropped)) = rest.split_first() {
                    self.damage(image, torn);
                    self.report.dropped_count += dropped.len() as u64;
                }
            }
            1 => {
                let mut shuffled: Vec<&Pending> = pending.iter().collect();
                self.random.shuffle(&mut shuffled);
                let is_reordered = !shuffled.iter().zip(pending).all(|(a, b)| std::ptr::eq(*a, b));
                self.report.reordered_count += u64::from(is_reordered);
                shuffled.into_iter().for_each(|change| self.change(image, change));
            }
            _ => pending.iter().for_each(|change| self.change(image, change)),
        }
    }

    fn change(&mut self, image: &mut Image, change: &Pending) {
        match self.random.below(100) {
            0..40 => self.keep(image, std::slice::from_ref(change)),
            40..65 => self.report.dropped_count += 1,
            _ => self.damage(image, change),
        }
    }

    /// Leaves part of a write. A change of length and a hole are in the journal: they survive as a
    /// whole or not at all.
    fn damage(&mut self, image: &mut Image, change: &Pending) {
        let Pending::Write { offset, data } = change else {
            return self.keep_or_drop(image, change, 50);
        };
        let end = offset + data.len() as u64;
        match self.random.below(3) {
            0 if end > image.len_bytes() => {
                image.set_len(end);
                self.report.zero_extended_count += 1;
            }
            1 => self.tear(image, *offset, data, true),
            _ => self.tear(image, *offset, data, false),
        }
    }

    /// Keeps some sectors of a write: a prefix of them, or any subset. With `garbage` the first
    /// missing sector gets random bytes, but only in the range of the write.
    fn tear(&mut self, image: &mut Image, offset: u64, data: &[u8], garbage: bool) {
        let sectors = split_sectors(offset, data, self.sector_bytes());
        let prefix_len = self.random.below(sectors.len() as u64) as usize;
        let is_prefix = self.random.chance(50);
        let mut kept_count = 0;
        let mut has_garbage = false;
        for (index, (at, bytes)) in sectors.iter().enumerate() {
            let is_kept = if is_prefix { index < prefix_len } else { self.random.chance(50) };
            if is_kept {
                image.write(*at, bytes);
                kept_count += 1;
            } else if garbage && !has_garbage {
                self.write_noise(image, *at, bytes.len());
                has_garbage = true;
            }
        }
        match kept_count {
            _ if has_garbage => self.report.garbage_count += 1,
            0 => self.report.dropped_count += 1,
            kept if kept == sectors.len() => self.report.kept_count += 1,
            _ => self.report.torn_count += 1,
        }
    }

    /// A mapped file: the kernel may have written each page back at any moment, so each page has
    /// the first few of its writes. Pages past a length that was lost are lost.
    fn pages(&mut self, image: &mut Image, lengths: &[Pending], writes: &[Pending]) {
        for length in lengths {
            self.keep_or_drop(image, length, 75);
        }
        for (_, pieces) in split_pages(writes, self.sector_bytes()) {
            let is_outside =
                pieces.iter().any(|(at, bytes)| at + bytes.len() as u64 > image.len_bytes());
            let kept_len = match self.random.below(100) {
                _ if is_outside => 0,
                0..30 => 0,
                30..70 => pieces.len(),
                _ => self.random.below(pieces.len() as u64 + 1) as usize,
            };
            let (kept, lost) = pieces.split_at(kept_len);
            kept.iter().for_each(|(at, bytes)| image.write(*at, bytes));
            match lost.first() {
                Some((at, bytes)) if !is_outside && self.random.chance(10) => {
                    self.write_noise(image, *at, bytes.len());
                    self.report.garbage_count += 1;
                }
                None => self.report.kept_count += 1,
                Some(_) if kept.is_empty() => self.report.dropped_count += 1,
                Some(_) => self.report.torn_count += 1,
            }
        }
    }

    fn write_noise(&mut self, image: &mut Image, at: u64, len: usize) {
        let mut noise = vec![0; len];
        self.random.fill(&mut noise);
        image.write(at, &noise);
    }

    /// What the disk writes in one piece: a sector, or a page.
    fn sector_bytes(&mut self) -> u64 {
        if self.random.chance(50) { 512 } else { 4096 }
    }
}

/// The changes of length and the writes of a mapped file. `None` for other files, and for a mapped
/// file that was cut or punched later: there the order of changes matters, and pages do not keep
/// it.
fn split_mapped(inode: &Inode) -> Option<(&[Pending], &[Pending])> {
    let is_write = |change: &Pending| matches!(change, Pending::Write { .. });
    let first_write = inode.pending.iter().position(is_write).unwrap_or(inode.pending.len());
    let (lengths, writes) = inode.pending.split_at(first_write);
    (inode.is_mapped && writes.iter().all(is_write)).then_some((lengths, writes))
}

type Piece<'a> = (u64, &'a [u8]);

/// The pieces of a write between sector boundaries of the file.
fn split_sectors(offset: u64, data: &[u8], sector_bytes: u64) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let step = ((sector_bytes - at % sector_bytes) as usize).min(data.len() - done);
        pieces.push((at, &data[done..done + step]));
        done += step;
    }
    pieces
}

/// For each page that was written to, the pieces of the writes to it, in their order.
fn split_pages(writes: &[Pending], page_bytes: u64) -> BTreeMap<u64, Vec<Piece<'_>>> {
    let mut pages: BTreeMap<u64, Vec<Piece<'_>>> = BTreeMap::new();
    for write in writes {
        if let Pending::Write { offset, data } = write {
            for piece in split_sectors(*offset, data, page_bytes) {
                pages.entry(piece.0 / page_bytes).or_default().push(piece);
            }
        }
    }
    pages
}
