//! A mirror: a store that follows another one, change by change.
//!
//! 1. It begins as a copy of the other store's files ([`super::follow::cut`]), and a lease keeps
//!    the changes that are made from then on.
//! 2. Each change is applied together with its position, which is stored in a keyspace of its own.
//!    So a mirror that was killed continues after the last applied change.
//! 3. At each moment it equals a past state of the other store, with two exceptions: a load is
//!    applied in batches, and keyspaces are made and dropped one after another.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runstone_storage::{Access, LockMode, PosixStorage, Storage};

use super::changes::apply::Applier;
use super::changes::{Changes, ChangesFrom, NotedKeyspace, Position, ROUND_BYTES};
use super::follow::cut::{self, Cut};
use super::open::{LOCK_NAME, is_own_file, take_lock};
use super::unfinished::{Unfinished, check_finished, remove_copy};
use super::{Keyspace, Store};
use crate::error::{Error, Result};
use crate::keys::codec::{Reader, Truncated, put_bytes, put_varint, take_list, take_u32};
use crate::keys::{KeyspaceId, Kind};
use crate::options::store::Options;
use crate::tree::manifest::read_current;

/// The keyspace in which a mirror records its position.
pub const MIRROR_KEYSPACE: &str = "runstone.mirror";
/// The key of the position.
const POSITION: &[u8] = b"position";
/// The key of the other store's id and of its keyspaces: their names, and their ids in that store.
const SOURCE: &[u8] = b"source";
/// The prefix of keys that end with the id of a keyspace. The value is the name of a keyspace that
/// was made since, or nothing if the keyspace was dropped. There may be 100,000 keyspaces, so the
/// list is not written again for each change.
const SINCE: &[u8] = b"source/";
/// The smallest key after all keys with this prefix.
const SINCE_END: &[u8] = b"source0";

/// A store that follows another one.
#[derive(Debug)]
pub struct Mirror {
    /// The other store: for reading, and for leases.
    source: (Arc<dyn Storage>, Arc<dyn Storage>),
    changes: Changes,
    /// Whether a round failed: changes that the reader returned after `position` must be read
    /// again.
    is_cut_short: bool,
    applier: Applier,
    own: Keyspace,
    source_uid: u64,
    position: Position,
}

/// The result of a round of mirroring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mirroring {
    /// Changes that were applied.
    pub changes: u64,
    /// Their approximate size in bytes.
    pub bytes: u64,
    /// Whether the round reached the end of the changes.
    pub is_drained: bool,
}

impl Mirror {
    /// Continues a mirror, or makes one in a directory that is new or empty. `options` are those of
    /// the mirror: it needs the merge operators and filters of the other store.
    ///
    /// # Errors
    /// If the directory contains a store that is not a mirror of this one; those of
    /// [`Changes::open`]: a mirror that cannot continue needs a new directory.
    pub fn open(
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        options: Options,
    ) -> Result<Mirror> {
        let (storage, leases) = cut::open(source.as_ref())?;
        let target = PosixStorage::open(target.as_ref(), Access::CreateIfMissing)?;
        Mirror::begin(storage, &leases, Arc::new(target), options)
    }

    /// Does the same as [`Mirror::open`] on storages.
    ///
    /// # Errors
    /// Those of [`Mirror::open`].
    pub fn open_on(
        source: Arc<dyn Storage>,
        target: Arc<dyn Storage>,
        options: Options,
    ) -> Result<Mirror> {
        Mirror::begin(Arc::clone(&source), &source, target, options)
    }

    fn begin(
        source: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        target: Arc<dyn Storage>,
        options: Options,
    ) -> Result<Mirror> {
        if is_empty(&*target)? {
            // This is done before the lock is taken: a source that cannot be read leaves nothing in
            // the directory.
            let changes = Changes::begin(Arc::clone(&source), leases, ChangesFrom::Now)?;
            let cut = Cut::take(Arc::clone(&source), leases)?;
            let copy = Unfinished::begin(&target)?;
            copy.end(cut.write_store(&target, cut::Tables::Linked))?;
            let made = Mirror::of_copy((source, leases), (changes, cut), &target, options);
            // A later attempt could not begin in a directory with the files of this copy.
            return made.inspect_err(|_| remove_copy(&*target));
        }
        Mirror::resume(source, leases, target, options)
    }

