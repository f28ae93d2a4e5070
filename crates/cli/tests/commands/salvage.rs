//! The readable part of a damaged store is exported, and the rest is reported. A copy reports what
//! it checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::{Place, files_below};

const ENTRIES: usize = 20_000;

fn key(i: usize) -> String {
    format!("key{:06}", i * 7)
}

fn line(i: usize) -> String {
    // No two values are alike, so that a block stays large when it is compressed.
    let value = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{}\tvalue {value:016x} of {i}\n", key(i))
}

/// Makes a store of one table. Returns the path of the table.
fn make(place: &Place, options: &[&str]) -> PathBuf {
    place.write("x.tsv", (0..ENTRIES).map(line).collect::<String>());
    place.ok(&[&["import", "s", "x.tsv"], options].concat());
    place.ok(&["compact", "s"]);
    let files = files_below(&place.path("s"));
    let largest = files.iter().max_by_key(|(_, bytes)| bytes.len()).expect("files");
    place.path("s").join(largest.0)
}

fn flip(file: &PathBuf, at: usize) {
    let mut bytes = fs::read(file).expect("a file");
    bytes[at] ^= 0x40;
    fs::write(file, bytes).expect("a file");
}

/// Checks that the lines that a damaged export wrote are right, and all other keys are in its
/// missing ranges.
fn check(lines: &str, missing: &serde_json::Value) -> usize {
    let right: BTreeMap<String, String> = (0..ENTRIES).map(|i| (key(i), line(i))).collect();
    let found: Vec<&str> = lines.split_inclusive('\n').collect();
    let missing = missing.as_array().expect("a list");
    let text = |value: &serde_json::Value| value.as_str().map(str::to_string);
    let is_missing = |key: &String| {
        missing.iter().any(|gap| {
            let (from, before) = (text(&gap["from"]), text(&gap["before"]));
            from.is_none_or(|from| *key >= from) && before.is_none_or(|before| *key < before)
        })
    };
    let left = right.iter().filter(|(key, _)| !is_missing(key)).map(|(_, line)| line);
    assert!(left.eq(found.iter()), "{missing:?}");
    found.len()
}

/// Once, an export of a store with one damaged block left nothing.
#[test]
fn an_export_keeps_what_can_be_read() {
    for (count, packing) in [(1, ""), (1, ".gz"), (2, ""), (3, ".zst")] {
        let place = Place::new();
        let table = make(&place, &[]);
        let len = fs::metadata(&table).expect("a table").len() as usize;
        for i in 1..=count {
            flip(&table, len * i / (count + 1) / 2);
        }
        let file = format!("y.tsv{packing}");
        let ran = place.run(&["export", "s", &file, "--json"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("could not be read"), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("{file}.partial")), "{}", ran.stderr);
        assert!(!place.path(&file).exists());
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("an object");
        assert_eq!(report["missing"].as_array().map(Vec::len), Some(count), "{report}");
        let partial = format!("{file}.partial");
        place.ok(&["import", "copy", &partial, "--format", "tsv"]);
        let found = check(&place.ok(&["scan", "copy"]), &report["missing"]);
        assert!(found + 2000 * count > ENTRIES && found < ENTRIES, "{found}");
        assert_eq!(report["records"], found);

        // Existing files stay, even those that another damaged export left.
        let ran = place.run(&["export", "s", &file]);
        assert!(ran.code == 2 && ran.stderr.contains(".partial-"), "{}", ran.stderr);
        assert!(ran.stderr.contains("missing: keys from key"), "{}", ran.stderr);
        let ran = place.run(&["export", "s", &file, "--force"]);
        assert!(ran.code == 2 && ran.stderr.contains(&partial), "{}", ran.stderr);
    }
}

