//! What an open store reports to processes that watch it, and the requests that it carries out.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use runstone::policy::custom::options_of;
use runstone::storage::{Category, LockMode, Storage};
use runstone::{
    Background, Error, KeyspaceOptions, LiveRequest, LiveState, MetricsSnapshot, Options,
    Resources, Store, ValuePlacement, Watch,
};
use runstone_fault_storage::SimStorage;

/// Waits until `look` returns something, and returns that.
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

/// Waits until the watched store reports this many writes, and returns its state.
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
    // While nobody watches, the store writes no file.
    sleep(Duration::from_millis(2500));
    assert!(!is_there(&storage, "metrics"));
    let watch = watch(&storage);
    let state = told(&watch, 1);
    assert_eq!((state.process, state.metrics.counters.flushes), (std::process::id(), 1));
    assert_eq!(state.metrics.keyspaces[0].level_0_runs, 1);
    assert!(state.metrics.io.iter().any(|io| io.category == "table" && io.written_bytes > 0));
    assert_eq!(state.metrics.pressure.cause, "none");
    // A watch does not keep files from being removed.
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

/// The files of a crashed writer remain. The next writer knows that nobody writes them any more.
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
    // The log already has its space.
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

/// The lease of a watch is revoked together with the leases of readers that hold too much.
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

/// Long enough on every machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn refusal(result: runstone::Result<impl std::fmt::Debug>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn settings_of_an_open_store_can_be_changed() {
    let storage = SimStorage::new(20);
    let store = open(&storage);
    let value = |name: &str| {
        let all = store.live_settings().expect("it is open");
        all.into_iter().find(|setting| setting.name == name).expect("it is there").value
    };
    let change = store.set_live("memory_budget_bytes", "96M").expect("possible");
    assert_eq!((change.old, change.new), ((512u64 << 20).to_string(), (96u64 << 20).to_string()));
    assert_eq!(store.metrics().memory.budget_bytes, 96 << 20);
    for (name, wanted) in [
        ("background_threads", "3"),
        ("background_io_bytes_per_second", "1048576"),
        ("background_io_bytes_per_second", "unlimited"),
        ("target_p99", "5000us"),
        ("target_p99", "off"),
        ("compactions", "paused"),
        ("compactions", "running"),
        ("background_threads", "1"),
    ] {
        store.set_live(name, wanted).expect("possible");
        assert_eq!(value(name), wanted);
    }
    for (name, wrong, told) in [
        ("memory_budget_bytes", "0", "must be 83886080 to"),
        ("memory_budget_bytes", "much", "has no known unit"),
        ("background_threads", "0", "must be 1 to 256"),
        ("background_threads", "many", "is not a number"),
        ("background_io_bytes_per_second", "0", "must be at least 16384"),
        ("target_p99", "0ms", "is not a latency from 10us to 60s"),
        ("target_p99", "5", "is not a latency from 10us to 60s"),
        ("target_p99", "99999999999999999999s", "is not a latency from 10us to 60s"),
        ("compactions", "stopped", "neither paused nor running"),
        ("background_thread", "2", "did you mean background_threads?"),
    ] {
        let told_now = refusal(store.set_live(name, wrong));
        assert!(told_now.contains(told), "{name}={wrong}: {told_now}");
    }
    assert_eq!(value("memory_budget_bytes"), (96u64 << 20).to_string());
    // The one remaining thread does everything.
    store.put("key", "value").expect("a put");
    store.flush().expect("a flush");
    store.wait_idle().expect("jobs end");
    let clone = store.clone();
    store.close().expect("it closes");
    assert!(clone.live_settings().is_err() && clone.set_live("compactions", "paused").is_err());
}

