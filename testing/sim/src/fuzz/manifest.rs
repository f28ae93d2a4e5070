//! Manifests: any bytes as a file, or any bytes as records under valid checksums.
//!
//! 1. The manifest is read, and a store that has no other file is opened with it.
//! 2. Changes that decode are encoded again, and must decode to the same changes.
//! 3. The state that they lead to is written as a new first record, which must lead to the same
//!    state.
//! 4. If the store opens, its keyspaces are described, verified and read: damage is reported.

use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::testing::{Current, LogHeader, LogKind, LogWriter, StoreState};
use runstone::testing::{Reader, decode, encode, read_manifest};
use runstone::unstable;
use runstone::{Background, Options, ReadOptions, Store, WalMode};

use super::parts::{parts, put_file};

/// Flags: records under checksums; the store is opened for reading only.
const SEALED: u8 = 1;
const READ_ONLY: u8 = 2;

/// Judges an input.
pub fn judge(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let storage = MemoryStorage::new();
    if flags & SEALED != 0 {
        let records: Vec<&[u8]> = parts(rest).iter().map(|part| part.bytes).collect();
        records.iter().for_each(|record| encode_again(record));
        write_records(&storage, &records);
    } else {
        put_file(&storage, "000001.manifest", Category::Manifest, rest);
    }
    if let Ok((state, _)) = read_manifest(&storage, Current::at(1, 0)) {
        tell_again(&state);
    }
    open(storage, flags & READ_ONLY != 0);
}

/// Writes the records as manifest 1.
pub fn write_records(storage: &dyn Storage, records: &[&[u8]]) {
    let file = storage.create("000001.manifest", Category::Manifest).expect("a new name");
    let header = LogHeader { number: 1, id: 0x5eed, manifest: 0 };
    let mut log = LogWriter::create(file, LogKind::Manifest, header).expect("memory");
    for record in records {
        log.append(&[record]).expect("memory");
    }
}

/// Writes a `CURRENT` that names manifest 1.
pub fn name_it(storage: &MemoryStorage) {
    let said = "000001.manifest 0";
    let sum = xxhash_rust::xxh3::xxh3_64(said.as_bytes());
    put_file(storage, "CURRENT", Category::Manifest, format!("{said} {sum:016x}\n").as_bytes());
}

/// Options under which a made-up store is opened.
pub fn options(read_only: bool) -> Options {
    Options::default()
        .memory_budget_bytes(256 << 20)
        .background(Background::Manual)
        .wal_mode(WalMode::Write)
        .wal_segment_bytes(64 << 10)
        .seed(1)
        .read_only(read_only)
}

fn encode_again(record: &[u8]) {
    let mut reader = Reader::new(record);
    if reader.take_varint().is_err() {
        return;
    }
    let rest = reader.take(reader.remaining()).expect("what remains");
    if let Ok(changes) = decode(rest) {
        assert_eq!(decode(&encode(&changes)).as_ref(), Ok(&changes), "encoded and decoded");
    }
}

fn tell_again(state: &StoreState) {
    let changes = decode(&encode(&state.snapshot())).expect("own bytes");
    let mut told = StoreState::default();
    for change in &changes {
        told.apply(change).expect("a state that was accepted");
    }
    assert_eq!(&told, state, "the first record of a new manifest says the same");
}

fn open(storage: MemoryStorage, read_only: bool) {
    name_it(&storage);
    let Ok(store) = Store::open_on(Arc::new(storage), options(read_only)) else { return };
    // There is no table: the tables in the tree are reported as missing.
    let report = store.verify().expect("damage is collected");
    let mut tables = 0;
    for name in store.keyspaces() {
        let keyspace = store.keyspace(&name).expect("listed");
        tables += unstable::shape(&keyspace).tables().count();
        let _ = (unstable::level_targets(&keyspace), keyspace.value_usage());
        let _ = keyspace.get(b"key");
        if let Ok(mut cursor) = keyspace.cursor(ReadOptions::default()) {
            let _ = cursor.seek(b"key");
        }
    }
    assert_eq!(report.is_clean(), tables == 0 && report.damage.is_empty());
    assert!(report.damage.len() >= tables, "a missing table is told");
    let _ = (store.metrics(), store.close());
}