#[test]
fn other_ways_to_export_pass_damage_too() {
    let place = Place::new();
    let table = make(&place, &[]);
    flip(&table, fs::metadata(&table).expect("a table").len() as usize / 4);
    let ran = place.run(&["export", "s", "out/"]);
    assert!(ran.code == 2 && ran.stderr.contains("where: out"), "{}", ran.stderr);
    let files = files_below(&place.path("out")).len();
    let ran = place.run(&["export", "s", "-", "--format", "tsv"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (2, files), "{}", ran.stderr);
    // A backward walk ends at the damage.
    let ran = place.run(&["export", "s", "y.tsv", "--reverse", "--json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("an object");
    assert_eq!(report["missing"][0]["from"], serde_json::Value::Null);
    let mut lines: Vec<String> = place
        .run(&["export", "s", "-", "--format", "tsv", "--reverse"])
        .stdout
        .lines()
        .map(|l| format!("{l}\n"))
        .collect();
    lines.reverse();
    check(&lines.concat(), &report["missing"]);
    // A range beside the damage is whole.
    place.ok(&["export", "s", "z.tsv", "--from", &key(ENTRIES - 100)]);
    // If no key of the range can be read, nothing is written.
    let first = report["missing"][0]["before"].as_str().expect("a key").to_string();
    let index = (0..ENTRIES).find(|i| key(*i) == first).expect("a key of the store");
    // A backward walk looks one key ahead.
    let (from, to) = (key(index - 3), key(index - 2));
    let ran = place.run(&["export", "s", "w.tsv", "--from", &from, "--to", &to]);
    assert!(ran.code == 2 && ran.stderr.contains("nothing was written"), "{}", ran.stderr);
    assert!(!place.path("w.tsv.partial").exists());
}

/// Checks the same for a damaged table footer, and for a separated value.
#[test]
fn a_lost_table_or_value_is_passed() {
    let place = Place::new();
    let table = make(&place, &[]);
    place.write("more.tsv", "zz1\t1\nzz2\t2\n");
    place.ok(&["import", "s", "more.tsv"]);
    let len = fs::metadata(&table).expect("a table").len() as usize;
    // This damages its footer.
    fs::write(&table, &fs::read(&table).expect("a table")[..len - 40]).expect("a cut file");
    let ran = place.run(&["export", "s", "y.tsv"]);
    if ran.stderr.contains("missing: ") {
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let text = fs::read_to_string(place.path("y.tsv.partial")).expect("the readable part");
        assert_eq!(text, "zz1\t1\nzz2\t2\n");
    } else {
        assert!([2, 4].contains(&ran.code), "it does not open: {}", ran.stderr);
    }

    let place = Place::new();
    place.write("o.toml", "[values]\nplacement = \"vlog\"\nseparate_at = 100\n");
    let lines = (0..100).map(|i| format!("k{i:03}\t{}\n", format!("{i:03}").repeat(200)));
    let lines: Vec<String> = lines.collect();
    place.write("v.tsv", lines.concat());
    place.ok(&["import", "s", "v.tsv", "--options", "o.toml"]);
    place.ok(&["compact", "s"]);
    let files = files_below(&place.path("s"));
    let (name, bytes) =
        files.iter().find(|(_, b)| find(b, b"042042042").is_some()).expect("values");
    assert!(name.to_string_lossy().ends_with(".values"), "{name:?}");
    flip(&place.path("s").join(name), find(bytes, b"042042042").expect("a value") + 3);
    let ran = place.run(&["export", "s", "y.tsv"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let text = fs::read_to_string(place.path("y.tsv.partial")).expect("the readable part");
    let right = lines.iter().enumerate().filter(|(i, _)| *i != 42).map(|(_, line)| &line[..]);
    assert_eq!(text, right.collect::<String>(), "{}", ran.stderr);
}

/// If values are separated, a walk reads ahead, and fails before it reaches the damage. Once, each
/// such failure was reported as a gap, in which no key was missing.
#[test]
fn damage_among_values_apart_is_one_gap() {
    let place = Place::new();
    place.write("o.toml", "[values]\nplacement = \"vlog\"\nseparate_at = 10\n");
    make(&place, &["--options", "o.toml"]);
    let files = files_below(&place.path("s"));
    let tables = files.iter().filter(|(name, _)| name.extension().is_some_and(|x| x == "table"));
    let (name, bytes) = tables.max_by_key(|(_, bytes)| bytes.len()).expect("a table");
    flip(&place.path("s").join(name), bytes.len() / 2);
    let ran = place.run(&["export", "s", "y.tsv", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("an object");
    assert_eq!(report["missing"].as_array().map(Vec::len), Some(1), "{report}");
    let lines = fs::read_to_string(place.path("y.tsv.partial")).expect("the readable part");
    check(&lines, &report["missing"]);
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Once, the copy of a damaged store was made with exit code 0, and nothing said that its contents
/// were not read.
#[test]
fn a_checkpoint_says_what_it_checked() {
    let place = Place::new();
    let table = make(&place, &[]);
    let ran = place.run(&["checkpoint", "s", "sound", "--verify"]);
    assert!(ran.code == 0 && ran.stdout.contains("no damage"), "{} {}", ran.stdout, ran.stderr);
    let report = place.json(&["checkpoint", "s", "again", "--verify"]);
    assert_eq!((&report["verified"], &report["damage"]), (&true.into(), &serde_json::json!([])));
    flip(&table, fs::metadata(&table).expect("a table").len() as usize / 4);
    let ran = place.run(&["checkpoint", "s", "copy"]);
    assert!(ran.code == 0 && ran.stderr.contains("contents were not read"), "{}", ran.stderr);
    let ran = place.run(&["checkpoint", "s", "other", "--verify"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let name = table.file_name().expect("a name").to_string_lossy();
    assert!(ran.stdout.contains(&format!("damaged: other/{name}")), "{}", ran.stdout);
    let ran = place.run(&["checkpoint", "s", "third", "--verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("an object");
    assert_eq!((ran.code, report["damage"].as_array().map(Vec::len)), (2, Some(1)), "{report}");
    // Names and lengths are always checked.
    let bytes = fs::read(&table).expect("a table");
    for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat()] {
        fs::write(&table, wrong).expect("a table");
        let ran = place.run(&["checkpoint", "s", "fourth"]);
        assert!(ran.code == 2 && ran.stderr.contains("length is"), "{}", ran.stderr);
        assert!(ran.stderr.contains(&*name), "{}", ran.stderr);
        let _ = fs::remove_dir_all(place.path("fourth"));
    }
    fs::remove_file(&table).expect("a table");
    let ran = place.run(&["checkpoint", "s", "fifth"]);
    assert!(ran.code == 2 && ran.stderr.contains("missing"), "{}", ran.stderr);
}