    /// Makes a mirror of a copy.
    fn of_copy(
        (source, leases): (Arc<dyn Storage>, &Arc<dyn Storage>),
        (mut changes, cut): (Changes, Cut),
        target: &Arc<dyn Storage>,
        options: Options,
    ) -> Result<Mirror> {
        let known = cut.keyspaces();
        let (source_uid, last_seq) = (cut.state.uid, cut.last_seq);
        drop(cut);
        let store = Store::open_on(Arc::clone(target), options)?;
        let own = store.open_keyspace(MIRROR_KEYSPACE, None)?;
        changes.pass_through(last_seq)?;
        let applier = Applier::new(store, &known, Some(MIRROR_KEYSPACE))?;
        applier.check_dropped()?;
        let position = changes.position();
        let (source, is_cut_short) = ((source, Arc::clone(leases)), false);
        let mirror = Mirror { source, changes, is_cut_short, applier, own, source_uid, position };
        mirror.note()?;
        mirror.applier.store().sync()?;
        Ok(mirror)
    }

    fn resume(
        source: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        target: Arc<dyn Storage>,
        options: Options,
    ) -> Result<Mirror> {
        let place = target.location();
        let unfit = |what: &str| {
            let hint = "choose a new directory, or the mirror of this store";
            Error::invalid(format!("{place} {what}"), hint)
        };
        // An interrupted copy has no CURRENT yet, or is marked as unfinished: this is not damage.
        // No lock file is made in a directory with foreign files.
        let is_ours = target.list()?.iter().all(|file| is_own_file(&file.name));
        let is_part = || check_finished(&*target).is_err();
        if is_ours && (is_part() || read_current(&*target)?.is_none()) {
            drop(take_lock(&*target, LockMode::Exclusive)?);
            return Err(unfit("is no mirror, or its first copy did not end"));
        }
        let store = Store::open_on(target, options.create_if_missing(false))?;
        if !store.keyspaces().iter().any(|name| name == MIRROR_KEYSPACE) {
            return Err(unfit("is no mirror, or its first copy did not end"));
        }
        let own = store.keyspace(MIRROR_KEYSPACE)?;
        let position =
            own.get(POSITION)?.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok());
        let said = own.get(SOURCE)?.and_then(|value| take_source(&value).ok());
        let (Some(position), Some((source_uid, mut known))) = (position, said) else {
            return Err(unfit("is a mirror that was not made to its end"));
        };
        let has_since = add_since(&own, &mut known)?;
        let from = ChangesFrom::After(position);
        let changes = Changes::begin(Arc::clone(&source), leases, from)?;
        if changes.store_uid() != source_uid {
            return Err(unfit("is the mirror of another store"));
        }
        let applier = Applier::new(store, &known, Some(MIRROR_KEYSPACE))?;
        let (source, is_cut_short) = ((source, Arc::clone(leases)), false);
        let mirror = Mirror { source, changes, is_cut_short, applier, own, source_uid, position };
        if has_since {
            // Otherwise there would be a record for each keyspace that was ever made or dropped.
            mirror.note()?;
        }
        Ok(mirror)
    }

    /// Records the position and the list of keyspaces, which replaces the records of single
    /// changes.
    fn note(&self) -> Result<()> {
        let mut batch = crate::Batch::new();
        batch.delete_range(&self.own, SINCE..SINCE_END)?;
        let known = self.applier.known();
        batch.push(Kind::Put, self.own.id(), SOURCE, &put_source(self.source_uid, known))?;
        batch.push(Kind::Put, self.own.id(), POSITION, self.position.to_string().as_bytes())?;
        self.applier.store().write(&batch, Default::default())
    }

    /// Records which keyspaces were made or dropped.
    fn note_changed(&mut self) -> Result<()> {
        let mut batch = crate::Batch::new();
        for (id, name) in self.applier.take_changed() {
            let key = [SINCE, &id.to_be_bytes()[..]].concat();
            batch.put(&self.own, key, name.unwrap_or_default())?;
        }
        match batch.is_empty() {
            true => Ok(()),
            false => self.applier.store().write(&batch, Default::default()),
        }
    }

    /// Applies the changes that were committed since the last round, and waits at most this long
    /// for a change. It returns after about 16 MiB even if there are more changes, because a busy
    /// writer always adds more. O(changes).
    ///
    /// # Errors
    /// Those of [`Changes::next`] and of writes to the mirror. The next round continues after
    /// [`Mirror::position`].
    pub fn advance(&mut self, most: Duration) -> Result<Mirroring> {
        if self.is_cut_short {
            // The lease of the previous reader keeps the log until there is a new one.
            let (storage, leases) = (Arc::clone(&self.source.0), &self.source.1);
            self.changes = Changes::begin(storage, leases, ChangesFrom::After(self.position))?;
        }
        let outcome = self.apply_changes(most);
        self.is_cut_short = outcome.is_err();
        outcome
    }

    fn apply_changes(&mut self, most: Duration) -> Result<Mirroring> {
        let mut done = Mirroring::default();
        let mut next = self.changes.wait(most)?;
        while let Some(changed) = next {
            let (position, bytes) = (changed.position, changed.change.bytes());
            let own = self.own.id();
            let text = position.to_string();
            self.applier.apply(changed.change, |batch| {
                batch.push(Kind::Put, own, POSITION, text.as_bytes())
            })?;
            self.position = position;
            self.note_changed()?;
            done.changes += 1;
            done.bytes += bytes;
            if done.bytes >= ROUND_BYTES {
                return Ok(done);
            }
            next = self.changes.next()?;
        }
        self.applier.check_dropped()?;
        done.is_drained = true;
        Ok(done)
    }

    /// Closes the mirror, and ends the lease on the other store.
    ///
    /// # Errors
    /// Those of [`Store::close`].
    pub fn close(self) -> Result<()> {
        self.applier.into_store().close()
    }

    /// The mirror. A write to it by anybody else makes it differ from the other store.
    pub fn store(&self) -> &Store {
        self.applier.store()
    }

    /// The position in the history of the other store that the mirror shows.
    pub fn position(&self) -> Position {
        self.position
    }
}

