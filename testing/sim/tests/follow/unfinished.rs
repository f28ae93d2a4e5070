//! Copies of a store that are killed, and two that are made in one directory. A part of a store is
//! not a damaged store. It does not record what it lacks, so nothing may open, follow or repair it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use runstone::storage::Storage;
use runstone::{
    Background, Backups, Error, Mirror, Moment, Options, RepairOptions, Result, Store,
    ValuePlacement,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::workload::{options, placed};

use super::hooked::{Hook, Hooked};

/// Where the copy is made.
const PLACE: &str = "copy";

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options_of(seed: u64) -> Options {
    placed(options(seed, Background::Manual), ValuePlacement::HashGrouped)
}

static SOURCE: LazyLock<(SimStorage, Contents)> = LazyLock::new(make_source);
static BACKUPS: LazyLock<SimStorage> = LazyLock::new(make_backups);

/// A disk with the store.
fn source() -> SimStorage {
    SOURCE.0.process_crash()
}

/// The content of the store.
fn expected() -> &'static Contents {
    &SOURCE.1
}

/// Backups of the store, with an archive, on another disk.
fn archived() -> Backups {
    Backups::open_on(Arc::new(BACKUPS.process_crash())).expect("it opens")
}

/// A store with tables, separated values, and writes that only the log has.
fn make_source() -> (SimStorage, Contents) {
    let (storage, options) = (SimStorage::new(1), options_of(1));
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("it opens");
    for round in 0..3_u8 {
        for number in 0..20 {
            let value = vec![round; if number % 3 == 0 { 2000 } else { 50 }];
            store.put(format!("key{number:02}"), value).expect("no faults");
        }
        if round < 2 {
            store.flush().expect("no faults");
        }
    }
    store.sync().expect("no faults");
    let contents = contents(&store);
    (storage.process_crash(), contents)
}

