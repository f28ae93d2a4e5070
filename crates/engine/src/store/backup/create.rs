//! Makes a backup: steps 1 to 4 of [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runstone_storage::{Category, FileInfo, Storage, StorageFile};
use xxhash_rust::xxh3::Xxh3;

use super::format::{Content, Description, SegmentName, TableFile, put_marker};
use super::{BackupInfo, Backups, MARKER, backup_name, numbers, pack_name};
use crate::error::{Error, Result};
use crate::store::follow::cut::{self, Cut, Piece, copy_range, piece_of};
use crate::table::{FOOTER_BYTES, table_name};
use crate::values::file::values_name;
use crate::wal::segments::segment_name;

/// A file that exists while the directory changes. The marker of a new directory is made
/// under the same name, before any change.
pub(super) const CHANGING: &str = "BACKUPS.part";
/// How many bytes at the end of a segment must equal those of an earlier copy.
const END_BYTES: u64 = 4096;

impl Backups {
    /// Adds a backup of a store, as it is now. The store may be open in this process or in another
    /// one, or closed. Copies only what the directory lacks.
    ///
    /// # Errors
    /// If the directory has backups of another store, or another process uses it; or those of
    /// [`crate::Store::follow`]. Earlier backups stay whole.
    pub fn create(&self, store: impl AsRef<Path>) -> Result<BackupInfo> {
        let (storage, leases) = cut::open(store.as_ref())?;
        self.create_from(storage, &leases)
    }

    /// Does the same as [`Backups::create`] with a store on a storage.
    ///
    /// # Errors
    /// Those of [`Backups::create`].
    pub fn create_on(&self, store: Arc<dyn Storage>) -> Result<BackupInfo> {
        self.create_from(Arc::clone(&store), &store)
    }

    pub(super) fn create_from(
        &self,
        store: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
    ) -> Result<BackupInfo> {
        let _lock = self.lock()?;
        let cut = Cut::take(store, leases)?;
        // The copy may take hours, but the backup is of this moment.
        let time_ms = now_ms();
        let files = self.storage.list()?;
        self.mark(cut.state.uid)?;
        let number = numbers(&files, "backup").last().map_or(1, |last| last + 1);
        let was_cut_short = files.iter().any(|file| file.name.ends_with(".part"))
            || numbers(&files, "pack").last().is_some_and(|last| *last >= number);
        let earlier = self.earlier(&cut, &files)?;
        self.begin_change()?;
        self.remove_parts(&files)?;
        let mut added = Added::default();
        let copied = self.copy(&cut, (number, time_ms), &earlier, &mut added);
        let made = cut.judge(copied).and_then(|made| {
            self.write_whole(&backup_name(number), &made.encode())?;
            Ok(made)
        });
        let made = made.inspect_err(|error| {
            // Otherwise the disk would stay full, for the archive and for others.
            if error.is_no_space() && self.remove_unneeded().is_ok_and(|is_known| is_known) {
                drop(self.end_change());
            }
        })?;
        // Interrupted backups may have left files that this backup does not need either.
        if !was_cut_short || self.remove_unneeded()? {
            self.end_change()?;
        }
        Ok(BackupInfo { copied_again: added.again, ..made.info() })
    }

    /// Makes a file which shows that an interrupted change may have left files that no backup
    /// needs.
    pub(super) fn begin_change(&self) -> Result<()> {
        match self.storage.open(CHANGING, Category::Other) {
            Err(error) if error.is_not_found() => {
                self.storage.create(CHANGING, Category::Other)?;
            }
            there => drop(there?),
        }
        Ok(self.storage.sync_dir()?)
    }

    /// Removes that file, because the change has left no unneeded files.
    pub(super) fn end_change(&self) -> Result<()> {
        self.remove_part(CHANGING)
    }

