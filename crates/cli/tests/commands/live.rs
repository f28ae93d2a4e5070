//! What an application's store reports to commands beside it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use runstone::{Background, ChangesFrom, Options, Store};

use crate::Place;

/// Once, `stats` beside an application printed counters of its own, all zero.
#[test]
fn stats_beside_an_application_are_those_of_the_application() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    (0..100).for_each(|number| store.put(format!("key{number}"), "value").expect("a put"));
    store.get("key1").expect("a get");
    let stats = place.json(&["stats", "s"]);
    assert_eq!(stats["metrics"]["counters"]["writes"], 100, "{stats}");
    assert_eq!(stats["writer"]["process"], std::process::id(), "{stats}");
    let text = place.ok(&["stats", "s"]);
    let told = format!("since process {} opened it, as of", std::process::id());
    assert!(text.contains(&told) && text.contains("1 get, 100 writes"), "{text}");
    assert!(place.ok(&["stats", "s", "--prometheus"]).contains("runstone_writes_total 100\n"));
    let shell = place.pipe(&["shell", "s", "--read-only"], "stats\n");
    assert!(shell.stdout.contains("100 writes"), "{}", shell.stdout);
    store.close().expect("it closes");
    let stats = place.json(&["stats", "s"]);
    assert!(stats["writer"].is_null() && stats["metrics"]["counters"]["writes"] == 0, "{stats}");
}

/// Once, only `--json` showed this space, and nobody knew why the directory was larger than the
/// store.
#[test]
fn stats_show_what_is_kept_for_readers() {
    let place = Place::new();
    for (name, keep_log_bytes) in [("kept", 1 << 30), ("held", 0)] {
        let options = Options::default().keep_log_bytes(keep_log_bytes).wal_segment_bytes(64 << 10);
        let store = Store::open(place.path(name), options).expect("a store");
        let reader = store.changes(ChangesFrom::Now).expect("it has a log");
        let reader = (keep_log_bytes == 0).then_some(reader);
        (0..100u8).for_each(|key| store.put([key], vec![7; 2000]).expect("a put"));
        assert!(!place.ok(&["stats", name]).contains("kept for readers"));
        store.flush().expect("a flush");
        // The application reports its state once a second.
        let end = Instant::now() + Duration::from_secs(60);
        let told = loop {
            let text = place.ok(&["stats", name]);
            if let Some(told) = text.lines().find(|line| line.contains("kept for readers: ")) {
                break told.to_string();
            }
            assert!(Instant::now() < end, "{text}");
            thread::sleep(Duration::from_millis(50));
        };
        let is_for_followers = told.contains(" for 1 follower") || told.contains(" followers");
        assert_eq!(
            (told.ends_with(" of log"), is_for_followers),
            (reader.is_none(), reader.is_some())
        );
        drop(reader);
        store.close().expect("it closes");
    }
}

/// No thread does the housekeeping of such a store, so it reports nothing. Zeros would be wrong.
#[test]
fn what_is_not_told_is_no_zero() {
    let place = Place::new();
    let options = Options::default().background(Background::Manual);
    let store = Store::open(place.path("s"), options).expect("a store");
    store.put("key", "value").expect("a put");
    let stats = place.json(&["stats", "s"]);
    assert!(stats["metrics"].is_null() && stats["writer"].is_null(), "{stats}");
    assert_eq!(stats["keyspaces"][0]["about_keys"], 1, "{stats}");
    let text = place.ok(&["stats", "s"]);
    assert!(text.contains("memory and counters: not told by the process"), "{text}");
    let ran = place.run(&["stats", "s", "--prometheus"]);
    assert!(ran.code == 4 && ran.stderr.contains("does not tell what it does"), "{}", ran.stderr);
    let ran = place.run(&["stats", "s", "--follow"]);
    let silent = format!("process {} has the store open, and does not tell", std::process::id());
    assert!(ran.code == 4 && ran.stderr.contains(&silent), "{}", ran.stderr);
    assert!(!place.path("s/metrics").exists());
}

