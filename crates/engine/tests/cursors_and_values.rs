//! What cursors and values show, and which memory they hold, after flushes. The random walks are in
//! `testing/sim/tests/model/standing.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Clock, Cursor, Error, KeyspaceOptions, Options, ReadOptions, Store, ValuePlacement,
    WalMode,
};

fn options(placement: ValuePlacement, separate_at: u32) -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(4 << 20);
    keyspace.values.placement = placement;
    keyspace.values.separate_at = separate_at;
    keyspace.values.groups = 1;
    Options::default()
        .memory_budget_bytes(64 << 20)
        .wal_mode(WalMode::Write)
        .background(Background::Manual)
        .keyspace(keyspace)
}

fn first(store: &Store) -> Cursor {
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek_to_first().expect("reads");
    cursor
}

/// Changes a byte in the middle of a value that repeats a single byte.
fn damage(storage: &MemoryStorage, name: &str, byte: u8) {
    let file = storage.open(name, Category::Value).expect("is there");
    let mut bytes = vec![0; file.len().expect("known") as usize];
    file.read_at(0, &mut bytes).expect("reads");
    let at = bytes.windows(100).position(|window| window == [byte; 100]).expect("is there");
    file.write_at(at as u64 + 3_000, &[!byte]).expect("writes");
}

/// Guards against a bug: a value that was read ahead, after a value that could not be read, was
/// pinned as an empty value if a flush had run.
#[test]
fn a_value_behind_a_damaged_one_is_pinned_whole() {
    for placement in [ValuePlacement::HashGrouped, ValuePlacement::Vlog] {
        let storage = MemoryStorage::new();
        let store = Store::open_on(Arc::new(storage.clone()), options(placement, 200));
        let store = store.expect("opens");
        (0..10u8).for_each(|i| store.put([i], [i; 6_000]).expect("puts"));
        store.flush().expect("flushes");
        damage(&storage, &store.default_keyspace().value_usage()[0].file, 4);
        let mut cursor = first(&store);
        let steps: Vec<bool> = (0..5).map(|_| cursor.next().is_ok()).collect();
        assert_eq!(steps, [true, true, true, false, true], "{placement:?}");
        store.put("more", "writes").expect("puts");
        store.flush().expect("flushes");
        assert_eq!(cursor.key(), [5]);
        assert!(cursor.value() == [5; 6_000] && cursor.pin_value() == [5; 6_000][..]);
    }
}

/// Guards against a bug: a cursor that could not continue in a closed store reported this only
/// once. A later seek found nothing, as if the keyspace were empty.
#[test]
fn seeks_after_the_close_do_not_look_like_the_end() {
    let store =
        Store::open_on(Arc::new(MemoryStorage::new()), options(ValuePlacement::Inline, 200));
    let store = store.expect("opens");
    (0..100u8).for_each(|i| store.put([i], [i; 100]).expect("puts"));
    let mut cursor = first(&store);
    store.flush().expect("flushes");
    store.close().expect("closes");
    assert_eq!(cursor.key(), [0]);
    for _ in 0..2 {
        assert!(matches!(cursor.next(), Err(Error::Closed)));
        assert!(matches!(cursor.seek([7]), Err(Error::Closed)));
        assert!(matches!(cursor.seek_for_prev([7]), Err(Error::Closed)));
        assert!(matches!(cursor.seek_to_first(), Err(Error::Closed)));
        assert!(matches!(cursor.seek_to_last(), Err(Error::Closed)));
        assert!(matches!(cursor.prev(), Err(Error::Closed)));
    }
}

/// Once, a cursor that read ahead and then moved to the end kept the entries that it had read
/// ahead, and with them flushed memtables.
#[test]
fn a_cursor_lets_go_of_what_it_read_ahead_before() {
    let options = options(ValuePlacement::HashGrouped, 20_000);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    store.put("separated", [1; 30_000]).expect("puts");
    store.flush().expect("flushes");
    (0..200u8).for_each(|i| store.put([i], [i; 10_000]).expect("puts"));
    let mut cursor = first(&store);
    (0..40).for_each(|_| cursor.next().expect("steps"));
    cursor.seek_to_last().expect("seeks");
    store.flush().expect("flushes");
    let held = store.metrics().memory.held_bytes;
    assert!((10_000..=20_000).contains(&held), "{held} bytes for a value of 10,000");
}