fn contents(store: &Store) -> Contents {
    let entries = store.default_keyspace().iter().expect("scans");
    let entries = entries.map(|entry| entry.expect("it is readable"));
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn make_backups() -> SimStorage {
    let disk = SimStorage::new(2);
    let backups = Backups::open_on(Arc::new(disk.clone())).expect("it opens");
    let source = Arc::new(source());
    let store = Store::open_on(source.clone(), options_of(1)).expect("it opens");
    let mut archiver = backups.archive_on(source).expect("it begins");
    store.put("key00", "archived").expect("no faults");
    store.sync().expect("no faults");
    archiver.advance(Duration::ZERO).expect("no faults");
    disk
}

/// How a copy is made: from a disk with the store, to [`PLACE`] on that disk.
type Make = fn(&SimStorage) -> Result<()>;

fn restore(disk: &SimStorage) -> Result<()> {
    archived().restore_on(1, &disk.create_sibling(Path::new(PLACE))?)
}

fn restore_to(disk: &SimStorage) -> Result<()> {
    let backups = archived();
    let last_seq = backups.list()?[0].last_seq;
    let target = disk.create_sibling(Path::new(PLACE))?;
    backups.restore_to_on(Moment::Number(last_seq), &target).map(drop)
}

fn checkpoint(disk: &SimStorage) -> Result<()> {
    Store::open_on(Arc::new(disk.clone()), options_of(1))?.checkpoint(PLACE)
}

fn follower_checkpoint(disk: &SimStorage) -> Result<()> {
    Store::follow_on(Arc::new(disk.clone()), options_of(1))?.checkpoint(PLACE)
}

fn mirror(disk: &SimStorage) -> Result<()> {
    let target = disk.create_sibling(Path::new(PLACE))?;
    Mirror::open_on(Arc::new(disk.clone()), target, options_of(1))?.close()
}

fn repair(disk: &SimStorage) -> Result<()> {
    let damaged = source();
    damaged.remove("CURRENT")?;
    let target = || Ok(disk.create_sibling(Path::new(PLACE))?);
    let damaged: Arc<dyn Storage> = Arc::new(damaged);
    let report = Store::repair_on(&damaged, target, RepairOptions::default().store(options_of(1)));
    report.map(drop)
}

const WAYS: [(&str, Make); 6] = [
    ("restore", restore),
    ("restore to a moment", restore_to),
    ("checkpoint", checkpoint),
    ("follower's checkpoint", follower_checkpoint),
    ("mirror", mirror),
    ("repair", repair),
];

fn is_unfinished(error: &Error) -> bool {
    error.to_string().contains("did not come to its end") && error.hint().contains("begin again")
}

/// Checks that the remains of a copy open whole, or that everybody refuses it as unfinished.
fn judge(left: &SimStorage, place: &str) -> bool {
    let Some(copy) = left.open_sibling(Path::new(PLACE)) else { return false };
    if copy.list().expect("a list").is_empty() {
        return false;
    }
    let options = options_of(1).create_if_missing(false);
    let copy: Arc<dyn Storage> = Arc::new(copy);
    match Store::open_on(Arc::clone(&copy), options.clone()) {
        Ok(store) => {
            assert_eq!(&contents(&store), expected(), "{place}");
            return true;
        }
        Err(error) => assert!(is_unfinished(&error), "{place}: {error}"),
    }
    let followed = Store::follow_on(Arc::clone(&copy), options.clone()).map(drop);
    assert!(followed.is_err_and(|error| is_unfinished(&error)), "{place}: it is followed");
    let target = || Ok(left.create_sibling(Path::new("repaired"))?);
    let repaired = Store::repair_on(&copy, target, RepairOptions::default().store(options));
    assert!(repaired.is_err_and(|error| is_unfinished(&error)), "{place}: it is repaired");
    let again = archived().restore_on(1, &copy);
    assert!(again.is_err_and(|error| is_unfinished(&error)), "{place}: it is written again");
    false
}

/// A copy dies at each operation of its disk, with the process or with the machine. Once, a part of
/// a restore or of a checkpoint was reported as a damaged store. The repair that the error advised
/// did not know of the tables that had not been copied yet, so it brought old values back, or lost
/// keys, and none of the doubts that it reported said so.
#[test]
fn a_copy_that_is_killed_is_no_damaged_store() {
    for (way, make) in WAYS {
        let (mut unfinished, mut is_made) = (0, false);
        for at in 0.. {
            let copy = source();
            let at_op = copy.ops() + at;
            copy.inject(Fault { at_op, kind: FaultKind::Crash, sticky: true, category: None });
            is_made |= make(&copy).is_ok();
            let place = format!("{way}, crash at operation {at}");
            for left in [copy.process_crash(), copy.power_cut(at).0] {
                let is_whole = judge(&left, &place);
                assert!(is_whole || !is_made, "{place}: it was made");
                let copied = left.open_sibling(Path::new(PLACE)).map(|copy| copy.list());
                let has_any = copied.is_some_and(|files| !files.expect("a list").is_empty());
                unfinished += u32::from(!is_whole && has_any);
            }
            if is_made {
                break;
            }
        }
        assert!(unfinished > 5, "{way}: {unfinished} were left unfinished");
    }
}

/// Makes a second copy when the first one, once it is armed, opens a file with this ending.
fn beside(
    ending: &'static str,
    armed: &Arc<AtomicBool>,
    second: impl Fn() + Send + 'static,
) -> Hook {
    let armed = Arc::clone(armed);
    Box::new(move |name| {
        if name.ends_with(ending) && armed.swap(false, SeqCst) {
            second();
        }
    })
}

/// Once, two restores both found an empty directory. The second to write removed the files of the
/// first, and the first reported success.
#[test]
fn two_copies_are_not_made_in_one_directory() {
    for ending in [".table", ".pack"] {
        let target: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
        let to = Arc::clone(&target);
        let second = move || {
            let restored = archived().restore_on(1, &to);
            assert!(matches!(restored, Err(Error::InUse { .. })), "{ending}: {restored:?}");
            let restored = archived().restore_to_on(Moment::End, &to);
            assert!(matches!(restored, Err(Error::InUse { .. })), "{ending}: {restored:?}");
            let opened = Store::open_on(Arc::clone(&to), options_of(1)).map(drop);
            assert!(opened.as_ref().is_err_and(is_unfinished), "{ending}: {opened:?}");
        };
        let (armed, disk) = (Arc::new(AtomicBool::new(true)), BACKUPS.process_crash());
        let first = Backups::open_on(Hooked::new(&disk, beside(ending, &armed, second)));
        first.expect("it opens").restore_on(1, &target).expect("it was first");
        assert!(!armed.load(SeqCst), "{ending}: there was a second one");
        let store = Store::open_on(target, options_of(1)).expect("it is whole");
        assert_eq!(&contents(&store), expected(), "{ending}");
    }
}

/// The same test for checkpoints.
#[test]
fn a_checkpoint_takes_nothing_away_from_another() {
    let (disk, armed) = (source(), Arc::new(AtomicBool::new(false)));
    let other = disk.clone();
    let second = move || {
        let follower = Store::follow_on(Arc::new(other.clone()), options_of(1));
        follower.expect("it follows").checkpoint(PLACE).expect_err("the first is under way");
    };
    let hooked = Hooked::new(&disk, beside(".values", &armed, second));
    let follower = Store::follow_on(hooked, options_of(1)).expect("it follows");
    armed.store(true, SeqCst);
    follower.checkpoint(PLACE).expect("it was first");
    assert!(!armed.load(SeqCst), "there was a second one");
    let copy = disk.open_sibling(Path::new(PLACE)).expect("it was made");
    let store = Store::open_on(Arc::new(copy), options_of(1)).expect("it is whole");
    assert_eq!(&contents(&store), expected());
}
