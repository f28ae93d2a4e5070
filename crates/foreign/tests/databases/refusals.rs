//! Tests which databases are refused, and with what advice.

use std::fs;
use std::path::Path;

use runstone_foreign::{Cause, Database, Dialect, Error};

use crate::reading::{read, sample, usual};
use crate::writer::{BYTEWISE, Entry, Form, PUT, batch, comparator, directory, log, operation};

fn refused(path: &Path, dialect: Dialect) -> Error {
    Database::open(path, dialect).expect_err("is refused")
}

#[test]
fn the_wrong_directory_is_told() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path();
    assert_eq!(refused(&path.join("none"), Dialect::LevelDb).cause, Cause::NotFound);
    let error = refused(path, Dialect::LevelDb);
    assert!(error.to_string().contains("no CURRENT"), "{error}");
    fs::write(path.join("CURRENT"), "000001.manifest 5\n").expect("writes");
    fs::write(path.join("000001.manifest"), "").expect("writes");
    let error = refused(path, Dialect::RocksDb);
    assert!(error.what.contains("Runstone"), "{error}");
    fs::write(path.join("CURRENT"), "MANIFEST-000009\n").expect("writes");
    let error = refused(path, Dialect::LevelDb);
    assert!(error.path.ends_with("MANIFEST-000009") && error.cause == Cause::Damaged, "{error}");
}

#[test]
fn the_wrong_scheme_is_told() {
    let place = tempfile::tempdir().expect("a directory");
    usual(place.path(), &[Form::leveldb(1)]);
    let error = refused(place.path(), Dialect::RocksDb);
    assert!(error.hint.contains("leveldb:"), "{error}");
    let place = tempfile::tempdir().expect("a directory");
    usual(place.path(), &[Form::rocksdb(5, 1, 1)]);
    let error = refused(place.path(), Dialect::LevelDb);
    assert!(error.hint.contains("rocksdb:"), "{error}");
}

#[test]
fn other_orders_and_unknown_fields_are_refused() {
    let cases: [(&[u8], &str); 5] = [
        (&comparator("rocksdb.ReverseBytewiseComparator"), "rocksdb.ReverseBytewiseComparator"),
        (&comparator("leveldb.BytewiseComparator.u64ts"), "u64ts"),
        (&[99], "unknown field 99"),
        (&[0x86, 0x40, 0], "timestamps"),
        (&[6], "ends within"),
    ];
    for (field, wanted) in cases {
        let place = tempfile::tempdir().expect("a directory");
        let edit = [&comparator(BYTEWISE)[..], field].concat();
        directory(place.path(), Dialect::RocksDb, &[edit], &[], &[]);
        let error = refused(place.path(), Dialect::RocksDb).to_string();
        assert!(error.contains(wanted) && error.contains("MANIFEST-000003"), "{error}");
    }
    // A field that a reader may skip.
    let place = tempfile::tempdir().expect("a directory");
    let edit = [&comparator(BYTEWISE)[..], &[0xe4, 0x40, 2, 9, 9]].concat();
    directory(place.path(), Dialect::RocksDb, &[edit], &[], &[]);
    assert_eq!(read(place.path(), Dialect::RocksDb, 0), Ok(Vec::new()));
}

#[test]
fn entries_of_other_kinds_are_refused_by_name() {
    for (kind, wanted) in [(2, "merge operand"), (0x11, "blob file"), (0x16, "wide columns")] {
        let entries: [Entry<'_>; 2] = [("a", 1, PUT, "v"), ("b", 2, kind, "v")];
        let place = tempfile::tempdir().expect("a directory");
        sample(place.path(), &[Form::rocksdb(5, 1, 0)], &[(1, &entries)], &[]);
        let error = read(place.path(), Dialect::RocksDb, 0).expect_err("is refused");
        assert!(error.contains(wanted) && error.contains("key b"), "{error}");
        // A value below a newer one has no effect.
        let newer = batch(90, &[operation(PUT, None, "b", Some("w"))]);
        sample(place.path(), &[Form::rocksdb(5, 1, 0)], &[(1, &entries)], &[newer]);
        assert_eq!(read(place.path(), Dialect::RocksDb, 0).map(|found| found.len()), Ok(2));
    }
    let place = tempfile::tempdir().expect("a directory");
    let prepared = batch(1, &[]).into_iter().chain([9]).collect();
    let edits = [comparator(BYTEWISE)];
    directory(place.path(), Dialect::RocksDb, &edits, &[], &[(5, log(&[prepared], None))]);
    assert!(refused(place.path(), Dialect::RocksDb).what.contains("two-phase"));
}

#[test]
fn tables_of_other_forms_are_refused_by_name() {
    let entries: [Entry<'_>; 1] = [("a", 1, PUT, "v")];
    for (compression, wanted) in [(3, "bzip2"), (6, "xpress"), (0x80, "codec of the program")] {
        let place = tempfile::tempdir().expect("a directory");
        sample(place.path(), &[Form::rocksdb(5, 1, compression)], &[(1, &entries)], &[]);
        let error = read(place.path(), Dialect::RocksDb, 0).expect_err("is refused");
        assert!(error.contains(wanted) && error.contains("000010.sst"), "{error}");
    }
    let place = tempfile::tempdir().expect("a directory");
    sample(place.path(), &[Form::rocksdb(7, 1, 0)], &[(1, &entries)], &[]);
    let error = read(place.path(), Dialect::RocksDb, 0).expect_err("is refused");
    assert!(error.contains("format version 7"), "{error}");
}

#[test]
fn a_missing_table_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    usual(place.path(), &[Form::leveldb(1)]);
    fs::remove_file(place.path().join("000012.ldb")).expect("removes");
    let error = refused(place.path(), Dialect::LevelDb);
    assert!(error.path.ends_with("000012.ldb") && error.cause == Cause::Damaged, "{error}");
}
