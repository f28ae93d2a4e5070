//! What an old mirror, backup directory and archive make of a store that was repaired, and of two
//! stores that continued from the same state.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runstone::storage::Storage;
use runstone::{
    Background, Compression, Error, Mirror, Moment, Options, RepairOptions, Store, ValuePlacement,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::random::{Random, seeds};
use runstone_sim::workload::{options, placed};

use crate::attacks::{archiver, backups, contents, differ, load, mirror, restored};

/// Some writes, and a job or a load.
fn write(store: &Store, random: &mut Random, step: u64, loads: bool) {
    for i in 0..=random.below(60) {
        let key = format!("key{:03}", random.below(50));
        match random.below(12) {
            0 => store.delete(key),
            1 => store.default_keyspace().delete_range(key.clone()..format!("{key}~")),
            _ => store.put(key, vec![(step + i) as u8; random.below(900) as usize]),
        }
        .expect("no faults");
    }
    match random.below(5) {
        0 => store.flush().expect("no faults"),
        1 => store.compact().expect("no faults"),
        2 => while store.run_one_job().expect("no faults") {},
        3 if loads => {
            let entries = (0..9).map(|i| (format!("key{:03}", i * 3), Some(vec![9; 90])));
            load(store, "default", &entries.collect::<Vec<_>>());
        }
        _ => {}
    }
}

/// A store that has lost `CURRENT`, with a mirror, backups and an archive of it.
fn damaged(
    (seed, random): (u64, &mut Random),
    (disk, target): (&SimStorage, &SimStorage),
    options: &Options,
) -> SimStorage {
    let source = SimStorage::new(seed);
    let store = Store::open_on(Arc::new(source.clone()), options.clone()).expect("opens");
    let loads = seed % 3 == 0;
    write(&store, random, 0, loads);
    mirror(&source, target, options).expect("it begins").close().expect("no faults");
    let mut archiver = archiver(disk, &source).expect("it begins");
    for step in 1..8 {
        write(&store, random, step * 7, loads);
        if random.one_in(2) {
            archiver.advance(Duration::ZERO).expect("no faults");
        }
        if random.one_in(2) {
            backups(disk).create_on(Arc::new(source.clone())).expect("no faults");
        }
    }
    drop(archiver);
    store.flush().expect("no faults");
    store.close().expect("no faults");
    let damaged = source.process_crash();
    damaged.remove("CURRENT").expect("it is there");
    damaged
}

fn options_of(seed: u64) -> Options {
    let placements = [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
    let placement = placements[seed as usize % 3];
    placed(options(seed, Background::Manual), placement).keep_log_bytes(1 << 30)
}

/// A repaired store keeps tables of the damaged store under their numbers. Still, it has another
/// history: a mirror of the damaged store does not continue from it, and its backups and archive
/// recognise it as another store.
#[test]
fn copies_of_a_damaged_store_notice_the_repaired_one() {
    for seed in seeds(20) {
        let (options, mut random) = (options_of(seed), Random::new(seed));
        let (disk, target) = (SimStorage::new(seed + 1), SimStorage::new(seed + 2));
        let damaged = damaged((seed, &mut random), (&disk, &target), &options);
        let (source, mut made): (Arc<dyn Storage>, _) = (Arc::new(damaged.clone()), None);
        let report = Store::repair_on(
            &source,
            || {
                let made = made.insert(damaged.create_sibling(Path::new("/repaired"))?);
                Ok(Arc::clone(made))
            },
            RepairOptions::default().store(options.clone()),
        )
        .expect("repairs");
        assert!(report.carried_tables == report.tables && report.tables > 0, "seed {seed}");
        let made = made.expect("it was asked for");
        let store = Store::open_on(Arc::clone(&made), options.clone()).expect("opens");
        (0..4).for_each(|step| write(&store, &mut random, 100 + step * 7, seed % 3 == 0));
        store.sync().expect("no faults");
        let found = Mirror::open_on(Arc::clone(&made), Arc::new(target), options.clone());
        assert!(matches!(found, Err(Error::HistoryGone { .. })), "seed {seed}: {found:?}");
        let backup = backups(&disk).create_on(Arc::clone(&made)).expect("no faults").number;
        let to = SimStorage::new(9);
        backups(&disk).restore_on(backup, &(Arc::new(to.clone()) as _)).expect("restores");
        let found = contents(&Store::open_on(Arc::new(to), options.clone()).expect("opens"));
        let state = contents(&store);
        assert_eq!(found, state, "seed {seed}: {}", differ(&found, Some(&state)));
        let mut late = backups(&disk).archive_on(Arc::clone(&made)).expect("it begins again");
        write(&store, &mut random, 200, false);
        store.sync().expect("no faults");
        late.advance(Duration::ZERO).expect("no faults");
        drop(late);
        let found = restored(&disk, Moment::End, &options).expect("it is there");
        let state = contents(&store);
        assert_eq!(found, state, "seed {seed}: {}", differ(&found, Some(&state)));
    }
}

/// Two stores that continued from the same state make files with the same name, which may differ
/// only in the middle. Once, a backup took such a table for the one that an earlier backup of the
/// other store had.
#[test]
fn a_backup_tells_files_apart_that_differ_in_their_middle() {
    for seed in 0..3 {
        let mut options = options_of(seed);
        let keyspace = options.keyspace.get_or_insert_default();
        keyspace.compression = vec![Compression::None];
        let (source, disk) = (SimStorage::new(seed), SimStorage::new(seed + 1));
        let store = Store::open_on(Arc::new(source.clone()), options.clone()).expect("opens");
        store.put("before", "").expect("no faults");
        store.sync().expect("no faults");
        for byte in [1_u8, 2] {
            let storage = source.process_crash();
            // With one seed, both would begin the same history.
            let options = options.clone().seed(u64::from(byte));
            let store = Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
            for i in 0..40 {
                let value = vec![if i == 3 { byte } else { 0 }; 4000];
                store.put(format!("key{i:02}"), value).expect("no faults");
            }
            store.flush().expect("no faults");
            let Ok(made) = backups(&disk).create_on(Arc::new(storage)) else {
                assert_eq!(byte, 2, "the first is whole");
                continue;
            };
            let to = SimStorage::new(9);
            backups(&disk).restore_on(made.number, &(Arc::new(to.clone()) as _)).expect("restores");
            let found = contents(&Store::open_on(Arc::new(to), options.clone()).expect("opens"));
            assert!(found == contents(&store), "seed {seed}: the backup has the other's values");
        }
    }
}
