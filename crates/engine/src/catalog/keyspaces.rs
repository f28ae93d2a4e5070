//! Which keyspaces an open store has, and which of them hold writes that are only in the log. A
//! store may have thousands of keyspaces, so nothing that happens per write or per flush walks all.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::key::KeyspaceId;
use crate::catalog::keyspace::KeyspaceCore;

type ById = BTreeMap<KeyspaceId, Arc<KeyspaceCore>>;

/// The keyspaces of an open store, in order of creation. Reads as a map by id.
#[derive(Debug, Default)]
pub(crate) struct Keyspaces {
    by_id: ById,
    by_name: HashMap<String, KeyspaceId>,
}

impl Deref for Keyspaces {
    type Target = ById;

    fn deref(&self) -> &ById {
        &self.by_id
    }
}

impl Keyspaces {
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<KeyspaceCore>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    pub(crate) fn insert(&mut self, keyspace: Arc<KeyspaceCore>) {
        self.by_name.insert(keyspace.name.clone(), keyspace.id);
        self.by_id.insert(keyspace.id, keyspace);
    }

    pub(crate) fn remove(&mut self, keyspace: &KeyspaceCore) {
        self.by_name.remove(&keyspace.name);
        self.by_id.remove(&keyspace.id);
    }
}

/// The keyspaces that may hold writes which are only in the log. Every keyspace that does is here.
#[derive(Debug, Default)]
pub(crate) struct Unflushed(Mutex<ById>);

impl Unflushed {
    /// Adds a keyspace whose memtable just announced its first write.
    pub(crate) fn add(&self, keyspace: &Arc<KeyspaceCore>) {
        self.0.lock().insert(keyspace.id, Arc::clone(keyspace));
    }

    /// Removes a keyspace unless it holds writes. A write that comes meanwhile is announced before
    /// the keyspace is added, so it is seen here or adds the keyspace again.
    pub(crate) fn remove_if_flushed(&self, keyspace: &KeyspaceCore) {
        let mut unflushed = self.0.lock();
        if !keyspace.holds_writes() {
            unflushed.remove(&keyspace.id);
        }
    }

    /// Removes a keyspace that was dropped.
    pub(crate) fn remove(&self, id: KeyspaceId) {
        self.0.lock().remove(&id);
    }

    /// All that hold writes, in order of creation.
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceCore>> {
        self.0.lock().values().filter(|keyspace| keyspace.holds_writes()).cloned().collect()
    }

    /// Looks at those that may hold writes, in order of creation, until `found` returns something.
    pub(crate) fn find_map<T>(
        &self,
        found: impl FnMut(&Arc<KeyspaceCore>) -> Option<T>,
    ) -> Option<T> {
        self.0.lock().values().find_map(found)
    }

    /// The first that is `wanted`, from `turn` on and then from the beginning.
    pub(crate) fn find_from(
        &self,
        turn: KeyspaceId,
        wanted: impl FnMut(&&Arc<KeyspaceCore>) -> bool,
    ) -> Option<Arc<KeyspaceCore>> {
        let unflushed = self.0.lock();
        let mut all = unflushed.range(turn..).chain(unflushed.range(..turn)).map(|(_, one)| one);
        all.find(wanted).cloned()
    }

    /// Looks at each of them.
    pub(crate) fn for_each(&self, look: impl FnMut(&Arc<KeyspaceCore>)) {
        self.0.lock().values().for_each(look);
    }
}
