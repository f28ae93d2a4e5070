//! Damage to the end of the manifest or of the log, where nothing after it reveals the damage. Each
//! of the two describes the other: records of the log say how much of the manifest is durable, and
//! edits say how much of the log is. Unsynced data may be lost; lost records are counted, and their
//! files are kept.

use std::path::Path;
use std::sync::{Arc, Mutex};

use runstone::seeded::Bug;
use runstone::storage::{MemoryStorage, Storage};
use runstone::{
    Background, Error, Event, EventListener, KeyspaceOptions, Options, SortedWriter, Store,
    ValuePlacement, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::found::holds_and_finds;

use super::synced::{last_of, used, zero};

/// What a store reported about a lost end of its log.
#[derive(Debug, Default)]
struct Lost(Mutex<Vec<(u64, Vec<String>)>>);

impl EventListener for Lost {
    fn on_event(&self, event: &Event) {
        if let Event::LogEndLost { records, kept } = event {
            self.0.lock().expect("sound").push((*records, kept.clone()));
        }
    }
}

fn options() -> Options {
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
}

pub(super) fn open(disk: &SimStorage) -> Result<Store, Error> {
    Store::open_on(Arc::new(disk.clone()), options())
}

/// Opens the store, with separated values if it is new: then a recovery begins with a new manifest.
pub(super) fn open_apart(disk: &SimStorage) -> Result<Store, Error> {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
    keyspace.values.placement = ValuePlacement::HashGrouped;
    keyspace.values.separate_at = 16;
    Store::open_on(Arc::new(disk.clone()), options().keyspace(keyspace))
}

pub(super) fn put(store: &Store, keyspace: &str, key: &str, sync: bool) {
    let options = if sync { WriteOptions::sync() } else { WriteOptions::default() };
    let keyspace = store.keyspace(keyspace).expect("is there");
    keyspace.put_with(key, [7; 100], options).expect("writes");
}

fn flip(disk: &SimStorage, name: &str, at: usize) {
    let mut bytes = disk.read_all(name).expect("is there");
    bytes[at] ^= 1;
    disk.overwrite(name, &bytes).expect("is there");
}

/// An edit that readers see but that has no record in the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    Load,
    Ingest,
    Make,
    Drop,
    Change,
}

pub(super) const EDITS: [Edit; 5] =
    [Edit::Load, Edit::Ingest, Edit::Make, Edit::Drop, Edit::Change];

pub(super) fn edit(store: &Store, edit: Edit) {
    let default = store.default_keyspace();
    let shorter = KeyspaceOptions::default().ttl_seconds(1 << 30);
    match edit {
        Edit::Load => drop(default.bulk_load([("loaded", "1")]).expect("loads")),
        Edit::Ingest => {
            let storage = Arc::new(MemoryStorage::new());
            let kept: Arc<dyn Storage> = Arc::clone(&storage) as Arc<dyn Storage>;
            let mut writer =
                SortedWriter::create_on(kept, "sorted.table", &default.options()).expect("makes");
            writer.put("loaded", "1").expect("writes");
            writer.finish().expect("finishes");
            default.ingest_from(&*storage, &["sorted.table"]).expect("ingests");
        }
        Edit::Make => drop(store.open_keyspace("made", None).expect("makes")),
        Edit::Drop => store.drop_keyspace("other").expect("drops"),
        Edit::Change => drop(store.open_keyspace("other", Some(shorter)).expect("changes")),
    }
}

/// A store that stopped after an edit and a later synced write. Returns its manifest without the
/// edit.
fn without(kind: Edit, is_apart: bool, writes_to_it: bool) -> (SimStorage, String) {
    let disk = SimStorage::new(1);
    let store = if is_apart { open_apart(&disk) } else { open(&disk) }.expect("opens");
    store.open_keyspace("other", None).expect("makes");
    put(&store, "other", "k", true);
    put(&store, "default", "k", true);
    let manifest = last_of(&disk, ".manifest");
    let before = used(&disk, &manifest);
    edit(&store, kind);
    let after = used(&disk, &manifest);
    assert!(after > before, "{kind:?}");
    let keyspace = if writes_to_it { "made" } else { "default" };
    put(&store, keyspace, "behind it", true);
    let left = disk.process_crash();
    zero(&left, &manifest, before..after);
    (left, manifest)
}

