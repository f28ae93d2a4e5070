//! Keys whose value cannot be made or read: the others are counted, shown and exported.

use std::fs;
use std::sync::Arc;

use runstone::{KeyspaceOptions, MergeOperator, Options, Store};

use crate::{Place, Ran, files_below};

/// Stores k00 to k19 with JSON, except that k05 and k11 have operands on a value that is not JSON.
/// With `has_empty_key` there is also the empty key, which fails too.
fn make(place: &Place, has_empty_key: bool) {
    place.write("o.toml", "merge_operator = \"json-merge-patch\"\n");
    let line = |i| match i {
        5 | 11 => format!("k{i:02}\tnot json\n"),
        _ => format!("k{i:02}\t{{\"n\":{i}}}\n"),
    };
    place.write("x.tsv", (0..20).map(line).collect::<String>());
    place.ok(&["import", "s", "x.tsv", "--options", "o.toml"]);
    for key in ["k05", "k07", "k11"] {
        place.ok(&["merge", "s", key, "{\"m\":1}"]);
    }
    if has_empty_key {
        place.ok(&["put", "s", "", "not json"]);
        place.ok(&["merge", "s", "", "{\"m\":1}"]);
    }
}

/// Makes a store of separated values, in which the value of k042 is damaged.
fn make_apart(place: &Place) {
    place.write("o.toml", "[values]\nplacement = \"vlog\"\nseparate_at = 100\n");
    let lines = (0..100).map(|i| format!("k{i:03}\t{}\n", format!("{i:03}").repeat(200)));
    place.write("v.tsv", lines.collect::<String>());
    place.ok(&["import", "s", "v.tsv", "--options", "o.toml"]);
    place.ok(&["compact", "s"]);
    let find = |bytes: &[u8]| bytes.windows(9).position(|window| window == b"042042042");
    for (name, mut bytes) in files_below(&place.path("s")) {
        if let Some(at) = find(&bytes) {
            bytes[at + 3] ^= 0x40;
            fs::write(place.path("s").join(name), bytes).expect("a file");
        }
    }
}

fn object(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stdout).expect("one JSON object")
}

fn keys(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.split('\t').next()).collect()
}

/// Once, counting read every value, and ended at the first that could not be made.
#[test]
fn count_needs_no_values() {
    let place = Place::new();
    make(&place, true);
    assert_eq!(place.ok(&["count", "s"]), "21\n");
    assert_eq!(place.ok(&["count", "s", "--from", "k05", "--limit", "3"]), "3\n");
    assert_eq!(place.ok(&["count", "s", "--reverse"]), "21\n");
    let report = place.json(&["count", "s"]);
    assert_eq!((&report["count"], &report["failed"]), (&21.into(), &3.into()), "{report}");
    assert_eq!(place.ok(&["scan", "s", "--keys-only"]).lines().count(), 21);
    // A delete with a limit walks over the keys.
    place.ok(&["delete", "s", "--from", "k05", "--limit", "1"]);
    assert_eq!(place.ok(&["count", "s"]), "20\n");

    let place = Place::new();
    make_apart(&place);
    assert_eq!(place.ok(&["count", "s"]), "100\n");
    let report = place.json(&["count", "s"]);
    assert_eq!((&report["count"], &report["failed"]), (&100.into(), &1.into()), "{report}");
    assert_eq!(report["value_bytes"], 99 * 600);
}

