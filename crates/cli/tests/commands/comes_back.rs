//! Entries are the same after an export and an import, or are refused by name, for every format,
//! every kind of entry and every flag. Nothing changes silently.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runstone::{
    Batch, DEFAULT_KEYSPACE, Expiry, KeyspaceOptions, Options, ReadOptions, Store, WriteOptions,
};

use crate::Place;

/// Value and expiry of each key.
type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

const FILES: [&str; 3] = ["jsonl", "csv", "tsv"];
const PACKINGS: [&str; 3] = ["", ".gz", ".zst"];

/// An instant an hour from now, and one far beyond 2^53.
fn instants() -> [u64; 2] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    [now.as_millis() as u64 + 3_600_000, (1 << 53) + 1]
}

/// The kinds of entries, each by its name.
fn kinds() -> Vec<(&'static str, Entries)> {
    let plain = |pairs: &[(&[u8], &[u8])]| -> Entries {
        pairs.iter().map(|(key, value)| (key.to_vec(), (value.to_vec(), None))).collect()
    };
    let long = vec![b'x'; 300_000];
    let all: Vec<u8> = (0..=255).collect();
    let [soon, late] = instants();
    vec![
        ("text", plain(&[(b"a", b"one"), (b"b/c", b"two words")])),
        ("binary", plain(&[(b"\xff\xfe", b"\0\x80"), (b"text", &all), (b"\x80", b"text")])),
        ("binary values", plain(&[(b"a", b"\xff"), (b"aGk=", b"aGk=")])),
        ("empty", plain(&[(b"", b""), (b"e", b""), (b"f", b"\0")])),
        (
            "quotes",
            plain(&[(b"q\"", b"\"\""), (b",", b"a,b"), (b"l\n", b"1\n2\r\n3\r"), (b"t\t", b"\t")]),
        ),
        ("numbers", plain(&[(b"1", b"1"), (b"01", b"9007199254740993"), (b"1.0", b"1e400")])),
        (
            "like JSON",
            plain(&[
                (b"{\"key\":1}", b"{\"key\":\"k\",\"value\":\"v\"}"),
                (b"null", b"null"),
                (b"[1]", b"\"text\""),
            ]),
        ),
        ("long", plain(&[(b"long", &long), (&long[..60_000], b"v"), (b"m", b"after")])),
        (
            "unicode",
            plain(&[
                ("ü\u{2028}".as_bytes(), "\u{1f600}\u{feff}".as_bytes()),
                (b"\xed\xa0\x80", b"\xc3("),
                (b"\xef\xbb\xbfkey", b"\xef\xbb\xbf"),
            ]),
        ),
        ("like escapes", plain(&[(b"\\n", b"\\x00"), (b"C:\\t", b"\\"), (b"\\", b"expires_ms=7")])),
        (
            "expiring",
            [(&b"s"[..], (b"soon".to_vec(), Some(soon))), (b"\xffl", (vec![255], Some(late)))]
                .map(|(key, kept)| (key.to_vec(), kept))
                .into(),
        ),
    ]
}

fn all_kinds() -> Entries {
    kinds().into_iter().flat_map(|(_, entries)| entries).collect()
}

fn expiry(at_ms: Option<u64>) -> Expiry {
    at_ms.map_or(Expiry::Never, |at| Expiry::At(UNIX_EPOCH + Duration::from_millis(at)))
}

fn make(path: &Path, keyspace: &str, entries: &Entries) {
    let store = Store::open(path, Options::default()).expect("a store");
    let keyspace = store.open_keyspace(keyspace, None).expect("a keyspace");
    let mut batch = Batch::new();
    for (key, (value, at_ms)) in entries {
        batch.put_with_expiry(&keyspace, key, value, expiry(*at_ms)).expect("any bytes");
    }
    store.write(&batch, WriteOptions::default()).expect("a write");
    drop(keyspace);
    store.close().expect("it closes");
}

