//! Backups of a store while it is written. Each copies only what changed since the previous one,
//! and any of them can be restored as a separate store. A backup is not a checkpoint, which is a
//! single copy that shares files with the store.

use runstone::{Backups, Result, Store};

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    // The backups belong on another disk.
    let [live, backups, restored] =
        ["live", "backups", "restored"].map(|name| directory.path().join(name));

    // Each backup copies the last segment of the log again, so this small store has small segments.
    let store = Store::builder(&live).wal_segment_bytes(64 << 10).open()?;
    for key in 0..10_000 {
        store.put(format!("key/{key:04}"), format!("value {key} of the first day"))?;
    }
    // Flushed data are copied as files, and the rest as part of the log. A backup itself flushes
    // nothing. Another process can make it: `runstone backup create live backups`.
    store.flush()?;
    let backups = Backups::open(&backups)?;
    let first = backups.create(&live)?;

    store.put("key/0000", "new")?;
    store.delete("key/0001")?;
    let second = backups.create(&live)?;
    // Tables never change, so the second backup uses those of the first.
    assert!(second.added_bytes * 2 < first.added_bytes);
    for backup in backups.list()? {
        let (number, bytes, added) = (backup.number, backup.bytes, backup.added_bytes);
        println!("backup {number}: a restore writes {bytes} bytes; it took {added} bytes more");
    }

    // Nobody knows whether a backup is good until it has been read.
    assert!(backups.verify(second.number)?.is_empty());
    // The earlier backup is still there, for a mistake that is noticed a day later.
    backups.restore(first.number, &restored)?;
    let restored = Store::builder(&restored).create_if_missing(false).open()?;
    assert_eq!(restored.get("key/0000")?.as_deref(), Some(&b"value 0 of the first day"[..]));
    assert_eq!(restored.default_keyspace().iter()?.count(), 10_000);
    println!("restored backup {} with 10,000 entries", first.number);
    restored.close()?;

    // Once the first backup is no longer wanted, keep only the last one.
    assert_eq!(backups.prune(1)?, 1);
    assert_eq!(backups.list()?[0].number, second.number);
    assert_eq!(store.get("key/0000")?.as_deref(), Some(&b"new"[..]));
    store.close()
}