/// Once, a crashed store with a damaged end of its manifest opened without an error. A load was
/// lost, or a keyspace with its synced writes, or a drop or new options were undone, although there
/// were later synced writes. Now the log says how much of the manifest was durable.
#[test]
fn the_log_tells_of_a_lost_edit() {
    for (kind, is_apart) in EDITS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        holds_and_finds(Bug::EditsNotLogged, || {
            let (left, manifest) = without(kind, is_apart, false);
            for attempt in ["at once", "and again"] {
                let Err(refused) = open(&left) else { panic!("an edit is missing") };
                let Error::Corruption { file, .. } = &refused else {
                    panic!("{kind:?}, {attempt}: {refused}");
                };
                assert_eq!(*file, manifest, "{kind:?}, {attempt}: {refused}");
            }
        });
    }
}

/// Without the log record that says how much of the manifest is durable, a write to a keyspace that
/// no edit has made reveals the lost edit.
#[test]
fn a_write_to_no_keyspace_tells_of_a_lost_edit() {
    let (left, _) =
        runstone::seeded::with(Bug::EditsNotLogged, || without(Edit::Make, false, true));
    let Err(refused) = open(&left) else { panic!("the keyspace is missing") };
    assert!(refused.is_corruption() && refused.to_string().contains("no edit has made"));
}

/// The id of a dropped keyspace is not used again, so its records in the log are skipped.
#[test]
fn a_dropped_keyspace_leaves_its_writes_behind() {
    let disk = SimStorage::new(1);
    let store = open(&disk).expect("opens");
    store.open_keyspace("other", None).expect("makes");
    put(&store, "default", "k", true);
    put(&store, "other", "k", true);
    store.drop_keyspace("other").expect("drops");
    store.open_keyspace("next", None).expect("makes");
    put(&store, "next", "own", true);
    let store = open(&disk.process_crash()).expect("opens");
    assert!(store.keyspace("other").is_err());
    let next = store.keyspace("next").expect("is there");
    assert_eq!(next.iter().expect("opens").count(), 1, "nothing of the dropped one");
}

/// Once, the last segment of the log was damaged, and a synced write was lost while a later edit
/// stayed. Edits that make or change a keyspace did not say how much of the log was durable. Now
/// each edit does.
#[test]
fn an_edit_tells_of_a_lost_end_of_the_log() {
    for (kind, cut) in EDITS.into_iter().flat_map(|kind| [(kind, "header"), (kind, "record")]) {
        holds_and_finds(Bug::ShortLogsPass, || {
            let disk = SimStorage::new(1);
            let store = open(&disk).expect("opens");
            store.open_keyspace("other", None).expect("makes");
            put(&store, "default", "before", true);
            edit(&store, kind);
            let left = disk.process_crash();
            let log = last_of(&left, ".wal");
            let end = used(&left, &log);
            match cut {
                "header" => zero(&left, &log, 0..end),
                _ => zero(&left, &log, 130..end),
            }
            let Err(refused) = open(&left) else { panic!("a synced write is missing") };
            let Error::Corruption { file, .. } = &refused else {
                panic!("{kind:?}, {cut}: {refused}");
            };
            assert_eq!(*file, log, "{kind:?}, {cut}: {refused}");
        });
    }
}

/// A store that was closed has no log, whatever its last edit says was durable.
#[test]
fn a_closed_store_needs_no_log() {
    for flush_at_close in [true, false] {
        for kind in EDITS {
            let disk = SimStorage::new(1);
            let reopen = || {
                let options = options().flush_at_close(flush_at_close);
                Store::open_on(Arc::new(disk.clone()), options).expect("opens")
            };
            let store = reopen();
            store.open_keyspace("other", None).expect("makes");
            put(&store, "default", "k", true);
            store.flush().expect("flushes");
            edit(&store, kind);
            store.close().expect("closes");
            let store = reopen();
            edit(&store, Edit::Load);
            store.close().expect("closes");
            reopen().close().expect("closes");
        }
    }
}

