//! The rule by which tables are cut by key prefix: chosen once, stored, and never changed.

use std::sync::Arc;
use std::time::Duration;

use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{Background, Backups, Error, KeyspaceOptions, Moment, Options, Store};
use runstone_policy::prefix::{PrefixExtractor, PrefixRule};

fn options(prefix: &str) -> Options {
    let mut keyspace = KeyspaceOptions::preset("ptierdb").unwrap();
    keyspace.write_buffer_bytes = 64 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.base_bytes = 64 << 10;
    shape.split_bytes = 8 << 10;
    keyspace.prefix = prefix.into();
    Options::default().background(Background::Manual).keyspace(keyspace)
}

fn fill(store: &Store) {
    for i in 0..4000u32 {
        let key = format!("user/{:02}/{:04}", i * 7 % 40, i * 31 % 4000);
        store.put(key, [i as u8; 60]).unwrap();
    }
    store.flush().unwrap();
    store.wait_idle().unwrap();
}

fn rule(store: &Store) -> Option<PrefixRule> {
    unstable::shape(store.default_keyspace()).state.prefix
}

#[test]
fn the_first_compaction_chooses_and_later_opens_keep_it() {
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), options("auto")).unwrap();
    assert_eq!(rule(&store), None);
    fill(&store);
    // "user/" and one digit distinguish 4 groups, and two digits 40 groups. That is enough for
    // every table of 8 KiB.
    let chosen = rule(&store);
    assert_eq!(chosen, Some(PrefixRule::Fixed(7)));
    let shape = unstable::shape(store.default_keyspace());
    let below: Vec<_> = shape.tables().filter(|(level, _)| *level > 0).collect();
    assert!(below.len() > 1);
    for (_, table) in below {
        assert!(!table.prefixes.is_empty(), "tables know their prefixes");
        assert!(table.prefixes.iter().all(|prefix| prefix.len() == 7));
    }
    store.close().unwrap();
    let refused = Store::open_on(storage.clone(), options("fixed(3)")).err().unwrap();
    let text = refused.to_string();
    assert!(text.contains("fixed(7)") && text.contains("fixed(3)"), "{text}");
    let store = Store::open_on(storage, options("fixed(7)")).unwrap();
    let mut other = options("delimiter(/)").keyspace.unwrap();
    let refused = store.open_keyspace("default", Some(other.clone())).err().unwrap();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    other.prefix = "auto".into();
    store.open_keyspace("default", Some(other)).unwrap();
    assert_eq!(rule(&store), chosen);
}

struct BeforeLastSlash;

impl PrefixExtractor for BeforeLastSlash {
    fn name(&self) -> &str {
        "before the last slash"
    }

    fn prefix_len(&self, key: &[u8]) -> usize {
        key.iter().rposition(|byte| *byte == b'/').map_or(key.len(), |at| at + 1)
    }
}

#[test]
fn an_extractor_of_the_users_own_must_be_there_again() {
    let storage = Arc::new(MemoryStorage::new());
    let custom = || {
        options("custom(before the last slash)").prefix_extractors(vec![Arc::new(BeforeLastSlash)])
    };
    let store = Store::open_on(storage.clone(), custom()).unwrap();
    fill(&store);
    let shape = unstable::shape(store.default_keyspace());
    let prefixes: Vec<_> = shape.tables().flat_map(|(_, table)| &table.prefixes).collect();
    assert!(!prefixes.is_empty());
    assert!(prefixes.iter().all(|prefix| prefix.ends_with(b"/")));
    store.close().unwrap();
    let refused = Store::open_on(storage.clone(), options("auto")).err().unwrap().to_string();
    assert!(refused.contains("before the last slash"), "{refused}");
    let store = Store::open_on(storage, custom()).unwrap();
    assert_eq!(store.get("user/00/0000").unwrap().map(|value| value.len()), Some(60));
}

/// Once, such a store could not be restored to a moment, and its backups could not be verified in
/// depth: neither call took the options with which the program opens its store.
#[test]
fn backups_of_such_a_store_are_restored_and_read_with_its_options() {
    let storage = Arc::new(MemoryStorage::new());
    let custom = || {
        options("custom(before the last slash)").prefix_extractors(vec![Arc::new(BeforeLastSlash)])
    };
    let store = Store::open_on(storage.clone(), custom()).unwrap();
    fill(&store);
    let disk = Arc::new(MemoryStorage::new());
    let plain = Backups::open_on(disk.clone()).unwrap();
    let mut archiver = plain.archive_on(storage.clone()).unwrap();
    let count = store.default_keyspace().iter().unwrap().count() as u64;
    store.put("user/00/0000", "archived").unwrap();
    archiver.advance(Duration::ZERO).unwrap();
    drop(archiver);
    let target = || -> Arc<dyn Storage> { Arc::new(MemoryStorage::new()) };
    let refused = plain.restore_to_on(Moment::End, &target()).unwrap_err().to_string();
    assert!(refused.contains("before the last slash"), "{refused}");

    let backups = plain.store(custom());
    let restored = target();
    backups.restore_to_on(Moment::End, &restored).unwrap();
    let copy = Store::open_on(restored, custom()).unwrap();
    assert_eq!(copy.get("user/00/0000").unwrap().as_deref(), Some(&b"archived"[..]));
    assert_eq!(copy.default_keyspace().iter().unwrap().count() as u64, count);
    let made = backups.create_on(storage).unwrap();
    for deep in [backups.verify_deep(made.number), backups.verify_deep(1)] {
        let deep = deep.unwrap();
        assert!(deep.report.is_clean() && deep.read == count, "{deep:?}");
    }
    let deep = backups.verify_archive_deep().unwrap().unwrap();
    assert!(deep.report.is_clean() && deep.read == count, "{deep:?}");
}
