//! Imports of databases of other stores, as the command shows them. How their files are read is
//! tested in `crates/foreign`.

use crate::Place;

const MERGE: u8 = 6;
const PUT: u8 = 5;

fn string(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128, "a length of one byte");
    [&[bytes.len() as u8][..], bytes].concat()
}

/// One record after another, each of which fits in the first block.
fn log(records: &[Vec<u8>]) -> Vec<u8> {
    let of = |record: &Vec<u8>| {
        let covered = [&[1][..], record].concat();
        let crc = crc32c::crc32c(&covered).rotate_right(15).wrapping_add(0xa282_ead8);
        [&crc.to_le_bytes()[..], &(record.len() as u16).to_le_bytes(), &covered].concat()
    };
    let bytes: Vec<u8> = records.iter().flat_map(of).collect();
    assert!(bytes.len() < 32 << 10, "{} bytes", bytes.len());
    bytes
}

/// A RocksDB directory whose log contains 200 entries of `default` and 200 of `users`. Entry 150 of
/// `users` has this kind.
fn rocksdb(place: &Place, kind: u8) {
    let bytewise = [&[1][..], &string(b"leveldb.BytewiseComparator")].concat();
    let users = [&bytewise[..], &[200, 1, 1, 201, 1], &string(b"users")].concat();
    let write = |name: &str, bytes: &[u8]| {
        let path = place.path("rocks").join(name);
        std::fs::write(path, bytes).expect("writes");
    };
    std::fs::create_dir_all(place.path("rocks")).expect("a directory");
    write("CURRENT", b"MANIFEST-000002\n");
    write("IDENTITY", b"a name");
    write("MANIFEST-000002", &log(&[bytewise.clone(), users]));
    let mut batch = [&1_u64.to_le_bytes()[..], &400_u32.to_le_bytes()].concat();
    for (family, number) in (0..200).map(|n| (0, n)).chain((0..200).map(|n| (1, n))) {
        let kind = if (family, number) == (1, 150) { kind } else { PUT };
        let (key, value) = (format!("{family}-{number:03}"), format!("value {number}"));
        batch.extend([&[kind, family][..], &string(key.as_bytes())].concat());
        batch.extend(string(value.as_bytes()));
    }
    write("000003.log", &log(&[batch]));
}

#[test]
fn families_go_to_keyspaces_of_their_names() {
    let place = Place::new();
    rocksdb(&place, PUT);
    let report = place.json(&["import", "s", "rocksdb:rocks"]);
    assert_eq!((&report["records"], &report["complete"]), (&400.into(), &true.into()));
    assert_eq!(report["families"][1]["keyspace"], "users");
    assert_eq!(place.ok(&["count", "s"]).trim(), "200");
    assert_eq!(place.ok(&["get", "s", "1-007", "--keyspace", "users"]).trim(), "value 7");
    let one = ["import", "t", "rocksdb:rocks", "--family", "users", "--keyspace", "people"];
    assert_eq!(place.json(&one)["records"], 200);
    assert_eq!(place.ok(&["count", "t", "--keyspace", "people"]).trim(), "200");
    let ran = place.run(&["import", "t", "rocksdb:rocks", "--keyspace", "people"]);
    assert!(ran.code == 3 && ran.stderr.contains("default, users"), "{}", ran.stderr);
    let ran = place.run(&["import", "t", "rocksdb:rocks", "--family", "user"]);
    assert!(ran.code == 3 && ran.stderr.contains("default, users"), "{}", ran.stderr);
}

/// The entry that ended the first import is replaced. The rest of the database is as before.
#[test]
fn an_import_that_ended_early_goes_on_in_its_family() {
    let place = Place::new();
    rocksdb(&place, MERGE);
    let import = ["import", "s", "rocksdb:rocks", "--batch", "40"];
    let ran = place.run(&import);
    assert!(ran.code == 4 && ran.stderr.contains("1-150: its newest"), "{}", ran.stderr);
    assert!(ran.stderr.contains("merge operand"), "{}", ran.stderr);
    rocksdb(&place, PUT);
    let report = place.json(&import);
    let counts = (&report["records"], &report["resumed_records"]);
    assert_eq!(counts, (&400.into(), &320.into()), "whole batches");
    for keyspace in ["default", "users"] {
        assert_eq!(place.ok(&["count", "s", "--keyspace", keyspace]).trim(), "200");
    }
    // With --restart nothing counts as done.
    rocksdb(&place, MERGE);
    assert_eq!(place.run(&["import", "r", "rocksdb:rocks", "--batch", "40"]).code, 4);
    rocksdb(&place, PUT);
    let report = place.json(&["import", "r", "rocksdb:rocks", "--batch", "40", "--restart"]);
    assert_eq!((&report["records"], &report["resumed_records"]), (&400.into(), &0.into()));
}

#[test]
fn sources_that_are_no_such_database_are_refused() {
    let place = Place::new();
    rocksdb(&place, PUT);
    place.ok(&["put", "s", "key", "value"]);
    for (source, code, wanted) in [
        ("leveldb:rocks", 4, "rocksdb:"),
        ("leveldb:s", 3, "Runstone"),
        ("rocksdb:none", 3, "no such directory"),
        ("leveldb:", 3, "leveldb:DIR"),
    ] {
        let ran = place.run(&["import", "t", source]);
        assert!(ran.code == code && ran.stderr.contains(wanted), "{source}: {}", ran.stderr);
    }
    for option in [["--format", "dir"], ["--key", "id"]] {
        let ran = place.run(&["import", "t", "rocksdb:rocks", option[0], option[1]]);
        assert!(ran.code == 3 && ran.stderr.contains(option[0]), "{}", ran.stderr);
    }
    assert!(!place.path("t").exists(), "no store is made for a source that is refused");
    std::fs::write(place.path("rocks/000003.log"), b"").expect("writes");
    let ran = place.run(&["import", "t", "rocksdb:rocks"]);
    assert!(ran.code == 1 && ran.stderr.contains("holds no records"), "{}", ran.stderr);
}

/// Once, "0 bytes of source" was reported for a database that is not flushed yet.
#[test]
fn what_lies_in_the_log_counts_as_source() {
    let place = Place::new();
    rocksdb(&place, PUT);
    let log_bytes = std::fs::metadata(place.path("rocks/000003.log")).expect("a log").len();
    let report = place.json(&["import", "s", "rocksdb:rocks"]);
    let source_bytes = report["source_bytes"].as_u64().expect("a number");
    assert!((log_bytes / 2..=log_bytes).contains(&source_bytes), "{source_bytes} of {log_bytes}");
}
