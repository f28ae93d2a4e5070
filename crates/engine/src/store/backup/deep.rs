//! Checks that backups and the archive serve their purpose: a store opens on them, and every entry
//! can be read. Nothing is written to a disk; see [`super::overlay`].

use std::sync::Arc;

use runstone_storage::{Category, Storage};

use super::format::{Content, Description};
use super::overlay::{Overlay, Part};
use super::restore_to::Moment;
use super::{Backups, pack_name};
use crate::error::{Error, ErrorKind, Result};
use crate::options::store::Options;
use crate::read::options::ReadOptions;
use crate::store::Store;
use crate::store::follow::cut::write_manifest;
use crate::store::keyspace::Keyspace;
use crate::store::open::open_on;
use crate::store::verify::{Damage, VerifyReport};
use crate::table::handle::file_uid;
use crate::table::table_name;
use crate::values::file::{header, values_name};
use crate::wal::segments::segment_name;

/// What a deep verification found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeepReport {
    /// The findings of [`Store::verify`] on the store, and entries that could not be read.
    pub report: VerifyReport,
    /// Entries that readers see and whose values were read.
    pub read: u64,
    /// Entries that were not folded, because only a program can register their merge operator.
    pub unfolded: u64,
    /// Changes of the archive that were applied.
    pub changes: u64,
}

impl Backups {
    /// Does what [`Backups::verify`] does, and then opens the store that [`Backups::restore`] would
    /// make, without writing it: replays its log in memory, checks every table and value, and reads
    /// every entry as a program would. It needs as much memory as the log has bytes, and reads
    /// everything three times.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// use runstone::{Backups, Options, Store};
    ///
    /// let store = Store::open(dir.path().join("store"), Options::default())?;
    /// store.put("key", "value")?;
    /// let backups = Backups::open(dir.path().join("backups"))?;
    /// let made = backups.create(dir.path().join("store"))?;
    /// let deep = backups.verify_deep(made.number)?;
    /// assert!(deep.report.is_clean() && deep.read == 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no such backup, or its description is damaged; or a storage error. Damage that
    /// keeps the store from opening is in the report.
    pub fn verify_deep(&self, number: u64) -> Result<DeepReport> {
        let backup = self.description(number)?;
        let options = Options {
            read_only: true,
            create_if_missing: false,
            keyspace: None,
            ..self.store.clone()
        };
        let opened =
            self.overlay(backup.clone()).and_then(|overlay| open_on(overlay, options, None));
        let mut deep = DeepReport::default();
        deep.report.damage = self.verify_files(&backup)?;
        match opened {
            Ok(store) => self.read_all(&store, &mut deep)?,
            Err(error) => note(&mut deep, error)?,
        }
        self.check_there(number, &deep.report.damage)?;
        Ok(deep)
    }

    /// Does what [`Backups::verify_archives`] does, and then replays the archive to its end. It
    /// begins with the newest backup from which the archive continues, writes no store, and reads
    /// every entry. Otherwise it does what [`Backups::restore_to`] does. It needs memory for all
    /// changes of the archive and for the compactions that follow. `None` if there is no archive.
    ///
    /// # Errors
    /// A storage error. Damage is in the report.
    pub fn verify_archive_deep(&self) -> Result<Option<DeepReport>> {
        let mut deep = DeepReport::default();
        deep.report.damage = self.verify_archives()?;
        let replayed = self.at_moment(Moment::End, |chain, end, backup| {
            let overlay = self.overlay(backup.clone())?;
            let store = open_on(overlay, self.replaying(), None)?;
            self.replay(chain, end, backup, store)
        });
        match replayed {
            Ok((store, restored)) => {
                deep.changes = restored.changes;
                self.read_all(&store, &mut deep)?;
                store.close()?;
            }
            Err(_) if self.archives().is_ok_and(|archives| archives.is_empty()) => return Ok(None),
            Err(error) => note(&mut deep, error)?,
        }
        Ok(Some(deep))
    }

