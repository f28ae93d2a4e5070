//! A store stops, fails, closes or is slow, while other stores share its resources.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use runstone::{
    Background, Error, Event, EventListener, Keyspace, KeyspaceOptions, Options, Resources, Store,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_storage::Category;

/// Anything that takes this long never ends.
const NEVER: Duration = Duration::from_secs(60);

fn settles(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + NEVER;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs something in its own thread, so that a test fails instead of hanging.
fn ends<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || drop(tell.send(run())));
    match told.recv_timeout(NEVER) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => panic!("it never ended: {what}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sent"),
        },
    }
}

/// A listener that does something at each event of a store.
struct Does(Box<dyn Fn(&Event) + Send + Sync>);

impl std::fmt::Debug for Does {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Does")
    }
}

impl EventListener for Does {
    fn on_event(&self, event: &Event) {
        (self.0)(event);
    }
}

fn listening(does: impl Fn(&Event) + Send + Sync + 'static) -> Options {
    Options::default().listener(Arc::new(Does(Box::new(does))))
}

const BUDGET_BYTES: u64 = 16 << 20;

fn resources(threads: usize) -> Resources {
    Resources::builder().memory_budget(BUDGET_BYTES).threads(threads).build().expect("resources")
}

fn on_memory(resources: &Resources, options: Options) -> Store {
    resources.open_on(Arc::new(SimStorage::new(1)), options).expect("a store")
}

/// Keyspaces over which a store's writes are spread, so that no memtable is large.
fn keyspaces(store: &Store) -> Vec<Keyspace> {
    (0..8).map(|n| store.open_keyspace(&n.to_string(), None).expect("a keyspace")).collect()
}

/// Writes this many bytes, evenly to all keyspaces.
fn write(to: &[Keyspace], bytes: u64) -> runstone::Result<()> {
    for n in 0..bytes / 1_000 {
        to[n as usize % to.len()].put(n.to_be_bytes(), [7; 1_000])?;
    }
    Ok(())
}

/// While the caller of such a store does something else, nobody runs its jobs.
#[test]
fn memtables_of_a_store_with_jobs_by_hand_hold_up_no_other() {
    let resources = resources(2);
    let by_hand = Options::default().background(Background::Manual);
    let manual = on_memory(&resources, by_hand);
    write(&keyspaces(&manual), 24 << 20).expect("it flushes what it must");
    let stores: Vec<Store> = (0..8).map(|_| on_memory(&resources, Options::default())).collect();
    ends("the writes of others", move || {
        let all: Vec<_> = stores.iter().map(|store| store.default_keyspace().clone()).collect();
        write(&all, 24 << 20).expect("they are written");
    });
    drop(manual);
}

#[test]
fn memtables_of_a_store_without_space_hold_up_no_other() {
    let resources = resources(2);
    let storage = SimStorage::new(1);
    let full = resources.open_on(Arc::new(storage.clone()), Options::default()).expect("a store");
    let own = keyspaces(&full);
    full.flush().expect("a flush");
    let kind = FaultKind::NoSpace;
    let category = Some(Category::Table);
    storage.inject(Fault { at_op: storage.ops(), kind, sticky: true, category });
    let refused = write(&own, 64 << 20).expect_err("there is no space");
    assert!(refused.is_no_space(), "{refused}");
    let stores: Vec<Store> = (0..8).map(|_| on_memory(&resources, Options::default())).collect();
    ends("the writes of others", move || {
        let all: Vec<_> = stores.iter().map(|store| store.default_keyspace().clone()).collect();
        write(&all, 24 << 20).expect("they are written");
    });
    storage.clear_faults();
    settles("it goes on when there is space", || write(&own, 100_000).is_ok());
}

/// Before a flush, a writer may log more than the memory budget of its followers.
#[test]
fn what_a_follower_keeps_of_a_log_holds_up_no_other() {
    let (resources, storage) = (resources(2), Arc::new(SimStorage::new(1)));
    let writer = Store::open_on(Arc::clone(&storage) as _, Options::default()).expect("a store");
    write(&[writer.default_keyspace().clone()], 2 * BUDGET_BYTES).expect("a buffer holds it");
    let follower = resources.follow_on(storage, Options::default()).expect("a store");
    let kept = resources.memory().memtable_bytes;
    assert!(kept > BUDGET_BYTES, "only {kept} bytes were not flushed");
    let stores: Vec<Store> = (0..8).map(|_| on_memory(&resources, Options::default())).collect();
    let others = stores.clone();
    ends("the writes of others", move || {
        let all: Vec<_> = others.iter().map(|store| store.default_keyspace().clone()).collect();
        write(&all, 24 << 20).expect("they are written");
    });
    assert!(stores.iter().all(|store| store.metrics().pressure.level.parts() < 1000));
    let last = (2 * BUDGET_BYTES / 1_000 - 1).to_be_bytes();
    assert!(follower.store().get(last).expect("a get").is_some());
}