    /// The files of earlier backups that this one may need. If the store has one history, these are
    /// the files of the newest backup: a file that the store has removed does not return. If
    /// histories have forked, they are the files of all backups back to one that was made before
    /// the forks. Older backups are read only for tables that are in the directory and that none of
    /// these backups names.
    fn earlier(&self, cut: &Cut, files: &[FileInfo]) -> Result<Earlier> {
        let there: BTreeSet<u64> = numbers(files, "table").into_iter().collect();
        let mut unknown: BTreeSet<u64> =
            cut.tables().map(|(id, _)| id).filter(|id| there.contains(id)).collect();
        let (mut earlier, mut is_enough) = (Earlier::default(), false);
        self.each(numbers(files, "backup").into_iter().rev(), |one| {
            for table in &one.tables {
                unknown.remove(&table.id);
                earlier.tables.entry(table.id).or_insert(*table);
            }
            let is_ours = shares_history(cut, &one);
            if !is_enough {
                for (name, content) in &one.segments {
                    earlier.segments.entry(*name).or_insert((*content, is_ours));
                }
            }
            is_enough |= is_ours;
            Ok(!is_enough || !unknown.is_empty())
        })?;
        Ok(earlier)
    }

    /// Waits until the bytes copied or read so far are within the requested rate.
    pub(super) fn pace(&self, bytes: usize) {
        self.rate.charge(bytes);
        let wait = self.rate.wait();
        if wait > Duration::ZERO {
            thread::sleep(wait);
        }
    }

    /// Copies what a cut needs and the directory lacks.
    fn copy(
        &self,
        cut: &Cut,
        (number, time_ms): (u64, u64),
        earlier: &Earlier,
        added: &mut Added,
    ) -> Result<Description> {
        let mut tables = Vec::new();
        for (id, bytes) in cut.tables() {
            tables.push(match earlier.tables.get(&id) {
                Some(table) => self.use_table(cut, table, added)?,
                None => self.add_table(cut, id, bytes, added)?,
            });
        }
        let mut pack = Pack::create(self, number)?;
        let segments = add_segments(cut, self, earlier, &mut pack)?;
        let mut log = Vec::new();
        for (segment, bytes) in &cut.log {
            let from = cut.storage.open(&segment_name(*segment), Category::Wal)?;
            log.push((*segment, pack.add(&*from, 0, *bytes)?));
        }
        added.bytes += pack.end;
        pack.file.sync()?;
        let (state, last_seq, added_bytes) = (cut.state.clone(), cut.last_seq, added.bytes);
        Ok(Description { number, time_ms, last_seq, added_bytes, tables, segments, log, state })
    }

    /// Uses the copy that earlier backups have of a table. If that copy is missing or damaged, it
    /// copies the table again, which makes those backups whole as well.
    ///
    /// Refuses a table that differs from an earlier backup's table of the same number: a store may
    /// have used the number again after a power loss, and a copy of the store that was made by hand
    /// uses it too.
    fn use_table(&self, cut: &Cut, table: &TableFile, added: &mut Added) -> Result<TableFile> {
        let name = table_name(table.id);
        let from = cut.storage.open(&name, Category::Table)?;
        if from.len()? == table.bytes && self.has_copy(&*from, table)? {
            return Ok(*table);
        }
        let is_same =
            from.len()? == table.bytes && self.hash_of(&*from, 0, table.bytes)? == table.hash;
        match (is_same, self.is_whole(table)) {
            (true, true) => Ok(*table),
            (true, false) => {
                tracing::warn!(name, "the copy of a table is damaged, and is made again");
                added.again += 1;
                self.add_table(cut, table.id, table.bytes, added)
            }
            (false, true) => Err(Error::invalid(
                format!("{name} is not the file that earlier backups have under this name"),
                "the store has lost writes that they hold, or they are of a copy of it: begin \
                 another directory of backups",
            )),
            (false, false) => Err(Error::invalid(
                format!(
                    "the copy of {name} is damaged, and the store has another file of that name"
                ),
                "the store has lost writes, or its file is damaged too (`runstone verify STORE`): \
                 begin another directory of backups",
            )),
        }
    }

    /// Whether the directory has a copy of this file. The footers differ if the files do. The rest
    /// of the copy is read only on request: it may be as large as the store.
    fn has_copy(&self, from: &dyn StorageFile, table: &TableFile) -> Result<bool> {
        let bytes = FOOTER_BYTES.min(table.bytes as usize);
        let at = table.bytes - bytes as u64;
        let Ok(copy) = self.storage.open(&table_name(table.id), Category::Table) else {
            return Ok(false);
        };
        let Ok(end) = copy.read_vec(at, bytes) else { return Ok(false) };
        Ok(end == from.read_vec(at, bytes)? && (!self.checks_copies || self.is_whole(table)))
    }

