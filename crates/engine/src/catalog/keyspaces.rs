//! Which keyspaces an open store has, and which of them hold writes that are only in the log. A
//! store may have thousands of keyspaces, so nothing that happens per write or per flush walks all.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::Deref;
use std::sync::Arc;

use crate::sync::{Mutex, rank};

use crate::catalog::keyspace::KeyspaceCore;
use crate::keys::KeyspaceId;

/// Keyspaces that are looked at together.
const PAGE: usize = 256;

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
pub(crate) struct Unflushed(Mutex<rank::Unflushed, ById>);

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
        let mut all = Vec::new();
        self.for_each(|keyspace| {
            if keyspace.holds_writes() {
                all.push(Arc::clone(keyspace));
            }
        });
        all
    }

    /// Looks at those that may hold writes, in order of creation, until `found` returns something.
    pub(crate) fn find_map<T>(
        &self,
        found: impl FnMut(&Arc<KeyspaceCore>) -> Option<T>,
    ) -> Option<T> {
        self.find_within((Unbounded, Unbounded), found)
    }

    /// The first that is `wanted`, from `turn` on and then from the beginning.
    pub(crate) fn find_from(
        &self,
        turn: KeyspaceId,
        mut wanted: impl FnMut(&&Arc<KeyspaceCore>) -> bool,
    ) -> Option<Arc<KeyspaceCore>> {
        let mut found = |keyspace: &Arc<KeyspaceCore>| wanted(&keyspace).then(|| keyspace.clone());
        let first = self.find_within((Included(turn), Unbounded), &mut found);
        first.or_else(|| self.find_within((Unbounded, Excluded(turn)), &mut found))
    }

    /// Looks at each of them.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&Arc<KeyspaceCore>)) {
        self.find_map(|keyspace| {
            look(keyspace);
            None::<()>
        });
    }

    /// Looks at those in a range of ids until `found` returns something. Writers add keyspaces
    /// under the commit lock, so the list is not locked for the whole search. A keyspace that stays
    /// in the list is always found.
    fn find_within<T>(
        &self,
        (mut from, to): (Bound<KeyspaceId>, Bound<KeyspaceId>),
        mut found: impl FnMut(&Arc<KeyspaceCore>) -> Option<T>,
    ) -> Option<T> {
        loop {
            let next = |unflushed: &ById| {
                unflushed.range((from, to)).map(|(_, one)| one).take(PAGE).cloned().collect()
            };
            let page: Vec<Arc<KeyspaceCore>> = next(&self.0.lock());
            if let Some(found) = page.iter().find_map(&mut found) {
                return Some(found);
            }
            match page.last().filter(|_| page.len() == PAGE) {
                Some(last) => from = Excluded(last.id),
                None => return None,
            }
        }
    }
}
