//! Opens a store, writes, reads, scans and deletes, and finds all of it again after a reopen.

use runstone::{Result, Store, WriteOptions};

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");

    let store = Store::builder(&path).memory_budget(64 << 20).threads(2).open()?;
    store.put("fruit/apple", "red")?;
    store.put("fruit/banana", "yellow")?;
    store.put("fruit/cherry", "dark")?;
    store.put("root/carrot", "orange")?;
    store.delete("fruit/banana")?;
    assert_eq!(store.get("fruit/apple")?.as_deref(), Some(&b"red"[..]));
    assert_eq!(store.get("fruit/banana")?.as_deref(), None);

    // Every key is in a keyspace; the short calls above use the default one. This write survives a
    // power loss once it has returned. The others survive a crash of the process.
    let plants = store.default_keyspace();
    plants.put_with("root/radish", "white", WriteOptions::sync())?;

    // Keys are bytes, and are sorted as bytes. A scan can run in both directions.
    for item in plants.range("fruit/b".."root/d")? {
        let (key, value) = item?;
        println!("{}: {}", key.escape_ascii(), value.escape_ascii());
    }
    let backwards = plants.prefix("fruit/")?.keys().rev().collect::<Result<Vec<_>>>()?;
    assert_eq!(backwards, [b"fruit/cherry".to_vec(), b"fruit/apple".to_vec()]);

    // A store can be open only once at a time. A second open is refused, and the error says so.
    let second = Store::builder(&path).open().expect_err("the store is open");
    assert!(second.is_in_use());
    println!("refused: {second}; {}", second.hint());
    store.close()?;

    let store = Store::builder(&path).create_if_missing(false).open()?;
    assert_eq!(store.default_keyspace().iter()?.count(), 4);
    println!("after the reopen there are 4 entries");
    store.close()
}