/// A pause that lasted for ever would stop writers for ever.
#[test]
fn paused_compactions_run_once_writers_would_be_slowed_down() {
    let storage = SimStorage::new(21);
    let toml = "l0_slowdown_runs = 6\nl0_stop_runs = 8\n[shape]\nl0_trigger = 2\n";
    let options = KeyspaceOptions::default().with_toml(toml).expect("possible");
    let options = Options::default().keyspace(options).background(Background::Manual);
    let store = Store::open_on(Arc::new(storage), options).expect("it opens");
    store.set_live("compactions", "paused").expect("possible");
    let flush = |number: u32| {
        store.put(format!("key{number}"), "value").expect("a put");
        store.flush().expect("a flush");
        store.wait_idle().expect("jobs end");
        (store.metrics().keyspaces[0].level_0_runs, store.metrics().counters.compactions)
    };
    let seen: Vec<(u64, u64)> = (0..5).map(flush).collect();
    assert_eq!(seen, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
    let (runs, compactions) = (5..20).map(flush).fold((0, 0), |_, seen| seen);
    assert!(runs < 6 && compactions > 0, "{runs} runs, {compactions} compactions");
    store.set_live("compactions", "running").expect("possible");
    store.wait_idle().expect("jobs end");
    assert!(store.metrics().keyspaces[0].level_0_runs < 2);
}

/// Once, a compaction at a low rate had to sleep for minutes, because the bytes of flushes counted
/// too. A change of options or a load waited for the compaction, and held back the flushes for
/// which writers wait.
#[test]
fn who_waits_for_a_compaction_does_not_wait_for_the_rate() {
    let storage = SimStorage::new(1);
    let options = KeyspaceOptions::default().with_toml("compression = \"none\"").expect("possible");
    let options = Options::default().keyspace(options);
    let store = Store::open_on(Arc::new(storage), options).expect("it opens");
    store.set_live("compactions", "paused").expect("possible");
    store.set_live("background_io_bytes_per_second", "16384").expect("possible");
    for _ in 0..store.default_keyspace().options().l0_slowdown_runs / 2 {
        (0..500_u64).for_each(|n| store.put(n.to_be_bytes(), [7; 500]).expect("a put"));
        store.flush().expect("a flush");
    }
    store.set_live("compactions", "running").expect("possible");
    let paused_ns = || store.metrics().counters.paused_ns;
    awaited(|| (paused_ns() > 0).then_some(()));
    let options = store.default_keyspace().options().with_toml("restart_interval = 8");
    store.open_keyspace("default", Some(options.expect("possible"))).expect("changed");
    store.default_keyspace().bulk_load([("a", "loaded")]).expect("loaded");
    let paused = Duration::from_nanos(paused_ns());
    assert!(paused < Duration::from_secs(10), "{paused:?}, though it owed more than a minute");
}

/// The cache gives memory back, and writers stay within the smaller budget.
#[test]
fn a_smaller_budget_holds_for_what_comes() {
    let storage = SimStorage::new(22);
    let options = Options::default().memory_budget_bytes(256 << 20).wal_segment_bytes(1 << 20);
    let store = Store::open_on(Arc::new(storage), options).expect("it opens");
    let fill = |round: u32| {
        for number in 0..20_000 {
            store.put(format!("{round}-{number}"), vec![7; 1000]).expect("a put");
        }
        store.flush().expect("a flush");
        assert!(store.default_keyspace().iter().expect("a scan").count() > 0);
    };
    fill(0);
    store.set_live("memory_budget_bytes", "16M").expect("possible");
    fill(1);
    let memory = store.metrics().memory;
    let used = memory.memtable_bytes + memory.pinned_bytes + memory.cache_bytes;
    assert!(used <= 16 << 20, "{memory:?}");
    store.set_live("memory_budget_bytes", "64M").expect("possible");
    fill(2);
    assert!(store.metrics().memory.cache_bytes > 16 << 20, "it uses what it is given");
}

/// A change applies to all stores that share the resources.
#[test]
fn stores_that_share_resources_share_their_settings() {
    let resources = Resources::builder().threads(2).memory_budget(64 << 20).build();
    let resources = resources.expect("resources");
    let open = |seed| {
        let storage = Arc::new(SimStorage::new(seed));
        resources.open_on(storage, Options::default()).expect("it opens")
    };
    let (one, other) = (open(30), open(31));
    one.set_live("memory_budget_bytes", "32M").expect("possible");
    one.set_live("background_threads", "4").expect("possible");
    one.set_live("compactions", "paused").expect("possible");
    one.set_live("target_p99", "5ms").expect("possible");
    let values = other.live_settings().expect("it is open");
    let values: Vec<&str> = values.iter().map(|setting| setting.value.as_str()).collect();
    assert_eq!(values, ["33554432", "4", "unlimited", "5000us", "running", "off"]);
    assert_eq!(resources.memory().budget_bytes, 32 << 20);
    drop(one);
    other.put("key", "value").expect("a put");
    other.flush().expect("a flush");
}

fn request() -> LiveRequest {
    LiveRequest::new()
}

#[test]
fn a_request_of_another_process_is_answered() {
    let storage = SimStorage::new(40);
    let store = open(&storage);
    let toml = "write_buffer_bytes = 1048576\n[shape]\nl0_trigger = 7\n";
    let asked = request().options("default", toml).setting("background_threads", "3");
    // A wait that would end beyond the range of the clock has no end.
    let changes = asked.send_on(&storage, Duration::MAX).expect("it is answered");
    let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, ["shape.l0_trigger", "write_buffer_bytes", "background_threads"]);
    assert_eq!((changes[0].new.as_str(), changes[2].new.as_str()), ("7", "3"));
    assert_eq!(options_of(&store.default_keyspace().options()).l0_trigger(), 7);
    for (asked, told) in [
        (request().setting("no_such", "1"), "no setting of an open store is named \"no_such\""),
        (request().setting("background_threads", "0"), "must be 1 to 256"),
        (request().options("none", "ttl_seconds = 1"), "keyspace \"none\" does not exist"),
        (request().options("default", "no_such = 1"), "no_such"),
        (request().options("default", "[shape]\nl0_trigger = 0"), "l0_trigger"),
        (request().options("default", "[[["), "line 1"),
    ] {
        let both = asked.setting("background_threads", "2");
        let told_now = refusal(both.send_on(&storage, PATIENCE));
        assert!(told_now.contains(told), "{told}: {told_now}");
    }
    let threads = &store.live_settings().expect("it is open")[1];
    assert_eq!((threads.name, threads.value.as_str()), ("background_threads", "3"), "all or none");
    for name in ["set.request", "set.answer", "set.request.new", "set.answer.new"] {
        assert!(!is_there(&storage, name), "{name}");
    }
    store.close().expect("it closes");
    let options = Options::default().background(Background::Manual);
    let store = Store::open_on(Arc::new(storage), options).expect("it opens");
    assert_eq!(options_of(&store.default_keyspace().options()).l0_trigger(), 7, "it is kept");
}

