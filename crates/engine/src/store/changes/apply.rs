//! Applies changes to another store.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, NotedKeyspace};
use crate::error::{Error, Result};
use crate::keys::KeyspaceId;
use crate::options::store::{KeyspaceOptions, WriteOptions};
use crate::store::{DEFAULT_KEYSPACE, Keyspace, Store};
use crate::wal::batch::{Batch, Operation};

/// A store to which changes are applied. Its keyspaces have the names of the source, and ids of
/// their own.
#[derive(Debug)]
pub(crate) struct Applier {
    store: Store,
    /// The keyspaces by their ids in the other store. `None` stands for a keyspace that is left
    /// out.
    keyspaces: BTreeMap<KeyspaceId, Option<Keyspace>>,
    /// Keyspaces that this store has dropped already, by their ids in the other store: their drop
    /// was durable before the changes that precede it, which are now repeated. The value is the
    /// keyspace's name.
    dropped: BTreeMap<KeyspaceId, String>,
    /// Keyspaces that were made or dropped since [`Applier::take_changed`].
    changed: BTreeSet<KeyspaceId>,
    /// The name of the keyspace that is left out.
    left_out: Option<&'static str>,
}

impl Applier {
    /// `known` are the keyspaces of the other store, as of the state that this store has. A later
    /// change must drop the keyspaces that are missing here ([`Applier::check_dropped`]). A
    /// keyspace with the name `left_out` is left out.
    pub(crate) fn new(
        store: Store,
        known: &[NotedKeyspace],
        left_out: Option<&'static str>,
    ) -> Result<Applier> {
        let (keyspaces, dropped) = (BTreeMap::new(), BTreeMap::new());
        let changed = BTreeSet::new();
        let mut applier = Applier { store, keyspaces, dropped, changed, left_out };
        for one in known {
            let is_left_out = left_out.is_some_and(|name| name == one.name);
            let keyspace = match (!is_left_out).then(|| applier.store.keyspace(&one.name)) {
                Some(Err(Error::UnknownKeyspace { name })) => {
                    applier.dropped.insert(one.id, name);
                    continue;
                }
                found => found.transpose()?,
            };
            applier.keyspaces.insert(one.id, keyspace);
        }
        Ok(applier)
    }