fn read(path: &Path, keyspace: &str) -> Entries {
    let options = Options::default().create_if_missing(false);
    let store = Store::open(path, options).expect("a store");
    let keyspace = store.keyspace(keyspace).expect("a keyspace");
    let mut cursor = keyspace.cursor(ReadOptions::default()).expect("a cursor");
    let mut entries = Entries::new();
    cursor.seek_to_first().expect("reads");
    while cursor.valid() {
        let at_ms = match cursor.expiry().expect("reads") {
            Expiry::Never => None,
            Expiry::At(at) => Some(at.duration_since(UNIX_EPOCH).expect("late").as_millis() as u64),
        };
        entries.insert(cursor.key().to_vec(), (cursor.value().to_vec(), at_ms));
        cursor.next().expect("reads");
    }
    entries
}

fn without_expiry(entries: &Entries) -> Entries {
    entries.iter().map(|(key, (value, _))| (key.clone(), (value.clone(), None))).collect()
}

fn remove(place: &Place, name: &str) {
    let path = place.path(name);
    let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
}

/// Once, exports lost the time at which an entry expires, in every format.
#[test]
fn every_kind_of_entry_comes_back_from_every_file() {
    for (kind, entries) in kinds().into_iter().chain([("all", all_kinds())]) {
        let place = Place::new();
        make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
        assert_eq!(read(&place.path("s"), DEFAULT_KEYSPACE), entries, "{kind}");
        for format in FILES {
            for drop_expiry in [&[][..], &["--drop-expiry"]] {
                let file = format!("x.{format}");
                place.ok(&[&["export", "s", &file, "--force"], drop_expiry].concat());
                remove(&place, "copy");
                place.ok(&["import", "copy", &file, "--strict"]);
                let right = match drop_expiry {
                    [] => entries.clone(),
                    _ => without_expiry(&entries),
                };
                assert!(read(&place.path("copy"), DEFAULT_KEYSPACE) == right, "{kind} {format}");
            }
        }
    }
}

/// A directory can store only entries that have a path and do not expire. Others are refused by
/// name.
#[test]
fn a_directory_refuses_what_it_cannot_hold() {
    for (kind, entries) in kinds() {
        let place = Place::new();
        make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
        for drop_expiry in [&[][..], &["--drop-expiry"]] {
            remove(&place, "out");
            remove(&place, "copy");
            let ran = place.run(&[&["export", "s", "out/"], drop_expiry].concat());
            let is_path =
                |key: &[u8]| !key.is_empty() && !key.contains(&0) && key.len() < 256 && key != b".";
            let mut right = entries.clone();
            right.retain(|key, (_, at_ms)| {
                is_path(key) && (at_ms.is_none() || !drop_expiry.is_empty())
            });
            let refused = entries.len() - right.len();
            assert_eq!(ran.code, i32::from(refused > 0), "{kind}: {}", ran.stderr);
            assert!(ran.stderr.matches("key ").count() >= refused, "{}", ran.stderr);
            if kind == "expiring" && drop_expiry.is_empty() {
                assert!(ran.stderr.contains("2 entries expire"), "{}", ran.stderr);
                assert!(ran.stderr.contains("--drop-expiry"), "{}", ran.stderr);
            }
            if right.is_empty() {
                continue;
            }
            place.ok(&["import", "copy", "out", "--strict"]);
            let found = read(&place.path("copy"), DEFAULT_KEYSPACE);
            assert!(found == without_expiry(&right), "{kind}");
        }
    }
}