/// Once, one such key ended every scan: the keys after it were not shown.
#[test]
fn scan_shows_the_others() {
    let place = Place::new();
    make(&place, true);
    for (arguments, first) in [(&["scan", "s"][..], "k00"), (&["scan", "s", "--reverse"], "k19")] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let shown = keys(&ran.stdout);
        assert_eq!((shown.len(), shown[0]), (18, first), "{shown:?}");
        for key in ["key : ", "key k05: ", "key k11: "] {
            let told = format!("{key}merge operator json-merge-patch failed: ");
            assert!(ran.stderr.contains(&told), "{}", ran.stderr);
        }
        assert!(ran.stderr.contains("error: 3 keys were not shown"), "{}", ran.stderr);
    }
    let ran = place.run(&["scan", "s", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let report = object(&ran);
    assert_eq!((&report["count"], &report["failed"]), (&18.into(), &3.into()), "{report}");
    assert_eq!(report["entries"].as_array().map(Vec::len), Some(18));
    assert_eq!(report["failed_entries"][1]["key"], "k05");
    assert!(report["failed_entries"][1]["what"].as_str().is_some_and(|what| !what.is_empty()));
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).expect("one JSON object");
    assert!(error["error"].as_str().is_some_and(|what| what.contains("3 keys")), "{error}");
    // A limit counts keys, whether they have values or not.
    let ran = place.run(&["scan", "s", "--from", "k04", "--limit", "3"]);
    assert_eq!((ran.code, keys(&ran.stdout)), (2, vec!["k04", "k06"]), "{}", ran.stderr);
    place.ok(&["scan", "s", "--from", "k12"]);
    // The shell continues, too.
    let ran = place.pipe(&["shell", "s"], "scan --from k04 --to k07\ncount\n");
    assert_eq!((ran.code, keys(&ran.stdout)), (2, vec!["k04", "k06", "21"]), "{}", ran.stderr);

    let place = Place::new();
    make_apart(&place);
    let ran = place.run(&["scan", "s"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (2, 99), "{}", ran.stderr);
    assert!(ran.stderr.contains("key k042: ") && ran.stderr.contains("corrupt"), "{}", ran.stderr);
}

/// Once, one such key ended every export: no command could save the keys after it.
#[test]
fn export_leaves_out_what_fails_if_asked() {
    let place = Place::new();
    make(&place, true);
    let ran = place.run(&["export", "s", "y.tsv", "--from", "k00"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("on key \"k05\""), "{}", ran.stderr);
    assert!(ran.stderr.contains("--skip-failed"), "{}", ran.stderr);
    assert!(!place.path("y.tsv").exists() && !place.path("y.tsv.partial").exists());

    for more in [&[][..], &["--reverse"]] {
        let ran =
            place.run(&[&["export", "s", "y.tsv", "--skip-failed", "--force"], more].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("key k05: merge operator json-merge-patch failed"));
        assert!(ran.stderr.contains("3 keys were left out"), "{}", ran.stderr);
        let text = fs::read_to_string(place.path("y.tsv")).expect("the others");
        assert_eq!(keys(&text).len(), 18, "{text}");
    }
    let ran = place.run(&["export", "s", "z/", "--skip-failed", "--json"]);
    assert_eq!((ran.code, files_below(&place.path("z")).len()), (2, 18), "{}", ran.stderr);
    let report = object(&ran);
    assert_eq!((&report["records"], &report["failed"]), (&18.into(), &3.into()), "{report}");
    assert_eq!(report["failed_entries"][0]["key"], "");
    assert_eq!(report["failed_entries"][2]["key"], "k11");
    assert_eq!(report["missing"], serde_json::json!([]));
    place.ok(&["export", "s", "w.tsv", "--from", "k12", "--skip-failed"]);
}

/// A damaged value is a missing key, as a damaged block is, unless such keys are to be left out. A
/// damaged block is reported in either case.
#[test]
fn export_tells_damaged_blocks_and_values_apart() {
    let place = Place::new();
    make_apart(&place);
    let ran = place.run(&["export", "s", "y.tsv", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(place.path("y.tsv.partial").exists());
    let report = object(&ran);
    assert_eq!((&report["records"], &report["failed"]), (&99.into(), &0.into()), "{report}");
    assert_eq!(report["missing"][0]["from"], "k042");
    let ran = place.run(&["export", "s", "y.tsv", "--skip-failed", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let report = object(&ran);
    assert_eq!((&report["records"], &report["failed"]), (&99.into(), &1.into()), "{report}");
    assert_eq!(report["missing"], serde_json::json!([]));
    assert!(place.path("y.tsv").exists());

    let place = Place::new();
    make(&place, true);
    let lines = |i: u64| format!("m{i:05}\t{:016x}\n", (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    place.write("m.tsv", (0..20_000).map(lines).collect::<String>());
    place.ok(&["import", "s", "m.tsv"]);
    place.ok(&["compact", "s"]);
    for key in ["m19990", "m19991"] {
        place.ok(&["put", "s", key, "not json"]);
        place.ok(&["merge", "s", key, "{\"m\":1}"]);
    }
    let files = files_below(&place.path("s"));
    let (name, bytes) = files.iter().max_by_key(|(_, bytes)| bytes.len()).expect("files");
    let mut bytes = bytes.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(place.path("s").join(name), bytes).expect("a table");
    let ran = place.run(&["export", "s", "y.tsv", "--skip-failed", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let report = object(&ran);
    assert_eq!(report["failed"], 5, "{report}");
    assert_eq!(report["missing"].as_array().map(Vec::len), Some(1), "{report}");
    let text = fs::read_to_string(place.path("y.tsv.partial")).expect("what can be read");
    assert!(text.contains("m19999\t") && text.lines().count() > 18_000, "{}", ran.stderr);
    let ran = place.run(&["export", "s", "v.tsv"]);
    assert!(ran.code == 2 && ran.stderr.contains("--skip-failed"), "{}", ran.stderr);
}

/// Once, `get` of such a key explained how a program registers an operator, or named a file and not
/// the key.
#[test]
fn get_says_what_failed_and_what_to_do() {
    let place = Place::new();
    make(&place, false);
    let ran = place.run(&["get", "s", "k05"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("json-merge-patch failed on key \"k05\""), "{}", ran.stderr);
    assert!(ran.stderr.contains("`runstone put` or `runstone delete`"), "{}", ran.stderr);
    // The put works, as the message says.
    place.ok(&["put", "s", "k05", "{}"]);
    assert_eq!(place.ok(&["get", "s", "k05"]), "{}");

    let place = Place::new();
    make_apart(&place);
    let ran = place.run(&["get", "s", "k042"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("the value of key k042 cannot be read"), "{}", ran.stderr);
    assert!(ran.stderr.contains("checkpoint"), "{}", ran.stderr);
}

/// Keeps the longest operand.
#[derive(Debug)]
struct Longest;

impl MergeOperator for Longest {
    fn name(&self) -> &str {
        "longest"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let all = base.iter().chain(operands);
        Ok(all.max_by_key(|value| value.len()).unwrap_or(&&[][..]).to_vec())
    }
}

/// The operator of a program is registered nowhere else.
#[test]
fn an_operator_that_is_not_registered_stops_nothing() {
    let place = Place::new();
    let keyspace = KeyspaceOptions::default().merge_operator("longest");
    let options = Options::default()
        .merge_operators(vec![Arc::new(Longest)])
        .keyspace(keyspace)
        // A flush would fold the operands.
        .flush_at_close(false);
    let store = Store::open(place.path("s"), options).expect("a store");
    for key in ["a", "b", "c"] {
        store.put(key, "1").expect("a put");
    }
    store.default_keyspace().merge("b", "22").expect("an operand");
    store.close().expect("it closes");
    assert_eq!(place.ok(&["count", "s"]), "3\n");
    let ran = place.run(&["scan", "s"]);
    assert_eq!((ran.code, &ran.stdout[..]), (2, "a\t1\nc\t1\n"), "{}", ran.stderr);
    let ran = place.run(&["get", "s", "b"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("key \"b\" needs merge operator longest"), "{}", ran.stderr);
    assert!(ran.stderr.contains("a program that registers the operator"), "{}", ran.stderr);
    let ran = place.run(&["export", "s", "-", "--format", "tsv", "--skip-failed"]);
    assert_eq!((ran.code, &ran.stdout[..]), (2, "a\t1\nc\t1\n"), "{}", ran.stderr);
}
