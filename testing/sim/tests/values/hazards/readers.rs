//! Readers against collections and compactions: slots, tags and records that disappear while
//! somebody reads.

use super::*;

/// The placement changes: a compaction places values in a log and publishes them before the tree
/// points to them. A collection in between must not mistake them for dead.
#[test]
fn what_a_compaction_places_in_a_log_is_not_collected_before_the_tree_has_it() {
    let bug = Bug::CollectionBesideInstall;
    let run = |is_seeded: bool| {
        let storage = Arc::default();
        let inline = open(&storage, ValuePlacement::Inline);
        (20..30).for_each(|k| inline.put(key(k), value(5)).expect("puts"));
        inline.flush().expect("flushes");
        drop(inline);
        let mut keyspace = keyspace_options(ValuePlacement::Vlog);
        keyspace.values.vlog_chunk_bytes = 1 << 20;
        let store = open_with(&storage, keyspace);
        (0..3).for_each(|turn| write(&store, turn));
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::ValuesPublished, move || {
            let (done, is_done) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let collect = || beside.collect_values();
                let outcome = if is_seeded { seeded::with(bug, collect) } else { collect() };
                let _ = done.send(outcome);
            });
            // With the bug the collection ends here; without it, it waits for the install.
            let _ = is_done.recv_timeout(Duration::from_millis(300));
        });
        store.compact().expect("compacts");
        assert!(seeded::has_stepped_in());
        (0..10).for_each(|k| check(&store, k, 2));
        (20..30).for_each(|k| check(&store, k, 5));
    };
    run(false);
    assert!(panics(|| run(true)), "{bug:?} is not found");
}

/// A reader finds the place of a record. Before it reads, the group is collected and written again
/// until its slots have other contents.
#[test]
fn a_slot_is_not_used_again_under_a_reader() {
    holds_and_finds(Bug::SlotsFreedEarly, || {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        write(&store, 0);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::RecordFound, move || {
            for turn in 1..6 {
                write(&beside, turn);
                beside.collect_values().expect("collects");
            }
        });
        check(&store, 3, 0);
        assert!(seeded::has_stepped_in());
        check(&store, 3, 5);
    });
}

/// The versions that a cursor shows stay, although the user took no snapshot for it.
#[test]
fn a_cursor_keeps_its_values() {
    holds_and_finds(Bug::CursorDoesNotRegister, || {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        write(&store, 0);
        let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
        cursor.seek_to_first().expect("seeks");
        write(&store, 1);
        store.collect_values().expect("collects");
        for k in 0..10 {
            assert!(cursor.valid() && cursor.key() == key(k).as_bytes());
            assert!(cursor.value() == value(0));
            cursor.next().expect("steps");
        }
        assert!(!cursor.valid());
    });
}

/// Between the first and the last step of a get, the version that it is about to find is replaced
/// and its record dropped. No snapshot needs that version, so the get returns the new one.
#[test]
fn a_get_looks_again_when_its_record_was_collected() {
    holds_and_finds(Bug::GetDoesNotLookAgain, || {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        write(&store, 0);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::GetBegun, move || {
            write(&beside, 1);
            beside.collect_values().expect("collects");
        });
        check(&store, 5, 1);
        assert!(seeded::has_stepped_in());
    });
}

/// Keys 0 to 9 in a value file that the next full compaction removes.
fn open_before_values_go() -> Arc<Store> {
    let store = open(&Arc::default(), ValuePlacement::HashGrouped);
    write(&store, 0);
    let inline = keyspace_options(ValuePlacement::Inline);
    store.open_keyspace("default", Some(inline)).expect("changes");
    store
}

/// The last value file is removed after a `multi_get` took its view, and the versions that it reads
/// are replaced before it looks them up. Once, without a snapshot, the `multi_get` found neither
/// the old versions nor the new ones.
#[test]
fn a_multi_get_finds_what_was_there_when_value_files_go() {
    let store = open_before_values_go();
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::ViewLoaded, move || {
        beside.compact().expect("compacts");
        assert!(beside.default_keyspace().value_usage().is_empty(), "the file went");
        seeded::step_in(Waypoint::GetBegun, move || {
            write(&beside, 1);
            beside.compact().expect("compacts");
        });
    });
    let keys: Vec<String> = (0..10).map(key).collect();
    let found = store.default_keyspace().multi_get(&keys).expect("gets");
    assert!(seeded::has_stepped_in());
    for (k, found) in found.iter().enumerate() {
        assert!(found.as_deref() == Some(&value(0)[..]), "key {k}");
    }
}