/// The memory of the closed store is free, and nothing else notifies the other stores of this.
#[test]
fn a_store_that_closes_without_a_flush_slows_no_other_down() {
    let resources = resources(1);
    let other = on_memory(&resources, Options::default());
    let (release, released) = channel::<()>();
    let (released, is_held) = (Mutex::new(released), Arc::new(AtomicBool::new(false)));
    let held = Arc::clone(&is_held);
    let mut options = listening(move |event| {
        if matches!(event, Event::Flushed { .. }) && !held.swap(true, SeqCst) {
            released.lock().expect("unpoisoned").recv().expect("the test releases it");
        }
    });
    options.flush_at_close = false;
    let store = on_memory(&resources, options);
    let own = keyspaces(&store);
    store.put("k", "v").expect("a put");
    let flushing = store.clone();
    let flush = std::thread::spawn(move || flushing.flush());
    settles("its flush is held up", || is_held.load(SeqCst));
    let is_slow = || other.metrics().pressure.level.parts() > 0;
    for n in 0_u32.. {
        own[n as usize % own.len()].put(n.to_be_bytes(), [7; 1_000]).expect("a put");
        if is_slow() {
            break;
        }
        assert!(n < 1_000_000, "pressure is told");
    }
    let closing = store.clone();
    let closer = std::thread::spawn(move || closing.close());
    settles("it closes", || matches!(store.put("k", "v"), Err(Error::Closed)));
    release.send(()).expect("the flush waits");
    closer.join().expect("no panic").expect("closed");
    drop(flush.join().expect("no panic"));
    drop((store, own));
    // The thread that ran the flush may hold the store for a moment after its job has ended.
    settles("nobody is slowed down", || {
        other.put("k", "v").expect("a put");
        !is_slow()
    });
}

/// A flush of one store notifies another store, whose listener calls the first store.
#[test]
fn a_listener_told_by_another_store_is_refused_there() {
    let resources = resources(2);
    let first: Arc<OnceLock<Store>> = Arc::default();
    let (called, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (of, count, refusals) = (Arc::clone(&first), Arc::clone(&called), Arc::clone(&refused));
    let options = listening(move |event| {
        if let (Event::Pressure { .. }, Some(first)) = (event, of.get()) {
            let flushed = first.flush();
            refusals.fetch_add(usize::from(matches!(flushed, Err(Error::InsideCallback))), SeqCst);
            count.fetch_add(1, SeqCst);
        }
    });
    let _told = on_memory(&resources, options);
    let store = on_memory(&resources, Options::default());
    let own = keyspaces(&store);
    first.set(store.clone()).expect("once");
    ends("writes that tell the other", move || {
        for _ in 0..4 {
            write(&own, 16 << 20).expect("written");
        }
    });
    let count = called.load(SeqCst);
    assert!(count > 0 && refused.load(SeqCst) == count, "{count}");
    ends("a flush", move || store.flush().expect("a flush"));
}

/// The only thread that could flush is in the listener.
#[test]
fn a_listener_flushes_another_store_though_it_has_the_only_thread() {
    let resources = resources(1);
    let other = on_memory(&resources, Options::default());
    let is_done = Arc::new(AtomicBool::new(false));
    let (flushed, done) = (other.clone(), Arc::clone(&is_done));
    let options = listening(move |event| {
        if matches!(event, Event::Flushed { .. }) {
            flushed.put("k", "v").expect("a put");
            flushed.flush().expect("a flush");
            flushed.compact().expect("a compaction");
            flushed.wait_idle().expect("nothing is left");
            done.store(true, SeqCst);
        }
    });
    let store = on_memory(&resources, options);
    store.put("k", "v").expect("a put");
    let flushing = store.clone();
    ends("a flush", move || flushing.flush().expect("a flush"));
    settles("the other's too", || is_done.load(SeqCst));
    assert_eq!(other.metrics().counters.flushes, 1);
}

/// Nobody may wait for a thread that waits for the listener.
#[test]
fn the_last_handles_may_be_dropped_inside_a_listener() {
    for resources_go_first in [false, true] {
        let resources = resources(2);
        type Handles = Arc<Mutex<Option<(Store, Option<Resources>)>>>;
        let handles: Handles = Arc::default();
        let last = Arc::clone(&handles);
        let (go_on, waits) = channel::<()>();
        let (entered, enters) = channel();
        let (tell, told) = channel();
        let waits = Mutex::new(waits);
        let mut options = listening(move |event| match event {
            Event::Flushed { keyspace, .. } if keyspace == "waits" => {
                let _ = entered.send(());
                let _ = waits.lock().expect("unpoisoned").recv();
            }
            Event::Flushed { .. } => {
                let Some(handles) = last.lock().expect("unpoisoned").take() else { return };
                drop(handles);
                go_on.send(()).expect("the other waits");
                tell.send(()).expect("the test waits");
            }
            _ => {}
        });
        let write_buffer_bytes = 256 << 10;
        let small = KeyspaceOptions::default().write_buffer_bytes(write_buffer_bytes);
        options.keyspace = Some(small.clone());
        let store = on_memory(&resources, options);
        let waiting = store.open_keyspace("waits", Some(small)).expect("a keyspace");
        let dropping = store.default_keyspace().clone();
        write(&[waiting], 400_000).expect("written");
        enters.recv_timeout(NEVER).expect("it is flushed");
        // In either case, the store or the resources are dropped last.
        let resources = (!resources_go_first).then_some(resources);
        *handles.lock().expect("unpoisoned") = Some((store, resources));
        drop(std::thread::spawn(move || write(&[dropping], 400_000)));
        told.recv_timeout(NEVER).expect("the listener ends");
    }
}

/// The thread checks all stores now and then. If a store fails in such a check, it notifies its
/// listener.
#[test]
fn a_listener_that_panics_while_its_store_rests_ends_no_thread() {
    let resources = resources(1);
    let good = on_memory(&resources, Options::default());
    let storage = SimStorage::new(1);
    let told = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&told);
    let options = listening(move |event| {
        if matches!(event, Event::BackgroundError { .. }) {
            tells.store(true, SeqCst);
            panic!("as the test wants it");
        }
    });
    let bad = resources.open_on(Arc::new(storage.clone()), options).expect("a store");
    bad.put("k", "v").expect("a put");
    // The unsynced end of the manifest is synced when the store rests.
    let (kind, category) = (FaultKind::Eio, Some(Category::Manifest));
    bad.open_keyspace("made", None).expect("a keyspace");
    storage.inject(Fault { at_op: storage.ops(), kind, sticky: true, category });
    settles("it stops", || told.load(SeqCst));
    good.put("k", "v").expect("a put");
    let flushing = good.clone();
    ends("a flush of another", move || flushing.flush().expect("a flush"));
    assert!(matches!(bad.put("k", "v"), Err(Error::Stopped { .. })));
}

