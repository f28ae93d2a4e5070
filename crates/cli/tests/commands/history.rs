//! Archives, restores to a moment, changes and mirrors, beside an application and without one.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use runstone::{Backups, Batch, Options, Store, WriteOptions};
use serde_json::Value;

use crate::Place;

/// The JSON lines that a command printed.
fn lines(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let text = place.ok(arguments);
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The message of a command that fails.
fn failed(place: &Place, arguments: &[&str]) -> String {
    let ran = place.run(arguments);
    assert_ne!(ran.code, 0, "{arguments:?}");
    ran.stderr
}

#[test]
fn any_moment_is_restored() {
    let place = Place::new();
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    store.put("key", "first").expect("a put");
    place.ok(&["backup", "archive", "store", "backups"]);
    let backups = Backups::open(place.path("backups")).expect("a directory of backups");
    let mut archiver = backups.archive(place.path("store")).expect("it goes on");
    store.put("key", "second").expect("a put");
    archiver.advance(Duration::ZERO).expect("it is archived");
    let second = archiver.position().to_string();
    store.delete("key").expect("a delete");
    archiver.advance(Duration::ZERO).expect("it is archived");
    drop(archiver);
    let archived = lines(&place, &["backup", "archive", "store", "backups", "--json"]);
    assert_eq!(archived[0]["changes"], 0);
    store.close().expect("it closes");
    let listed = place.json(&["backup", "list", "backups"]);
    assert_eq!(listed["archives"][0]["from_seq"], 1);
    assert!(place.ok(&["backup", "list", "backups"]).contains("archive: numbers 1 to"));
    place.ok(&["backup", "verify", "backups"]);

    for (to, value) in [(second.as_str(), "second"), ("1", "first")] {
        let target = format!("restored to {to}");
        place.ok(&["backup", "restore", "backups", &target, "--to", to]);
        assert_eq!(place.ok(&["get", &target, "key"]), value);
    }
    place.ok(&["backup", "restore", "backups", "end", "--to", "end"]);
    assert_eq!(place.ok(&["count", "end"]), "0\n");
    place.ok(&["backup", "restore", "backups", "late", "--to", "2100-01-01 00:00"]);
    assert_eq!(place.ok(&["count", "late"]), "0\n");

    // Once, the history of a position was not checked.
    let foreign = format!("1@{:016x}", 7);
    let foreign = failed(&place, &["backup", "restore", "backups", "x", "--to", &foreign]);
    assert!(foreign.contains("the archive has no position 1@"), "{foreign}");
    let mangled = failed(&place, &["backup", "restore", "backups", "x", "--to", "1@yesterday"]);
    assert!(mangled.contains("is no position"), "{mangled}");
    let early = failed(&place, &["backup", "restore", "backups", "early", "--to", "1999-12-31"]);
    assert!(early.contains("the archive has no such moment"), "{early}");
    let no_moment = failed(&place, &["backup", "restore", "backups", "x", "--to", "yesterday"]);
    assert!(no_moment.contains("yesterday is no moment"), "{no_moment}");
    // Damages one byte of a change in the middle of the archive.
    let archive = place.path("backups").join("000002.archive");
    let mut bytes = std::fs::read(&archive).expect("it is there");
    let at = bytes.windows(6).position(|window| window == b"second").expect("it has the value");
    bytes[at] ^= 1;
    std::fs::write(&archive, bytes).expect("written");
    let verified = place.run(&["backup", "verify", "backups"]);
    assert!(
        verified.code == 2 && verified.stdout.contains("000002.archive"),
        "{}",
        verified.stdout
    );
    // A damaged description harms no other backup.
    place.ok(&["put", "store", "more", "value"]);
    place.ok(&["backup", "create", "store", "backups"]);
    let described = place.path("backups").join("000001.backup");
    let mut bytes = std::fs::read(&described).expect("it is there");
    bytes[30] ^= 1;
    std::fs::write(&described, bytes).expect("written");
    place.ok(&["backup", "create", "store", "backups"]);
    let listed = place.run(&["backup", "list", "backups"]);
    assert!(listed.stderr.contains("backup 1 is damaged"), "{}", listed.stderr);
    place.ok(&["backup", "restore", "backups", "newest"]);
    assert_eq!(place.ok(&["get", "newest", "more"]), "value");
    place.ok(&["backup", "prune", "backups", "--keep", "1"]);
    assert!(!described.exists());
    let taken = failed(&place, &["backup", "restore", "backups", "end", "--to", "end"]);
    assert!(taken.contains("end"), "{taken}");
}

/// Once, if the newest backup was damaged, a restore used an older one without a word, and a table
/// that was missing among the backups made all later backups fail.
#[test]
fn damage_of_backups_is_told_and_mended() {
    let place = Place::new();
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    for value in ["old", "new"] {
        store.put("key", value).expect("a put");
        store.flush().expect("a flush");
        place.ok(&["backup", "create", "store", "backups"]);
    }
    store.close().expect("it closes");
    let newest = place.path("backups").join("000002.backup");
    let whole = std::fs::read(&newest).expect("it is there");
    std::fs::write(&newest, &whole[1..]).expect("written");
    let restored = place.run(&["backup", "restore", "backups", "older"]);
    assert_eq!(restored.code, 0, "{}", restored.stderr);
    assert!(restored.stderr.contains("backup 2 is damaged, and is passed over"));
    assert!(restored.stderr.contains("restored backup 1"), "{}", restored.stderr);
    assert_eq!(place.ok(&["get", "older", "key"]), "old");
    let restored = place.json(&["backup", "restore", "backups", "older again"]);
    assert_eq!(restored["passed_over"], serde_json::json!([2]), "{restored}");
    std::fs::write(&newest, whole).expect("written");

    let files = std::fs::read_dir(place.path("backups")).expect("a list");
    let mut tables: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    tables.retain(|path| path.extension().is_some_and(|kind| kind == "table"));
    std::fs::remove_file(tables.iter().max().expect("a table")).expect("removed");
    let verified = place.run(&["backup", "verify", "backups"]);
    assert!(verified.code == 2 && verified.stderr.contains("--check"), "{}", verified.stderr);
    let healed = place.run(&["backup", "create", "store", "backups", "--check"]);
    assert!(healed.stderr.contains("1 table had a missing or damaged copy"), "{}", healed.stderr);
    place.ok(&["backup", "verify", "backups"]);
    place.ok(&["backup", "restore", "backups", "newest", "--backup", "2"]);
    assert_eq!(place.ok(&["get", "newest", "key"]), "new");
}

#[test]
fn an_unfinished_restore_is_no_store() {
    let place = Place::new();
    place.ok(&["put", "store", "key", "value"]);
    std::fs::write(place.path("store").join("RESTORING"), "").expect("written");
    let refused = failed(&place, &["get", "store", "key"]);
    assert!(refused.contains("is no store yet") && refused.contains("begin again"), "{refused}");
    for copy in [
        &["backup", "create", "store", "backups"][..],
        &["mirror", "store", "mirror"],
        &["checkpoint", "store", "copy"],
        &["repair", "store", "repaired"],
    ] {
        let refused = failed(&place, copy);
        assert!(refused.contains("is no store yet"), "{copy:?}: {refused}");
    }
}

#[test]
fn changes_are_printed_and_mirrored() {
    let place = Place::new();
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    store.put("a", "1").expect("a put");
    place.ok(&["mirror", "store", "mirror"]);
    let accounts = store.open_keyspace("accounts", None).expect("a keyspace");
    accounts.put("ann", [7, 255]).expect("a put");
    accounts.delete_range("b".."c").expect("a delete");
    store.sync().expect("it syncs");

    let all = lines(&place, &["changes", "store", "--json"]);
    let kinds: Vec<&str> = all.iter().map(|one| one["kind"].as_str().expect("text")).collect();
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "time").collect();
    assert_eq!(kinds, ["put", "keyspace", "put", "delete-range"]);
    let put = all.iter().find(|one| one["key"] == "ann").expect("it was put");
    assert_eq!((&put["keyspace"], &put["encoding"]), (&"accounts".into(), &"escaped".into()));
    let from = put["position"].as_str().expect("text");
    let rest = place.ok(&["changes", "store", "--from", from]);
    assert!(rest.lines().any(|line| line.contains("delete-range\taccounts\tb\tc")), "{rest}");
    assert!(!rest.contains("ann"), "{rest}");
    let no_position = failed(&place, &["changes", "store", "--from", "7"]);
    assert!(no_position.contains("is no position"), "{no_position}");

    let applied = lines(&place, &["mirror", "store", "mirror", "--json"]);
    assert!(applied[0]["changes"].as_u64() >= Some(3), "{applied:?}");
    assert_eq!(place.ok(&["count", "mirror", "--keyspace", "accounts"]), "1\n");
    let foreign = failed(&place, &["mirror", "mirror", "store"]);
    assert!(foreign.contains("in use") || foreign.contains("is no mirror"), "{foreign}");
    store.close().expect("it closes");
    let circle = failed(&place, &["mirror", "mirror", "store"]);
    assert!(circle.contains("is no mirror"), "{circle}");
}