/// Each time a get under a snapshot has found its pointer, the placement changes and a compaction
/// moves the value to another file. Once, after three attempts, the get reported that the value was
/// gone, so a mere change was reported as damage.
#[test]
fn a_get_under_a_snapshot_follows_its_value_through_any_number_of_files() {
    fn move_values(store: &Arc<Store>, times_left: u32) {
        let beside = Arc::downgrade(store);
        seeded::step_in(Waypoint::PointerFound, move || {
            let store = beside.upgrade().expect("who reads has it");
            let number = u64::from(times_left);
            let placements = [ValuePlacement::HashGrouped, ValuePlacement::Vlog];
            let next = keyspace_options(placements[times_left as usize % 2]);
            store.open_keyspace("default", Some(next)).expect("changes");
            store.put(key(100), value(number)).expect("puts");
            store.compact().expect("compacts");
            assert_eq!(store.default_keyspace().value_usage().len(), 1, "the old file went");
            if times_left > 0 {
                move_values(&store, times_left - 1);
            }
        });
    }
    let store = open(&Arc::default(), ValuePlacement::HashGrouped);
    write(&store, 0);
    let snapshot = store.snapshot();
    move_values(&store, 5);
    let found = store.default_keyspace().get_at(key(5), &snapshot).expect("it is there");
    assert!(seeded::has_stepped_in());
    assert!(found.as_deref() == Some(&value(0)[..]));
}

/// A cursor takes its view. The value file that the view points to is removed before the cursor has
/// listed the value files.
#[test]
fn a_cursor_finds_what_was_there_when_value_files_go() {
    let store = open_before_values_go();
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::ViewLoaded, move || {
        beside.compact().expect("compacts");
        assert!(beside.default_keyspace().value_usage().is_empty(), "the file went");
    });
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek_to_first().expect("seeks");
    for k in 0..10 {
        assert_eq!((cursor.key(), cursor.value()), (key(k).as_bytes(), &value(0)[..]));
        cursor.next().expect("steps");
    }
    assert!(seeded::has_stepped_in() && !cursor.valid());
}

/// Writes keys 0 to 9, then updates the even ones until collections are due. The odd ones cool.
fn write_evens_again(store: &Store) {
    write(store, 0);
    for turn in 1..4 {
        (0..5).for_each(|k| store.put(key(2 * k), value(turn)).expect("puts"));
        store.flush().expect("flushes");
    }
}

fn check_evens_and_odds(store: &Store) {
    (0..10).for_each(|k| check(store, k, if k % 2 == 0 { 3 } else { 0 }));
}

fn cold_bytes(store: &Store) -> u64 {
    let usage = store.default_keyspace().value_usage().swap_remove(0);
    usage.cold.expect("hash groups have one").bytes
}

fn open_cooling_back() -> Arc<Store> {
    open_with(&Arc::default(), cooling_back())
}

/// A reader that sees a tag finds the cold record it leads to.
#[test]
fn a_tag_is_never_seen_before_its_cold_record() {
    holds_and_finds(Bug::TagsPublishedFirst, || {
        let store = open_cooling();
        write_evens_again(&store);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::GroupPublished, move || check(&beside, 7, 0));
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        assert!(cold_bytes(&store) > 4_000);
        check_evens_and_odds(&store);
    });
}

/// Keys cool and are written again, many times. The records that they leave in the cold stream are
/// dropped.
#[test]
fn cold_records_go_when_their_tags_do() {
    let with = |open: fn() -> Arc<Store>| {
        let store = open();
        for turn in 0..8 {
            write(&store, turn);
            store.collect_values().expect("collects");
            for others in 0..3 {
                (10..20).for_each(|k| store.put(key(k), value(others)).expect("puts"));
                store.flush().expect("flushes");
            }
            store.collect_values().expect("collects");
            // A flush that has both a pointer and its replacement would notice that the record is
            // dead.
            store.flush().expect("flushes");
            (0..10).for_each(|k| check(&store, k, turn));
        }
        let cold = cold_bytes(&store);
        assert!((10_000..30_000).contains(&cold), "{cold} bytes for ten values of 1,000");
        assert!(store.verify().expect("verifies").is_clean());
    };
    holds_and_finds(Bug::DroppedTagsForgotten, || with(open_cooling));
    holds_and_finds(Bug::DroppedTagsForgotten, || with(open_cooling_back));
}

