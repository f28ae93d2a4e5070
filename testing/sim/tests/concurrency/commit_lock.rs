//! Counts the work under the commit lock, which must be the same for a user who does little and for
//! one who does much. Also tests that commits which look at new writes without the lock miss none
//! of them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::{Category, MemoryStorage};
use runstone::{
    Background, Batch, Error, Keyspace, KeyspaceOptions, Options, ReadOptions, Store, Transaction,
    TransactionOptions, ValueOptions, ValuePlacement, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::found::panics;

const SIZES: [u64; 3] = [10, 1_000, 100_000];

/// The largest number of entries under one hold of the lock.
const MOST_ENTRIES: u64 = 4_096;
const MOST_BYTES: u64 = 256 << 10;

/// The most work that a write of a few hundred bytes may do under the lock.
const LITTLE: u64 = 512;

fn options() -> Options {
    Options::default().background(Background::Manual)
}

fn open() -> Arc<Store> {
    Arc::new(Store::open_on(Arc::new(MemoryStorage::new()), options()).expect("opens"))
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

/// The largest numbers of entries and bytes so far.
fn held(store: &Store) -> (u64, u64) {
    let metrics = store.metrics();
    (metrics.commit_lock_peak_entries, metrics.commit_lock_peak_bytes)
}

fn begin(store: &Store) -> Transaction {
    let options =
        TransactionOptions::serializable().max_tracked_bytes(256 << 20).max_write_bytes(256 << 20);
    store.begin(options).expect("begins")
}

fn commit(transaction: Transaction) -> Result<(), Error> {
    transaction.commit(WriteOptions::default())
}

fn is_conflict(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::Conflict { .. }))
}

/// Makes others write this many keys, which nobody else uses, between the check of a transaction
/// and its lock.
fn write_at_the_check(store: &Arc<Store>, count: u64) {
    let keyspace = store.default_keyspace().clone();
    seeded::step_in(Waypoint::TransactionChecked, move || {
        (0..count).for_each(|i| keyspace.put(format!("other{i}"), "x").expect("puts"));
    });
}

/// Once, optimistic commits looked at all locks that pessimistic transactions hold, under the lock.
#[test]
fn locks_of_others_cost_a_commit_nothing_under_the_lock() {
    for count in SIZES {
        let store = open();
        let keyspace = store.default_keyspace();
        let options = TransactionOptions::pessimistic().max_locks(1 << 20);
        let mut other = store.begin(options).expect("begins");
        for number in 0..count {
            other.get_for_update(keyspace, key(number)).expect("locks");
        }
        let mut one = begin(&store);
        for number in 0..100 {
            one.delete_range(keyspace, format!("a{number}")..format!("a{number}x")).expect("adds");
            one.put(keyspace, format!("b{number}"), "own").expect("adds");
        }
        write_at_the_check(&store, 100);
        commit(one).expect("nobody is in the way");
        assert!(seeded::has_stepped_in());
        assert!(held(&store).0 <= LITTLE, "{count} locks: {:?}", held(&store));
        let mut one = begin(&store);
        one.delete_range(keyspace, "key".."kez").expect("adds");
        assert!(is_conflict(&commit(one)));
    }
}

/// Once, the check under the lock searched each memtable for each key that was read, and walked
/// each range that was scanned.
#[test]
fn what_a_transaction_read_costs_nothing_under_the_lock() {
    for (count, are_spans) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let store = open();
        let keyspace = store.default_keyspace();
        let mut one = begin(&store);
        for number in 0..count {
            match are_spans {
                false => drop(one.get(keyspace, key(number)).expect("reads")),
                true => {
                    let range = key(number)..[&key(number)[..], b"x"].concat();
                    assert_eq!(one.range(keyspace, range).expect("opens").count(), 0);
                }
            }
        }
        one.put(keyspace, "own", "1").expect("adds");
        write_at_the_check(&store, 500);
        commit(one).expect("nobody is in the way");
        assert!(seeded::has_stepped_in());
        // These are the writes that arrived during the check, each examined once, and the writes of
        // the commit itself.
        let entries = held(&store).0;
        assert!((500..600).contains(&entries), "{count} reads: {entries} looked at");
    }
}