/// Once, a reader of the pipe got nothing until 8 KiB of lines had gathered, so a consumer of a
/// quiet store learned of a change hours later.
#[test]
fn a_follower_of_changes_gets_each_at_once() {
    let place = Place::new();
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    let mut command = place.command(&["changes", "store", "--follow", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let printed = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        let _ = printed.map_while(Result::ok).try_for_each(|line| sender.send(line));
    });
    for key in ["first", "second"] {
        store.put(key, "value").expect("a put");
        let is_it = |line: String| line.contains(&format!("\"{key}\""));
        let mut printed = std::iter::from_fn(|| lines.recv_timeout(Duration::from_secs(60)).ok());
        assert!(printed.any(is_it), "{key} is not printed");
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    reader.join().expect("it ends with the pipe");
}

/// Once, all lines of a batch or of a load had the position after it, so a consumer that died
/// after the first of them never saw the others.
#[test]
fn whoever_stops_at_any_line_of_changes_loses_no_write() {
    let place = Place::new();
    let options = Options::default().keep_log_bytes(1 << 20);
    let store = Store::open(place.path("store"), options).expect("a store");
    let (own, apart) = (store.default_keyspace(), store.open_keyspace("apart", None));
    let apart = apart.expect("a keyspace");
    store.put("alone", "1").expect("a put");
    let write = |keys: &[&str]| {
        let mut batch = Batch::new();
        for key in keys {
            batch.put(own, key, "in a batch").expect("small");
            batch.delete(&apart, key).expect("small");
        }
        store.write(&batch, WriteOptions::default()).expect("a write");
    };
    write(&["a", "b", "c"]);
    own.bulk_load((0..4u8).map(|key| ([b'l', key + b'0'], "loaded"))).expect("a load");
    write(&["d"]);
    own.delete_range("a".."b").expect("a range delete");
    store.sync().expect("it syncs");

    /// Positions, and the rest of the lines.
    type Printed = Vec<(String, String)>;
    let kinds = ["put", "delete", "delete-range"];
    let json = |from: &[&str]| -> Printed {
        let all = lines(&place, &[&["changes", "store", "--json"], from].concat()).into_iter();
        let writes = all.filter(|one| kinds.iter().any(|kind| one["kind"] == *kind));
        let apart = |mut one: Value| {
            let position = one["position"].take();
            (position.as_str().expect("text").to_string(), one.to_string())
        };
        writes.map(apart).collect()
    };
    let text = |from: &[&str]| -> Printed {
        let text = place.ok(&[&["changes", "store"], from].concat());
        let all = text.lines().map(|line| line.split_once('\t').expect("a position"));
        let is_write = |rest: &str| kinds.contains(&rest.split('\t').next().unwrap_or_default());
        let writes = all.filter(|(_, rest)| is_write(rest));
        writes.map(|(position, rest)| (position.to_string(), rest.to_string())).collect()
    };
    type Reads<'a> = &'a dyn Fn(&[&str]) -> Printed;
    let forms: [Reads<'_>; 2] = [&json, &text];
    // The last line of each change.
    let ends = [0, 6, 10, 12, 13];
    for read in forms {
        let all = read(&[]);
        assert_eq!(all.len(), 14, "{all:?}");
        for (at, (position, _)) in all.iter().enumerate() {
            let rest = read(&["--from", position]);
            // The lines of a change are printed again until its last one has been processed.
            let begin = ends.iter().filter(|end| **end <= at).max().map_or(0, |end| end + 1);
            assert_eq!(rest, all[begin..], "after line {at}: {all:?}");
        }
    }
    drop(store);
}

#[test]
fn what_the_log_lacks_is_printed_as_state() {
    let place = Place::new();
    let open = || Store::open(place.path("store"), Options::default()).expect("a store");
    let store = open();
    store.put("a", "1").expect("a put");
    store.sync().expect("it syncs");
    let first = &lines(&place, &["changes", "store", "--json"])[0];
    let from = first["position"].as_str().expect("text");
    store.put("b", "2").expect("a put");
    store.delete("a").expect("a delete");
    // The close removes the log.
    store.close().expect("it closes");
    let store = open();
    store.put("c", "3").expect("a put");
    let gone = failed(&place, &["changes", "store", "--from", from]);
    assert!(gone.contains("not there any more"), "{gone}");
    let state = lines(&place, &["changes", "store", "--from", from, "--state", "--json"]);
    let kinds: Vec<&str> = state.iter().map(|one| one["kind"].as_str().expect("text")).collect();
    assert_eq!(kinds[..3], ["gap", "keyspaces", "delete"], "{state:?}");
    assert!(state.iter().all(|one| (one["key"] == "b") <= (one["state"] == true)), "{state:?}");
    let text = place.ok(&["changes", "store", "--from", from, "--state"]);
    assert!(text.contains("state-put\tdefault\tb\t2"), "{text}");
    assert!(text.contains("put\tdefault\tc\t3"), "{text}");
    drop(store);
}

/// The log begins after a flush. Once, a consumer without data therefore missed the older entries.
#[test]
fn everything_is_printed_for_a_consumer_that_has_nothing() {
    let place = Place::new();
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    for key in ["a", "b"] {
        store.put(key, "1").expect("a put");
    }
    store.delete("a").expect("a delete");
    // The close removes the log.
    store.close().expect("it closes");
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    store.put("c", "2").expect("a put");
    let oldest = place.ok(&["changes", "store"]);
    assert!(oldest.contains("\tput\tdefault\tc\t2") && !oldest.contains("\tb\t"), "{oldest}");
    let everything = place.ok(&["changes", "store", "--everything"]);
    let rest = |line: &str| line.split_once('\t').expect("a position").1.to_string();
    let printed: Vec<String> = everything.lines().map(rest).collect();
    let state = ["gap\t0 to 4", "keyspaces\tdefault", "state-put\tdefault\tb\t1"];
    assert_eq!(printed[..3], state, "{everything}");
    assert_eq!(printed[3..5], ["state-put\tdefault\tc\t2", "gap-end\t"], "{everything}");
    // A consumer that stops inside the state gets all of it again.
    let inside = everything.split('\t').next().expect("a position");
    assert_eq!(place.ok(&["changes", "store", "--from", inside]), everything);
    let end = everything.lines().nth(4).and_then(|line| line.split('\t').next());
    store.put("d", "3").expect("a put");
    let later = place.ok(&["changes", "store", "--from", end.expect("a position")]);
    assert!(later.contains("\tput\tdefault\td\t3") && !later.contains("\tc\t"), "{later}");
    let both = failed(&place, &["changes", "store", "--everything", "--now"]);
    assert!(both.contains("cannot be used with"), "{both}");
}

/// Once, the archiver of a service ended when a backup or a prune was running in its directory.
#[test]
fn an_archiver_waits_until_its_directory_is_free() {
    let place = Place::new();
    place.ok(&["put", "store", "key", "value"]);
    let backups = Backups::open(place.path("backups")).expect("a directory of backups");
    let archiver = backups.archive(place.path("store")).expect("it begins");
    let refused = failed(&place, &["backup", "archive", "store", "backups"]);
    assert!(refused.contains("is in use by") && refused.contains("wait for"), "{refused}");
    let mut command = place.command(&["backup", "archive", "store", "backups", "--follow"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut told = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let waits = told.next().expect("it tells").expect("text");
    assert!(waits.contains("is in use by") && waits.ends_with("waiting for it"), "{waits}");
    place.ok(&["put", "store", "later", "value"]);
    drop(archiver);
    let end = Instant::now() + Duration::from_secs(60);
    while backups.archives().expect("whole").iter().all(|one| one.through.seq() < 2) {
        assert!(Instant::now() < end, "it does not go on");
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