    /// Whether the copy of a table has the bytes that were written.
    fn is_whole(&self, table: &TableFile) -> bool {
        let copy = self.storage.open(&table_name(table.id), Category::Table);
        copy.is_ok_and(|copy| self.holds(&*copy, 0, table.bytes, table.hash))
    }

    /// Whether a file of the directory can be read, and has the bytes that were written.
    fn holds(&self, file: &dyn StorageFile, offset: u64, bytes: u64, hash: u64) -> bool {
        self.hash_of(file, offset, bytes).is_ok_and(|found| found == hash)
    }

    /// Notes which store the backups are of, or refuses another one.
    fn mark(&self, uid: u64) -> Result<()> {
        match self.uid()? {
            None => self.write_whole(MARKER, &put_marker(uid)),
            Some(_) => self.check_own(uid),
        }
    }

    /// Refuses a store to which the backups do not belong.
    pub(super) fn check_own(&self, uid: u64) -> Result<()> {
        match self.uid()? {
            Some(known) if known == uid => Ok(()),
            _ => Err(Error::invalid(
                format!("{} has backups of another store", self.storage.location()),
                "choose a directory for this store alone",
            )),
        }
    }

    /// Writes a small file under another name, and renames it once it is durable.
    fn write_whole(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let part = format!("{name}.part");
        self.remove_part(&part)?;
        let file = self.storage.create(&part, Category::Other)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        // Everything that the file names is durable before the file.
        self.storage.sync_dir()?;
        self.storage.rename(&part, name)?;
        Ok(self.storage.sync_dir()?)
    }

    fn remove_part(&self, part: &str) -> Result<()> {
        match self.storage.remove(part) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes the incomplete files of an interrupted change.
    fn remove_parts(&self, files: &[FileInfo]) -> Result<()> {
        for file in files.iter().filter(|file| file.name.ends_with(".part")) {
            if file.name != CHANGING {
                self.storage.remove(&file.name)?;
            }
        }
        Ok(())
    }

    pub(super) fn hash_of(
        &self,
        file: &dyn StorageFile,
        mut offset: u64,
        mut bytes: u64,
    ) -> Result<u64> {
        let mut hash = Xxh3::new();
        while bytes > 0 {
            let step = bytes.min(1 << 20);
            hash.update(&file.read_vec(offset, step as usize)?);
            self.pace(step as usize);
            (offset, bytes) = (offset + step, bytes - step);
        }
        Ok(hash.digest())
    }

    /// Copies a table. An interrupted backup may have left a whole table of this name, which is
    /// then only read. But the file may also be another table: a restored store reuses file numbers
    /// that no backup has.
    fn add_table(&self, cut: &Cut, id: u64, bytes: u64, added: &mut Added) -> Result<TableFile> {
        let name = table_name(id);
        let from = cut.storage.open(&name, Category::Table)?;
        if let Ok(there) = self.storage.open(&name, Category::Table)
            && there.len().is_ok_and(|len| len == bytes)
        {
            let hash = self.hash_of(&*from, 0, bytes)?;
            // A copy that cannot be read is made again.
            if self.holds(&*there, 0, bytes, hash) {
                return Ok(TableFile { id, bytes, hash });
            }
        }
        let part = format!("{name}.part");
        let to = self.storage.create(&part, Category::Table)?;
        let mut hash = Xxh3::new();
        copy_range(&*from, (0, bytes), &*to, 0, |piece| {
            hash.update(piece);
            self.pace(piece.len());
        })?;
        to.sync()?;
        drop(to);
        self.remove_part(&name)?;
        self.storage.rename(&part, &name)?;
        added.bytes += bytes;
        Ok(TableFile { id, bytes, hash: hash.digest() })
    }
}

/// What a backup adds to the directory.
#[derive(Debug, Default)]
struct Added {
    bytes: u64,
    /// Tables whose earlier copies were missing or damaged.
    again: u64,
}

/// The files that earlier backups contain.
#[derive(Debug, Default)]
struct Earlier {
    tables: BTreeMap<u64, TableFile>,
    /// Segments of values, and whether the backup is of the history of the cut.
    segments: BTreeMap<SegmentName, (Content, bool)>,
}

/// The pack of a backup, while it is written.
struct Pack<'a> {
    backups: &'a Backups,
    number: u64,
    file: Arc<dyn StorageFile>,
    end: u64,
}