/// A commit looks at few writes under the lock, however many writes arrived during its check.
#[test]
fn writes_between_cost_a_commit_little_under_the_lock() {
    for count in SIZES {
        for is_late in [false, true] {
            let store = open();
            let keyspace = store.default_keyspace();
            let mut one = begin(&store);
            assert!(one.get(keyspace, "read").expect("reads").is_none());
            one.put(keyspace, "own", "1").expect("adds");
            match is_late {
                true => write_at_the_check(&store, count),
                false => (0..count).for_each(|i| keyspace.put(key(i), "x").expect("puts")),
            }
            commit(one).expect("nobody is in the way");
            assert!(seeded::has_stepped_in());
            let (entries, bytes) = held(&store);
            assert!(entries < 1_100 && bytes <= LITTLE, "{count}: {entries}, {bytes}");
            let is_seen = is_late && count == 10;
            assert_eq!(entries >= count, is_seen, "{count}: {entries}");
        }
    }
}

/// Writes enough keys to make another look necessary, and does the same again at the next look.
fn write_for_ever(keyspace: Keyspace, round: u64, rounds: u64) {
    if round < rounds {
        seeded::step_in(Waypoint::TransactionChecked, move || {
            (0..1_500).for_each(|i| keyspace.put(key(i), "x").expect("puts"));
            write_for_ever(keyspace, round + 1, rounds);
        });
    }
}

/// If writers are faster than every look of a transaction, the transaction ends with a conflict.
/// Below the limit of looks, repeated looks do no harm.
#[test]
fn a_commit_that_others_are_too_fast_for_is_a_conflict() {
    for (rounds, is_outrun) in [(1, false), (15, false), (16, true)] {
        let store = open();
        let keyspace = store.default_keyspace();
        let mut one = begin(&store);
        assert!(one.get(keyspace, "read").expect("reads").is_none());
        one.put(keyspace, "own", "1").expect("adds");
        write_for_ever(keyspace.clone(), 0, rounds);
        let outcome = commit(one);
        assert_eq!(is_conflict(&outcome), is_outrun, "{rounds} rounds: {outcome:?}");
        assert_eq!(keyspace.get("own").expect("reads").is_none(), is_outrun);
        assert_eq!(store.metrics().counters.transaction_conflicts, u64::from(is_outrun));
        assert!(seeded::has_stepped_in() && held(&store).0 < MOST_ENTRIES);
        // Nothing of the transaction remains.
        keyspace.put("own", "2").expect("puts");
    }
}

/// Changes that arrive during the check and conflict with the reads of the transaction: a write
/// among few and among many, a range delete, a large batch, a load.
#[test]
fn what_comes_at_the_check_conflicts_if_it_touches() {
    type Write = fn(&Keyspace, &str);
    let writes: [Write; 6] = [
        |keyspace, at| keyspace.put(at, "other").expect("puts"),
        |keyspace, at| keyspace.delete(at).expect("deletes"),
        |keyspace, at| {
            (0..3_000).for_each(|i| keyspace.put(key(i), "x").expect("puts"));
            keyspace.put(at, "other").expect("puts");
            (0..3_000).for_each(|i| keyspace.put(key(i), "x").expect("puts"));
        },
        |keyspace, at| keyspace.delete_range(at..&*format!("{at}x")).expect("deletes"),
        |keyspace, at| keyspace.put(at, vec![1; 512 << 10]).expect("puts"),
        |keyspace, at| assert_eq!(keyspace.bulk_load([(at, "other")]).expect("loads"), 1),
    ];
    let reads: [fn(&mut Transaction, &Keyspace); 4] = [
        |one, keyspace| drop(one.get(keyspace, "k5").expect("reads")),
        |one, keyspace| one.put(keyspace, "k5", "own").expect("adds"),
        |one, keyspace| {
            let options = ReadOptions::default().with_range("k4".."k6");
            assert_eq!(one.scan(keyspace, options).expect("scans").count(), 0);
        },
        |one, keyspace| one.delete_range(keyspace, "k4".."k6").expect("adds"),
    ];
    for (number, write) in writes.iter().enumerate() {
        for read in reads {
            for (at, is_touched) in [("k5", true), ("k7", false)] {
                let store = open();
                let keyspace = store.default_keyspace().clone();
                let mut one = begin(&store);
                read(&mut one, &keyspace);
                one.put(&keyspace, "own", "1").expect("adds");
                let (write, other) = (*write, keyspace.clone());
                seeded::step_in(Waypoint::TransactionChecked, move || write(&other, at));
                let outcome = commit(one);
                assert_eq!(is_conflict(&outcome), is_touched, "{number}, {at}: {outcome:?}");
                assert!(seeded::has_stepped_in());
                assert_eq!(keyspace.contains_key("own").expect("reads"), !is_touched);
            }
        }
    }
}

