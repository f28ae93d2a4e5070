//! Counters by a merge operator: an increment is a write that reads nothing, so any number of
//! threads add to one counter without a lock or a retry.

use std::sync::Arc;
use std::thread;

use runstone::storage::MemoryStorage;
use runstone::{Batch, Keyspace, KeyspaceOptions, Result, Store, WriteOptions};

/// The operator `add-u64` adds numbers of eight bytes, little-endian.
fn count(views: &Keyspace, page: &str) -> Result<u64> {
    let value = views.get(page)?;
    Ok(value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().expect("eight bytes"))))
}

pub(crate) fn main() -> Result<()> {
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).open()?;
    let options = KeyspaceOptions::default().merge_operator("add-u64");
    let views = store.open_keyspace("views", Some(options))?;
    let one = 1u64.to_le_bytes();

    thread::scope(|scope| {
        let visitors =
            [(); 4].map(|()| scope.spawn(|| (0..1000).try_for_each(|_| views.merge("home", one))));
        visitors.into_iter().try_for_each(|visitor| visitor.join().expect("no panic"))
    })?;

    // A compaction folds the increments of a counter into its value. So does a read that finds many
    // increments.
    store.compact()?;
    assert_eq!(count(&views, "home")?, 4000);
    println!("{} increments were folded", store.metrics().counters.operands_folded);

    // A batch can contain increments and other writes, so that a counter always matches those
    // writes.
    let articles = store.open_keyspace("articles", None)?;
    let mut batch = Batch::new();
    batch.put(&articles, "lsm", "Log-structured merge trees ..")?;
    batch.merge(&views, "articles", one)?;
    store.write(&batch, WriteOptions::default())?;
    assert_eq!(count(&views, "articles")?, 1);

    // An operand that is not a number is refused before it is written.
    let refused = views.merge("home", "one").expect_err("three bytes");
    assert!(refused.is_invalid());
    println!("refused: {refused}");
    store.close()
}