/// A disk acknowledges a write but keeps the former contents of the slot. Every read then reports
/// an error or returns the right value. Only in a log does an older record of the same key pass
/// every other check, because relocations keep the numbers of records.
#[test]
fn an_earlier_life_of_a_slot_is_never_read() {
    holds_and_finds(Bug::ChecksumsWithoutGeneration, || {
        let storage = Arc::<MemoryStorage>::default();
        let store = open(&storage, ValuePlacement::Vlog);
        let mut lives: BTreeMap<u64, BTreeSet<Vec<u8>>> = BTreeMap::new();
        let mut last = [0; 3];
        for turn in 0..150u64 {
            let k = (turn * turn + turn / 7) % 3;
            last[k as usize] = turn;
            store.put(key(k), value(turn)).expect("puts");
            store.flush().expect("flushes");
            if turn % 2 == 0 {
                store.collect_values().expect("collects");
            }
            slots(&storage, &store, |slot, bytes| {
                lives.entry(slot).or_default().insert(bytes);
            });
        }
        let mut told = 0;
        let mut now = Vec::new();
        slots(&storage, &store, |slot, bytes| now.push((slot, bytes)));
        let file = value_file(&storage, &store);
        for (slot, bytes) in now {
            for life in &lives[&slot] {
                file.write_at(slot, life).expect("memory");
                for (k, turn) in (0..).zip(last) {
                    match get_from_file(&store, k) {
                        Err(_) => told += 1,
                        Ok(got) => assert!(got.as_deref() == Some(&value(turn)[..]), "{k}"),
                    }
                }
            }
            file.write_at(slot, &bytes).expect("memory");
        }
        assert!(told > 10, "{told} reads told");
    });
}

/// Values stay cached while their slots are used again, whichever job moved or replaced the
/// records.
#[test]
fn a_cached_value_is_never_taken_for_another() {
    let reads_are_right = |store: &Store| {
        for turn in 0..12 {
            write(store, turn);
            for _ in 0..2 {
                (0..10).for_each(|k| check(store, k, turn));
                let all = store.default_keyspace().iter().expect("opens");
                let all: Vec<_> = all.map(|entry| entry.expect("reads")).collect();
                assert_eq!(all.len(), 10);
                all.iter().for_each(|(_, found)| assert_eq!(found, &value(turn)));
                store.collect_values().expect("collects");
                store.flush().expect("flushes");
            }
        }
    };
    let stores: [fn() -> Arc<Store>; 4] = [
        || open(&Arc::default(), ValuePlacement::HashGrouped),
        || open(&Arc::default(), ValuePlacement::Vlog),
        open_cooling,
        open_writing_back,
    ];
    for open in stores {
        holds_and_finds(Bug::ValuesCachedByPlace, || reads_are_right(&open()));
    }
}

fn value_file(storage: &MemoryStorage, store: &Store) -> Arc<dyn runstone::storage::StorageFile> {
    let name = store.default_keyspace().value_usage()[0].file.clone();
    storage.open(&name, Category::Value).expect("is there")
}

/// Passes the offset and the bytes of every slot of the value file to `show`.
fn slots(storage: &MemoryStorage, store: &Store, mut show: impl FnMut(u64, Vec<u8>)) {
    let file = value_file(storage, store);
    let len = file.len().expect("memory");
    let mut at = 4096;
    while at < len {
        let mut bytes = vec![0; SLOT_BYTES.min(len - at) as usize];
        file.read_at(at, &mut bytes).expect("inside");
        show(at, bytes);
        at += SLOT_BYTES;
    }
}

/// The test changes each byte of a record in turn. After each change, a get returns an error or the
/// right value.
#[test]
fn a_changed_record_is_told() {
    let changes = |keyspace: KeyspaceOptions| {
        let storage = Arc::<MemoryStorage>::default();
        let store = open_with(&storage, keyspace);
        write(&store, 0);
        let file = value_file(&storage, &store);
        for at in (4096..4096 + 2 * SLOT_BYTES).step_by(61) {
            let mut byte = [0];
            file.read_at(at, &mut byte).expect("inside");
            file.write_at(at, &[byte[0] ^ 4]).expect("memory");
            for k in 0..10 {
                if let Ok(got) = get_from_file(&store, k) {
                    assert!(got.as_deref() == Some(&value(0)[..]), "byte {at}, key {k}");
                }
            }
            file.write_at(at, &byte).expect("memory");
        }
    };
    for keyspace in [
        keyspace_options(ValuePlacement::HashGrouped),
        keyspace_options(ValuePlacement::Vlog),
        writing_back(),
    ] {
        holds_and_finds(Bug::RecordsUnchecked, || changes(keyspace.clone()));
    }
}
