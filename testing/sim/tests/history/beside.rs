//! Backups, archivers, prunes and restores that use one directory at once, or one after another.

use std::sync::Arc;
use std::time::Duration;

use runstone::storage::{LockMode, Storage};
use runstone::{
    Archiver, Background, Backups, Error, KeyspaceOptions, Moment, Options, Store, ValuePlacement,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::random::Random;
use runstone_sim::workload::{options, placed};

use super::attacks::{archiver, backups, contents, restored};
use super::hooked::Hooked;
use super::open;

/// A store whose writer revokes leases at once, and an archiver of it.
fn archived(seed: u64) -> (Options, Store, SimStorage, Archiver) {
    let (options, store, [_, disk], archiving) = archived_with_source(seed);
    (options, store, disk, archiving)
}

/// The same, with the storage of the store.
fn archived_with_source(seed: u64) -> (Options, Store, [SimStorage; 2], Archiver) {
    let options = placed(options(seed, Background::Manual), ValuePlacement::Inline);
    let options = options.follower_keep_bytes(1);
    let (source, disk) = (SimStorage::new(seed), SimStorage::new(seed + 1));
    let store = open(&source, &options).expect("no faults");
    store.put("first", "1").expect("no faults");
    let mut archiving = archiver(&disk, &source).expect("it begins");
    archiving.advance(Duration::ZERO).expect("no faults");
    (options, store, [source, disk], archiving)
}

/// Makes writes that are removed from the log before the archiver sees them.
fn outrun(store: &Store) {
    for round in 0..3u8 {
        (0..200u8).for_each(|n| store.put([n], vec![round; 900]).expect("no faults"));
        store.flush().expect("no faults");
        while store.run_one_job().expect("no faults") {}
    }
}

/// Once, an archiver that found no room for its first record after a new backup never recorded the
/// backup and the changes that the archive lacks, and the archive did not know the time of the
/// backup.
#[test]
fn an_archive_that_begins_again_on_a_full_disk_tells_what_it_lacks() {
    let mut struck = 0;
    for at in 0..60 {
        let (_options, store, disk, mut archiving) = archived(3);
        let archived_seq = archiving.position().seq();
        outrun(&store);
        let (kind, at_op) = (FaultKind::NoSpace, disk.ops() + at);
        disk.inject(Fault { at_op, kind, sticky: true, category: None });
        let first = archiving.advance(Duration::ZERO);
        struck += u32::from(first.is_err());
        disk.clear_faults();
        let second = archiving.advance(Duration::ZERO).expect("there is room again");
        let rounds = [first.ok(), Some(second)].into_iter().flatten();
        let based: Vec<_> = rounds.filter_map(|round| round.based).collect();
        let [based] = &based[..] else { panic!("{at}: {based:?}") };
        let lacks = based.lacks.expect("it does not begin");
        assert_eq!(lacks, (archived_seq, based.backup.last_seq), "{at}");
        let parts = backups(&disk).archives().expect("whole");
        let last = parts.last().expect("it has begun again");
        assert_eq!(last.from_seq, based.backup.last_seq, "{at}");
        assert_eq!(last.from_ms, Some(based.backup.time_ms), "{at}");
    }
    assert!(struck > 10, "{struck}");
}

/// The same check for an archiver that finds no room when it begins: the next one reports the gap.
#[test]
fn an_archiver_that_finds_no_room_to_begin_hides_no_gap() {
    let mut struck = 0;
    for at in 0..60 {
        let (_options, store, [source, disk], archiving) = archived_with_source(3);
        let archived_seq = archiving.position().seq();
        drop(archiving);
        outrun(&store);
        let (kind, at_op) = (FaultKind::NoSpace, disk.ops() + at);
        disk.inject(Fault { at_op, kind, sticky: true, category: None });
        let first = archiver(&disk, &source);
        struck += u32::from(first.is_err());
        disk.clear_faults();
        let mut archiving = match first {
            Ok(archiving) => archiving,
            Err(_) => archiver(&disk, &source).expect("there is room again"),
        };
        let round = archiving.advance(Duration::ZERO).expect("there is room again");
        let based = round.based.unwrap_or_else(|| panic!("{at}: it tells of no gap"));
        let lacks = based.lacks.expect("it does not begin");
        assert_eq!(lacks, (archived_seq, based.backup.last_seq), "{at}");
        let parts = backups(&disk).archives().expect("whole");
        let last = parts.last().expect("it has begun again");
        assert_eq!(last.from_ms, Some(based.backup.time_ms), "{at}");
    }
    assert!(struck > 10, "{struck}");
}

/// A full disk ends a round that has begun a file, and the log continues without the archiver.
/// Once, the archiver searched for ever for the file, which it had removed itself.
#[test]
fn an_archiver_goes_on_when_its_file_had_nothing() {
    let mut struck = 0;
    for at in 0..30 {
        let (_options, store, [source, disk], archiving) = archived_with_source(3);
        drop(archiving);
        let mut archiving = archiver(&disk, &source).expect("it goes on");
        store.put("second", "2").expect("no faults");
        let (kind, at_op) = (FaultKind::NoSpace, disk.ops() + at);
        disk.inject(Fault { at_op, kind, sticky: true, category: None });
        let first = archiving.advance(Duration::ZERO);
        struck += u32::from(first.is_err());
        outrun(&store);
        for _ in 0..2 {
            let full = archiving.advance(Duration::ZERO);
            assert!(first.is_ok() || full.is_err(), "{at}: {full:?}");
        }
        disk.clear_faults();
        let round = archiving.advance(Duration::ZERO);
        let round = round.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(first.is_ok() || round.based.is_some_and(|based| based.lacks.is_some()), "{at}");
    }
    assert!(struck > 2, "{struck}");
}

/// A backup or a prune in another process does not stop an archiver that has to begin again.
#[test]
fn an_archiver_goes_on_after_others_have_used_its_directory() {
    let (options, store, disk, mut archiving) = archived(5);
    outrun(&store);
    let lock = disk.lock("LOCK", LockMode::Exclusive).expect("no faults").expect("it is free");
    for _ in 0..3 {
        let refused = archiving.advance(Duration::ZERO);
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    }
    store.put("more", "").expect("no faults");
    drop(lock);
    let round = archiving.advance(Duration::ZERO).expect("it is free");
    assert!(round.based.is_some_and(|based| based.lacks.is_some()));
    archiving.advance(Duration::ZERO).expect("no faults");
    let found = restored(&disk, Moment::End, &options).expect("it is there");
    assert_eq!(found, contents(&store));
}

/// Once, a prune removed a file of the archive that ended at the number of the oldest backup, and
/// with it the notes of keyspaces that were made after the backup and before the next write.
#[test]
fn a_prune_leaves_what_was_noted_at_the_number_of_the_backup() {
    const FILE_BYTES: usize = 64 << 20;
    let options = Options::default().background(Background::Manual).memory_budget_bytes(64 << 20);
    let (source, disk) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    let mut archiving = archiver(&disk, &source).expect("it begins");
    let mut advance = || while !archiving.advance(Duration::ZERO).expect("no faults").is_drained {};
    for n in 0..63u8 {
        store.put([n], vec![n; 1 << 20]).expect("no faults");
        advance();
    }
    let file = || backups(&disk).archives().expect("whole")[0].bytes as usize;
    let left = FILE_BYTES - 20_000 - file();
    store.put("last", vec![1; left]).expect("no faults");
    advance();
    assert!((FILE_BYTES - 30_000..FILE_BYTES).contains(&file()), "{}", file());
    backups(&disk).create_on(Arc::new(source.clone())).expect("no faults");
    for n in 0..400 {
        let made = KeyspaceOptions::default();
        store.open_keyspace(&format!("made{n}"), Some(made)).expect("it is made");
    }
    advance();
    for n in 0..400 {
        let made = store.keyspace(&format!("made{n}")).expect("it is there");
        made.put("key", "").expect("no faults");
    }
    advance();
    assert_eq!(backups(&disk).prune(1).expect("no faults"), 1);
    let found = restored(&disk, Moment::End, &options).expect("the archive has it");
    assert!(found == contents(&store), "it lacks something");
}

/// A directory of backups where a prune runs once a file of this kind is opened.
fn pruned_at(disk: &SimStorage, kind: &'static str, after: u32) -> Backups {
    let (inner, mut left) = (disk.clone(), after);
    let hook = move |name: &str| {
        if name.ends_with(kind) && left > 0 {
            left -= 1;
            if left == 0 {
                backups(&inner).prune(1).expect("no faults");
            }
        }
    };
    Backups::open_on(Hooked::new(disk, Box::new(hook))).expect("it is its own")
}

/// Once, a check beside a prune reported the pruned backup as damaged, and a restore reported that
/// some file was not found.
#[test]
fn a_backup_that_is_pruned_while_it_is_read_is_not_damaged() {
    let options = Options::default().background(Background::Manual);
    let (source, disk) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    let mut archiving = archiver(&disk, &source).expect("it begins");
    let first = archiving.position().seq();
    for round in 0..3u8 {
        (0..200u8).for_each(|n| store.put([n], vec![round; 900]).expect("no faults"));
        store.flush().expect("no faults");
        store.compact().expect("no faults");
        while store.run_one_job().expect("no faults") {}
        backups(&disk).create_on(Arc::new(source.clone())).expect("no faults");
        archiving.advance(Duration::ZERO).expect("no faults");
    }
    let target = || Arc::new(SimStorage::new(9)) as Arc<dyn Storage>;
    for (kind, number) in [("table", 2), ("pack", 2), ("table", 3), ("pack", 3), ("pack", 1)] {
        let place = format!("{kind}, {number}");
        let copy = || disk.process_crash();
        let told = |outcome: Result<String, Error>| {
            let text = outcome.unwrap_or_else(|error| error.to_string());
            assert!(text.contains("was pruned meanwhile"), "{place}: {text}");
        };
        let verified = pruned_at(&copy(), kind, 1).verify(number);
        told(verified.map(|damage| format!("{damage:?}")));
        let deep = pruned_at(&copy(), kind, 1).verify_deep(number);
        told(deep.map(|deep| format!("{:?}", deep.report.damage)));
        let made = target();
        told(pruned_at(&copy(), kind, 1).restore_on(number, &made).map(|()| "restored".into()));
        assert_eq!(made.list().expect("a list"), []);
    }
    let made = target();
    let early = pruned_at(&disk.process_crash(), "pack", 1);
    let refused = early.restore_to_on(Moment::Number(first), &made).expect_err("it is gone");
    assert!(refused.to_string().contains("was pruned meanwhile"), "{refused}");
    // The newest backup stays, and files of the archive from before it are not needed.
    let late = pruned_at(&disk.process_crash(), "pack", 1);
    late.restore_to_on(Moment::End, &made).expect("it has all that it needs");
}

/// Once, a backup that found no room kept the disk full, so the archive beside it had no room
/// either.
#[test]
fn a_backup_that_finds_no_room_leaves_room_to_the_archive() {
    let options = Options::default().background(Background::Manual);
    let (source, disk) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    store.put("first", "").expect("no faults");
    let mut archiving = archiver(&disk, &source).expect("it begins");
    for round in 0..4u8 {
        let mut random = Random::new(u64::from(round));
        let mut value = || (0..900).map(|_| random.draw() as u8).collect::<Vec<_>>();
        (0..200u8).for_each(|n| store.put([round, n], value()).expect("no faults"));
        store.flush().expect("no faults");
    }
    archiving.advance(Duration::ZERO).expect("no faults");
    let used = || disk.list().expect("a list").iter().map(|file| file.len_bytes).sum::<u64>();
    let before = used();
    for room in [100_000, 300_000, 500_000, 700_000] {
        disk.set_capacity_bytes(Some(before + room));
        let refused = backups(&disk).create_on(Arc::new(source.clone()));
        assert!(refused.as_ref().is_err_and(Error::is_no_space), "{room}: {refused:?}");
        assert!(used() < before + 1000, "{room}: {} bytes stay", used() - before);
        archiving.advance(Duration::ZERO).expect("there is room");
    }
    disk.set_capacity_bytes(None);
    let made = backups(&disk).create_on(Arc::new(source.clone())).expect("there is room");
    assert_eq!(backups(&disk).verify(made.number).expect("no faults"), []);
}

/// Once, an archiver that ended where a segment of the log began got the error that the log was
/// gone, if a keyspace was dropped next.
#[test]
fn a_keyspace_that_is_dropped_where_a_segment_begins_ends_no_archive() {
    for is_dropped in [false, true] {
        let options = Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
        let options = options.wal_segment_bytes(64 << 10);
        let (source, disk) = (SimStorage::new(1), SimStorage::new(2));
        let store = open(&source, &options).expect("no faults");
        let made = store.open_keyspace("made", None).expect("it is made");
        made.put("key", "").expect("no faults");
        let mut first = archiver(&disk, &source).expect("it begins");
        // A value of this size has a segment of its own.
        store.put("key", vec![7; 65 << 10]).expect("no faults");
        first.advance(Duration::ZERO).expect("no faults");
        drop(first);
        if is_dropped {
            store.drop_keyspace("made").expect("no faults");
        }
        store.put("later", "").expect("no faults");
        store.flush().expect("no faults");
        let mut second = archiver(&disk, &source).expect("it goes on");
        let round = second.advance(Duration::ZERO).expect("no faults");
        assert_eq!(round.based, None, "{is_dropped}");
        let found = restored(&disk, Moment::End, &options).expect("it is there");
        assert_eq!(found, contents(&store), "{is_dropped}");
    }
}