/// A pessimistic transaction that begins between the check of a commit and its lock is noticed.
#[test]
fn a_lock_that_is_taken_at_the_check_conflicts() {
    for (at, is_touched) in [("own", true), ("else", false)] {
        let store = open();
        let keyspace = store.default_keyspace().clone();
        let mut one = begin(&store);
        one.put(&keyspace, "own", "1").expect("adds");
        let (hold, held) = std::sync::mpsc::channel();
        let (other, locked) = (Arc::clone(&store), keyspace.clone());
        seeded::step_in(Waypoint::TransactionChecked, move || {
            let mut two = other.begin(TransactionOptions::pessimistic()).expect("begins");
            assert!(two.get_for_update(&locked, at).expect("locks").is_none());
            hold.send(two).expect("the test waits");
        });
        assert_eq!(is_conflict(&commit(one)), is_touched, "{at}");
        drop(held.recv().expect("it stepped in"));
        keyspace.put("own", "2").expect("puts");
    }
}

/// A batch of any size copies little under the lock, and shows all of it or nothing.
#[test]
fn a_batch_copies_little_under_the_lock() {
    for count in SIZES {
        for (is_transaction, value) in [(false, 100), (true, 100), (false, 1)] {
            let store = open();
            let keyspace = store.default_keyspace();
            let (mut batch, mut one) = (Batch::new(), begin(&store));
            for number in 0..count {
                match is_transaction {
                    false => batch.put(keyspace, key(number), vec![7; value]).expect("adds"),
                    true => one.put(keyspace, key(number), vec![7; value]).expect("adds"),
                }
            }
            match is_transaction {
                false => store.write(&batch, WriteOptions::default()).expect("writes"),
                true => commit(one).expect("commits"),
            }
            let (entries, bytes) = held(&store);
            assert!(bytes <= MOST_BYTES && entries < 10, "{count}: {entries}, {bytes}");
            assert_eq!(keyspace.iter().expect("opens").count() as u64, count);
        }
    }
}

/// Both kinds of logs, whose places for long records are in memory or on the disk.
const MODES: [WalMode; 2] = [WalMode::Mapped, WalMode::Write];

/// A store on a disk that can fail, with a batch whose record is long.
fn with_long_batch(mode: WalMode) -> (SimStorage, Arc<Store>, Batch) {
    let storage = SimStorage::new(1);
    let options = options().wal_mode(mode);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    let mut batch = Batch::new();
    for number in 0..5_000 {
        batch.put(store.default_keyspace(), key(number), [7; 100]).expect("adds");
    }
    store.put("before", "1").expect("puts");
    (storage, Arc::new(store), batch)
}

/// The number of keys of the batch, and whether the writes before it and after it are there.
fn counts(store: &Store) -> (usize, bool, bool) {
    let keyspace = store.default_keyspace();
    let has = |key: &str| keyspace.contains_key(key).expect("reads");
    (keyspace.prefix("key").expect("opens").count(), has("before"), has("behind"))
}

/// Writes the batch. While its record is not written yet, another thread makes a synced write after
/// it. Then `meanwhile` runs. Returns the outcome of both writes.
fn write_behind(
    (storage, store, batch): &(SimStorage, Arc<Store>, Batch),
    meanwhile: impl FnOnce(&Store) + 'static,
) -> [Result<(), Error>; 2] {
    let (beside, disk) = (Arc::clone(store), storage.clone());
    let (tell, told) = mpsc::channel();
    seeded::step_in(Waypoint::RecordPlaced, move || {
        let (other, ops) = (Arc::clone(&beside), disk.ops());
        let writer = thread::spawn(move || {
            other.default_keyspace().put_with("behind", "2", WriteOptions::sync())
        });
        // Waits until the other write has taken the lock and its record is in the log.
        while disk.ops() == ops {
            thread::yield_now();
        }
        assert_eq!(counts(&beside), (0, true, false), "readers see whole batches in order");
        assert!(!writer.is_finished(), "it is behind a record that is not written");
        meanwhile(&beside);
        tell.send(writer).expect("the test waits");
    });
    let outcome = store.write(batch, WriteOptions::default());
    [outcome, told.recv().expect("it stepped in").join().expect("no panic")]
}

