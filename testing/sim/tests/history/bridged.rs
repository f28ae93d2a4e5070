//! Readers of the history that begin with a copy or the state, while the store continues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runstone::storage::Storage;
use runstone::{
    Background, Batch, Change, Changes, ChangesFrom, Kind, Mirror, Moment, OnGap, Options,
    Position, Store,
};
use runstone_fault_storage::SimStorage;

use super::attacks::{backups, contents, restored};
use super::hooked::Hooked;
use super::open;

/// The content of a keyspace.
type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keyspaces by id: the name and the content.
#[derive(Clone, Debug, Default)]
struct Copy {
    keyspaces: BTreeMap<u32, (String, Content)>,
}

impl Copy {
    fn write(&mut self, batch: &Batch) {
        for one in batch.operations() {
            let Some((_, held)) = self.keyspaces.get_mut(&one.keyspace) else {
                panic!("keyspace {} is not known", one.keyspace);
            };
            match one.kind {
                Kind::Put => drop(held.insert(one.key.to_vec(), one.value.to_vec())),
                Kind::Delete => drop(held.remove(one.key)),
                Kind::RangeDelete if one.value.is_empty() => {
                    held.retain(|key, _| &key[..] < one.key);
                }
                Kind::RangeDelete => {
                    held.retain(|key, _| &key[..] < one.key || &key[..] >= one.value);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Writes(batch) | Change::State(batch) => self.write(batch),
            Change::Loaded(load) => load
                .read(|batch| {
                    self.write(batch);
                    Ok(())
                })
                .expect("r"),
            Change::Keyspace(one) => {
                self.keyspaces.entry(one.id).or_default().0 = one.name.clone();
            }
            Change::Dropped(id) => drop(self.keyspaces.remove(id)),
            Change::Keyspaces(all) => {
                self.keyspaces.retain(|id, _| all.iter().any(|one| one.id == *id));
                for one in all {
                    self.keyspaces.entry(one.id).or_default().0 = one.name.clone();
                }
            }
            _ => {}
        }
    }

    fn named(&self) -> BTreeMap<String, Content> {
        self.keyspaces.values().cloned().collect()
    }
}

fn drain(changes: &mut Changes, copy: &mut Copy) -> runstone::Result<()> {
    while let Some(changed) = changes.next()? {
        copy.apply(&changed.change);
    }
    Ok(())
}

/// What the writer does while a reader begins.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Goes,
    Compacts,
    Reopens,
    Flushes,
}

use Meanwhile::{Compacts, Flushes, Goes, Reopens};

fn go_on(mut store: Store, what: Meanwhile, open: impl Fn() -> Store) -> Store {
    let reopen = |store: Store| {
        store.close().expect("no faults");
        open()
    };
    match what {
        Reopens => store = reopen(store),
        Flushes => store.flush().expect("no faults"),
        _ => {}
    }
    store.keyspace("early").expect("it is there").put("last", "1").expect("no faults");
    store.drop_keyspace("early").expect("no faults");
    let made = store.open_keyspace("late", None).expect("no faults");
    made.put("key", "late").expect("no faults");
    store.put("third", "4").expect("no faults");
    match what {
        Compacts => {
            store.flush().expect("no faults");
            store.compact().expect("no faults");
            store.put("third", "5").expect("no faults");
        }
        Reopens => {
            store = reopen(store);
            store.put("fourth", "6").expect("no faults");
        }
        _ => {}
    }
    store
}

fn plain() -> Options {
    Options::default().background(Background::Manual)
}

/// A disk on which the writer continues when a reader opens the `n`-th file. Also returns a cell
/// that holds the store once the reader has opened that many files.
fn goes_on_at(
    source: &SimStorage,
    store: Store,
    n: u64,
    what: Meanwhile,
) -> (Arc<dyn Storage>, Arc<Mutex<Option<Store>>>) {
    let (result, disk): (Arc<Mutex<Option<Store>>>, _) = (Arc::default(), source.clone());
    let (mut store, mut count, done) = (Some(store), 0, Arc::clone(&result));
    let hook = move |name: &str| {
        // The reader opens tables under a lock. Outside this test the reader is in another process,
        // so the lock does not stop the writer.
        if name.ends_with(".table") {
            return;
        }
        if count == n
            && let Some(store) = store.take()
        {
            let gone_on = go_on(store, what, || open(&disk, &plain()).expect("no faults"));
            *done.lock().expect("no panic") = Some(gone_on);
        }
        count += 1;
    };
    (Hooked::new(source, Box::new(hook)), result)
}

/// A store with the keyspaces of [`go_on`].
fn begun(source: &SimStorage) -> Store {
    let store = open(source, &plain()).expect("no faults");
    store.open_keyspace("early", None).expect("no faults").put("key", "1").expect("no faults");
    store.put("first", "1").expect("no faults");
    store
}

/// Returns whether the reader opened that many files.
fn takes_the_state(n: u64, what: Meanwhile) -> bool {
    let source = SimStorage::new(1);
    let store = begun(&source);
    let mut copy = Copy::default();
    let mut changes = store.changes(ChangesFrom::Oldest).expect("it has a log");
    copy.apply(&Change::Keyspaces(changes.keyspaces()));
    drain(&mut changes, &mut copy).expect("no faults");
    let position: Position = changes.position();
    drop(changes);
    store.put("second", "2").expect("no faults");
    store.close().expect("no faults");
    let store = open(&source, &plain()).expect("no faults");
    store.put("third", "3").expect("no faults");
    let (disk, result) = goes_on_at(&source, store, n, what);
    let place = format!("{what:?} at open {n}");
    let on_gap = OnGap::State(Box::new(plain()));
    let mut changes = Changes::resume_on(disk, position, on_gap)
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    drain(&mut changes, &mut copy).unwrap_or_else(|error| panic!("{place}: {error}"));
    let Some(store) = result.lock().expect("no panic").take() else { return false };
    drain(&mut changes, &mut copy).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(copy.named(), contents(&store), "{place}");
    true
}

fn copies_and_follows(n: u64, what: Meanwhile) -> bool {
    let (source, target, archive) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
    let (disk, result) = goes_on_at(&source, begun(&source), n, what);
    let place = format!("{what:?} at open {n}");
    let mirror = Mirror::open_on(disk, Arc::new(target), plain());
    let mut mirror = mirror.unwrap_or_else(|error| panic!("{place}: {error}"));
    let Some(store) = result.lock().expect("no panic").take() else { return false };
    mirror.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(contents(mirror.store()), contents(&store), "{place}");
    drop((mirror, store));
    let source = SimStorage::new(1);
    let (disk, result) = goes_on_at(&source, begun(&source), n, what);
    let archiver = backups(&archive).archive_on(disk);
    let mut archiver = archiver.unwrap_or_else(|error| panic!("{place}: {error}"));
    let Some(store) = result.lock().expect("no panic").take() else { return false };
    archiver.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = restored(&archive, Moment::End, &plain());
    let found = found.unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(found, contents(&store), "{place}");
    true
}

fn at_each_open(check: impl Fn(u64, Meanwhile) -> bool) {
    for what in [Goes, Compacts, Reopens, Flushes] {
        let count = (0..1000).find(|n| !check(*n, what)).expect("it ends");
        assert!(count > 9, "{what:?}: {count} files");
    }
}

#[test]
fn the_state_fits_the_log_whatever_comes_between() {
    at_each_open(takes_the_state);
}

#[test]
fn a_copy_fits_the_log_whatever_comes_between() {
    at_each_open(copies_and_follows);
}

/// A large batch has a segment of its own. Once, a reader of the oldest changes began with the
/// batch, and skipped the segment that says which keyspace it writes to.
#[test]
fn the_oldest_changes_say_which_keyspaces_they_write_to() {
    for bytes in [1, 1 << 20] {
        let source = SimStorage::new(1);
        let options = plain().wal_segment_bytes(64 << 10);
        let store = open(&source, &options).expect("no faults");
        let apart = store.open_keyspace("apart", None).expect("no faults");
        apart.put("first", vec![7; bytes]).expect("no faults");
        store.put("second", "2").expect("no faults");
        let mut changes = store.changes(ChangesFrom::Oldest).expect("it has a log");
        // Every store has this keyspace, so the log does not mention it.
        let default = ("default".to_string(), Content::new());
        let mut copy = Copy { keyspaces: BTreeMap::from([(0, default)]) };
        drain(&mut changes, &mut copy).expect("no faults");
        assert_eq!(copy.named(), contents(&store), "{bytes}");
    }
}