/// Once, an idle cursor kept value files that had been removed from the store: their space was
/// freed only after its next step.
#[test]
#[cfg(target_os = "linux")]
fn a_cursor_lets_go_of_value_files_that_left() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(dir.path(), options(ValuePlacement::Vlog, 200)).expect("opens");
    (0..100u8).for_each(|i| store.put([i], [i; 10_000]).expect("puts"));
    store.flush().expect("flushes");
    (0..100u8).for_each(|i| store.delete([i]).expect("deletes"));
    store.put("left", "alone").expect("puts");
    let cursor = first(&store);
    let inline = options(ValuePlacement::Inline, 200).keyspace;
    store.open_keyspace("default", inline).expect("changes the options");
    store.compact().expect("compacts");
    while store.run_one_job().expect("runs") {}
    let files = std::fs::read_dir("/proc/self/fd").expect("lists");
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let of_store = names.filter(|name| name.starts_with(dir.path()));
    let gone: Vec<_> = of_store.filter(|name| name.to_string_lossy().contains("deleted")).collect();
    assert!(gone.is_empty(), "{gone:?} under {:?}", cursor.key());
    let names = std::fs::read_dir(dir.path()).expect("lists").map(|file| file.expect("a file"));
    assert!(names.map(|file| file.path()).all(|path| path.extension() != Some("values".as_ref())));
}

#[derive(Debug, Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn unix_millis(&self) -> u64 {
        1_000_000 + self.0.load(Relaxed)
    }
}

/// Once, expired entries were never removed as long as a new cursor was opened before the previous
/// one was dropped, although the entries had expired long before.
#[test]
fn what_has_expired_goes_while_cursors_come_and_go() {
    let clock = Arc::new(Ticks::default());
    let own = options(ValuePlacement::Inline, 200);
    let options = own.clock(Arc::clone(&clock) as _);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let keyspace = store.default_keyspace();
    let mut last = first(&store);
    for round in 0..20u32 {
        for i in 0..100u32 {
            let key = (round * 100 + i).to_be_bytes();
            keyspace.put_with_ttl(key, [1; 100], Duration::from_millis(10)).expect("puts");
        }
        let next = first(&store);
        drop(std::mem::replace(&mut last, next));
        clock.0.fetch_add(100, Relaxed);
        store.compact().expect("compacts");
        let entries: u64 = unstable::shape(keyspace).tables().map(|(_, table)| table.entries).sum();
        assert!(entries <= 300, "{entries} in round {round}");
        assert!(last.valid() && last.key() == (round * 100).to_be_bytes(), "it saw this one");
        last.seek((round * 100 + 99).to_be_bytes()).expect("reads");
        assert!(last.valid(), "it began before that expired");
    }
}

/// Once, a large value kept the pages of all large values of its memtable that had been held at the
/// same time.
#[test]
fn a_value_keeps_no_pages_of_others_that_were_dropped() {
    let store =
        Store::open_on(Arc::new(MemoryStorage::new()), options(ValuePlacement::Inline, 200));
    let store = store.expect("opens");
    let lens = [5_000, 30_000, 300_000];
    let value = |i: u8| vec![i; lens[usize::from(i % 3)]];
    (0..24u8).for_each(|i| store.put([i], value(i)).expect("puts"));
    let get = |i: u8| store.get([i]).expect("reads").expect("is there");
    let mut kept: Vec<_> = (0..24u8).map(|i| (i, get(i))).collect();
    store.flush().expect("flushes");
    while let Some((i, len)) = kept.first().map(|(i, value)| (*i, value.len())) {
        assert!(kept.iter().all(|(i, kept)| *kept == value(*i)[..]), "beside {i}");
        let sum: usize = kept.iter().map(|(_, value)| value.len() + (8 << 10)).sum();
        let held = store.metrics().memory.held_bytes;
        assert!((len as u64..=sum as u64).contains(&held), "{held} bytes for {sum}");
        kept.remove(0);
    }
    assert_eq!(store.metrics().memory.held_bytes, 0);
}