/// While a long record is written, the lock is free. If the process is killed or the power is cut
/// then, the earlier writes stay. No later write was acknowledged.
#[test]
fn a_store_that_ends_within_a_long_record_has_what_was_acknowledged() {
    for (seed, mode) in (0..5).flat_map(|seed| MODES.map(|mode| (seed, mode))) {
        let scene = with_long_batch(mode);
        let (disk, (tell, told)) = (scene.0.clone(), mpsc::channel());
        scene.1.sync().expect("syncs");
        // Another test checks what happens to the store that was copied.
        let _ = write_behind(&scene, move |_| {
            let copy = if seed == 0 { disk.process_crash() } else { disk.power_cut(seed).0 };
            tell.send(copy).expect("the test waits");
        });
        let copy = told.recv().expect("it was told");
        let copy = Store::open_on(Arc::new(copy), options()).expect("opens");
        assert_eq!(counts(&copy), (0, true, false), "{seed}, {mode:?}");
    }
    for mode in MODES {
        let scene = with_long_batch(mode);
        let outcomes = write_behind(&scene, |_| {});
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let copy = Store::open_on(Arc::new(scene.0.power_cut(1).0), options()).expect("opens");
        assert_eq!(counts(&copy), (5_000, true, true), "the sync covers the record");
    }
}

/// A long record that cannot be written leaves a gap: the store stops, and no later write is
/// acknowledged.
#[test]
fn a_long_record_that_fails_stops_what_is_behind_it() {
    for mode in MODES {
        let scene = with_long_batch(mode);
        let (storage, store) = (scene.0.clone(), Arc::clone(&scene.1));
        let disk = storage.clone();
        let outcomes = write_behind(&scene, move |_| {
            let (kind, category) = (FaultKind::Eio, Some(Category::Wal));
            disk.inject(Fault { at_op: disk.ops(), kind, sticky: false, category });
        });
        let is_stopped =
            |outcome: &Result<(), Error>| matches!(outcome, Err(Error::Stopped { .. }));
        assert!(outcomes.iter().all(is_stopped), "{outcomes:?}");
        assert!(store.put("later", "3").is_err() && store.sync().is_err());
        let copy = Store::open_on(Arc::new(storage.process_crash()), options()).expect("opens");
        assert_eq!(counts(&copy), (0, true, false));
    }
}

/// On a file system that writes to new blocks only, a reservation of space promises nothing. A long
/// record was once written after such a reservation, and a full disk stopped the store.
#[test]
fn a_long_record_waits_for_space_where_none_can_be_reserved() {
    let (storage, store, batch) = with_long_batch(WalMode::Write);
    storage.reserve_nothing();
    let (kind, category) = (FaultKind::NoSpace, Some(Category::Wal));
    storage.inject(Fault { at_op: storage.ops(), kind, sticky: true, category });
    let refused = store.write(&batch, WriteOptions::default()).expect_err("the disk is full");
    assert!(refused.is_no_space(), "{refused}");
    storage.clear_faults();
    store.write(&batch, WriteOptions::default()).expect("there is space again");
    assert_eq!(counts(&store), (5_000, true, false));
}