#[test]
fn nothing_is_left_of_stores_that_are_closed() {
    let resources = Resources::builder().threads(2).build().expect("resources");
    let small = KeyspaceOptions::default().write_buffer_bytes(8 << 20);
    for _ in 0..3 {
        let keyspace = Some(small.clone());
        let store = on_memory(&resources, Options::default().keyspace(keyspace));
        write(&keyspaces(&store), 64 << 20).expect("written");
        assert!(store.get(0_u64.to_be_bytes()).expect("a get").is_none());
        store.close().expect("a close");
    }
    assert_eq!(resources.stores(), 0);
    let memory = || resources.memory();
    settles("memory is given back", || {
        let left = memory();
        left.memtable_bytes + left.pinned_bytes + left.held_bytes + left.cache_bytes == 0
    });
}

/// The thread ends at its next check, which must not wait for the rate.
#[test]
fn a_drop_of_a_keyspace_waits_for_no_rate() {
    let resources = Resources::builder()
        .background_bytes_per_second(16 << 10)
        .threads(2)
        .build()
        .expect("resources");
    let store = on_memory(&resources, Options::default());
    let own = store.open_keyspace("dropped", None).expect("a keyspace");
    for _ in 0..2 {
        let random =
            |n: u64| (0..125).map(move |at| (n * 125 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for n in 0..4_000_u64 {
            let value: Vec<u8> = random(n).flat_map(u64::to_le_bytes).collect();
            own.put(n.to_be_bytes(), value).expect("a put");
        }
        store.flush().expect("a flush");
    }
    let compacting = own.clone();
    let compaction = std::thread::spawn(move || compacting.compact());
    settles("it waits", || store.metrics().counters.paused_ns > 0);
    let dropping = store.clone();
    ends("the drop", move || dropping.drop_keyspace("dropped").expect("dropped"));
    assert!(matches!(compaction.join().expect("no panic"), Err(Error::UnknownKeyspace { .. })));
}

#[test]
fn four_threads_open_and_close_two_hundred_stores() {
    let resources = resources(2);
    ends("all of it", move || {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let resources = &resources;
                scope.spawn(move || {
                    for n in 0..50_u32 {
                        let storage = SimStorage::new(u64::from(n));
                        let open =
                            || resources.open_on(Arc::new(storage.clone()), Options::default());
                        let store = open().expect("a store");
                        for key in 0..200_u32 {
                            store.put(key.to_be_bytes(), [thread; 2_000]).expect("a put");
                        }
                        match n % 3 {
                            0 => store.close().expect("a close"),
                            1 => drop(store),
                            _ => {
                                open().expect_err("in use");
                                store.compact().expect("a compaction");
                                drop(store);
                            }
                        }
                        let again = open().expect("again");
                        let value = again.get(7_u32.to_be_bytes()).expect("a get").expect("there");
                        assert_eq!(value[..], [thread; 2_000]);
                    }
                });
            }
        });
        assert_eq!(resources.stores(), 0);
    });
}