impl<'a> Pack<'a> {
    fn create(backups: &'a Backups, number: u64) -> Result<Pack<'a>> {
        let name = pack_name(number);
        // An interrupted backup may have left a pack of this name.
        backups.remove_part(&name)?;
        let file = backups.storage.create(&name, Category::Other)?;
        Ok(Pack { backups, number, file, end: 0 })
    }

    fn add(&mut self, from: &dyn StorageFile, offset: u64, bytes: u64) -> Result<Content> {
        let mut hash = Xxh3::new();
        copy_range(from, (offset, bytes), &*self.file, self.end, |piece| {
            hash.update(piece);
            self.backups.pace(piece.len());
        })?;
        let content = Content { pack: self.number, offset: self.end, bytes, hash: hash.digest() };
        self.end += bytes;
        Ok(content)
    }
}

/// Adds the segments of values that no earlier pack has.
fn add_segments(
    cut: &Cut,
    backups: &Backups,
    earlier: &Earlier,
    pack: &mut Pack<'_>,
) -> Result<Vec<(SegmentName, Content)>> {
    let mut all = Vec::new();
    for layout in cut.layouts() {
        let from = cut.storage.open(&values_name(layout.number), Category::Value)?;
        for segment in layout.groups.iter().flat_map(|group| group.segments.iter()) {
            let piece = piece_of(layout, segment);
            let name = SegmentName::of(&piece, segment);
            let old = earlier.segments.get(&name).filter(|_| name.is_named());
            let content = match old {
                Some((old, is_ours)) if is_same(&*from, &piece, backups, (old, *is_ours))? => *old,
                _ => pack.add(&*from, piece.offset, piece.bytes)?,
            };
            all.push((name, content));
        }
        for piece in cut.early_in(layout.number) {
            let content = pack.add(&*from, piece.offset, piece.bytes)?;
            all.push((SegmentName::of_early(piece), content));
        }
    }
    Ok(all)
}

/// Whether everything in a backup belongs to the history of the cut. If so, segments with the same
/// name are the same segment if they end with the same bytes. Otherwise two stores may have
/// continued from the same state, and may have made segments that differ only in the middle: such
/// segments are read as a whole. A backup that ends with the last sequence number that both stores
/// share may be of either store, because flushes and collections make segments without using a
/// sequence number.
fn shares_history(cut: &Cut, earlier: &Description) -> bool {
    let common = cut.state.history.last_common(earlier.state.history.id);
    common.is_some_and(|common| earlier.last_seq < common)
}

/// Whether a segment is the same as in an earlier copy. If both are of the same history, their ends
/// decide. A copy that is missing or cannot be read is not the same: the segment is copied again.
fn is_same(
    from: &dyn StorageFile,
    piece: &Piece,
    backups: &Backups,
    (old, is_ours): (&Content, bool),
) -> Result<bool> {
    if old.bytes != piece.bytes {
        return Ok(false);
    }
    let bytes = END_BYTES.min(piece.bytes);
    let Ok(pack) = backups.storage.open(&pack_name(old.pack), Category::Other) else {
        return Ok(false);
    };
    let Ok(there) = pack.read_vec(old.offset + old.bytes - bytes, bytes as usize) else {
        return Ok(false);
    };
    let is_known = there == from.read_vec(piece.offset + piece.bytes - bytes, bytes as usize)?
        && (is_ours || backups.hash_of(from, piece.offset, piece.bytes)? == old.hash);
    let is_whole = || backups.holds(&*pack, old.offset, old.bytes, old.hash);
    Ok(is_known && (!backups.checks_copies || is_whole()))
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