/// A collection writes pointers when all earlier writes are visible, and holds the lock while it
/// waits for that. Once, it waited for a long record in this way, but the writer of the record
/// needs the lock to report that it is written.
#[test]
fn a_collection_does_not_hold_the_lock_for_a_long_record() {
    let values = ValueOptions::default()
        .placement(ValuePlacement::Vlog)
        .separate_at(500)
        .slot_bytes(4096)
        .reserve(100.0)
        .vlog_chunk_bytes(8192);
    let options = options().keyspace(KeyspaceOptions::default().values(values));
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let store = Arc::new(store);
    for count in [10, 5] {
        (0..count).for_each(|i| store.put(key(i), [7; 1_000]).expect("puts"));
        store.flush().expect("flushes");
    }
    let mut batch = Batch::new();
    for number in 100..5_100 {
        batch.put(store.default_keyspace(), key(number), [7; 100]).expect("adds");
    }
    let (tell, told) = mpsc::channel();
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::RecordPlaced, move || {
        let (copied, is_copied) = mpsc::channel();
        let collecting = Arc::clone(&beside);
        let collector = thread::spawn(move || {
            seeded::step_in(Waypoint::GroupCopied, move || copied.send(()).expect("is awaited"));
            collecting.collect_values()
        });
        is_copied.recv().expect("there is something to collect");
        // Each read of the metrics takes the lock, so a thread that waits for this one must not
        // hold it.
        for _ in 0..1_000 {
            assert_eq!(beside.metrics().counters.value_collections, 0);
            thread::yield_now();
        }
        tell.send(collector).expect("the test waits");
    });
    store.write(&batch, WriteOptions::default()).expect("writes");
    assert!(seeded::has_stepped_in());
    told.recv().expect("it stepped in").join().expect("no panic").expect("collects");
    assert!(store.metrics().counters.value_pointers_written > 0);
    let keyspace = store.default_keyspace();
    assert_eq!(keyspace.prefix("key").expect("opens").count(), 5_010);
}

/// A store without a log, whose checkpoints flush, with a write in each keyspace.
fn with_keyspaces(count: u64) -> (MemoryStorage, Arc<Store>, Vec<Keyspace>) {
    let storage = MemoryStorage::new();
    let options = options().wal_mode(WalMode::Off);
    let store = Arc::new(Store::open_on(Arc::new(storage.clone()), options).expect("opens"));
    let make = |number| {
        let keyspace = store.open_keyspace(&format!("k{number}"), None).expect("makes");
        keyspace.put("before", "1").expect("puts");
        keyspace
    };
    let keyspaces = (0..count).map(make).collect();
    (storage, store, keyspaces)
}

/// Once, flushes and checkpoints replaced the memtables of all keyspaces under the lock, and each
/// flush looked at all of them there to find the first log segment that is still needed.
#[test]
fn keyspaces_cost_a_flush_little_under_the_lock() {
    for count in [10, 1_000, 10_000] {
        let (_, store, keyspaces) = with_keyspaces(count);
        store.flush().expect("flushes");
        keyspaces.iter().for_each(|one| one.put("more", "1").expect("puts"));
        store.checkpoint("copy").expect("copies");
        assert!(held(&store).0 <= LITTLE, "{count} keyspaces: {:?}", held(&store));
        assert_eq!(store.metrics().counters.flushes, 2 * count, "there was something to flush");
    }
}

/// A checkpoint has everything that was written before its moment and nothing else, although the
/// memtables are replaced one after another. A batch that arrives in between replaces the memtables
/// that it writes to.
#[test]
fn a_checkpoint_is_one_moment_beside_a_batch() {
    for at in [Waypoint::MomentKnown, Waypoint::MemtablesReplaced] {
        let (storage, store, keyspaces) = with_keyspaces(600);
        let beside = Arc::clone(&store);
        seeded::step_in(at, move || {
            let new = beside.open_keyspace("new", None).expect("makes");
            let mut batch = Batch::new();
            for keyspace in keyspaces.iter().step_by(7).chain([&new]) {
                batch.put(keyspace, "beside", "2").expect("adds");
                batch.put(keyspace, "before", "2").expect("adds");
            }
            beside.write(&batch, WriteOptions::default()).expect("writes");
        });
        store.checkpoint("copy").expect("copies");
        assert!(seeded::has_stepped_in());
        let copy = storage.open_sibling("copy".as_ref()).expect("is there");
        let copy = Store::open_on(Arc::new(copy), options()).expect("opens");
        for name in copy.keyspaces() {
            let keyspace = copy.keyspace(&name).expect("is there");
            assert!(keyspace.get("beside").expect("reads").is_none(), "{name}");
            let before = keyspace.get("before").expect("reads");
            let wanted = name.starts_with('k').then_some(&b"1"[..]);
            assert_eq!(before.as_deref(), wanted, "{name}");
        }
        for name in store.keyspaces().iter().filter(|name| *name != "default") {
            let keyspace = store.keyspace(name).expect("is there");
            let found = keyspace.get("before").expect("reads");
            let beside = keyspace.get("beside").expect("reads");
            assert_eq!(found == beside, found.as_deref() == Some(b"2"), "{name}");
        }
    }
}