    /// Presents a backup as the storage of a store.
    fn overlay(&self, backup: Description) -> Result<Arc<dyn Storage>> {
        let overlay = Overlay::default();
        for table in &backup.tables {
            let name = table_name(table.id);
            let from = self.storage.open(&name, Category::Table)?;
            let bytes = from.len()?;
            overlay.add(name, bytes, vec![Part { at: 0, bytes, from, offset: 0 }]);
        }
        let layouts = backup.state.keyspaces.values().flat_map(|keyspace| &keyspace.values);
        let segments = backup.segments_by_file();
        for layout in layouts {
            let own = segments.get(&layout.number).into_iter().flatten();
            let parts = own.map(|(name, content)| self.part(name.offset, content));
            let parts: Vec<Part> = parts.collect::<Result<_>>()?;
            let head = header(layout.slot_bytes, file_uid(backup.state.uid, layout.number));
            let ends = parts.iter().map(|part| part.at + part.bytes);
            let bytes = ends.max().unwrap_or(0).max(head.len() as u64);
            let name = values_name(layout.number);
            overlay.add(name.clone(), bytes, parts);
            overlay.open(&name, Category::Value)?.write_at(0, &head)?;
        }
        for (number, content) in &backup.log {
            let part = self.part(0, content)?;
            overlay.add(segment_name(*number), content.bytes, vec![part]);
        }
        let overlay: Arc<dyn Storage> = Arc::new(overlay);
        write_manifest(&overlay, backup.state, backup.last_seq)?;
        Ok(overlay)
    }

    fn part(&self, at: u64, content: &Content) -> Result<Part> {
        let from = self.storage.open(&pack_name(content.pack), Category::Other)?;
        Ok(Part { at, bytes: content.bytes, from, offset: content.offset })
    }

    fn read_all(&self, store: &Store, deep: &mut DeepReport) -> Result<()> {
        let mut found = store.verify()?;
        self.pace(usize::try_from(found.bytes).unwrap_or(usize::MAX));
        if found.lost_records > 0 {
            // The log of a backup has no gap.
            found.damage.push(Damage::new("the log", "records follow a gap"));
        }
        found.damage.splice(..0, std::mem::take(&mut deep.report.damage));
        deep.report = found;
        for name in store.keyspaces() {
            self.read_keyspace(&store.keyspace(&name)?, deep)?;
        }
        Ok(())
    }

    /// Reads every entry. An entry that cannot be read is noted, and the walk continues.
    fn read_keyspace(&self, keyspace: &Keyspace, deep: &mut DeepReport) -> Result<()> {
        let mut cursor = keyspace.cursor(ReadOptions::default().fill_cache(false))?;
        let mut stepped = cursor.seek_to_first();
        loop {
            match stepped {
                Ok(()) if !cursor.valid() => return Ok(()),
                Ok(()) => {
                    deep.read += 1;
                    self.pace(cursor.key().len() + cursor.value().len());
                }
                Err(error) => {
                    match error.kind() {
                        ErrorKind::Invalid => deep.unfolded += 1,
                        _ => note(deep, error)?,
                    }
                    if cursor.key().is_empty() {
                        // The walk reached no key, and the next step would fail in the same way.
                        return Ok(());
                    }
                }
            }
            stepped = cursor.next();
        }
    }
}

/// Damage and missing files are added to the report; other errors end the verification.
fn note(deep: &mut DeepReport, error: Error) -> Result<()> {
    match error {
        Error::Corruption { file, what, .. } => deep.report.damage.push(Damage::new(file, what)),
        Error::Storage(error) if error.is_not_found() => {
            deep.report.damage.push(Damage::new(error.path.clone(), "the file is missing"));
        }
        error @ Error::MergeFailed { .. } => {
            deep.report.damage.push(Damage::new("an entry", error.to_string()));
        }
        error => return Err(error),
    }
    Ok(())
}
