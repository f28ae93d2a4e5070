//! Rare events beside a reader of the history: bulk loads, keyspaces that come and go, disks that
//! fail twice, backups beside an archive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use runstone::storage::Category;
use runstone::{
    Archiver, Background, Backups, Changes, ChangesFrom, Error, KeyspaceOptions, MIRROR_KEYSPACE,
    Mirror, Moment, Options, Result, SortedWriter, Store, ValueOptions, ValuePlacement, WalMode,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::random::{Random, seeds};
use runstone_sim::workload::{options, placed, read_keyspace};

/// The keyspaces of a store with their contents.
pub(super) type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn open(storage: &SimStorage, options: &Options) -> Result<Store> {
    Store::open_on(Arc::new(storage.clone()), options.clone())
}

pub(super) fn contents(store: &Store) -> Contents {
    let names = store.keyspaces().into_iter().filter(|name| name != MIRROR_KEYSPACE);
    let read = |name: String| {
        let keyspace = store.keyspace(&name).expect("it is there");
        let content = read_keyspace(&keyspace, None).expect("no faults");
        (name, content.into_iter().collect())
    };
    names.map(read).collect()
}

/// Where two states differ.
pub(super) fn differ(found: &Contents, state: Option<&Contents>) -> String {
    let flat = |one: &Contents| -> BTreeMap<(String, String), (usize, u8)> {
        let entries = one.iter().flat_map(|(name, content)| {
            let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| {
                let key = String::from_utf8_lossy(key).into_owned();
                ((name.clone(), key), (value.len(), value.first().copied().unwrap_or(0)))
            };
            content.iter().map(entry).collect::<Vec<_>>()
        });
        entries.collect()
    };
    let (found_names, state) = (found.keys(), state.cloned().unwrap_or_default());
    let names = format!("{found_names:?} for {:?}", state.keys());
    let (found, state) = (flat(found), flat(&state));
    let added: Vec<_> = found.iter().filter(|(key, value)| state.get(key) != Some(value)).collect();
    let lost: Vec<_> = state.iter().filter(|(key, value)| found.get(key) != Some(value)).collect();
    format!("{names}, found {added:?} instead of {lost:?}")
}

pub(super) fn backups(disk: &SimStorage) -> Backups {
    Backups::open_on(Arc::new(disk.clone())).expect("it is its own")
}

pub(super) fn archiver(disk: &SimStorage, source: &SimStorage) -> Result<Archiver> {
    backups(disk).archive_on(Arc::new(source.clone()))
}

pub(super) fn mirror(
    source: &SimStorage,
    target: &SimStorage,
    options: &Options,
) -> Result<Mirror> {
    let (source, target) = (Arc::new(source.clone()), Arc::new(target.clone()));
    Mirror::open_on(source, target, options.clone())
}

/// The contents that a restore shows.
pub(super) fn restored(disk: &SimStorage, moment: Moment, options: &Options) -> Result<Contents> {
    let target = SimStorage::new(3);
    backups(disk).restore_to_on(moment, &(Arc::new(target.clone()) as _))?;
    Ok(contents(&open(&target, options)?))
}

/// Loads puts and deletes into a keyspace.
pub(super) fn load(store: &Store, name: &str, entries: &[(String, Option<Vec<u8>>)]) {
    // If pointers are written back, a load over keys with separated values may be refused.
    let _ = load_fallible(store, name, entries);
}

pub(super) fn load_fallible(
    store: &Store,
    name: &str,
    entries: &[(String, Option<Vec<u8>>)],
) -> Result<()> {
    let files = Arc::new(SimStorage::new(5));
    let mut writer =
        SortedWriter::create_on(Arc::clone(&files) as _, "load", &KeyspaceOptions::default())
            .expect("it is new");
    for (key, value) in entries {
        match value {
            Some(value) => writer.put(key, value),
            None => writer.delete(key),
        }
        .expect("they ascend");
    }
    writer.finish().expect("no faults");
    let keyspace = store.keyspace(name).expect("it is there");
    keyspace.ingest_from(&*files, &["load"]).map(drop)
}

/// If a compaction dropped or rewrote part of a load, the rest is not mistaken for the load.
#[test]
fn a_load_that_was_compacted_is_told_whole_or_not_at_all() {
    for seed in seeds(12) {
        let options = placed(options(seed, Background::Manual), ValuePlacement::Inline);
        let mut options = options.keep_log_bytes(1 << 30);
        if let Some(keyspace) = &mut options.keyspace {
            keyspace.compaction_filter = String::new();
        }
        let (source, target) = (SimStorage::new(seed), SimStorage::new(seed + 1));
        let store = open(&source, &options).expect("no faults");
        (0..40).for_each(|i| store.put(format!("key{i:03}"), "old").expect("no faults"));
        mirror(&source, &target, &options).expect("it begins").close().expect("no faults");
        let value = |i: u32| (!i.is_multiple_of(3)).then(|| vec![7; 900]);
        let entries: Vec<_> = (0..40).map(|i| (format!("key{i:03}"), value(i))).collect();
        load(&store, "default", &entries);
        if seed.is_multiple_of(2) {
            store.compact().expect("no faults");
        } else {
            store.put("key003", "new").expect("no faults");
            store.flush().expect("no faults");
            while store.run_one_job().expect("no faults") {}
        }
        let state = contents(&store);
        // A lost load makes a mirror begin again, and does nothing worse.
        let found = mirror(&source, &target, &options)
            .and_then(|mut mirror| mirror.advance(Duration::ZERO).map(|_| mirror));
        match found {
            Ok(mirror) => assert_eq!(contents(mirror.store()), state, "seed {seed}"),
            Err(error) => assert!(matches!(error, Error::HistoryGone { .. }), "{error}"),
        }
    }
}

/// A load whose tables are unchanged is reported, even to a reader that begins later.
#[test]
fn a_load_that_lies_still_is_told_later() {
    let options = placed(options(3, Background::Manual), ValuePlacement::Inline);
    let options = options.keep_log_bytes(1 << 30);
    let (source, target) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    store.put("before", "").expect("no faults");
    mirror(&source, &target, &options).expect("it begins").close().expect("no faults");
    let entries: Vec<_> = (0..400).map(|i| (format!("key{i:03}"), Some(vec![7; 900]))).collect();
    load(&store, "default", &entries);
    store.put("after", "").expect("no faults");
    let mut mirror = mirror(&source, &target, &options).expect("it goes on");
    mirror.advance(Duration::ZERO).expect("the load is there");
    assert_eq!(contents(mirror.store()), contents(&store));
}

/// The disk of the archive fails while the archiver finds out where to continue.
#[test]
fn a_disk_that_fails_twice_costs_no_change() {
    for seed in seeds(20) {
        let options = placed(options(seed, Background::Manual), ValuePlacement::Inline);
        let (source, disk) = (SimStorage::new(seed), SimStorage::new(seed + 1));
        let store = open(&source, &options).expect("no faults");
        let mut archiver = archiver(&disk, &source).expect("it begins");
        store.put("first", "1").expect("no faults");
        archiver.advance(Duration::ZERO).expect("no faults");
        store.put("second", "2").expect("no faults");
        // Writes fail, and so do reads.
        let kinds = [FaultKind::Eio, FaultKind::ShortWrite, FaultKind::NoSpace];
        let kind = kinds[seed as usize % 3];
        disk.inject(Fault { at_op: disk.ops(), kind, sticky: true, category: None });
        for read in [0, seed % 4] {
            let at_op = disk.reads() + read;
            disk.inject(Fault { at_op, kind: FaultKind::EioOnRead, sticky: true, category: None });
        }
        assert!(archiver.advance(Duration::ZERO).is_err(), "seed {seed}");
        let _ = archiver.advance(Duration::ZERO);
        disk.clear_faults();
        store.put("third", "3").expect("no faults");
        archiver.advance(Duration::ZERO).expect("it goes on");
        drop(archiver);
        let found = restored(&disk, Moment::End, &options).expect("it is there");
        assert_eq!(found, contents(&store), "seed {seed}");
    }
}

/// A backup may have writes that the store then loses in a power loss. A restore of the history
/// that continued without them does not begin with that backup.
#[test]
fn a_backup_of_a_lost_end_is_not_the_base_of_another_history() {
    for seed in seeds(20) {
        let options = placed(options(seed, Background::Manual), ValuePlacement::Inline);
        let options = options.keep_log_bytes(1 << 30);
        let (source, disk) = (SimStorage::new(seed), SimStorage::new(seed + 1));
        let store = open(&source, &options).expect("no faults");
        store.put("first", "1").expect("no faults");
        let mut early = archiver(&disk, &source).expect("it begins");
        early.advance(Duration::ZERO).expect("no faults");
        drop(early);
        (0..5).for_each(|i| store.put(format!("lost{i}"), "").expect("no faults"));
        backups(&disk).create_on(Arc::new(source.clone())).expect("no faults");
        let source = source.power_cut(seed).0;
        let store = open(&source, &options).expect("it recovers");
        (0..9).for_each(|i| store.put(format!("new{i}"), "").expect("no faults"));
        let mut late = archiver(&disk, &source).expect("it goes on");
        late.advance(Duration::ZERO).expect("no faults");
        let found = restored(&disk, Moment::End, &options).expect("it is there");
        assert_eq!(found, contents(&store), "seed {seed}");
    }
}

/// The options of the default keyspace may change when the store is opened, without a call of
/// `open_keyspace`. Readers still learn of them.
#[test]
fn options_of_an_open_are_told() {
    let plain = Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
    let adding = plain.clone().keyspace(KeyspaceOptions::default().merge_operator("add-i64"));
    let (source, disk, target) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
    let store = open(&source, &plain).expect("no faults");
    store.put("first", "1").expect("no faults");
    drop(archiver(&disk, &source).expect("it begins"));
    mirror(&source, &target, &plain).expect("it begins").close().expect("no faults");
    store.close().expect("no faults");
    let store = open(&source, &adding).expect("it has no operator yet");
    let one = 1i64.to_le_bytes();
    for _ in 0..3 {
        store.default_keyspace().merge("count", one).expect("it has one now");
    }
    let state = contents(&store);
    archiver(&disk, &source).expect("it goes on").advance(Duration::ZERO).expect("no faults");
    let found = restored(&disk, Moment::End, &plain).expect("it is there");
    assert_eq!(found, state);
    let mut mirror = mirror(&source, &target, &plain).expect("it goes on");
    mirror.advance(Duration::ZERO).expect("no faults");
    mirror.store().compact().expect("no faults");
    assert_eq!(contents(mirror.store()), state);
}

/// A note of new options has the number of the write before it. So a mirror that continues receives
/// the note again, and so does a restore from a backup with this number. A later note may have set
/// an option that cannot be taken back.
#[test]
fn options_come_again_that_later_ones_cannot_go_back_to() {
    let plain = KeyspaceOptions::default();
    let grouped = |groups| {
        let values = ValueOptions::default().placement(ValuePlacement::HashGrouped);
        plain.clone().values(values.groups(groups))
    };
    let adding = plain.clone().merge_operator("append(,)");
    for steps in [vec![plain.clone(), adding], vec![grouped(1), plain.clone(), grouped(3)]] {
        let options = Options::default().background(Background::Manual);
        let (source, disk, target) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
        let store = open(&source, &options).expect("no faults");
        store.put("first", "").expect("no faults");
        let mut archiver = archiver(&disk, &source).expect("it begins");
        mirror(&source, &target, &options).expect("it begins").close().expect("no faults");
        for one in &steps {
            store.open_keyspace("made", Some(one.clone())).expect("it has nothing yet");
        }
        for round in 0..3 {
            let mut mirror = mirror(&source, &target, &options).expect("it goes on");
            mirror.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{round}: {error}"));
            assert_eq!(contents(mirror.store()), contents(&store));
            mirror.close().expect("no faults");
            archiver.advance(Duration::ZERO).expect("no faults");
            backups(&disk).create_on(Arc::new(source.clone())).expect("no faults");
            let found = restored(&disk, Moment::End, &options).expect("it is there");
            assert_eq!(found, contents(&store));
            if round > 0 {
                store.keyspace("made").expect("made").put([round], "value").expect("no faults");
            }
        }
    }
}

/// The notes about keyspaces are lost with a removed log, although no number is missing.
#[test]
fn keyspaces_of_a_log_that_is_gone_are_told() {
    let options = Options::default().background(Background::Manual);
    let (source, disk, target) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
    let store = open(&source, &options).expect("no faults");
    store.open_keyspace("dropped", None).expect("no faults").put("key", "").expect("no faults");
    drop(archiver(&disk, &source).expect("it begins"));
    mirror(&source, &target, &options).expect("it begins").close().expect("no faults");
    store.drop_keyspace("dropped").expect("no faults");
    store.open_keyspace("made", None).expect("no faults");
    store.close().expect("no faults");
    for round in 0..2 {
        let store = open(&source, &options).expect("no faults");
        store.keyspace("made").expect("it is there").put("key", [round]).expect("no faults");
        archiver(&disk, &source).expect("it goes on").advance(Duration::ZERO).expect("no faults");
        let found = restored(&disk, Moment::End, &options).expect("it is there");
        assert_eq!(found, contents(&store));
        let mut mirror = mirror(&source, &target, &options).expect("it goes on");
        mirror.advance(Duration::ZERO).expect("no faults");
        assert_eq!(contents(mirror.store()), contents(&store));
        drop(mirror);
        store.close().expect("no faults");
    }
}

/// A disk may be full when the log should record that a keyspace was made or dropped, and have room
/// again for the next write.
#[test]
fn keyspaces_that_the_log_had_no_room_for_are_told_before_later_writes() {
    let options = Options::default().background(Background::Manual).wal_mode(WalMode::Write);
    let (source, disk, target) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
    let store = open(&source, &options).expect("no faults");
    store.open_keyspace("dropped", None).expect("no faults").put("key", "").expect("no faults");
    let mut archiver = archiver(&disk, &source).expect("it begins");
    let mut mirror = mirror(&source, &target, &options).expect("it begins");
    let (kind, category) = (FaultKind::NoSpace, Some(Category::Wal));
    source.inject(Fault { at_op: source.ops(), kind, sticky: true, category });
    store.drop_keyspace("dropped").expect("a full disk is a reason to drop one");
    let made = store.open_keyspace("made", None).expect("the manifest has room");
    source.clear_faults();
    made.put("key", "value").expect("there is room again");
    archiver.advance(Duration::ZERO).expect("no faults");
    mirror.advance(Duration::ZERO).expect("no faults");
    assert_eq!(contents(mirror.store()), contents(&store));
    let found = restored(&disk, Moment::End, &options).expect("it is there");
    assert_eq!(found, contents(&store));
}

/// A writer that is faster than its readers does not keep them from returning, and the changes are
/// durable when an archiver returns.
#[test]
fn rounds_end_although_there_is_more() {
    let options = Options::default().background(Background::Manual).memory_budget_bytes(64 << 20);
    let (source, disk, target) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
    let store = open(&source, &options).expect("no faults");
    let mut archiving = archiver(&disk, &source).expect("it begins");
    let mut mirror = mirror(&source, &target, &options).expect("it begins");
    for n in 0..36 {
        store.put([n], vec![n; 1 << 20]).expect("no faults");
    }
    let round = archiving.advance(Duration::ZERO).expect("no faults");
    assert!(!round.is_drained && (16..30).contains(&round.changes), "{round:?}");
    let last = archiving.position().seq() as u8 - 1;
    drop(archiving);
    let disk = disk.power_cut(1).0;
    let early = restored(&disk, Moment::End, &options).expect("it is there");
    assert_eq!(early["default"].last_key_value().expect("many").0, &[last]);
    let round = mirror.advance(Duration::ZERO).expect("no faults");
    assert!(!round.is_drained && (16..30).contains(&round.changes), "{round:?}");
    let mut archiving = archiver(&disk, &source).expect("it goes on");
    while !archiving.advance(Duration::ZERO).expect("no faults").is_drained {}
    while !mirror.advance(Duration::ZERO).expect("no faults").is_drained {}
    assert_eq!(restored(&disk, Moment::End, &options).expect("it is there"), contents(&store));
    assert_eq!(contents(mirror.store()), contents(&store));
}

/// Once, when a full disk had space again, a mirror left out the change that had found no space.
#[test]
fn a_change_that_found_no_space_comes_again() {
    let small = KeyspaceOptions::default().write_buffer_bytes(256 << 10);
    let options = Options::default().memory_budget_bytes(4 << 20).keyspace(small);
    let (source, target) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    let mut mirror = mirror(&source, &target, &options).expect("it begins");
    let (kind, category) = (FaultKind::NoSpace, Some(Category::Table));
    target.inject(Fault { at_op: target.ops(), kind, sticky: true, category });
    let mut refused = None;
    for n in 0..10_000u32 {
        store.put(n.to_be_bytes(), vec![n as u8; 10_000]).expect("no faults");
        refused = mirror.advance(Duration::ZERO).err();
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("there is no space");
    assert!(refused.is_no_space(), "{refused:?}");
    let position = mirror.position();
    assert!(mirror.advance(Duration::ZERO).is_err() && mirror.position() == position);
    target.clear_faults();
    // The mirror finds by itself that there is space.
    let end = Instant::now() + Duration::from_secs(60);
    while !mirror.advance(Duration::ZERO).is_ok_and(|round| round.is_drained) {
        assert!(Instant::now() < end, "it does not go on");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(contents(mirror.store()) == contents(&store), "it misses something");
}

/// A round that ends at its limit does not know that it has everything. The next round does.
#[test]
fn the_time_is_archived_although_a_full_round_took_all() {
    let options = Options::default().background(Background::Manual).memory_budget_bytes(64 << 20);
    let (source, disk) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    let mut archiving = archiver(&disk, &source).expect("it begins");
    (0..16u8).for_each(|n| store.put([n], vec![n; 1 << 20]).expect("no faults"));
    let round = archiving.advance(Duration::ZERO).expect("no faults");
    assert!(!round.is_drained && round.changes == 16, "{round:?}");
    let round = archiving.advance(Duration::ZERO).expect("no faults");
    assert!(round.is_drained && round.changes == 0, "{round:?}");
    let state = contents(&store);
    std::thread::sleep(Duration::from_millis(2));
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    std::thread::sleep(Duration::from_millis(2));
    store.put("later", "").expect("no faults");
    archiving.advance(Duration::ZERO).expect("no faults");
    assert_eq!(restored(&disk, Moment::Time(now), &options).expect("it is there"), state);
}

/// A write failed, and only the zeros at its end were missing from the log. Once, a reader that
/// looked before the next write believed that the failed write was whole. It ignored the next
/// write, which has the same number, as already known.
#[test]
fn a_write_that_failed_is_not_told() {
    let mut struck = 0;
    for seed in 0..50 {
        let options = Options::default().background(Background::Manual).wal_mode(WalMode::Write);
        let (source, target) = (SimStorage::new(seed), SimStorage::new(seed + 1));
        let store = open(&source, &options).expect("no faults");
        store.put("first", "").expect("no faults");
        let mut mirror = mirror(&source, &target, &options).expect("it begins");
        let (at_op, kind) = (source.ops(), FaultKind::NoSpace);
        source.inject(Fault { at_op, kind, sticky: false, category: Some(Category::Wal) });
        struck += u32::from(store.put("failed", [0; 2000]).is_err());
        mirror.advance(Duration::ZERO).expect("no faults");
        store.put("next", "").expect("there is room again");
        mirror.advance(Duration::ZERO).expect("no faults");
        assert_eq!(contents(mirror.store()), contents(&store), "seed {seed}");
    }
    assert_eq!(struck, 50);
}

/// A batch in a segment of its own found room, but the record of its keyspace did not.
#[test]
fn a_large_batch_comes_after_what_had_no_room() {
    for at in 0..40 {
        let options = Options::default().background(Background::Manual).wal_segment_bytes(64 << 10);
        let (source, target) = (SimStorage::new(1), SimStorage::new(2));
        let store = open(&source, &options).expect("no faults");
        store.put("first", "").expect("no faults");
        let mut mirror = mirror(&source, &target, &options).expect("it begins");
        let (kind, category) = (FaultKind::NoSpace, Some(Category::Wal));
        source.inject(Fault { at_op: source.ops(), kind, sticky: true, category });
        let made = store.open_keyspace("made", None).expect("the manifest has room");
        source.clear_faults();
        let mut batch = runstone::Batch::new();
        for i in 0..40u8 {
            batch.put(&made, [i], vec![7; 9000]).expect("it fits");
        }
        source.inject(Fault { at_op: source.ops() + at, kind, sticky: false, category });
        let written = store.write(&batch, runstone::WriteOptions::default());
        source.clear_faults();
        mirror.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{at}: {error}"));
        store.put("last", "").expect("there is room again");
        mirror.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(contents(mirror.store()), contents(&store), "{at}: {written:?}");
    }
}

/// A failed sync of the archive has lost the data that it should have made durable.
#[test]
fn whatever_fails_in_the_archive_is_mended() {
    let kinds = [FaultKind::Eio, FaultKind::ShortWrite, FaultKind::NoSpace, FaultKind::FailedSync];
    for (at, kind) in (0..12).flat_map(|at| kinds.map(|kind| (at, kind))) {
        for (sticky, reopens) in [(false, false), (true, false), (false, true), (true, true)] {
            let place = format!("{kind:?} at {at}, sticky {sticky}, reopened {reopens}");
            let options = Options::default().background(Background::Manual);
            let (source, disk) = (SimStorage::new(at), SimStorage::new(at + 1));
            let store = open(&source, &options).expect("no faults");
            let mut archiving = archiver(&disk, &source).expect("it begins");
            store.put("first", "1").expect("no faults");
            archiving.advance(Duration::ZERO).expect("no faults");
            if reopens {
                drop(archiving);
                archiving = archiver(&disk, &source).expect("it goes on");
            }
            store.put("second", "2").expect("no faults");
            let at_op = disk.ops() + at;
            disk.inject(Fault { at_op, kind, sticky, category: None });
            let _ = archiving.advance(Duration::ZERO);
            let _ = archiving.advance(Duration::ZERO);
            disk.clear_faults();
            store.put("third", "3").expect("no faults");
            archiving.advance(Duration::ZERO).unwrap_or_else(|e| panic!("{place}: {e}"));
            drop(archiving);
            let disk = disk.power_cut(at).0;
            let found = restored(&disk, Moment::End, &options);
            let found = found.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(found, contents(&store), "{place}");
            assert_eq!(backups(&disk).verify_archives().expect("it can be read"), [], "{place}");
        }
    }
}

/// A store without a log has no history, and a reader that requests it gets an error at once.
#[test]
fn a_store_without_a_log_has_no_readers_of_its_history() {
    let with_log = Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
    let without = with_log.clone().wal_mode(WalMode::Off);
    let (source, target) = (SimStorage::new(1), SimStorage::new(2));
    let refused = |outcome: Result<()>| {
        let error = outcome.expect_err("it has no log");
        assert!(error.to_string().contains("has no log"), "{error}");
    };
    let store = open(&source, &without).expect("no faults");
    store.put("first", "1").expect("no faults");
    refused(mirror(&source, &target, &with_log).map(drop));
    refused(archiver(&SimStorage::new(3), &source).map(drop));
    store.close().expect("no faults");
    // The store loses its log after this reader has begun.
    let store = open(&source, &with_log).expect("no faults");
    let mut mirror = mirror(&source, &SimStorage::new(4), &with_log).expect("it begins");
    assert_eq!(contents(mirror.store()), contents(&store));
    store.close().expect("no faults");
    let store = open(&source, &without).expect("no faults");
    store.put("second", "2").expect("no faults");
    store.flush().expect("no faults");
    refused(mirror.advance(Duration::ZERO).map(drop));
    // Once there is a log again, the mirror begins again.
    store.close().expect("no faults");
    let store = open(&source, &with_log).expect("no faults");
    let position = mirror.position();
    drop(mirror);
    let changes = Changes::open_on(Arc::new(source), ChangesFrom::After(position));
    let next = changes.and_then(|mut changes| changes.next());
    assert!(matches!(next, Err(Error::HistoryGone { .. })), "{next:?}");
    drop(store);
}

const NAMES: [&str; 3] = ["default", "ann", "bob"];

/// A workload of operations that other workloads lack, beside a mirror and an archiver that come
/// and go.
struct Beside {
    seed: u64,
    options: Options,
    random: Random,
    source: SimStorage,
    store: Store,
    disk: SimStorage,
    target: SimStorage,
    mirror: Option<Mirror>,
    archiver: Option<Archiver>,
    archived: Vec<(u64, Contents)>,
    copies: u64,
}

impl Beside {
    fn new(seed: u64, options: Options) -> Beside {
        let source = SimStorage::new(seed);
        let store = open(&source, &options).expect("no faults");
        Beside {
            seed,
            options,
            random: Random::new(seed ^ 0xa77a),
            source,
            store,
            disk: SimStorage::new(seed + 1),
            target: SimStorage::new(seed + 2),
            mirror: None,
            archiver: None,
            archived: Vec::new(),
            copies: 0,
        }
    }

    fn keyspace_options(&mut self) -> KeyspaceOptions {
        let mut options = self.options.keyspace.clone().unwrap_or_default();
        options.block_bytes = 512 << self.random.below(3);
        options
    }

    fn write(&mut self) {
        let name = NAMES[self.random.below(3) as usize];
        let Ok(keyspace) = self.store.keyspace(name) else { return };
        let key = format!("key{:03}", self.random.below(60));
        match self.random.below(6) {
            0 => keyspace.delete(key),
            1 => keyspace.delete_range(key.clone()..format!("{key}5")),
            2 if !self.options.keyspace.as_ref().is_some_and(|k| k.merge_operator.is_empty()) => {
                keyspace.merge(key, [self.random.draw() as u8])
            }
            _ => keyspace.put(key, vec![self.random.draw() as u8; self.random.below(900) as usize]),
        }
        .expect("no faults");
    }

    fn step(&mut self) {
        let name = NAMES[1 + self.random.below(2) as usize];
        match self.random.below(100) {
            0..60 => self.write(),
            60..64 => drop(self.store.drop_keyspace(name)),
            64..70 => {
                let options = self.keyspace_options();
                // A keyspace keeps its operator, so other options may be refused.
                let _ = self.store.open_keyspace(name, Some(options));
            }
            70..76 => {
                let name = NAMES[self.random.below(3) as usize];
                let random = &mut self.random;
                let mut entries = Vec::new();
                for i in 0..60 {
                    if random.one_in(2) {
                        let value =
                            (!random.one_in(3)).then(|| vec![i; random.below(900) as usize]);
                        entries.push((format!("key{i:03}"), value));
                    }
                }
                if self.store.keyspace(name).is_ok() && !entries.is_empty() {
                    load(&self.store, name, &entries);
                }
            }
            76..80 => self.store.flush().expect("no faults"),
            80..82 => self.store.compact().expect("no faults"),
            82..92 => drop(self.store.run_one_job().expect("no faults")),
            92..95 => {
                let options = self.keyspace_options();
                self.options.keyspace = Some(options);
                self.reopen();
            }
            95..97 => self.crash(),
            _ => drop(self.store.sync()),
        }
    }

    fn reopen(&mut self) {
        self.store.clone().close().expect("no faults");
        self.store = open(&self.source, &self.options).expect("no faults");
    }

    fn crash(&mut self) {
        let (mirror, archiver) = (self.mirror.is_some(), self.archiver.is_some());
        (self.mirror, self.archiver) = (None, None);
        self.source = match self.random.one_in(2) {
            true => self.source.power_cut(self.random.draw()).0,
            false => self.source.process_crash(),
        };
        if self.random.one_in(3) {
            // The open crashes too.
            let at_op = self.source.ops() + self.random.below(40);
            let kind = FaultKind::Crash;
            self.source.inject(Fault { at_op, kind, sticky: true, category: None });
            drop(open(&self.source, &self.options));
            self.source = self.source.process_crash();
        }
        self.store = open(&self.source, &self.options).expect("it recovers");
        // The notes of an open are logged with the first write, so that an idle store gets no log.
        self.store.put("opened", "").expect("no faults");
        if mirror {
            self.open_mirror();
        }
        if archiver {
            self.archiver = Some(archiver_of(&self.disk, &self.source));
        }
    }

    fn place(&self, step: usize) -> String {
        format!("seed {}, step {step}", self.seed)
    }

    fn open_mirror(&mut self) {
        self.mirror = match mirror(&self.source, &self.target, &self.options) {
            Err(Error::HistoryGone { .. }) => {
                self.copies += 1;
                self.target = SimStorage::new(self.copies);
                Some(mirror(&self.source, &self.target, &self.options).expect("it begins"))
            }
            opened => Some(opened.expect("it goes on")),
        };
    }

    fn look(&mut self, step: usize) {
        let place = self.place(step);
        if self.random.one_in(4)
            && let Some(mirror) = &mut self.mirror
        {
            match mirror.advance(Duration::ZERO) {
                Err(Error::HistoryGone { .. }) => {
                    self.mirror = None;
                    self.target = SimStorage::new(!self.copies);
                    self.copies += 1;
                }
                advanced => {
                    advanced.unwrap_or_else(|error| panic!("{place}: {error}"));
                    let found = contents(mirror.store());
                    let state = contents(&self.store);
                    assert!(
                        found == state,
                        "{place}: the mirror: {}",
                        differ(&found, Some(&state))
                    );
                }
            }
        }
        if self.random.one_in(5)
            && let Some(archiver) = &mut self.archiver
        {
            archiver.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{place}: {error}"));
            self.archived.push((archiver.position().seq(), contents(&self.store)));
        }
        if self.random.one_in(40) {
            self.mirror = None;
            self.target = self.target.process_crash();
        }
        if self.random.one_in(40) {
            self.archiver = None;
            self.disk = self.disk.power_cut(self.random.draw()).0;
        }
        if self.mirror.is_none() && self.random.one_in(6) {
            self.open_mirror();
        }
        if self.archiver.is_none() && self.random.one_in(6) {
            self.archiver = Some(archiver_of(&self.disk, &self.source));
        }
        if self.random.one_in(60)
            && let Some((seq, _)) = self.archived.last()
        {
            // Several states may have this number, because changes of keyspaces do not take one;
            // the last state counts.
            let last = self.archived.iter().rfind(|(one, _)| one == seq).map(|(_, state)| state);
            let found = restored(&self.disk, Moment::Number(*seq), &self.options);
            let found = found.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(Some(&found) == last, "{place}: restored to {seq}: {}", differ(&found, last));
        }
    }
}

fn archiver_of(disk: &SimStorage, source: &SimStorage) -> Archiver {
    archiver(disk, source).expect("it can be archived")
}

#[test]
fn loads_and_keyspaces_come_and_go() {
    for seed in seeds(12) {
        for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
            let options = placed(options(seed, Background::Manual), placement);
            let mut beside = Beside::new(seed, options.keep_log_bytes((seed % 3) << 29));
            for step in 0..400 {
                beside.step();
                beside.look(step);
            }
        }
    }
}