/// Whether a directory has no file but the lock, which remains if a first copy was killed early.
fn is_empty(target: &dyn Storage) -> Result<bool> {
    Ok(target.list()?.iter().all(|file| file.name == LOCK_NAME))
}

/// Brings a list of keyspaces up to date. Returns whether any were made or dropped.
fn add_since(own: &Keyspace, known: &mut Vec<NotedKeyspace>) -> Result<bool> {
    let mut has_since = false;
    let mut all: BTreeMap<KeyspaceId, String> =
        known.drain(..).map(|one| (one.id, one.name)).collect();
    for entry in own.prefix(SINCE)? {
        let (key, name) = entry?;
        has_since = true;
        let Some(id) = key.last_chunk().map(|id| KeyspaceId::from_be_bytes(*id)) else { continue };
        match String::from_utf8(name.to_vec()) {
            Ok(name) if !name.is_empty() => all.insert(id, name),
            _ => all.remove(&id),
        };
    }
    let noted = |(id, name)| NotedKeyspace { id, name, options: String::new() };
    known.extend(all.into_iter().map(noted));
    Ok(has_since)
}

fn put_source<'a>(uid: u64, known: impl Iterator<Item = (KeyspaceId, &'a str)>) -> Vec<u8> {
    let known: Vec<_> = known.collect();
    let mut out = uid.to_le_bytes().to_vec();
    put_varint(&mut out, known.len() as u64);
    for (id, name) in known {
        put_varint(&mut out, u64::from(id));
        put_bytes(&mut out, name.as_bytes());
    }
    out
}

fn take_source(bytes: &[u8]) -> std::result::Result<(u64, Vec<NotedKeyspace>), Truncated> {
    let mut reader = Reader::new(bytes);
    let uid = reader.take_u64()?;
    let known = take_list(&mut reader, |reader| {
        let id = take_u32(reader)?;
        let name = String::from_utf8(reader.take_bytes()?.to_vec()).map_err(|_| Truncated)?;
        Ok(NotedKeyspace { id, name, options: String::new() })
    })?;
    Ok((uid, known))
}
