//! Tests that the newest version of each key is read, from logs and every form of table.

use std::path::Path;

use runstone_foreign::{Database, Dialect};

use crate::writer::{
    BYTEWISE, DELETE, Entry, Form, PUT, added, batch, comparator, directory, log, operation,
    stored_key, table, varint,
};

/// The entries of a family as texts, or the first error.
pub fn read(path: &Path, dialect: Dialect, family: usize) -> Result<Vec<(String, String)>, String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let database = Database::open(path, dialect).map_err(|error| error.to_string())?;
    let entries = database.entries(family, None).map_err(|error| error.to_string())?;
    let pairs = entries.map(|pair| pair.map(|(key, value)| (text(key), text(value))));
    pairs.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn bounds(entries: &[Entry<'_>]) -> [Vec<u8>; 2] {
    let stored = |entry: &Entry<'_>| stored_key(entry.0, entry.1, entry.2);
    [stored(&entries[0]), stored(&entries[entries.len() - 1])]
}

/// Writes a database with tables by level, whose file numbers begin at 10, and a log with file
/// number 5.
pub fn sample(path: &Path, forms: &[Form], levels: &[(u64, &[Entry<'_>])], batches: &[Vec<u8>]) {
    let dialect = forms[0].dialect;
    let head = [comparator(BYTEWISE), varint(2), varint(5), varint(3), varint(99)].concat();
    let mut edits = vec![[head, varint(4), varint(900)].concat()];
    let mut tables = Vec::new();
    for (number, (level, entries)) in (10..).zip(levels) {
        let bytes = table(&forms[(number as usize - 10) % forms.len()], entries);
        let [first, last] = bounds(entries);
        edits.push(added(dialect, *level, number, bytes.len(), [&first[..], &last[..]]));
        tables.push((number, bytes));
    }
    directory(path, dialect, &edits, &tables, &[(5, log(batches, None))]);
}

/// Several versions of keys over three levels and a log.
pub fn usual(path: &Path, forms: &[Form]) -> Vec<(String, String)> {
    let old: Vec<(String, String)> =
        (0..40).map(|n| (format!("k{n:02}"), format!("old {n} {}", "x".repeat(40)))).collect();
    let old: Vec<Entry<'_>> =
        old.iter().map(|(key, value)| (&key[..], 1, PUT, &value[..])).collect();
    let (first, second) = old.split_at(20);
    let newer = [("k03", 50, PUT, "newer"), ("k04", 51, DELETE, ""), ("k05", 52, PUT, "5 of 52")];
    let above = [
        ("k04", 60, PUT, "again"),
        ("k05", 62, DELETE, ""),
        ("k05", 61, PUT, "hidden"),
        ("k06", 63, PUT, "6"),
    ];
    let batches = [
        batch(100, &[operation(PUT, None, "k06", Some("logged")), operation(0, None, "k07", None)]),
        batch(102, &[operation(PUT, None, "k99", Some(&"long ".repeat(20_000)))]),
    ];
    let levels = [(2, first), (2, second), (1, &newer[..]), (0, &above[..])];
    sample(path, forms, &levels, &batches);
    let mut wanted: Vec<(String, String)> =
        old.iter().map(|entry| (entry.0.to_string(), entry.3.to_string())).collect();
    let set = |at: usize, value: &str| (format!("k{at:02}"), value.to_string());
    wanted[3] = set(3, "newer");
    wanted[4] = set(4, "again");
    wanted[6] = set(6, "logged");
    wanted.remove(7);
    wanted.remove(5);
    wanted.push(("k99".into(), "long ".repeat(20_000)));
    wanted
}

#[test]
fn leveldb_with_each_compression() {
    for compression in [0, 1, 2] {
        let directory = tempfile::tempdir().expect("a directory");
        let wanted = usual(directory.path(), &[Form::leveldb(compression)]);
        assert_eq!(read(directory.path(), Dialect::LevelDb, 0), Ok(wanted));
    }
}

#[test]
fn rocksdb_in_each_form() {
    for version in 0..=6 {
        for compression in [0, 1, 2, 4, 5, 7] {
            let checksum = if version == 0 { 1 } else { (version as u8 + compression) % 5 };
            let mut form = Form::rocksdb(version, checksum, compression);
            if version == 0 && compression == 7 {
                form.version = 1;
            }
            form.is_partitioned = compression % 2 == 1;
            form.has_buckets = compression == 4;
            let directory = tempfile::tempdir().expect("a directory");
            let wanted = usual(directory.path(), &[form]);
            let found = read(directory.path(), Dialect::RocksDb, 0);
            assert_eq!(found, Ok(wanted), "version {version}, compression {compression}");
        }
    }
}

#[test]
fn reading_goes_on_behind_any_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut form = Form::rocksdb(5, 4, 7);
    form.is_partitioned = true;
    let wanted = usual(directory.path(), &[form]);
    let database = Database::open(directory.path(), Dialect::RocksDb).expect("opens");
    for (at, (key, _)) in wanted.iter().enumerate() {
        let entries = database.entries(0, Some(key.as_bytes())).expect("opens");
        let found = entries.map(|pair| String::from_utf8(pair.expect("reads").0).expect("text"));
        let rest: Vec<String> = wanted[at + 1..].iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(found.collect::<Vec<_>>(), rest);
    }
}

/// A range delete ends with its table. Beyond it, keys in lower levels may be newer and have
/// sequence number 0.
#[test]
fn range_deletes_hide_older_versions_within_their_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let below: Vec<Entry<'_>> =
        ["a", "b", "c", "d", "e", "f"].iter().map(|key| (*key, 0, PUT, "below")).collect();
    let above = [("b", 9, PUT, "older"), ("c", 30, PUT, "newer"), ("d", 8, PUT, "older")];
    let mut form = Form::rocksdb(3, 1, 0);
    form.range_deletes = vec![("a", 20, "z")];
    let plain = Form { range_deletes: Vec::new(), ..form.clone() };
    let batches = [batch(100, &[operation(15, None, "e", Some("f"))])];
    sample(directory.path(), &[plain, form], &[(2, &below), (1, &above)], &batches);
    let found = read(directory.path(), Dialect::RocksDb, 0).expect("reads");
    let found: Vec<&str> = found.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(found, ["a", "c", "f"]);
}

#[test]
fn families_are_apart_and_dropped_ones_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytewise = comparator(BYTEWISE);
    let family = |number, name: &str| {
        let name = crate::writer::string(name.as_bytes());
        [&bytewise[..], &varint(200), &varint(number), &varint(201), &name].concat()
    };
    let flushed = [varint(200), varint(2), varint(2), varint(7)].concat();
    let drop = [varint(200), varint(1), varint(202)].concat();
    // This edit is in a group that a crash cut short.
    let torn = [varint(200), varint(2), varint(202), varint(300), varint(1)].concat();
    let edits =
        [[bytewise.clone(), varint(203), varint(2)].concat(), family(1, "gone"), family(2, "new")];
    let edits = [&edits[..], &[flushed, drop, torn]].concat();
    let put = |family, key, value| operation(5, Some(family), key, Some(value));
    let old = batch(1, &[put(0, "a", "0"), put(1, "b", "1"), put(2, "c", "in a table")]);
    let new = batch(4, &[put(2, "d", "2"), operation(8, Some(0), "z", None)]);
    let logs = [(5, log(&[old], Some(5))), (7, log(&[new], Some(7)))];
    directory_of(directory.path(), &edits, &logs);
    let database = Database::open(directory.path(), Dialect::RocksDb).expect("opens");
    assert_eq!(database.families().collect::<Vec<_>>(), ["default", "new"]);
    let one = |key: &str, value: &str| Ok(vec![(key.to_string(), value.to_string())]);
    assert_eq!(read(directory.path(), Dialect::RocksDb, 0), one("a", "0"));
    assert_eq!(read(directory.path(), Dialect::RocksDb, 1), one("d", "2"));
}

fn directory_of(path: &Path, edits: &[Vec<u8>], logs: &[(u64, Vec<u8>)]) {
    directory(path, Dialect::RocksDb, edits, &[], logs);
}

/// A log that was written over an older one ends where the older one begins.
#[test]
fn what_an_older_log_left_is_no_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let put = |seq, key| batch(seq, &[operation(PUT, None, key, Some("v"))]);
    let older = log(&[put(1, "x"), put(2, "y"), put(3, "z")], Some(4));
    let mut bytes = log(&[put(9, "a"), put(10, "bcd")], Some(5));
    bytes.extend(&older[bytes.len()..]);
    let own = bytes.clone();
    let edits = [comparator(BYTEWISE)];
    directory_of(directory.path(), &edits, &[(5, bytes)]);
    let found = read(directory.path(), Dialect::RocksDb, 0).expect("reads");
    assert_eq!(found.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), ["a", "bcd"]);
    // Damage before the last record is distinguished from such an end.
    let mut damaged = own;
    damaged[8] ^= 1;
    directory_of(directory.path(), &edits, &[(5, damaged)]);
    assert!(read(directory.path(), Dialect::RocksDb, 0).is_err());
}

#[test]
fn ingested_entries_have_the_number_of_their_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut form = Form::rocksdb(5, 1, 0);
    form.properties = vec![
        ("rocksdb.external_sst_file.version", 2_u32.to_le_bytes().to_vec()),
        ("rocksdb.external_sst_file.global_seqno", 0_u64.to_le_bytes().to_vec()),
    ];
    let plain = Form { properties: Vec::new(), ..form.clone() };
    let levels: [(u64, &[Entry<'_>]); 2] =
        [(0, &[("a", 500, PUT, "older")]), (0, &[("a", 0, PUT, "ingested")])];
    sample(directory.path(), &[plain, form], &levels, &[]);
    let wanted = vec![("a".to_string(), "ingested".to_string())];
    assert_eq!(read(directory.path(), Dialect::RocksDb, 0), Ok(wanted));
}
