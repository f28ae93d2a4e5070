//! Makes a store from a backup, and checks backups.

use std::path::Path;
use std::sync::Arc;

use runstone_storage::{Access, Category, PosixStorage, Storage, StorageFile};
use xxhash_rust::xxh3::Xxh3;

use super::format::{Content, Description};
use super::{Backups, pack_name};
use crate::error::{Error, Result};
use crate::store::follow::cut::{copy_range, write_manifest};
use crate::store::unfinished::{Unfinished, check_empty};
use crate::store::verify::Damage;
use crate::table::handle::file_uid;
use crate::table::table_name;
use crate::values::file::{header, values_name};
use crate::wal::segments::segment_name;

impl Backups {
    /// Makes a store in a new or empty directory from a backup, and checks everything on the way.
    /// The directory becomes a store only when the restore is complete.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a file of the backup is damaged; if the directory is not empty;
    /// [`Error::InUse`] if somebody else writes to it; or a storage error.
    pub fn restore(&self, number: u64, target: impl AsRef<Path>) -> Result<()> {
        let target = PosixStorage::open(target.as_ref(), Access::CreateIfMissing)?;
        self.restore_on(number, &(Arc::new(target) as Arc<dyn Storage>))
    }

    /// Does the same as [`Backups::restore`] on a storage.
    ///
    /// # Errors
    /// Those of [`Backups::restore`].
    pub fn restore_on(&self, number: u64, target: &Arc<dyn Storage>) -> Result<()> {
        check_empty(&**target)?;
        let backup = self.description(number)?;
        let store = Unfinished::begin(target)?;
        let written = store.end(self.write_store(backup, target));
        written.map_err(|error| self.explain(number, error))
    }

    pub(super) fn write_store(&self, backup: Description, target: &Arc<dyn Storage>) -> Result<()> {
        for table in &backup.tables {
            let name = table_name(table.id);
            let from = self.storage.open(&name, Category::Table)?;
            let to = target.create(&name, Category::Table)?;
            let range = (0, table.bytes, table.hash);
            self.copy_checked(&name, &*from, range, &*to, 0)?;
            to.sync()?;
        }
        self.restore_values(&backup, target)?;
        for (number, content) in &backup.log {
            let to = target.create(&segment_name(*number), Category::Wal)?;
            self.unpack(content, &*to, 0)?;
            to.sync()?;
        }
        write_manifest(target, backup.state, backup.last_seq)
    }

    fn restore_values(&self, backup: &Description, target: &Arc<dyn Storage>) -> Result<()> {
        let layouts = backup.state.keyspaces.values().flat_map(|keyspace| &keyspace.values);
        let segments = backup.segments_by_file();
        for layout in layouts {
            let to = target.create(&values_name(layout.number), Category::Value)?;
            let uid = file_uid(backup.state.uid, layout.number);
            to.write_at(0, &header(layout.slot_bytes, uid))?;
            for (name, content) in segments.get(&layout.number).into_iter().flatten() {
                self.unpack(content, &*to, name.offset)?;
            }
            to.sync()?;
        }
        Ok(())
    }

    fn unpack(&self, content: &Content, to: &dyn StorageFile, at: u64) -> Result<()> {
        let name = pack_name(content.pack);
        let from = self.storage.open(&name, Category::Other)?;
        self.copy_checked(&name, &*from, (content.offset, content.bytes, content.hash), to, at)
    }

    /// Reads every byte of a backup and checks it. Returns the damage.
    ///
    /// # Errors
    /// If there is no such backup, or its description is damaged; or a storage error.
    pub fn verify(&self, number: u64) -> Result<Vec<Damage>> {
        self.verify_files(&self.description(number)?)
    }

    /// Checks the files of a backup.
    pub(super) fn verify_files(&self, backup: &Description) -> Result<Vec<Damage>> {
        let mut damage = Vec::new();
        for table in &backup.tables {
            let (name, range) = (table_name(table.id), (0, table.bytes, table.hash));
            self.check(&name, Category::Table, range, &mut damage)?;
        }
        let segments = backup.segments.iter().map(|(_, content)| content);
        for content in segments.chain(backup.log.iter().map(|(_, content)| content)) {
            let range = (content.offset, content.bytes, content.hash);
            self.check(&pack_name(content.pack), Category::Other, range, &mut damage)?;
        }
        self.check_there(backup.number, &damage)?;
        Ok(damage)
    }

    /// Damage does not count if a prune in another process has removed the backup meanwhile.
    pub(super) fn check_there(&self, number: u64, damage: &[Damage]) -> Result<()> {
        match damage.is_empty() || !self.is_pruned(number) {
            true => Ok(()),
            false => Err(pruned(number)),
        }
    }

    /// The error for a backup that could not be read: a prune in another process may have removed
    /// it.
    pub(super) fn explain(&self, number: u64, error: Error) -> Error {
        let is_missing = matches!(&error, Error::Storage(error) if error.is_not_found());
        if is_missing && self.is_pruned(number) { pruned(number) } else { error }
    }

    fn is_pruned(&self, number: u64) -> bool {
        matches!(self.find_description(number), Ok(None))
    }

    fn check(
        &self,
        name: &str,
        category: Category,
        (offset, bytes, hash): (u64, u64, u64),
        damage: &mut Vec<Damage>,
    ) -> Result<()> {
        let file = match self.storage.open(name, category) {
            Err(error) if error.is_not_found() => {
                damage.push(Damage::new(name, "the file is missing"));
                return Ok(());
            }
            file => file?,
        };
        let len = file.len()?;
        if len < offset + bytes {
            damage.push(Damage::new(name, format!("the file is cut short at {len}")));
        } else if self.hash_of(&*file, offset, bytes)? != hash {
            let what = format!("bytes {offset} to {} are not those written", offset + bytes);
            damage.push(Damage::new(name, what));
        }
        Ok(())
    }

    fn copy_checked(
        &self,
        name: &str,
        from: &dyn StorageFile,
        (offset, bytes, hash): (u64, u64, u64),
        to: &dyn StorageFile,
        at: u64,
    ) -> Result<()> {
        let len = from.len()?;
        if len < offset + bytes {
            let what = format!("the file is cut short: {} bytes are needed", offset + bytes);
            return Err(Error::corruption(name, len, what));
        }
        let mut found = Xxh3::new();
        copy_range(from, (offset, bytes), to, at, |piece| {
            found.update(piece);
            self.pace(piece.len());
        })?;
        match found.digest() == hash {
            true => Ok(()),
            false => Err(Error::corruption(name, offset, "the backup is damaged here")),
        }
    }
}

fn pruned(number: u64) -> Error {
    let what = format!("backup {number} was pruned meanwhile");
    Error::invalid(what, "choose a later backup or moment")
}
