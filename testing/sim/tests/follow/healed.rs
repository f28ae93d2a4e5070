//! Damage in a directory of backups: the next backup is whole again, and reports what it copied
//! again.

use std::sync::Arc;

use runstone::storage::{Category, Storage};
use runstone::{Background, Backups, Error, Options, Store, ValuePlacement};
use runstone_fault_storage::SimStorage;
use runstone_sim::workload::{options, placed, read_all};

fn options_of(seed: u64) -> Options {
    placed(options(seed, Background::Manual), ValuePlacement::HashGrouped)
}

/// A store and two backups of it, the second with a table and a pack of its own.
fn two_backups() -> (Store, SimStorage, SimStorage) {
    let (storage, disk) = (SimStorage::new(1), SimStorage::new(2));
    let store = Store::open_on(Arc::new(storage.clone()), options_of(1)).expect("it opens");
    let backups = open(&disk);
    for round in 0..2_u8 {
        for number in 0..40 {
            let value = vec![round; if number % 2 == 0 { 2000 } else { 300 }];
            store.put([round, number], value).expect("no faults");
        }
        store.flush().expect("no faults");
        backups.create_on(Arc::new(storage.clone())).expect("no faults");
    }
    (store, storage, disk)
}

fn open(disk: &SimStorage) -> Backups {
    Backups::open_on(Arc::new(disk.clone())).expect("it is its own")
}

/// The names of files of a kind, the oldest first.
fn names(disk: &SimStorage, kind: &str) -> Vec<String> {
    let names = disk.list().expect("a list").into_iter().map(|file| file.name);
    let mut names: Vec<String> = names.filter(|name| name.ends_with(kind)).collect();
    names.sort_unstable();
    names
}

fn flip(disk: &SimStorage, name: &str, at: impl Fn(u64) -> u64) {
    let file = disk.open(name, Category::Other).expect("it is there");
    let at = at(file.len().expect("a length"));
    let was = file.read_vec(at, 1).expect("inside");
    file.write_at(at, &[was[0] ^ 1]).expect("written");
}

fn cut(disk: &SimStorage, name: &str) {
    let file = disk.open(name, Category::Other).expect("it is there");
    file.set_len(file.len().expect("a length") / 2).expect("it is cut");
}

/// Checks that a restore of a backup shows the content of the store.
fn compare(disk: &SimStorage, number: u64, store: &Store, place: &str) {
    let target: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
    let restored = open(disk).restore_on(number, &target);
    restored.unwrap_or_else(|error| panic!("{place}: restore {number}: {error}"));
    let copy = Store::open_on(target, options_of(1)).expect("it is a store");
    let found = read_all(&copy, None).expect("no faults");
    assert!(found == read_all(store, None).expect("no faults"), "{place}: backup {number}");
    assert!(copy.verify().expect("no faults").is_clean(), "{place}: backup {number}");
}

type Harm = fn(&SimStorage);

/// What happens to the first table or pack; whether a backup notices by itself; and how many tables
/// are copied again.
const HARMS: [(&str, Harm, bool, u64); 8] = [
    ("table gone", |disk| disk.remove(&names(disk, "table")[0]).expect("removed"), true, 1),
    ("table cut", |disk| cut(disk, &names(disk, "table")[0]), true, 1),
    ("table's footer", |disk| flip(disk, &names(disk, "table")[0], |len| len - 9), true, 1),
    ("table's middle", |disk| flip(disk, &names(disk, "table")[0], |len| len / 2), false, 1),
    ("pack gone", |disk| disk.remove(&names(disk, "pack")[0]).expect("removed"), true, 0),
    ("pack cut", |disk| cut(disk, &names(disk, "pack")[0]), true, 0),
    ("pack's begin", |disk| flip(disk, &names(disk, "pack")[0], |_| 20), false, 0),
    ("description", |disk| flip(disk, &names(disk, "backup")[1], |len| len / 2), true, 0),
];

/// Once, a table that was missing made each later backup fail with "not found", and a damaged
/// footer was reported as a store that had lost writes. A pack that was cut short made each later
/// backup fail as well, and damage in the middle of a table was in all of them.
#[test]
fn a_backup_copies_again_what_is_damaged() {
    let (store, storage, whole) = two_backups();
    for (what, harm, is_noticed, again) in HARMS {
        for checks in [false, true] {
            let place = format!("{what}, checks: {checks}");
            let disk = whole.process_crash();
            harm(&disk);
            let backups = open(&disk).check_copies(checks);
            let made = backups.create_on(Arc::new(storage.clone()));
            let made = made.unwrap_or_else(|error| panic!("{place}: {error}"));
            let damage = backups.verify(made.number).expect("no faults");
            if !is_noticed && !checks {
                assert!(!damage.is_empty() && made.copied_again == 0, "{place}: it was read");
                continue;
            }
            assert_eq!((damage.as_slice(), made.copied_again), (&[][..], again), "{place}");
            compare(&disk, made.number, &store, &place);
            if again > 0 {
                // The earlier backups share the table.
                compare(&disk, 2, &store, &place);
                assert_eq!(backups.verify(1).expect("no faults"), [], "{place}");
            }
            assert_eq!(backups.create_on(Arc::new(storage.clone())).expect("w").copied_again, 0);
        }
    }
}

/// A damaged copy is not replaced by another file of the same name.
#[test]
fn a_damaged_copy_of_another_file_stays() {
    let (_store, storage, disk) = two_backups();
    let disk = disk.process_crash();
    let first = names(&disk, "table")[0].clone();
    let harms: [fn(&SimStorage, &str); 2] =
        [|_, _| {}, |disk, name| flip(disk, name, |len| len - 9)];
    for harm in harms {
        let (disk, storage) = (disk.process_crash(), storage.process_crash());
        harm(&disk, &first);
        let before = disk.open(&first, Category::Other).expect("there");
        let before = before.read_vec(0, before.len().expect("a length") as usize).expect("read");
        // As if the number had been used twice.
        flip(&storage, &first, |len| len - 5);
        let refused = open(&disk).create_on(Arc::new(storage)).expect_err("another file");
        assert!(matches!(&refused, Error::InvalidArgument { .. }), "{refused}");
        assert!(refused.hint().contains("another directory"), "{refused}");
        let after = disk.open(&first, Category::Other).expect("there");
        assert!(after.read_vec(0, before.len()).expect("read") == before, "{refused}");
    }
}
