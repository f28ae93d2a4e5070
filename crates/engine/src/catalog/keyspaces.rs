//! Which keyspaces an open store has, how far each is flushed, and which of them hold writes that
//! are only in the log. A store may have 100,000 keyspaces, so no work that is done per write, per
//! flush or per view of a follower visits all of them, unless a follower finds a new manifest.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::Deref;
use std::sync::Arc;

use rpds::{HashTrieMapSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use crate::sync::{Mutex, rank};

use crate::catalog::keyspace::KeyspaceCore;
use crate::keys::{KeyspaceId, SeqNo};

/// The number of keyspaces that are read from the list at once.
const PAGE: usize = 256;

type ById = BTreeMap<KeyspaceId, Arc<KeyspaceCore>>;

/// The keyspaces of an open store, in order of creation. It can be read as a map by id. A clone is
/// O(1) and shares everything with the original; each later change copies O(log n). Each view of a
/// follower has such a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspaces {
    by_id: RedBlackTreeMapSync<KeyspaceId, Arc<KeyspaceCore>>,
    by_name: HashTrieMapSync<String, KeyspaceId>,
}

impl Deref for Keyspaces {
    type Target = RedBlackTreeMapSync<KeyspaceId, Arc<KeyspaceCore>>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl Keyspaces {
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<KeyspaceCore>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    pub(crate) fn insert(&mut self, keyspace: Arc<KeyspaceCore>) {
        let before = self.by_id.get(&keyspace.id);
        debug_assert!(before.is_none_or(|one| one.name == keyspace.name), "an id has two names");
        if before.is_none() {
            self.by_name.insert_mut(keyspace.name.clone(), keyspace.id);
        }
        self.by_id.insert_mut(keyspace.id, keyspace);
    }

    pub(crate) fn remove(&mut self, keyspace: &KeyspaceCore) {
        // A newer keyspace may have the name by now.
        if self.by_name.get(&keyspace.name) == Some(&keyspace.id) {
            self.by_name.remove_mut(&keyspace.name);
        }
        self.by_id.remove_mut(&keyspace.id);
    }
}

/// The sequence number up to which each keyspace is flushed. A clone shares everything with the
/// original.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flushed {
    by_id: RedBlackTreeMapSync<KeyspaceId, SeqNo>,
    by_seq: RedBlackTreeSetSync<(SeqNo, KeyspaceId)>,
}

impl Flushed {
    /// 0 if nothing was flushed.
    pub(crate) fn of(&self, id: KeyspaceId) -> SeqNo {
        self.by_id.get(&id).copied().unwrap_or(0)
    }

    /// The largest sequence number up to which any keyspace is flushed. Each edit of the manifest
    /// needs it. O(log n).
    pub(crate) fn last(&self) -> SeqNo {
        self.by_seq.last().map_or(0, |(seq, _)| *seq)
    }

    pub(crate) fn insert(&mut self, id: KeyspaceId, seq: SeqNo) {
        self.remove(id);
        self.by_id.insert_mut(id, seq);
        self.by_seq.insert_mut((seq, id));
    }

    pub(crate) fn remove(&mut self, id: KeyspaceId) {
        if let Some(seq) = self.by_id.get(&id).copied() {
            self.by_id.remove_mut(&id);
            self.by_seq.remove_mut(&(seq, id));
        }
    }
}

impl FromIterator<(KeyspaceId, SeqNo)> for Flushed {
    fn from_iter<I: IntoIterator<Item = (KeyspaceId, SeqNo)>>(all: I) -> Flushed {
        let mut flushed = Flushed::default();
        all.into_iter().for_each(|(id, seq)| flushed.insert(id, seq));
        flushed
    }
}

/// The keyspaces that may hold writes which are only in the log. Every keyspace that holds such
/// writes is in this list.
#[derive(Debug, Default)]
pub(crate) struct Unflushed(Mutex<rank::Unflushed, ById>);

impl Unflushed {
    /// Adds a keyspace whose memtable just announced its first write.
    pub(crate) fn add(&self, keyspace: &Arc<KeyspaceCore>) {
        self.0.lock().insert(keyspace.id, Arc::clone(keyspace));
    }

    /// Removes a keyspace unless it contains writes. A concurrent write is announced before the
    /// keyspace is added, so it is either seen here or adds the keyspace again.
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

    /// All keyspaces that hold writes, in order of creation.
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceCore>> {
        let mut all = Vec::new();
        self.for_each(|keyspace| {
            if keyspace.holds_writes() {
                all.push(Arc::clone(keyspace));
            }
        });
        all
    }

    /// Looks at the keyspaces in order of creation, until `found` returns something.
    pub(crate) fn find_map<T>(
        &self,
        found: impl FnMut(&Arc<KeyspaceCore>) -> Option<T>,
    ) -> Option<T> {
        self.find_within((Unbounded, Unbounded), found)
    }

    /// The first keyspace that is `wanted`, searched from `turn` on and then from the beginning.
    pub(crate) fn find_from(
        &self,
        turn: KeyspaceId,
        mut wanted: impl FnMut(&&Arc<KeyspaceCore>) -> bool,
    ) -> Option<Arc<KeyspaceCore>> {
        let mut found = |keyspace: &Arc<KeyspaceCore>| wanted(&keyspace).then(|| keyspace.clone());
        let first = self.find_within((Included(turn), Unbounded), &mut found);
        first.or_else(|| self.find_within((Unbounded, Excluded(turn)), &mut found))
    }

    /// Looks at each keyspace.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&Arc<KeyspaceCore>)) {
        self.find_map(|keyspace| {
            look(keyspace);
            None::<()>
        });
    }

    /// Looks at the keyspaces in a range of ids until `found` returns something. Writers add
    /// keyspaces under the commit lock, so the list is not locked for the whole search. A keyspace
    /// that stays in the list is always found.
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