/// Once, binary entries came back as the base64 of their bytes where the fields were named.
#[test]
fn every_way_to_import_brings_the_same() {
    let entries = all_kinds();
    let place = Place::new();
    make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
    let own = ["--key", "key", "--value", "value"];
    let ways: [&[&str]; 9] = [
        &[],
        &["--strict"],
        &["--sort"],
        &["--batch", "1"],
        &["--batch", "7", "--sync"],
        &["--restart"],
        &["--keyspace", "other"],
        &["--drop-expiry"],
        &["--preset", "large-values"],
    ];
    for format in FILES {
        let file = format!("x.{format}");
        place.ok(&["export", "s", &file]);
        let bytes = std::fs::read(place.path(&file)).expect("a file");
        for way in ways {
            for fields in [&[][..], &own] {
                if format == "tsv" && !fields.is_empty() {
                    continue;
                }
                let arguments = [&["import", "copy"][..], way, fields].concat();
                let right = match way.contains(&"--drop-expiry") {
                    true => without_expiry(&entries),
                    false => entries.clone(),
                };
                let name = if way.contains(&"other") { "other" } else { DEFAULT_KEYSPACE };
                remove(&place, "copy");
                place.ok(&[&arguments[..], &[&file]].concat());
                assert!(read(&place.path("copy"), name) == right, "{arguments:?} {file}");
                remove(&place, "copy");
                let piped = [&arguments[..], &["-", "--format", format]].concat();
                let ran = place.pipe(&piped, &bytes);
                assert_eq!(ran.code, 0, "{piped:?}: {}", ran.stderr);
                assert!(read(&place.path("copy"), name) == right, "{piped:?}");
            }
        }
    }
}

/// Once, `export out.jsonl.gz` wrote plain text under that name.
#[test]
fn every_way_to_export_brings_the_same() {
    let entries = all_kinds();
    let place = Place::new();
    make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
    let first: Entries = entries.clone().into_iter().take(5).collect();
    let last: Entries = entries.clone().into_iter().rev().take(5).collect();
    let within = |from: &[u8], to: &[u8]| -> Entries {
        entries.clone().into_iter().filter(|(key, _)| &key[..] >= from && &key[..] < to).collect()
    };
    let ways: [(&[&str], Entries); 7] = [
        (&[], entries.clone()),
        (&["--force"], entries.clone()),
        (&["--reverse"], entries.clone()),
        (&["--limit", "5"], first),
        (&["--limit", "5", "--reverse"], last),
        (&["--prefix", r"\xff"], within(b"\xff", b"\xff\xff\xff\xff")),
        (&["--from", "61", "--to", "7a", "--hex"], within(b"a", b"z")),
    ];
    for format in FILES {
        for (way, right) in &ways {
            for packing in PACKINGS {
                let file = format!("x.{format}{packing}");
                remove(&place, &file);
                remove(&place, "copy");
                place.ok(&[&["export", "s", &file], *way].concat());
                let bytes = std::fs::read(place.path(&file)).expect("a file");
                let is_packed = match packing {
                    ".gz" => bytes.starts_with(&[0x1f, 0x8b]),
                    ".zst" => bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
                    _ => std::str::from_utf8(&bytes).is_ok() || format == "csv",
                };
                assert!(is_packed, "{file}");
                // Imports read such a file under any name.
                let other = format!("y.{format}");
                std::fs::rename(place.path(&file), place.path(&other)).expect("a name");
                place.ok(&["import", "copy", &other, "--strict"]);
                let found = read(&place.path("copy"), DEFAULT_KEYSPACE);
                assert!(found == *right, "{way:?} {file}");
            }
        }
    }
}

/// Counters and other merged values are exported as the value that reads return. Once, the other
/// keyspaces of a store were left out, and no error was reported.
#[test]
fn keyspaces_and_merged_values_come_back() {
    let place = Place::new();
    let entries = all_kinds();
    make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
    make(&place.path("s"), "side", &entries);
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    for (name, operator, operands) in [
        ("counters", "add-i64", [300i64.to_le_bytes().to_vec(), (-301i64).to_le_bytes().to_vec()]),
        ("lists", "append(,)", [b"a".to_vec(), b"\xff\n".to_vec()]),
    ] {
        let options = KeyspaceOptions::default().merge_operator(operator);
        let keyspace = store.open_keyspace(name, Some(options)).expect("a keyspace");
        for operand in operands {
            keyspace.merge("n", operand).expect("an operand");
        }
    }
    store.close().expect("it closes");
    for name in ["side", "counters", "lists"] {
        let right = read(&place.path("s"), name);
        for format in FILES {
            let file = format!("{name}.{format}");
            place.ok(&["export", "s", &file, "--keyspace", name]);
            let copy = format!("copy-{format}");
            place.ok(&["import", &copy, &file, "--keyspace", name]);
            assert!(read(&place.path(&copy), name) == right, "{file}");
        }
    }
    let ran = place.run(&["export", "s", "x.csv"]);
    let told = "not of other keyspaces, see --keyspace: counters, lists, side";
    assert!(ran.code == 0 && ran.stderr.contains(told), "{}", ran.stderr);
    let report = place.json(&["export", "s", "y.csv"]);
    assert_eq!(report["other_keyspaces"].as_array().map(Vec::len), Some(3), "{report}");
}

