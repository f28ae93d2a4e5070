//! Value files: any layout in the manifest, any pointers in the log, any bytes as the file.
//!
//! ```text
//! input  flags u8 | manifest change: layout | log record with pointers | store's uid u64
//!        | value file
//! ```
//!
//! Change, record and uid are parts, see `parts`. With a flag, checksums of records are not
//! checked.
//!
//! 1. A store with this value file and these pointers is opened, verified and read.
//! 2. A value that a pointer leads to has the length in the pointer, and is in the file.
//! 3. If checksums are checked, scans and gets agree.

use std::sync::Arc;

use runstone::dump::dump_file;
use runstone::seeded::{Bug, with};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::testing::{
    Change, KeyspaceOptions, KeyspaceState, Layout, LogHeader, LogKind, LogWriter, StoreState,
    decode, encode,
};
use runstone::{GcPointers, ReadOptions, Result, Store};

use super::manifest::{name_it, options, write_records};
use super::parts::{Part, parts, put_file};

const UNCHECKED: u8 = 1;
const READ_ONLY: u8 = 2;

/// Judges an input.
pub fn judge(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let [layout, pointers, uid, ..] = parts(rest)[..] else { return };
    let Ok(uid) = uid.bytes.try_into().map(u64::from_le_bytes) else { return };
    let file = &rest[14 + layout.bytes.len() + pointers.bytes.len()..];
    let look = || look(layout, pointers, uid, file, *flags);
    match flags & UNCHECKED {
        0 => look(),
        _ => with(Bug::RecordsUnchecked, look),
    }
}

/// The first number of the log: larger than the numbers of all records.
pub const LOG_START_SEQ: u64 = 1 << 40;

fn look(layout: Part<'_>, pointers: Part<'_>, uid: u64, file: &[u8], flags: u8) {
    let (read_only, is_checked) = (flags & READ_ONLY != 0, flags & UNCHECKED == 0);
    // Only the layout is made up here; the target `manifest` covers the rest.
    let Ok(changes) = decode(layout.bytes) else { return };
    let [Change::ValueFile { id: 0, layout }] = &changes[..] else { return };
    let storage = MemoryStorage::new();
    let state = state(uid, layout);
    write_store(&storage, &state, encode(&changes), pointers.bytes);
    let name = format!("{:06}.values", layout.number);
    put_file(&storage, &name, Category::Value, file);
    let _ = dump_file(&storage, &name, true);
    let Ok(store) = Store::open_on(Arc::new(storage), options(read_only)) else { return };
    let _ = store.verify().map(|report| report.is_clean());
    let _ = read(&store, file, is_checked);
    if !read_only {
        let _ = (store.collect_values(), store.flush(), store.compact());
        let _ = read(&store, file, is_checked);
    }
    let _ = store.close();
}

/// A store without tables, with the options of the layout, or with the defaults if those are
/// invalid.
fn state(uid: u64, layout: &Layout) -> StoreState {
    let mut options = KeyspaceOptions::default();
    options.values.placement = layout.placement;
    options.values.separate_at = 1;
    options.values.groups = layout.group_count();
    options.values.slot_bytes = layout.slot_bytes;
    if layout.writes_back {
        options.values.gc_pointers = GcPointers::Writeback;
        options.values.cold_stream = layout.has_cold;
    }
    if options.check().is_err() {
        options = KeyspaceOptions::default();
    }
    let keyspace = KeyspaceState::new("default".to_string(), options.to_toml());
    StoreState {
        uid,
        next_file: 3,
        last_seq: LOG_START_SEQ - 1,
        log_floor: 2,
        log_start_seq: LOG_START_SEQ,
        log_synced_seq: 0,
        next_keyspace: 1,
        has_no_log: false,
        keyspaces: [(0, keyspace)].into(),
        ..StoreState::default()
    }
}

fn write_store(storage: &MemoryStorage, state: &StoreState, layout: Vec<u8>, pointers: &[u8]) {
    let first = [vec![0], encode(&state.snapshot())].concat();
    let second = [vec![0], layout].concat();
    write_records(storage, &[&first, &second]);
    name_it(storage);
    let file = storage.create("000002.wal", Category::Wal).expect("a new name");
    let header = LogHeader { number: 2, id: 0x5eed, manifest: 0 };
    let mut log = LogWriter::create(file, LogKind::Wal, header).expect("memory");
    log.append(&[pointers]).expect("memory");
}

fn read(store: &Store, file: &[u8], is_checked: bool) -> Result<()> {
    let keyspace = store.default_keyspace();
    let mut cursor = keyspace.cursor(ReadOptions::default())?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        let found = keyspace.get(cursor.key())?;
        let value = cursor.value();
        // Without checksums, the get and the scan may differ: one believes the pointer, the other
        // the record.
        if is_checked {
            assert!(found.as_deref() == Some(value), "get and scan agree on {:?}", cursor.key());
        }
        let is_there = value.is_empty() || file.windows(value.len()).any(|piece| piece == value);
        assert!(is_there || value.len() < 256, "a value that is in no file");
        cursor.next()?;
    }
    Ok(())
}
