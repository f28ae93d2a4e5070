//! Commands beside an application that has the store open, and backups.

use std::fs;

use runstone::{Options, Store, ValueOptions, ValuePlacement};

use crate::Place;

/// Once, every command that reads failed with "in use by another process".
#[test]
fn commands_that_read_work_beside_an_application() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    store.put("flushed", "1").expect("a put");
    store.flush().expect("a flush");
    store.put("logged", "2").expect("a put");
    let ran = place.run(&["get", "s", "logged"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "2"));
    let told = format!("another process (process {}) has the store open", std::process::id());
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    assert_eq!(place.ok(&["count", "s"]), "2\n");
    assert!(place.ok(&["scan", "s"]).contains("flushed"));
    for arguments in [&["stats", "s"][..], &["shape", "s"], &["verify", "s"], &["options", "s"]] {
        place.ok(arguments);
    }
    place.ok(&["export", "s", "all.jsonl"]);
    assert_eq!(fs::read_to_string(place.path("all.jsonl")).expect("a file").lines().count(), 2);
    place.ok(&["checkpoint", "s", "copy"]);
    store.put("later", "3").expect("the application goes on");
    assert_eq!(place.ok(&["count", "copy"]), "2\n");
    assert_eq!(place.ok(&["count", "s"]), "3\n");
    store.close().expect("it closes");
    assert_eq!(place.run(&["count", "s"]).stderr, "", "nobody has it open");
}

#[test]
fn backups_hold_what_was_there_and_share_what_stays() {
    let place = Place::new();
    let values = ValueOptions::default().placement(ValuePlacement::HashGrouped).separate_at(100);
    let options = Options::default().keyspace(runstone::KeyspaceOptions::default().values(values));
    // Until a log segment ends, it also keeps entries that are already in tables.
    let options = options.wal_segment_bytes(64 << 10);
    let store = Store::open(place.path("s"), options).expect("a store");
    for number in 0..500 {
        store.put(format!("key{number:04}"), vec![b'a'; 1000]).expect("a put");
    }
    store.flush().expect("a flush");
    let first = place.json(&["backup", "create", "s", "b"]);
    for number in 0..5 {
        store.put(format!("key{number:04}"), "new").expect("a put");
    }
    let second = place.json(&["backup", "create", "s", "b"]);
    let added = |made: &serde_json::Value| made["added_bytes"].as_u64().expect("a number");
    assert!(added(&second) * 5 < added(&first), "{first} {second}");
    let listed = place.json(&["backup", "list", "b"]);
    assert_eq!(listed["backups"].as_array().map(Vec::len), Some(2));
    assert!(place.ok(&["backup", "verify", "b"]).contains("backup 2: whole"));
    place.ok(&["backup", "restore", "b", "old", "--backup", "1"]);
    place.ok(&["backup", "restore", "b", "new"]);
    store.close().expect("it closes");
    assert_eq!(place.ok(&["get", "old", "key0001"]).len(), 1000);
    assert_eq!(place.ok(&["get", "new", "key0001"]), "new");
    assert_eq!(place.ok(&["count", "new"]), "500\n");
    place.ok(&["verify", "new"]);
    let deep = place.json(&["backup", "verify", "b", "--deep", "--rate", "500M"]);
    let reads = deep["deep"].as_array().expect("a list").iter().map(|one| one["read"].as_u64());
    let counts = ["old", "new"].map(|store| place.json(&["count", store])["count"].as_u64());
    assert_eq!(reads.collect::<Vec<_>>(), counts, "{deep}");
    place.ok(&["backup", "prune", "b", "--older-than", "1d"]);
    assert_eq!(place.json(&["backup", "list", "b"])["backups"].as_array().map(Vec::len), Some(2));
    place.ok(&["backup", "prune", "b", "--older-than", "0s", "--keep", "2"]);
    place.ok(&["backup", "prune", "b", "--keep", "1"]);
    assert!(place.ok(&["backup", "verify", "b"]).contains("backup 2: whole"));
    let ran = place.run(&["backup", "restore", "b", "older", "--backup", "1"]);
    assert!(ran.stderr.contains("there is no backup 1"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_backed_up_is_told() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    place.ok(&["put", "other", "k", "v"]);
    place.ok(&["backup", "create", "s", "b"]);
    place.write("files/notes.txt", "mine");
    for (arguments, told) in [
        (&["backup", "create", "nothing", "b"][..], "is not a store"),
        (&["backup", "create", "other", "b"], "has backups of another store"),
        (&["backup", "create", "s", "files"], "such as notes.txt"),
        (&["backup", "create", "s", "s/b"], "lies in the directory of a store"),
        (&["backup", "create", "s", "other"], "holds files that are not"),
        (&["backup", "create", "kvssd:image", "b"], "backups are of stores in directories"),
        (&["backup", "list", "files"], "such as notes.txt"),
        (&["backup", "restore", "b", "s"], "holds files"),
        (&["backup", "restore", "b", "t", "--backup", "7"], "there is no backup 7"),
        (&["backup", "prune", "b", "--keep", "0"], "no backup would be left"),
    ] {
        let ran = place.run(arguments);
        assert!(ran.code != 0 && ran.stderr.contains(told), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(place.ok(&["get", "s", "k"]), "v");
    let table = fs::read_dir(place.path("b")).expect("a directory").flatten();
    let table =
        table.map(|one| one.path()).find(|path| path.extension().is_some_and(|e| e == "pack"));
    let table = table.expect("a pack");
    let mut bytes = fs::read(&table).expect("readable");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&table, bytes).expect("written");
    let ran = place.run(&["backup", "verify", "b"]);
    assert!(ran.code == 2 && ran.stdout.contains("are not those written"), "{}", ran.stdout);
    let ran = place.run(&["backup", "restore", "b", "damaged"]);
    assert!(ran.code == 2 && ran.stderr.contains("damaged here"), "{}", ran.stderr);
    assert_eq!(place.run(&["get", "damaged", "k"]).code, 4, "it is no store");
}
