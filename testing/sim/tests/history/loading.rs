//! Readers that begin while a bulk load has its number and is not in the tree yet, and another
//! thread has logged a later write already.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use runstone::seeded::{self, Waypoint};
use runstone::{Background, Mirror, Moment, Options, Store, WalMode};
use runstone_fault_storage::SimStorage;

use super::attacks::{archiver, contents, load, restored};
use super::open;

/// What another thread does between the number of a load and its edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Writes,
    /// Also syncs the log and edits the manifest, so that an edit could say that the load is
    /// durable.
    Edits,
    /// Also fills the segment of the load, and drops the keyspace with the other writes in it, so
    /// that an edit could put the load below the floor of the log.
    Drops,
}

use Meanwhile::{Drops, Edits, Writes};

/// Runs a load, and `beside` in the middle of it.
fn beside_a_load(store: &Store, what: Meanwhile, beside: impl FnOnce() + Send + 'static) {
    let other = store.keyspace("other").expect("it is there");
    other.put("before", "").expect("no faults");
    let busy = store.open_keyspace("busy", None).expect("no faults");
    let (writer, own) = (store.clone(), store.clone());
    // Some writes of this thread come before the load and are not synced yet.
    let done = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&done);
    let writes = thread::spawn(move || {
        (0u64..).take_while(|_| !ends.load(SeqCst)).for_each(|n| {
            busy.put("key", n.to_be_bytes()).expect("no faults");
        });
    });
    let act = move || {
        let bytes = if what == Drops { 100_000 } else { 1 };
        // This write waits for the load, which is published first.
        let later = thread::spawn(move || own.put("later", vec![1; bytes]));
        thread::sleep(Duration::from_millis(50));
        if what != Writes {
            writer.sync().expect("no faults");
            writer.open_keyspace("edited", None).expect("no faults");
        }
        if what == Drops {
            writer.drop_keyspace("other").expect("no faults");
        }
        beside();
        later
    };
    let (sender, receiver) = mpsc::channel();
    // A thread of its own, because the thread of the load holds locks.
    seeded::step_in(Waypoint::LoadNumbered, move || {
        sender.send(thread::spawn(act).join().expect("no panic")).expect("it waits");
    });
    let entries: Vec<_> = (0..9).map(|i| (format!("load{i}"), Some(vec![7; 90]))).collect();
    load(store, "default", &entries);
    done.store(true, SeqCst);
    writes.join().expect("no panic");
    let later = receiver.recv().expect("the load got its number");
    later.join().expect("no panic").expect("no faults");
}

#[test]
fn whoever_begins_beside_a_load_has_it_in_the_end() {
    let modes = [WalMode::Mapped, WalMode::Write];
    let all = [Writes, Edits, Drops].into_iter().cycle().take(12);
    for (mode, what) in all.flat_map(|what| modes.map(|mode| (mode, what))) {
        let place = format!("{mode:?}, {what:?}");
        let options = Options::default().background(Background::Threads(1)).wal_mode(mode);
        let options = options.wal_segment_bytes(64 << 10);
        let (source, disk, target) = (SimStorage::new(1), SimStorage::new(2), SimStorage::new(3));
        let store = open(&source, &options).expect("no faults");
        let (from, archive, own) = (source.clone(), disk.clone(), options.clone());
        let (sender, receiver) = mpsc::channel();
        beside_a_load(&store, what, move || {
            let mirror = Mirror::open_on(Arc::new(from.clone()), Arc::new(target), own.clone());
            let archiver = archiver(&archive, &from);
            let follower = Store::follow_on(Arc::new(from), own).expect("it can be followed");
            let view = follower.store();
            let seen = ["load3", "later"].map(|key| view.get(key).expect("no faults").is_some());
            sender.send((mirror, archiver, seen)).expect("it waits");
        });
        let (mirror, archiver, seen) = receiver.recv().expect("it began");
        assert_eq!(seen, [false; 2], "{place}: a view has a write behind the load");
        let (mut mirror, mut archiver) = (mirror.expect("it begins"), archiver.expect("it begins"));
        mirror.advance(Duration::ZERO).expect("no faults");
        archiver.advance(Duration::ZERO).expect("no faults");
        let state = contents(&store);
        assert!(contents(mirror.store()) == state, "{place}: the mirror");
        let found = restored(&disk, Moment::End, &options).expect("it is there");
        assert!(found == state, "{place}: the archive");
    }
}
