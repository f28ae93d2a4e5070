//! A store of files: the engine, with one of its keyspaces.

mod costs;
mod salvage;
pub mod stats;
mod target;
pub mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use runstone::metrics::KeyspaceHeat;
use runstone::unstable;
use runstone::{
    Batch, Durability, Expiry, KeySurvey, Keyspace, Snapshot, Store, Value, WriteOptions,
};
use runstone_kv::{KvStore, KvWrite};

use crate::counters::Counter;
use crate::failure::{Exit, Failure, Result};
use crate::files::stats::Measured;
use crate::keyspaces;
use crate::live;
use crate::opened::{Drawing, Entries, Figures, Limits, Opened, Target, Verified};
use crate::picture::Picture;
use crate::range::{Failed, Missing, Range, Visit};
use crate::transfer::Record;

/// See the module docs.
pub struct FileStore {
    entries: KeyspaceEntries,
    path: PathBuf,
    /// The directory, if another process has the store open.
    beside: Option<PathBuf>,
}

/// The entries of a keyspace, now or as of a snapshot.
pub struct KeyspaceEntries {
    pub keyspace: Keyspace,
    pub store: Store,
    pub snapshot: Option<Snapshot>,
}

impl Entries for KeyspaceEntries {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let found = match &self.snapshot {
            Some(snapshot) => self.keyspace.get_at(key, snapshot),
            None => self.keyspace.get(key),
        };
        found.map_err(|error| Failed { key, error }.into())
    }

    fn counter(&self) -> Option<Counter> {
        Counter::of(&self.keyspace.options().merge_operator)
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        keyspaces::refuse_reserved(self.keyspace.name())?;
        let mut batch = Batch::new();
        for write in writes {
            match write {
                KvWrite::Put { key, value } => batch.put(&self.keyspace, key, value)?,
                KvWrite::Delete { key } => batch.delete(&self.keyspace, key)?,
            }
        }
        Ok(self.store.write(&batch, options_of(durability))?)
    }

    fn put_with_ttl(&self, entry: &Record, ttl: Duration, durability: Durability) -> Result<()> {
        keyspaces::refuse_reserved(self.keyspace.name())?;
        let mut batch = Batch::new();
        batch.put_with_ttl(&self.keyspace, &entry.key, &entry.value, ttl)?;
        Ok(self.store.write(&batch, options_of(durability))?)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>> {
        Ok(match &self.snapshot {
            Some(snapshot) => self.keyspace.expiry_at(key, snapshot)?,
            None => self.keyspace.expiry(key)?,
        })
    }

    fn merge(&self, key: &[u8], operand: &[u8], durability: Durability) -> Result<()> {
        keyspaces::refuse_reserved(self.keyspace.name())?;
        self.keyspace.options().check_built_in_operator()?;
        let operand = match self.counter() {
            Some(counter) => counter.bytes(operand)?,
            None => operand.to_vec(),
        };
        Ok(self.keyspace.merge_with(key, operand, options_of(durability))?)
    }

    fn delete_range(&self, range: &Range, durability: Durability) -> Result<Option<u64>> {
        keyspaces::refuse_reserved(self.keyspace.name())?;
        let about = self.keyspace.approximate_count(range.bounds())?;
        self.keyspace.delete_range_with(range.bounds(), options_of(durability))?;
        Ok(Some(about))
    }

    fn walk(&self, range: &Range, visit: &mut Visit<'_>) -> Result<u64> {
        range.walk(&self.keyspace, self.snapshot.as_ref(), visit)
    }

    fn walk_past_damage(
        &self,
        range: &Range,
        visit: &mut Visit<'_>,
        missing: &mut Vec<Missing>,
    ) -> Result<u64> {
        salvage::walk(&self.keyspace, self.snapshot.as_ref(), range, visit, missing)
    }
}

impl FileStore {
    pub fn new(store: Store, keyspace: Keyspace, path: &Path) -> FileStore {
        let entries = KeyspaceEntries { keyspace, store, snapshot: None };
        FileStore { entries, path: path.to_path_buf(), beside: None }
    }

    /// Sets the directory of the store, if another process has it open.
    pub fn beside(self, beside: Option<PathBuf>) -> FileStore {
        FileStore { beside, ..self }
    }
}

impl Opened for FileStore {
    fn entries(&self) -> &dyn Entries {
        &self.entries
    }