#[test]
fn rates_are_followed_until_the_application_closes() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                store.put("key", "value").expect("a put");
                store.get("key").expect("a get");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let lines = place.ok(&["stats", "s", "--follow", "--lines", "2", "--json"]);
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("an object"));
        let lines: Vec<serde_json::Value> = lines.collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            let number = |name: &str| line[name].as_f64().expect("a number");
            assert!(number("writes_per_second") > 0.0 && number("gets_per_second") > 0.0, "{line}");
            assert_eq!(line["process"], std::process::id());
        }
        let text = place.ok(&["stats", "s", "--follow", "--lines", "1"]);
        assert_eq!(text.lines().count(), 2, "a header and a line: {text}");
        is_over.store(true, Relaxed);
    });
    thread::scope(|scope| {
        let following = scope.spawn(|| place.run(&["stats", "s", "--follow"]));
        while !place.path("s/metrics").exists() {
            thread::sleep(Duration::from_millis(10));
        }
        // Gives the command time to see it.
        thread::sleep(Duration::from_millis(1500));
        store.close().expect("it closes");
        let ran = following.join().expect("it ends");
        let told = format!("process {} has closed the store", std::process::id());
        assert!(ran.code == 0 && ran.stderr.contains(&told), "{}", ran.stderr);
    });
    assert!(!place.path("s/metrics").exists());
    let ran = place.run(&["stats", "s", "--follow"]);
    assert!(
        ran.code == 4 && ran.stderr.contains("no process writes to the store"),
        "{}",
        ran.stderr
    );
}

#[test]
fn following_needs_a_store_in_a_directory() {
    let place = Place::new();
    for (store, told) in [("mem:", "for stores in directories"), ("nothing", "is not a store")] {
        let ran = place.run(&["stats", store, "--follow"]);
        assert!(ran.code != 0 && ran.stderr.contains(told), "{store}: {}", ran.stderr);
    }
    let ran = place.run(&["stats", "nothing", "--lines", "3"]);
    assert!(ran.code == 3 && ran.stderr.contains("--follow"), "{}", ran.stderr);
}

#[test]
fn an_application_changes_what_a_command_asks() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    let ran = place.run(&["set", "s", "l0_trigger=7", "shape.c=0.5", "memory_budget_bytes=256M"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for told in ["shape.l0_trigger: 8 -> 7", "memory_budget_bytes: 536870912 -> 268435456"] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    assert_eq!(store.metrics().memory.budget_bytes, 256 << 20);
    let done = place.json(&["set", "s", "background_io_bytes_per_second=8M"]);
    assert_eq!(done["changes"][0]["old"], "unlimited", "{done}");
    assert_eq!(done["changes"][0]["new"], "8388608", "{done}");
    store.open_keyspace("two", None).expect("a keyspace");
    place.ok(&["set", "s", "--keyspace", "two", "write_buffer_bytes=1M"]);
    for (wrong, told) in [
        ("background_threads=0", "must be 1 to 256"),
        ("background_thread=2", "no option is named"),
        ("l0_trigger=0", "l0_trigger"),
        ("policy=nothing", "nothing"),
        ("compactions", "has no value"),
        ("max_open_files=9", "is not kept in it"),
    ] {
        let ran = place.run(&["set", "s", "ttl_seconds=5", wrong]);
        assert!(ran.code != 0 && ran.stderr.contains(told), "{wrong}: {}", ran.stderr);
    }
    assert_eq!(store.default_keyspace().options().ttl_seconds, 0, "all or none");
    let ran = place.run(&["set", "s", "l0_trigger=7"]);
    assert!(ran.code == 0 && ran.stderr.contains("nothing changed"), "{}", ran.stderr);
    store.close().expect("it closes");
    assert_eq!(place.json(&["options", "s"])["options"]["shape"]["l0_trigger"], 7);
    let two = place.json(&["options", "s", "--keyspace", "two"]);
    assert_eq!(two["options"]["write_buffer_bytes"], 1 << 20);
    let ran = place.run(&["set", "s", "compactions=paused"]);
    assert!(ran.code == 3 && ran.stderr.contains("no process has this one open"), "{}", ran.stderr);
}

#[test]
fn commands_that_ask_at_once_wait_for_each_other() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    thread::scope(|scope| {
        for count in ["1", "2", "3"] {
            let place = &place;
            scope.spawn(move || {
                let done = place.json(&["set", "s", &format!("background_threads={count}")]);
                assert_eq!(done["changes"][0]["new"], count, "{done}");
            });
        }
    });
    store.close().expect("it closes");
}

#[test]
fn a_program_that_runs_its_jobs_by_hand_may_not_answer() {
    let place = Place::new();
    let options = Options::default().background(Background::Manual);
    let store = Store::open(place.path("s"), options).expect("a store");
    let ran = place.run(&["set", "s", "compactions=paused"]);
    let told = format!("process {} has the store open, and did not answer", std::process::id());
    assert!(ran.code != 0 && ran.stderr.contains(&told), "{}", ran.stderr);
    assert!(ran.stderr.contains("answer_requests"), "{}", ran.stderr);
    store.close().expect("it closes");
}