/// Once, a request for several keyspaces changed the keyspaces before the one that refused it.
#[test]
fn a_keyspace_that_refuses_leaves_the_others_as_they_were() {
    let storage = SimStorage::new(46);
    let store = open(&storage);
    let adding = KeyspaceOptions::default().merge_operator("add-i64");
    let mut grouped = KeyspaceOptions::default();
    (grouped.values.placement, grouped.values.groups) = (ValuePlacement::HashGrouped, 4);
    let made = [("a", KeyspaceOptions::default()), ("b", adding), ("c", grouped)];
    for (name, options) in &made {
        let keyspace = store.open_keyspace(name, Some(options.clone())).expect("room");
        keyspace.put("some key", "value").expect("room");
    }
    store.flush().expect("room");
    for (name, toml, why) in [
        ("b", "merge_operator = \"add-u64\"", "holds operands of merge operator add-i64"),
        ("c", "[values]\ngroups = 8", "the keyspace was made with 4"),
    ] {
        let asked = request().options("a", "[shape]\nl0_trigger = 7").options(name, toml);
        let told = refusal(asked.send_on(&storage, PATIENCE));
        assert!(told.contains(why), "{name}: {told}");
        for (name, options) in &made {
            let now = store.keyspace(name).expect("it is there").options();
            assert_eq!(*now, *options, "{name}: {told}");
        }
    }
    store.close().expect("it closes");
}

#[test]
fn two_ask_at_once_and_both_are_answered() {
    let storage = SimStorage::new(41);
    let store = open(&storage);
    std::thread::scope(|scope| {
        for count in ["2", "3", "4", "5"] {
            let storage = storage.clone();
            scope.spawn(move || {
                let asked = request().setting("background_threads", count);
                let changes = asked.send_on(&storage, PATIENCE).expect("it is answered");
                assert_eq!(changes[0].new, count);
            });
        }
    });
    store.close().expect("it closes");
}

/// If jobs are run by hand, requests are answered by hand too.
#[test]
fn what_nobody_answers_is_withdrawn() {
    let storage = SimStorage::new(42);
    let options = Options::default().background(Background::Manual);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("it opens");
    assert!(!store.answer_requests().expect("nothing"));
    let asked = request().setting("compactions", "paused");
    let told = refusal(asked.clone().send_on(&storage, Duration::from_millis(200)));
    assert!(told.contains("did not answer"), "{told}");
    assert!(!is_there(&storage, "set.request"));
    assert!(!store.answer_requests().expect("nothing"), "it was withdrawn");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| asked.send_on(&storage, PATIENCE));
        awaited(|| store.answer_requests().expect("readable").then_some(()));
        assert_eq!(asking.join().expect("ends").expect("answered")[0].new, "paused");
    });
    let told = refusal(
        request()
            .setting("background_threads", "2")
            .setting("x", "y")
            .send_on(&SimStorage::new(43), Duration::from_millis(10)),
    );
    assert!(told.contains("is not a store"), "{told}");
}

