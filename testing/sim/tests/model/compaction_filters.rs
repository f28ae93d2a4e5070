//! Compaction filters: which entries they are shown, what their decisions do, and what they cannot
//! break.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, CompactionFilter, Event, EventListener, Expiry, FilterDecision, GcPointers,
    KeyspaceOptions, Options, ReadOptions, Store, SubCompactions, ValuePlacement,
};
use runstone_sim::found::holds_and_finds;
use runstone_sim::random::Random;

/// Removes values that begin with `-`, replaces those that begin with `+`, and notes the entries
/// that it was shown.
#[derive(Debug, Default)]
struct Signs {
    shown: Mutex<Vec<(u32, String, Vec<u8>)>>,
    panics: AtomicBool,
}

impl Signs {
    fn take_shown(&self) -> Vec<String> {
        let shown = std::mem::take(&mut *self.shown.lock().expect("sound"));
        shown.into_iter().map(|(_, key, _)| key).collect()
    }
}

impl CompactionFilter for Signs {
    fn name(&self) -> &str {
        "signs"
    }

    fn decide(&self, level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        let name = String::from_utf8_lossy(key).into_owned();
        self.shown.lock().expect("sound").push((level, name, value.to_vec()));
        assert!(!self.panics.load(Relaxed), "told to");
        match value.first() {
            Some(b'-') => FilterDecision::Remove,
            Some(b'+') => FilterDecision::Change([b"new", &value[1..]].concat()),
            _ => FilterDecision::Keep,
        }
    }
}

fn options(filter: &Arc<Signs>, change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut keyspace =
        KeyspaceOptions::default().compaction_filter("signs").write_buffer_bytes(1 << 20);
    change(&mut keyspace);
    Options::default()
        .background(Background::Manual)
        .compaction_filters(vec![Arc::clone(filter) as Arc<dyn CompactionFilter>])
        .keyspace(keyspace)
}

fn apart(keyspace: &mut KeyspaceOptions) {
    keyspace.values.placement = ValuePlacement::HashGrouped;
    (keyspace.values.separate_at, keyspace.values.slot_bytes) = (8, 4096);
    keyspace.values.groups = 2;
}

fn fresh(options: Options) -> Store {
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens")
}