/// An entry that expired between export and import has no value after the import, and hides an
/// older one, as it does in the store that it came from.
#[test]
fn what_expired_meanwhile_has_no_value() {
    let lines = [
        (
            "x.jsonl",
            "{\"key\":\"a\",\"value\":\"new\",\"expires_ms\":1000}\n\
             {\"key\":\"b\",\"value\":\"1\"}\n",
        ),
        ("x.csv", "key,value,expires_ms\na,new,1000\nb,1,\n"),
        ("x.tsv", "a\tnew\texpires_ms=1000\nb\t1\n"),
    ];
    for (file, text) in lines {
        for way in [&[][..], &["--sort"], &["--batch", "1"]] {
            let place = Place::new();
            place.write(file, text);
            place.ok(&["put", "s", "a", "old"]);
            let ran = place.run(&[&["import", "s", file], way].concat());
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            assert!(ran.stderr.contains("1 record had expired"), "{}", ran.stderr);
            assert_eq!(place.ok(&["scan", "s"]), "b\t1\n");
            place.ok(&["import", "s", file, "--drop-expiry"]);
            assert_eq!(place.ok(&["scan", "s"]), "a\tnew\nb\t1\n");
        }
        let place = Place::new();
        place.write(file, text);
        let ran = place.run(&["import", "kvssd:n.img?blocks=48", file]);
        assert!(ran.stderr.contains("entries of a device do not"), "{}", ran.stderr);
        assert_eq!(place.ok(&["scan", "kvssd:n.img"]), "b\t1\n");
    }
}

/// The object that `--json` prints for an entry is a line that imports read, with its expiry.
#[test]
fn printed_objects_come_back() {
    let place = Place::new();
    let entries = all_kinds();
    make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
    for hex in [&[][..], &["--hex"]] {
        let scan = place.json(&[&["scan", "s"], hex].concat());
        let lines: String =
            scan["entries"].as_array().expect("a list").iter().map(|e| format!("{e}\n")).collect();
        let key = entries.keys().next().expect("one").iter().map(|b| format!("{b:02x}"));
        let got = place.ok(&["get", "s", &key.collect::<String>(), "--hex", "--json"]);
        remove(&place, "copy");
        let import = ["import", "copy", "-", "--format", "jsonl", "--strict"];
        assert_eq!(place.pipe(&import, lines + &got).code, 0);
        assert!(read(&place.path("copy"), DEFAULT_KEYSPACE) == entries);
    }
    let got = place.json(&["get", "s", "s"]);
    assert_eq!(got["expires_ms"].as_u64(), entries[&b"s"[..]].1, "{got}");
}

/// `1` and `"1"` are two keys in JSON, and once became one.
#[test]
fn keys_that_a_store_does_not_tell_apart_are_refused() {
    for [first, second] in [["1", "\"1\""], ["\"1\"", "1"], ["true", "\"true\""], ["\"[]\"", "[]"]]
    {
        let place = Place::new();
        place.write(
            "x.jsonl",
            format!("{{\"id\":{first}}}\n{{\"id\":{second}}}\n{{\"id\":\"a\"}}\n"),
        );
        let ran = place.run(&["import", "s", "x.jsonl", "--key", "id"]);
        assert!(ran.stderr.contains("x.jsonl:2: keys before were"), "{}", ran.stderr);
        assert_eq!(place.ok(&["count", "s"]), "2\n");
        // An import that resumes reports it too.
        let strict = ["import", "t", "x.jsonl", "--key", "id", "--strict"];
        assert_eq!(place.run(&strict).code, 1);
        let ran = place.run(&strict);
        assert!(ran.code == 1 && ran.stderr.contains("keys before were"), "{}", ran.stderr);
    }
    let place = Place::new();
    place.write("x.jsonl", "{\"id\":null}\n{\"id\":7}\n");
    let ran = place.run(&["import", "s", "x.jsonl", "--key", "id"]);
    assert!(ran.stderr.contains("x.jsonl:1: field \"id\" is null"), "{}", ran.stderr);
}