    /// Checks that a change has dropped each keyspace that is missing.
    pub(crate) fn check_dropped(&self) -> Result<()> {
        match self.dropped.values().next() {
            Some(name) => Err(Error::UnknownKeyspace { name: name.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn into_store(self) -> Store {
        self.store
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The keyspaces by their ids in the other store.
    pub(crate) fn known(&self) -> impl Iterator<Item = (KeyspaceId, &str)> {
        let there = self.keyspaces.iter();
        let there = there.map(|(id, one)| (*id, self.name(one.as_ref())));
        there.chain(self.dropped.iter().map(|(id, name)| (*id, &name[..])))
    }

    fn name<'a>(&'a self, keyspace: Option<&'a Keyspace>) -> &'a str {
        keyspace.map_or(self.left_out.unwrap_or_default(), Keyspace::name)
    }

    /// The ids of the keyspaces that were made or dropped since the last call, with the names of
    /// those that exist.
    pub(crate) fn take_changed(&mut self) -> Vec<(KeyspaceId, Option<String>)> {
        let changed = std::mem::take(&mut self.changed);
        let name_of = |id: &KeyspaceId| match self.keyspaces.get(id) {
            Some(one) => Some(self.name(one.as_ref()).to_string()),
            None => self.dropped.get(id).cloned(),
        };
        changed.iter().map(|id| (*id, name_of(id))).collect()
    }

    /// Applies a change. `mark` may add to the last batch of the change. It is also called once for
    /// a change without a batch. A batch may be 256 MiB large, so it is freed once it is
    /// translated.
    pub(crate) fn apply(
        &mut self,
        change: Change,
        mark: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let mut last = Batch::new();
        match change {
            Change::Writes(batch) | Change::State(batch) => last = self.own(&batch)?,
            Change::Loaded(load) => load.read(|batch| {
                let own = self.own(batch)?;
                self.store.write(&own, WriteOptions::default())
            })?,
            Change::Keyspace(keyspace) => self.make(&keyspace)?,
            Change::Dropped(id) => self.drop_keyspace(id)?,
            Change::Keyspaces(all) => {
                let there: BTreeSet<KeyspaceId> = all.iter().map(|one| one.id).collect();
                let known = self.keyspaces.keys().chain(self.dropped.keys());
                let gone = known.filter(|id| !there.contains(id));
                for id in gone.copied().collect::<Vec<_>>() {
                    self.drop_keyspace(id)?;
                }
                all.iter().try_for_each(|one| self.make(one))?;
            }
            Change::Time(_) | Change::Gap(_) | Change::GapEnd => {}
        }
        mark(&mut last)?;
        if last.is_empty() { Ok(()) } else { self.store.write(&last, WriteOptions::default()) }
    }

    /// Makes a keyspace, or changes its options.
    fn make(&mut self, noted: &NotedKeyspace) -> Result<()> {
        if self.left_out.is_some_and(|name| name == noted.name) {
            self.insert(noted.id, None);
            return Ok(());
        }
        // A keyspace of this name exists under another id, and no change has dropped it.
        let is_stale = |(id, one): &(&KeyspaceId, &Option<Keyspace>)| {
            **id != noted.id && one.as_ref().is_some_and(|one| one.name() == noted.name)
        };
        // The search happens only if another keyspace has the name: there may be 100,000 keyspaces.
        let known = self.keyspaces.get(&noted.id).and_then(Option::as_ref);
        let is_known = known.is_some_and(|one| one.name() == noted.name);
        if !is_known
            && self.store.keyspace(&noted.name).is_ok()
            && let Some((id, _)) = self.keyspaces.iter().find(is_stale)
        {
            self.drop_keyspace(*id)?;
        }
        let options = KeyspaceOptions::from_toml(&noted.options)?;
        let keyspace = match self.store.open_keyspace(&noted.name, Some(options)) {
            // Notes at the sequence number after which the changes continue are repeated. They may
            // have older options than the keyspace has, and not all options can be changed back.
            // The later options are repeated, too.
            Err(refused @ Error::InvalidArgument { .. }) if is_known => {
                tracing::warn!(keyspace = noted.name, %refused, "options are passed over");
                return Ok(());
            }
            made => made?,
        };
        self.insert(noted.id, Some(keyspace));
        self.dropped.remove(&noted.id);
        Ok(())
    }

    fn insert(&mut self, id: KeyspaceId, keyspace: Option<Keyspace>) {
        if self.keyspaces.insert(id, keyspace).is_none() && !self.dropped.contains_key(&id) {
            self.changed.insert(id);
        }
    }

    fn drop_keyspace(&mut self, id: KeyspaceId) -> Result<()> {
        if let Some(Some(keyspace)) = self.keyspaces.get(&id)
            && keyspace.name() != DEFAULT_KEYSPACE
        {
            match self.store.drop_keyspace(keyspace.name()) {
                Ok(()) | Err(Error::UnknownKeyspace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // The keyspace is forgotten only now: a drop that failed is tried again, although the
        // keyspace may be gone already.
        let (here, dropped) = (self.keyspaces.remove(&id), self.dropped.remove(&id));
        if here.is_some() || dropped.is_some() {
            self.changed.insert(id);
        }
        Ok(())
    }

    /// Translates the writes to the keyspaces of this store.
    fn own(&self, batch: &Batch) -> Result<Batch> {
        let mut own = Batch::with_capacity(batch.encoded().len());
        for operation in batch.operations() {
            if self.dropped.contains_key(&operation.keyspace) {
                continue;
            }
            let keyspace = self.keyspaces.get(&operation.keyspace).ok_or_else(|| {
                let what = format!("the log writes to keyspace {}", operation.keyspace);
                Error::invalid(what + ", but does not name that keyspace", "begin with a new copy")
            })?;
            if let Some(keyspace) = keyspace {
                own.push_same(&Operation { keyspace: keyspace.id(), ..operation });
            }
        }
        Ok(own)
    }
}