    fn kv(&self) -> &dyn KvStore {
        &self.entries.store
    }

    fn keyspaces(&self) -> Vec<String> {
        self.entries.store.keyspaces()
    }

    fn estimate(&self) -> Option<u64> {
        let keyspace = &self.entries.keyspace;
        let in_tables = || unstable::shape(keyspace).tables().map(|(_, table)| table.entries).sum();
        (keyspace.memtable_bytes() == 0).then(in_tables)
    }

    fn holds_data(&self) -> Result<bool> {
        Ok(self.entries.keyspace.iter()?.next().is_some())
    }

    fn limits(&self) -> Limits {
        Limits::FILES
    }

    /// Leaves the log out, because a close normally removes it.
    fn used_bytes(&self) -> u64 {
        let store = &self.entries.store;
        store.disk_bytes().saturating_sub(store.metrics().wal_bytes)
    }

    fn drawing(&self) -> Result<Box<dyn Drawing>> {
        Ok(Box::new(Picture::of(&self.entries.keyspace)?))
    }

    fn stats(&self, keyspace: Option<&str>, range: &Range) -> Result<Figures> {
        stats::figures(&self.entries.store, self.beside.as_deref(), keyspace, range)
    }

    fn survey(&self, limit: usize) -> Result<KeySurvey> {
        Ok(self.entries.keyspace.survey(limit)?)
    }

    fn heat(&self) -> Result<Vec<KeyspaceHeat>> {
        let Some(path) = self.beside.as_deref() else {
            return Err(heat_is_not_known("no process has the store open"));
        };
        let untold = "the process that has the store open does not tell";
        let told = live::told(path)?.and_then(|state| state.heat);
        told.ok_or_else(|| heat_is_not_known(untold))
    }

    fn compact(&self, keyspace: Option<&str>, range: &Range) -> Result<()> {
        compact(&self.entries.store, keyspace, range)
    }

    fn prometheus(&self) -> Result<String> {
        match Measured::of(&self.entries.store, self.beside.as_deref())? {
            Measured::Here(metrics) => Ok(metrics.to_prometheus()),
            Measured::There(state) => Ok(state.metrics.to_prometheus()),
            Measured::Untold => {
                let what = "the process that has the store open does not tell what it does";
                let hint = "`runstone stats STORE` prints what the store holds";
                Err(Failure::new(Exit::CannotOpen, what).hint(hint))
            }
        }
    }

    fn verify(&self) -> Result<Verified> {
        Ok(verify::report(&self.path, &self.entries.store.verify()?, true))
    }

    fn dump(&self, _has_entries: bool) -> Result<Figures> {
        Err(Failure::usage("all of this store is files", "name one of them"))
    }

    fn costs(&self, live_bytes: u64) -> Result<Figures> {
        costs::figures(&self.entries.store, &self.entries.keyspace, live_bytes)
    }

    fn into_target(
        self: Box<Self>,
        source: Option<&Path>,
        how: &str,
        durability: Durability,
    ) -> Result<Box<dyn Target>> {
        let KeyspaceEntries { store, keyspace, .. } = self.entries;
        Ok(Box::new(target::StoreTarget::new((store, keyspace), source, how, durability)?))
    }

    fn close(self: Box<Self>) -> Result<()> {
        let KeyspaceEntries { store, keyspace, .. } = self.entries;
        drop(keyspace);
        Ok(store.close()?)
    }
}

/// The failure if it is not known which keys are hot.
fn heat_is_not_known(what: &str) -> Failure {
    Failure::new(Exit::CannotOpen, format!("which keys are hot is not known: {what}")).hint(
        "run it while the application has the store open, in threads; --big and --sample work \
         without",
    )
}

/// Compacts the keys of a range, in one keyspace or in all.
pub fn compact(store: &Store, keyspace: Option<&str>, range: &Range) -> Result<()> {
    let names = keyspace.map_or_else(|| store.keyspaces(), |name| vec![name.to_string()]);
    for name in names {
        let keyspace = keyspaces::find(store, &name)?;
        match range.is_everything() {
            true => keyspace.compact()?,
            false if range.is_empty() => {}
            false => {
                keyspace.compact_range(range.bounds())?;
            }
        }
    }
    Ok(())
}

fn options_of(durability: Durability) -> WriteOptions {
    match durability {
        Durability::Sync => WriteOptions::sync(),
        _ => WriteOptions::default(),
    }
}
