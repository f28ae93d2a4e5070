//! A compaction filter forgets a user. Compactions visit every entry sooner or later, so the filter
//! removes the entries of users who left, and strips a field from the others, without a scan of its
//! own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use runstone::storage::MemoryStorage;
use runstone::{CompactionFilter, FilterDecision, KeyspaceOptions, Result, Store};

/// The users who left. Compactions read the set from several threads.
#[derive(Debug, Default)]
struct Left(Mutex<BTreeSet<Vec<u8>>>);

impl CompactionFilter for Left {
    /// The keyspace stores this name. If a store is opened without the filter, it keeps all
    /// entries.
    fn name(&self) -> &str {
        "left"
    }

    fn decide(&self, _level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        let user = key.split(|byte| *byte == b'/').next().unwrap_or(key);
        if self.0.lock().expect("no panic").contains(user) {
            return FilterDecision::Remove;
        }
        match value.strip_suffix(b" (draft)") {
            Some(text) => FilterDecision::Change(text.to_vec()),
            None => FilterDecision::Keep,
        }
    }
}

pub(crate) fn main() -> Result<()> {
    let left = Arc::new(Left::default());
    let store = Store::builder_on(Arc::new(MemoryStorage::new()))
        .compaction_filter(left.clone())
        .keyspace(KeyspaceOptions::default().compaction_filter("left"))
        .open()?;
    for user in ["alice", "bob", "carol"] {
        for note in 0..100 {
            store.put(format!("{user}/{note:03}"), format!("note {note} (draft)"))?;
        }
    }

    // Reads see an entry until a compaction visits it. A snapshot keeps the entries that it sees.
    left.0.lock().expect("no panic").insert(b"bob".to_vec());
    assert!(store.get("bob/007")?.is_some());
    store.compact()?;

    assert!(store.default_keyspace().prefix("bob/")?.next().is_none());
    assert_eq!(store.get("alice/007")?.as_deref(), Some(&b"note 7"[..]));
    let counters = store.metrics().counters;
    let (removed, changed) =
        (counters.entries_removed_by_filters, counters.entries_changed_by_filters);
    println!("the filter removed {removed} entries and changed {changed}");
    assert_eq!((removed, changed), (100, 200));
    store.close()
}
