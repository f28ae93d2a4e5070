//! Stores that do not belong to a node, and options that a node cannot have.

use std::sync::Arc;

use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, KeyspaceOptions, Options, Store, WalMode};
use runstone_openraft::{Error, Settings};

use crate::node::{Registers, Types};

fn store(storage: &Arc<dyn Storage>, wal_mode: WalMode) -> Store {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_mode(wal_mode);
    Store::open_on(Arc::clone(storage), options).expect("opens")
}

fn refusal(store: Store, settings: Settings) -> String {
    match runstone_openraft::open::<Types, _>(store, Registers, settings) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_store_without_a_log_is_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let refused = refusal(store(&storage, WalMode::Off), Settings::default());
    assert!(refused.contains("log"), "{refused}");
}

#[test]
fn keyspaces_of_something_else_are_refused_and_stay() {
    for name in ["log", "meta"] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = store(&storage, WalMode::Mapped);
        let other = store.open_keyspace(name, None).expect("opens");
        other.put("theirs", "data").expect("puts");
        let refused = refusal(store, Settings::default());
        assert!(refused.contains("something else"), "{refused}");
        let store = self::store(&storage, WalMode::Mapped);
        let kept = store.keyspace(name).expect("there").get("theirs").expect("reads");
        assert_eq!(kept.as_deref(), Some(&b"data"[..]));
    }
}

#[test]
fn a_later_layout_and_other_types_are_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let settings = Settings::default;
    let first = runstone_openraft::open::<Types, _>(
        store(&storage, WalMode::Mapped),
        Registers,
        settings(),
    );
    drop(first.expect("opens"));
    let changed = |key: &str, value: &[u8]| {
        let store = store(&storage, WalMode::Mapped);
        store.keyspace("meta").expect("there").put(key, value).expect("puts");
        store
    };
    let refused = refusal(changed("applied", b"no MessagePack"), settings());
    assert!(refused.contains("`applied` in `meta` cannot be read"), "{refused}");
    let refused = refusal(changed("format", &[2]), settings());
    assert!(refused.contains("layout 2, not 1"), "{refused}");
}

#[test]
fn machines_whose_entries_expire_are_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let expiring = KeyspaceOptions::default().ttl_seconds(60);
    let settings = Settings { state: Some(expiring), ..Settings::default() };
    let store = store(&storage, WalMode::Mapped);
    let refused = runstone_openraft::open::<Types, _>(store, Registers, settings);
    assert!(matches!(refused, Err(Error::Layout { what }) if what.contains("expire")));
}
