//! Which keyspaces an open store has, how far each is flushed, and which of them hold writes that
//! are only in the log. A store may have 100,000 keyspaces, so no work that is done per write, per
//! flush or per view of a follower visits all of them, unless a follower finds a new manifest.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use rpds::{HashTrieMapSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use crate::sync::{Mutex, looked, rank};

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
pub(crate) struct Unflushed(Mutex<rank::Unflushed, Lists>);

#[derive(Debug, Default)]
struct Lists {
    all: ById,
    /// Those among them whose memtables may wait for a flush. Every search for a job asks for them.
    waiting: ById,
}

/// One of the lists.
type Which = fn(&Lists) -> &ById;

impl Unflushed {
    /// Adds a keyspace whose memtable just announced its first write.
    pub(crate) fn add(&self, keyspace: &Arc<KeyspaceCore>) {
        self.0.lock().all.insert(keyspace.id, Arc::clone(keyspace));
    }

    /// Notes that a memtable of a keyspace was replaced, so that it waits for its flush. If the
    /// keyspace was removed just before, nobody would take it from the list again.
    pub(crate) fn await_flush(&self, keyspace: &Arc<KeyspaceCore>) {
        let mut lists = self.0.lock();
        if !keyspace.removed.load(Acquire) {
            lists.waiting.insert(keyspace.id, Arc::clone(keyspace));
        }
    }

    /// Removes a keyspace unless it contains writes. A concurrent write is announced before the
    /// keyspace is added, so it is either seen here or adds the keyspace again.
    pub(crate) fn remove_if_flushed(&self, keyspace: &KeyspaceCore) {
        let mut lists = self.0.lock();
        if !keyspace.holds_writes() {
            lists.all.remove(&keyspace.id);
        }
        // A memtable that is replaced meanwhile is seen here or noted after this.
        if keyspace.view.load().immutable.is_empty() {
            lists.waiting.remove(&keyspace.id);
        }
    }

    /// Removes a keyspace that was dropped.
    pub(crate) fn remove(&self, id: KeyspaceId) {
        let mut lists = self.0.lock();
        lists.all.remove(&id);
        lists.waiting.remove(&id);
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
        self.find_within(|lists| &lists.all, (Unbounded, Unbounded), found)
    }

    /// The first keyspace that is `wanted`, searched from `turn` on and then from the beginning.
    pub(crate) fn find_from(
        &self,
        turn: KeyspaceId,
        wanted: impl FnMut(&&Arc<KeyspaceCore>) -> bool,
    ) -> Option<Arc<KeyspaceCore>> {
        self.find_in_turn(|lists| &lists.all, turn, wanted)
    }

    /// The same among those whose memtables may wait for a flush.
    pub(crate) fn find_waiting_from(
        &self,
        turn: KeyspaceId,
        wanted: impl FnMut(&&Arc<KeyspaceCore>) -> bool,
    ) -> Option<Arc<KeyspaceCore>> {
        self.find_in_turn(|lists| &lists.waiting, turn, wanted)
    }

    fn find_in_turn(
        &self,
        which: Which,
        turn: KeyspaceId,
        mut wanted: impl FnMut(&&Arc<KeyspaceCore>) -> bool,
    ) -> Option<Arc<KeyspaceCore>> {
        let mut found = |keyspace: &Arc<KeyspaceCore>| wanted(&keyspace).then(|| keyspace.clone());
        let first = self.find_within(which, (Included(turn), Unbounded), &mut found);
        first.or_else(|| self.find_within(which, (Unbounded, Excluded(turn)), &mut found))
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
        which: Which,
        (mut from, to): (Bound<KeyspaceId>, Bound<KeyspaceId>),
        mut found: impl FnMut(&Arc<KeyspaceCore>) -> Option<T>,
    ) -> Option<T> {
        loop {
            let next = |lists: &Lists| {
                let page = which(lists).range((from, to)).map(|(_, one)| one).take(PAGE).cloned();
                let page: Vec<Arc<KeyspaceCore>> = page.collect();
                looked(page.len() as u64);
                page
            };
            let page = next(&self.0.lock());
            let mut found = |keyspace: &Arc<KeyspaceCore>| {
                looked(1);
                found(keyspace)
            };
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