fn get(store: &Store, key: &str) -> Option<String> {
    let value = store.get(key).expect("reads");
    value.map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

/// Decisions take effect, even for entries that expire, and for values that are separated, or that
/// are still separated because the keyspace had another placement.
#[test]
fn decisions_hold() {
    holds_and_finds(Bug::FilterForgetsExpiry, || {
        for (was_apart, is_apart) in [(false, false), (true, false), (true, true)] {
            let filter = Arc::new(Signs::default());
            let change = |keyspace: &mut KeyspaceOptions| {
                if was_apart {
                    keyspace.compaction_filter.clear();
                    apart(keyspace);
                }
            };
            let store = fresh(options(&filter, change));
            let ttl = Duration::from_secs(3600);
            for (key, value) in
                [("keep", "0123456789"), ("go", "-123456789"), ("new", "+123456789")]
            {
                store.put(key, value).expect("writes");
                let key = format!("{key}/short-lived");
                store.default_keyspace().put_with_ttl(key, value, ttl).expect("writes");
            }
            store.flush().expect("flushes");
            let then = |keyspace: &mut KeyspaceOptions| {
                if is_apart {
                    apart(keyspace);
                }
            };
            store.open_keyspace("default", options(&filter, then).keyspace).expect("changes");
            assert!(filter.take_shown().is_empty(), "flushes show it nothing");
            assert_eq!(get(&store, "go").as_deref(), Some("-123456789"));
            store.compact().expect("compacts");
            assert_eq!(filter.take_shown().len(), 6);
            for end in ["", "/short-lived"] {
                assert_eq!(get(&store, &format!("keep{end}")).as_deref(), Some("0123456789"));
                assert_eq!(get(&store, &format!("go{end}")), None);
                assert_eq!(get(&store, &format!("new{end}")).as_deref(), Some("new123456789"));
            }
            let expiry = store.default_keyspace().expiry("new/short-lived").expect("reads");
            assert!(matches!(expiry, Some(Expiry::At(_))), "{expiry:?}");
            let shape = unstable::shape(store.default_keyspace());
            assert_eq!(shape.tables().map(|(_, table)| table.entries).sum::<u64>(), 4);
            // Each compaction that a caller asks for shows the filter everything.
            store.compact().expect("compacts");
            assert_eq!(filter.take_shown().len(), 4);
            assert!(store.verify().expect("verifies").is_clean());
            let counters = store.metrics().counters;
            let counted =
                (counters.entries_removed_by_filters, counters.entries_changed_by_filters);
            assert_eq!(counted, (2, 2));
            if is_apart {
                // Removed values are gone from the groups, and changed values are in them.
                store.collect_values().expect("collects");
                let usage = store.default_keyspace().value_usage();
                let groups = usage[0].groups.iter();
                let records: u64 = groups.map(|group| group.records).sum();
                assert!((4..=8).contains(&records), "{records} records");
                assert_eq!(get(&store, "new").as_deref(), Some("new123456789"));
            }
        }
    });
}

/// A compaction that a caller asks for shows the filter everything and drops all tombstones. This
/// holds even for tables that overlap no others, which a compaction usually moves as they are.
#[test]
fn lone_tables_are_not_passed_over() {
    for sub_compactions in [SubCompactions::Slices, SubCompactions::Components] {
        let filter = Arc::new(Signs::default());
        let set = |name: &str| {
            let name = name.to_string();
            options(&filter, move |keyspace| {
                (keyspace.compaction_filter, keyspace.sub_compactions) = (name, sub_compactions);
                (
                    unstable::numbers_mut(keyspace).table_bytes,
                    unstable::numbers_mut(keyspace).base_bytes,
                ) = (16 << 10, 64 << 10);
            })
        };
        let store = fresh(set(""));
        let mut random = Random::new(5);
        let mut value = || (0..100).map(|_| random.draw() as u8 | 0x80).collect::<Vec<u8>>();
        for key in 0..2_000 {
            store.put(format!("key{key:04}"), value()).expect("writes");
        }
        store.compact().expect("compacts");
        let store_options = set("signs");
        store.open_keyspace("default", store_options.keyspace).expect("changes");
        store.compact().expect("compacts");
        assert_eq!(filter.take_shown().len(), 2_000, "{sub_compactions:?}");
        store.open_keyspace("default", set("").keyspace).expect("changes");
        store.put("zebra", "short").expect("writes");
        let snapshot = store.snapshot();
        store.delete("zebra").expect("writes");
        store.flush().expect("flushes");
        drop(snapshot);
        store.compact().expect("compacts");
        let shape = unstable::shape(store.default_keyspace());
        let tombstones: u64 = shape.tables().map(|(_, table)| table.tombstones).sum();
        assert_eq!(tombstones, 0, "{sub_compactions:?}");
    }
}

/// If the filter removes a version in an upper level, no older version below comes back.
#[test]
fn a_removal_hides_older_versions() {
    holds_and_finds(Bug::FilterUncoversOlder, || {
        let filter = Arc::new(Signs::default());
        let store = fresh(options(&filter, |keyspace| {
            keyspace.policy = "universal".into();
            unstable::numbers_mut(keyspace).l0_trigger = 3;
        }));
        store.put("a", "older").expect("writes");
        // These entries make a run so large that the merges of small runs leave it alone.
        (0..2000).for_each(|i| store.put(format!("large{i}"), [7; 100]).expect("writes"));
        store.compact().expect("compacts");
        filter.take_shown();
        store.put("a", "-newer").expect("writes");
        let mut shown = Vec::new();
        for round in 0..20 {
            if shown.contains(&"a".to_string()) {
                break;
            }
            // These keys surround `a`, so that the table of `a` is not moved as it is.
            for side in ["0", "b"] {
                store.put(format!("{side}{round}"), "stays").expect("writes");
            }
            store.flush().expect("flushes");
            store.wait_idle().expect("works");
            shown.extend(filter.take_shown());
        }
        assert_eq!(shown.iter().filter(|key| *key == "a").count(), 1);
        let shape = unstable::shape(store.default_keyspace());
        let holding = shape.tables().filter(|(_, table)| table.overlaps(b"a", b"a")).count();
        assert_eq!(holding, 2, "the older one lies elsewhere");
        assert_eq!(get(&store, "a"), None);
        store.compact().expect("compacts");
        assert_eq!(get(&store, "a"), None);
    });
}

#[test]
fn it_is_not_shown_what_a_snapshot_needs() {
    holds_and_finds(Bug::FilterIgnoresSnapshots, || {
        let filter = Arc::new(Signs::default());
        let store =
            fresh(options(&filter, |keyspace| keyspace.merge_operator = "append(,)".into()));
        store.put("seen", "-by the snapshot").expect("writes");
        store.put("replaced", "-by the snapshot").expect("writes");
        let snapshot = store.snapshot();
        store.put("replaced", "-by nobody else").expect("writes");
        store.put("fresh", "-by nobody else").expect("writes");
        store.default_keyspace().merge("operands", "-1").expect("writes");
        store.compact().expect("compacts");
        assert_eq!(filter.take_shown(), ["fresh", "replaced"]);
        assert_eq!(get(&store, "seen").as_deref(), Some("-by the snapshot"));
        let keyspace = store.default_keyspace();
        let old = keyspace.get_at("replaced", &snapshot).expect("reads");
        assert_eq!(old.as_deref(), Some(&b"-by the snapshot"[..]));
        assert_eq!(get(&store, "replaced"), None);
        assert_eq!(get(&store, "operands").as_deref(), Some("-1"));
        drop(snapshot);
        store.compact().expect("compacts");
        assert_eq!(keyspace.iter().expect("opens").count(), 0);
    });
}

#[derive(Debug, Default)]
struct Errors(Mutex<Vec<String>>);

impl EventListener for Errors {
    fn on_event(&self, event: &Event) {
        let text = match event {
            Event::BackgroundError { error } => error.to_string(),
            Event::CompactionFilterMissing { keyspace, filter } => {
                format!("{keyspace} lacks {filter}")
            }
            _ => return,
        };
        self.0.lock().expect("sound").push(text);
    }
}

#[test]
fn one_that_panics_or_is_unknown_loses_nothing() {
    let (filter, errors) = (Arc::new(Signs::default()), Arc::new(Errors::default()));
    let mut known = options(&filter, |_| ());
    known.listener = Some(Arc::clone(&errors) as Arc<dyn EventListener>);
    let storage = MemoryStorage::new();
    let open = |options: &Options| {
        Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens")
    };
    let store = open(&known);
    filter.panics.store(true, Relaxed);
    for key in ["a", "b"] {
        store.put(key, "-").expect("writes");
    }
    store.compact().expect("compacts");
    assert_eq!(get(&store, "a").as_deref(), Some("-"));
    let told = std::mem::take(&mut *errors.0.lock().expect("sound"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("compaction filter signs failed at key \"a\": it panicked"),
        "{told:?}"
    );
    store.close().expect("closes");
    let unknown = known.clone().compaction_filters(Vec::new());
    let store = open(&unknown);
    assert_eq!(*errors.0.lock().expect("sound"), ["default lacks signs"]);
    let missing = store.default_keyspace().missing_compaction_filter();
    assert_eq!(missing.as_deref(), Some("signs"));
    store.put("c", "-").expect("writes");
    store.compact().expect("compacts");
    assert_eq!(get(&store, "c").as_deref(), Some("-"));
    store.close().expect("closes");
    filter.panics.store(false, Relaxed);
    let store = open(&known);
    store.compact().expect("compacts");
    assert_eq!(store.default_keyspace().iter().expect("opens").count(), 0);
    let none = KeyspaceOptions::default().compaction_filter(String::new());
    store.open_keyspace("default", Some(none)).expect("changes");
    store.put("d", "-").expect("writes");
    store.compact().expect("compacts");
    assert_eq!(get(&store, "d").as_deref(), Some("-"), "it was switched off");
}

/// A reader that begins while a compaction runs can still read values that the filter drops,
/// whatever collections do meanwhile. When the reader has ended, the records of these values are
/// dropped.
#[test]
fn values_stay_for_readers_that_come_to_them() {
    holds_and_finds(Bug::FilteredValuesDeadAtOnce, || {
        let filter = Arc::new(Signs::default());
        let store = Arc::new(fresh(options(&filter, |keyspace| {
            apart(keyspace);
            keyspace.values.separate_at = 100;
        })));
        let value = |sign: &str, turn: u64| format!("{sign}{turn}{}", "x".repeat(300));
        // Enough entries that the compaction checks once whether it should continue.
        (0..5000).for_each(|i| store.put(format!("a{i:04}"), "small").expect("writes"));
        let signed = |i: u64| (format!("k{i:02}"), ["-", "+", "="][i as usize % 3]);
        for turn in 0..2 {
            for (key, sign) in (0..60).map(signed) {
                store.put(key, value(sign, turn)).expect("writes");
            }
            store.flush().expect("flushes");
        }
        let (go_on, may_go_on) = mpsc::channel();
        let (reader, beside) = (Rc::new(RefCell::new(None)), Arc::clone(&store));
        let kept = Rc::clone(&reader);
        seeded::step_in(Waypoint::CompactionGoesOn, move || {
            let (begin, has_begun) = mpsc::channel();
            let read = move || {
                seeded::step_in(Waypoint::GetBegun, move || {
                    begin.send(()).expect("somebody waits");
                    may_go_on.recv().expect("it is told");
                });
                let keys: Vec<String> = (0..60).map(|i| signed(i).0).collect();
                beside.default_keyspace().multi_get(&keys).expect("reads")
            };
            *kept.borrow_mut() = Some(thread::spawn(read));
            has_begun.recv().expect("it begins");
        });
        store.compact().expect("compacts");
        assert!(seeded::has_stepped_in());
        let records = || -> u64 {
            let usage = store.default_keyspace().value_usage();
            usage[0].groups.iter().map(|group| group.records).sum()
        };
        store.collect_values().expect("collects");
        go_on.send(()).expect("it waits");
        let reader = reader.borrow_mut().take().expect("it began");
        let found = reader.join().expect("no panic");
        for ((key, sign), found) in (0..60).map(signed).zip(found) {
            assert_eq!(found.as_deref(), Some(value(sign, 1).as_bytes()), "{key}");
        }
        let held = records();
        store.collect_values().expect("collects");
        assert!(records() < held, "{} of {held} records are left", records());
        for (key, sign) in (0..60).map(signed) {
            let expected = match sign {
                "-" => None,
                "+" => Some(format!("new{}", &value(sign, 1)[1..])),
                _ => Some(value(sign, 1)),
            };
            assert_eq!(get(&store, &key), expected, "{key}");
        }
        assert!(store.verify().expect("verifies").is_clean());
    });
}

/// A cursor that is not moved while the filter works keeps its entry, and continues after it. The
/// filter would see nothing if some cursor were always open, and if cursors counted like snapshots.
#[test]
fn cursors_and_scans_do_not_hold_the_filter_up() {
    let filter = Arc::new(Signs::default());
    let store = fresh(options(&filter, |_| ()));
    let keyspace = store.default_keyspace();
    let open = || keyspace.cursor(ReadOptions::default()).expect("opens");
    let mut before = open();
    for round in 0..5u8 {
        for key in ["a", "b", "c"] {
            store.put(format!("{round}{key}"), format!("-{key}")).expect("writes");
        }
        store.put("d", "+d").expect("writes");
        let (mut cursor, mut scan) = (open(), keyspace.iter().expect("opens"));
        cursor.seek_to_first().expect("seeks");
        assert!(scan.next().is_some());
        let first = (cursor.key().to_vec(), cursor.value().to_vec());
        store.compact().expect("compacts");
        assert_eq!((cursor.key(), cursor.value()), (&first.0[..], &first.1[..]));
        cursor.next().expect("steps");
        assert_eq!((cursor.key(), cursor.value()), (&b"d"[..], &b"newd"[..]));
        let shape = unstable::shape(keyspace);
        let entries: u64 = shape.tables().map(|(_, table)| table.entries).sum();
        assert!(entries <= 5, "{entries} entries: only what a cursor saw may be left");
        drop(std::mem::replace(&mut before, cursor));
    }
    let snapshot = store.snapshot();
    store.put("e", "-e").expect("writes");
    let newer = store.snapshot();
    store.compact().expect("compacts");
    assert!(keyspace.get("e").expect("reads").is_some(), "a snapshot sees it");
    drop((snapshot, newer));
    store.compact().expect("compacts");
    assert!(keyspace.get("e").expect("reads").is_none());
}

#[test]
fn collections_that_write_pointers_are_refused() {
    for change in [
        |keyspace: &mut KeyspaceOptions| keyspace.values.placement = ValuePlacement::Vlog,
        |keyspace: &mut KeyspaceOptions| {
            keyspace.values.placement = ValuePlacement::HashGrouped;
            keyspace.values.gc_pointers = GcPointers::Writeback;
        },
    ] {
        let options = options(&Arc::default(), change);
        let error = Store::open_on(Arc::new(MemoryStorage::new()), options).expect_err("refused");
        assert!(error.to_string().contains("compaction_filter signs does not go"), "{error}");
    }
}