/// Once, a load flushed the concurrent writes while it had its sequence number, and all other
/// writers waited for that.
#[test]
fn a_load_flushes_little_with_its_number() {
    for count in SIZES {
        let store = open();
        let keyspace = store.default_keyspace().clone();
        let (others, seen) = (keyspace.clone(), Arc::clone(&store));
        let (tell, told) = std::sync::mpsc::channel();
        seeded::step_in(Waypoint::LoadSettled, move || {
            (0..count).for_each(|i| others.put(key(i), [7; 100]).expect("puts"));
            seeded::step_in(Waypoint::LoadNumbered, move || {
                tell.send(seen.metrics().counters.flush_bytes_written).expect("is told");
            });
        });
        assert_eq!(keyspace.bulk_load([("key00000003", "loaded")]).expect("loads"), 1);
        let before = told.recv().expect("it stepped in");
        let withheld = store.metrics().counters.flush_bytes_written - before;
        assert!(withheld < 200 << 10, "{count} writes: {withheld} bytes are flushed");
        assert_eq!(before > 0, count >= 1_000, "{count}: many are flushed before");
        let found = keyspace.get("key00000003").expect("reads");
        assert_eq!(found.as_deref(), Some(&b"loaded"[..]), "older data must not lie above");
    }
}

/// Looks without the lock must not hide these seeded bugs.
#[test]
fn a_check_that_is_not_repeated_is_found() {
    let write = || {
        let store = open();
        let keyspace = store.default_keyspace().clone();
        let mut one = begin(&store);
        one.put(&keyspace, "k", "own").expect("adds");
        let other = keyspace.clone();
        seeded::step_in(Waypoint::TransactionChecked, move || {
            other.put("k", "other").expect("puts");
        });
        assert!(is_conflict(&commit(one)));
    };
    write();
    assert!(panics(|| seeded::with(Bug::CheckedBeforeTheLock, write)));
}

/// Once, a batch that is too long to be noted made a commit look at the tree again. Because of one
/// writer of such batches, a fifth of the commits gave up.
#[test]
fn long_batches_let_a_commit_pass() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), Options::default()).expect("opens");
    let (keyspace, is_over) = (store.default_keyspace(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Batch::new();
            for number in 0..1_500 {
                batch.put(keyspace, key(number), [7; 20]).expect("fits");
            }
            while !is_over.load(Relaxed) {
                store.write(&batch, WriteOptions::default()).expect("writes");
            }
        });
        let outcomes: Vec<_> = (0..40)
            .map(|_| {
                let mut one = begin(&store);
                for number in 0..1_000 {
                    one.get(keyspace, format!("own{number}")).expect("reads");
                }
                one.put(keyspace, "own", "1").expect("fits");
                commit(one)
            })
            .collect();
        is_over.store(true, Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.expect("nobody else writes these keys"));
    });
}

/// Deletes free space, so on a full disk their records use the reserve, even long records.
#[test]
fn a_long_batch_of_deletes_finds_room_on_a_full_disk() {
    let storage = SimStorage::new(1);
    let options = options().wal_segment_bytes(1 << 20);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    let keyspace = store.default_keyspace();
    (0..9).for_each(|number| store.put(key(number), [7; 100_000]).expect("puts"));
    let mut batch = Batch::new();
    (0..30_000).for_each(|number| batch.delete(keyspace, key(number)).expect("fits"));
    assert!(batch.user_bytes() > MOST_BYTES);
    storage.inject(Fault {
        at_op: storage.ops(),
        kind: FaultKind::NoSpace,
        sticky: false,
        category: Some(Category::Wal),
    });
    store.write(&batch, WriteOptions::default()).expect("deletes");
}