/// Unsynced writes, with one flipped bit near their beginning.
fn torn() -> SimStorage {
    let disk = SimStorage::new(1);
    let store = open(&disk).expect("opens");
    put(&store, "default", "synced", true);
    (0..2_000).for_each(|i| put(&store, "default", &format!("key{i:05}"), false));
    let left = disk.process_crash();
    let names = left.list().expect("lists").into_iter().map(|file| file.name);
    let first = names.filter(|name| name.ends_with(".wal")).min().expect("a log");
    flip(&left, &first, 10_000);
    left
}

/// Once, one flipped bit in an unsynced log lost everything after it, and only a subscriber of
/// `tracing` was informed. Such damage cannot be distinguished from a power loss, so it is not an
/// error. But `verify` counts the records, the open notifies its listener, and the segments are
/// kept under another name.
#[test]
fn a_lost_end_of_the_log_is_counted_and_kept() {
    let disk = torn();
    let reading = options().read_only(true);
    let store = Store::open_on(Arc::new(disk.clone()), reading).expect("opens");
    let report = store.verify().expect("verifies");
    assert!(report.is_clean() && report.lost_records > 1_500, "{report:?}");
    drop(store);

    let lost = Arc::new(Lost::default());
    let listener = Arc::clone(&lost) as Arc<dyn EventListener>;
    let store = Store::open_on(Arc::new(disk.clone()), options().listener(listener));
    let store = store.expect("opens");
    let (records, kept) = lost.0.lock().expect("sound").pop().expect("it was told");
    assert_eq!(records, report.lost_records);
    assert_eq!(store.verify().expect("verifies").lost_records, records);
    assert_eq!(store.metrics().counters.log_records_lost, records);
    let count = store.default_keyspace().iter().expect("opens").count() as u64;
    // The damaged record itself does not count as lost.
    assert_eq!(count + records, 2_000);
    let dump = |name: &String| runstone::dump::dump_file(&disk, name, true).expect("dumps");
    assert!(kept.len() > 1 && kept.iter().all(|name| name.starts_with("lost-")), "{kept:?}");
    assert!(kept.iter().any(|name| dump(name).contains("key01999")));

    store.checkpoint("/copy").expect("copies");
    let copy = disk.open_sibling(Path::new("/copy")).expect("is there");
    let is_lost = |name: &str| name.starts_with("lost-");
    assert!(!copy.list().expect("lists").iter().any(|file| is_lost(&file.name)));
    store.close().expect("closes");
    let store = open(&disk).expect("opens");
    assert_eq!(store.verify().expect("verifies").lost_records, 0, "told once");
    assert_eq!(store.default_keyspace().iter().expect("opens").count() as u64, count);
}

/// Kept segments take at most 64 MiB together. The oldest are removed.
#[test]
fn kept_segments_have_a_limit() {
    let disk = torn();
    for number in [900_001, 900_002] {
        let name = format!("lost-{number:06}.wal");
        let file = disk.create(&name, runstone::storage::Category::Wal).expect("makes");
        file.set_len((64 << 20) - 100).expect("grows");
        file.sync().expect("syncs");
    }
    let store = open(&disk).expect("opens");
    let names: Vec<String> = disk.list().expect("lists").into_iter().map(|f| f.name).collect();
    let kept: Vec<&String> = names.iter().filter(|name| name.starts_with("lost-")).collect();
    assert_eq!(kept, ["lost-900002.wal"], "the newest that fits");
    store.put("goes", "on").expect("writes");
}

/// One of two copies of a header is enough to read a file. Once, `verify` did not report damage to
/// the other copy.
#[test]
fn verify_tells_of_a_damaged_copy_of_a_header() {
    for ending in [".wal", ".manifest"] {
        for at in [20, 64 + 20] {
            let disk = SimStorage::new(1);
            let store = open(&disk).expect("opens");
            put(&store, "default", "k", true);
            assert!(store.verify().expect("verifies").is_clean());
            let name = last_of(&disk, ending);
            flip(&disk, &name, at);
            let damage = store.verify().expect("verifies").damage;
            assert!(damage.iter().any(|damage| damage.file == name), "{damage:?}");
        }
    }
}