#[test]
fn what_a_dead_or_torn_request_asks_is_not_done() {
    let storage = SimStorage::new(44);
    let manual = || Options::default().background(Background::Manual);
    let open = || Store::open_on(Arc::new(storage.clone()), manual()).expect("it opens");
    let store = open();
    // The requester dies: its lock is released, but its request remains.
    let request_bytes = std::thread::scope(|scope| {
        let asked = request().setting("compactions", "paused");
        let asking = scope.spawn(|| asked.send_on(&storage, PATIENCE));
        let bytes = awaited(|| storage.read_all("set.request").ok());
        awaited(|| store.answer_requests().expect("readable").then_some(()));
        asking.join().expect("ends").expect("answered");
        bytes
    });
    store.set_live("compactions", "running").expect("possible");
    let leave = |bytes: &[u8]| {
        let file = storage.create("set.request", Category::Other).expect("a file");
        file.write_at(0, bytes).expect("written");
    };
    leave(&request_bytes);
    assert!(store.answer_requests().expect("removed"));
    assert!(!is_there(&storage, "set.request") && !is_there(&storage, "set.answer"));
    assert_eq!(store.live_settings().expect("open")[4].value, "running");
    // The open removes such a request too.
    leave(&request_bytes);
    drop(store);
    let store = open();
    assert!(!is_there(&storage, "set.request"));
    // A torn request, whose sender still waits.
    let lock = storage.lock("set.lock", LockMode::Exclusive).expect("readable").expect("free");
    leave(&request_bytes[..request_bytes.len() - 1]);
    assert!(store.answer_requests().expect("answered"));
    let answer =
        String::from_utf8_lossy(&storage.read_all("set.answer").expect("there")).to_string();
    assert!(answer.contains("does not verify"), "{answer}");
    drop(lock);
    let reader = Options::default().read_only(true);
    drop(store);
    let reader = Store::open_on(Arc::new(storage), reader).expect("it opens");
    assert!(refusal(reader.answer_requests()).contains("reading only"));
    assert!(reader.set_live("compactions", "paused").is_err());
}

/// Other programs may use these file names too.
#[test]
fn a_file_of_such_a_name_where_no_store_is_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let mine = dir.path().join("metrics");
    std::fs::write(&mine, "mine").expect("written");
    let opened = Store::open(dir.path(), Options::default());
    assert!(matches!(opened, Err(Error::ForeignFiles { .. })), "{opened:?}");
    assert!(matches!(Store::destroy(dir.path()), Err(Error::NotAStore { .. })));
    assert_eq!(std::fs::read_to_string(&mine).expect("it is there"), "mine");

    let path = dir.path().join("store");
    let store = Store::open(&path, Options::default()).expect("a new store");
    let watch = Store::watch(&path).expect("a store");
    awaited(|| watch.live().expect("readable"));
    request().setting("compactions", "paused").send(&path, PATIENCE).expect("answered");
    std::mem::forget(store);
    // As after a crash, the files remain. The store still runs, and may rename a file meanwhile.
    let store = tempfile::tempdir().expect("a directory");
    for file in std::fs::read_dir(&path).expect("a directory").flatten() {
        if let Err(error) = std::fs::copy(file.path(), store.path().join(file.file_name())) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
    assert!(store.path().join("metrics").exists() && store.path().join("set.lock").exists());
    Store::destroy(store.path()).expect("all of them are the store's");
    assert_eq!(std::fs::read_dir(store.path()).expect("it stays").count(), 0);
}

/// No write is as fast as this target. So background work is slowed down while somebody writes, and
/// runs freely again once nobody does. Flushes continue all the time.
#[test]
fn a_target_of_latency_slows_the_background_while_somebody_waits() {
    let place = tempfile::tempdir().expect("a directory");
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 1 << 20;
    let options = Options::default().keyspace(keyspace).background(Background::Threads(2));
    let store = Store::open(place.path(), options).expect("it opens");
    let limit = || store.metrics().background_io_limit_bytes;
    let write = |number: u64| {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        store.put(key, [number as u8; 500]).expect("a put");
        if number.is_multiple_of(64) {
            store.sync().expect("a sync");
            let durable = runstone::WriteOptions::sync();
            store.default_keyspace().put_with("synced", "value", durable).expect("a put");
        }
    };
    (0..10_000).for_each(write);
    assert_eq!(limit(), None, "no target");
    store.set_live("target_p99", "10us").expect("a target");
    let end = Instant::now() + Duration::from_secs(60);
    let mut number = 10_000;
    while limit().is_none() {
        (0..100).for_each(|more| write(number + more));
        number += 100;
        assert!(Instant::now() < end, "it never slowed down");
    }
    let flushes = store.metrics().counters.flushes;
    assert!(flushes > 1 && limit() >= Some(1 << 20), "{flushes}, {:?}", limit());
    awaited(|| limit().is_none().then_some(()));
    store.set_live("target_p99", "off").expect("no target");
    store.wait_idle().expect("idle");
    store.close().expect("a close");
}
