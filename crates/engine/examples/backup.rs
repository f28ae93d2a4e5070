//! A backup by hand: a checkpoint of the running store, copied elsewhere, verified and opened.
//! A command that makes backups comes in a later release.

use std::fs;
use std::path::Path;

use runstone::{Result, Store};

/// The files of a checkpoint never change, so any tool may copy them; it is one flat directory.
fn copy(from: &Path, to: &Path) -> std::io::Result<u64> {
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for file in fs::read_dir(from)? {
        let file = file?;
        bytes += fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(bytes)
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let [live, checkpoint, backup] =
        ["live", "checkpoint", "elsewhere/2027-01-01"].map(|name| directory.path().join(name));

    let store = Store::builder(&live).open()?;
    for key in 0..1000 {
        store.put(format!("key/{key:04}"), "before the backup")?;
    }
    store.checkpoint(&checkpoint)?;
    // Writers need not wait for the copy.
    store.put("key/1000", "after the checkpoint")?;
    let bytes = copy(&checkpoint, &backup).expect("the copy");
    println!("copied {bytes} bytes");
    Store::destroy(&checkpoint)?;

    // A backup that nobody has opened is a hope: read every byte of it, then an entry.
    let restored = Store::builder(&backup).create_if_missing(false).read_only(true).open()?;
    assert!(restored.verify()?.is_clean());
    assert_eq!(restored.get("key/0999")?.as_deref(), Some(&b"before the backup"[..]));
    assert_eq!(restored.default_keyspace().iter()?.count(), 1000);
    println!("the backup has 1000 entries, and no damage");
    restored.close()?;

    // The live store knows nothing of it.
    assert_eq!(store.default_keyspace().iter()?.count(), 1001);
    store.close()
}