/// Once, a column of csv could appear twice, so that no import took the file.
#[test]
fn columns_have_names_of_their_own() {
    let place = Place::new();
    place.ok(&["put", "s", "1", r#"{"name":"Ann","key":7}"#]);
    for columns in ["name,name", "key", "name,expires_ms"] {
        let ran = place.run(&["export", "s", "x.csv", "--columns", columns]);
        assert_eq!(ran.code, 3, "{columns}: {}", ran.stderr);
        assert!(ran.stderr.contains("two columns would be named"), "{}", ran.stderr);
    }
    assert!(!place.path("x.csv").exists());
    let arguments = ["export", "s", "-", "--format", "csv", "--columns", "name,expires_ms"];
    let csv = place.ok(&[&arguments[..], &["--drop-expiry"]].concat());
    assert_eq!(csv, "key,name,expires_ms\n1,Ann,\n");
}

/// Once, the bytes of a text in UTF-16 were mistaken for records.
#[test]
fn a_text_in_utf16_is_refused() {
    let place = Place::new();
    let text = "\u{feff}a\t1\n";
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for format in FILES {
        let file = format!("x.{format}");
        place.write(&file, &bytes);
        let ran = place.run(&["import", "s", &file]);
        assert!(ran.code == 3 && ran.stderr.contains("UTF-16"), "{}", ran.stderr);
    }
}

/// With `--key` alone the record is the value, and nothing of it is lost: it can be imported again.
/// The key in the record stays its key.
#[test]
fn a_whole_record_as_the_value_loses_nothing() {
    let entries = all_kinds();
    let place = Place::new();
    make(&place.path("s"), DEFAULT_KEYSPACE, &entries);
    place.ok(&["export", "s", "x.jsonl"]);
    place.ok(&["import", "whole", "x.jsonl", "--key", "key", "--strict"]);
    let whole = read(&place.path("whole"), DEFAULT_KEYSPACE);
    assert!(whole.keys().eq(entries.keys()), "keys are decoded");
    let lines: Vec<u8> =
        whole.values().flat_map(|(value, _)| [value, &b"\n"[..]].concat()).collect();
    let import = ["import", "copy", "-", "--format", "jsonl", "--strict"];
    assert_eq!(place.pipe(&import, &lines).code, 0);
    assert!(read(&place.path("copy"), DEFAULT_KEYSPACE) == entries);

    // A row of csv becomes an object, which contains text only.
    place.ok(&["export", "s", "x.csv"]);
    let ran = place.run(&["import", "rows", "x.csv", "--key", "key"]);
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
    let texts = entries.iter().filter(|(key, (value, _))| is_text(key) && is_text(value));
    let texts: Vec<_> = texts.collect();
    let told = ran.stderr.matches("is no UTF-8").count();
    assert_eq!((ran.code, told), (0, entries.len() - texts.len()), "{}", ran.stderr);
    let rows = read(&place.path("rows"), DEFAULT_KEYSPACE);
    assert_eq!(rows.len(), texts.len());
    for (key, (value, at_ms)) in texts {
        let row: serde_json::Value = serde_json::from_slice(&rows[key].0).expect("an object");
        assert_eq!(row["value"].as_str().map(str::as_bytes), Some(&value[..]));
        let at_ms = at_ms.map(|at| at.to_string()).unwrap_or_default();
        assert_eq!(row["expires_ms"], at_ms, "{row}");
    }
}
