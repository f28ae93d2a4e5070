//! What an open store tells those who watch it.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use runstone::{Background, LiveState, MetricsSnapshot, Options, Resources, Store, Watch};
use runstone_fault_storage::SimStorage;

/// What `look` finds, once it finds something.
fn awaited<T>(look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never came");
        sleep(Duration::from_millis(20));
    }
}

/// What the watched store tells, once it is of this many writes.
fn told(watch: &Watch, writes: u64) -> LiveState {
    awaited(|| {
        let state = watch.live().expect("readable").filter(LiveState::is_current);
        state.filter(|state| state.metrics.counters.writes == writes)
    })
}

fn is_there(storage: &SimStorage, name: &str) -> bool {
    storage.read_all(name).is_ok()
}

fn open(storage: &SimStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), Options::default()).expect("it opens")
}

fn watch(storage: &SimStorage) -> Watch {
    Store::watch_on(Arc::new(storage.clone())).expect("a store")
}

#[test]
fn who_watches_is_told_what_the_store_measures() {
    let storage = SimStorage::new(1);
    let store = open(&storage);
    store.put("key", "value").expect("a put");
    store.flush().expect("a flush");
    // As long as nobody asks.
    sleep(Duration::from_millis(2500));
    assert!(!is_there(&storage, "metrics"));
    let watch = watch(&storage);
    let state = told(&watch, 1);
    assert_eq!((state.process, state.metrics.counters.flushes), (std::process::id(), 1));
    assert_eq!(state.metrics.keyspaces[0].level_0_runs, 1);
    assert!(state.metrics.io.iter().any(|io| io.category == "table" && io.written_bytes > 0));
    assert_eq!(state.metrics.pressure.cause, "none");
    // It keeps nothing from being removed.
    store.put("key", "value").expect("a put");
    store.compact().expect("compacts");
    let later = told(&watch, 2);
    assert_eq!((later.metrics.followers, later.metrics.follower_held_bytes), (1, 0));
    assert!(later.number > state.number && later.written_ms > state.written_ms);
    let follower = Store::follow_on(Arc::new(storage.clone()), Options::default());
    let state = follower.expect("a follower").live().expect("readable").expect("told");
    assert_eq!(state.metrics.counters.writes, 2);
    store.close().expect("it closes");
    assert!(!is_there(&storage, "metrics") && watch.live().expect("readable").is_none());
}

/// Its files stay: the next one knows that nobody writes the old one any more.
#[test]
fn what_a_crashed_writer_told_grows_old_and_goes_at_the_next_open() {
    let before = SimStorage::new(2);
    let store = open(&before);
    store.put("key", "value").expect("a put");
    let watching = watch(&before);
    told(&watching, 1);
    let after = before.process_crash();
    let watching = watch(&after);
    let first = watching.live().expect("readable").expect("it was told");
    sleep(Duration::from_millis(5500));
    let old = watching.live().expect("readable").expect("it is there");
    assert!(old.number == first.number && !old.is_current(), "{:?}", old.age);
    let manual = Options::default().background(Background::Manual);
    let reopened = Store::open_on(Arc::new(after.clone()), manual).expect("it opens");
    assert!(watching.live().expect("readable").is_none(), "jobs by hand tell nothing");
    drop(reopened);
    let reopened = open(&after);
    assert_eq!(told(&watching, 0).metrics.counters.writes, 0, "of the new one");
    drop((reopened, store));
}

#[test]
fn a_full_disk_fails_no_write_for_what_is_told() {
    let storage = SimStorage::new(3);
    let store = open(&storage);
    let watch = watch(&storage);
    store.put("key", "value").expect("a put");
    told(&watch, 1);
    // The log has its space already.
    storage.set_capacity_bytes(Some(0));
    let last = watch.live().expect("readable").expect("told");
    sleep(Duration::from_millis(2500));
    (0..100).for_each(|n| store.put(format!("key{n}"), "value").expect("a put"));
    let state = watch.live().expect("readable").expect("the old one stays");
    assert!(state.number <= last.number + 1 && state.metrics.counters.writes == 1);
    assert!(!is_there(&storage, "metrics.new"), "half a file");
    storage.set_capacity_bytes(None);
    told(&watch, 101);
    store.close().expect("it closes");
}

/// Its lease is taken away with those of readers that hold too much.
#[test]
fn a_watch_that_is_revoked_asks_again() {
    let storage = SimStorage::new(4);
    let options = Options::default().follower_keep_bytes(0);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("it opens");
    store.put("key", "value").expect("a put");
    store.flush().expect("a flush");
    let watch = watch(&storage);
    told(&watch, 1);
    let follower = Store::follow_on(Arc::new(storage.clone()), Options::default());
    let follower = follower.expect("a follower");
    store.put("key", "value").expect("a put");
    store.compact().expect("what the follower reads is gone");
    awaited(|| (store.metrics().follower_leases_revoked >= 1).then_some(()));
    assert!(follower.refresh().is_err(), "it is revoked");
    told(&watch, 2);
    store.put("key", "value").expect("a put");
    told(&watch, 3);
}

#[test]
fn stores_that_share_threads_each_tell() {
    let resources = Resources::builder().threads(2).build().expect("resources");
    let storages: Vec<SimStorage> = (10..14).map(SimStorage::new).collect();
    let open = |storage: &SimStorage| {
        resources.open_on(Arc::new(storage.clone()), Options::default()).expect("it opens")
    };
    let stores: Vec<Store> = storages.iter().map(open).collect();
    for (number, store) in stores.iter().enumerate() {
        (0..=number).for_each(|n| store.put(n.to_string(), "value").expect("a put"));
    }
    let watches: Vec<Watch> = storages.iter().skip(1).map(watch).collect();
    for (number, watch) in watches.iter().enumerate() {
        told(watch, number as u64 + 2);
    }
    assert!(!is_there(&storages[0], "metrics"), "nobody watches it");
}

#[test]
fn a_store_opened_for_reading_tells_nothing() {
    let storage = SimStorage::new(5);
    open(&storage).close().expect("it closes");
    storage.read_all("CURRENT").expect("a store");
    let options = Options::default().read_only(true);
    let _reader = Store::open_on(Arc::new(storage.clone()), options).expect("it opens");
    let watch = watch(&storage);
    sleep(Duration::from_millis(2500));
    assert!(watch.live().expect("readable").is_none());
}

#[test]
fn metrics_come_back_from_their_json() {
    let storage = SimStorage::new(6);
    let store = open(&storage);
    (0..100).for_each(|n| store.put(n.to_string(), "value").expect("a put"));
    store.flush().expect("a flush");
    let metrics = store.metrics();
    let text = serde_json::to_string(&metrics).expect("numbers");
    let back: MetricsSnapshot = serde_json::from_str(&text).expect("the same");
    assert_eq!(serde_json::to_string(&back).expect("numbers"), text);
    assert_eq!(back.to_prometheus(), metrics.to_prometheus());
}
