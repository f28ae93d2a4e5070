//! Following the advice of an error, word by word, ends the trouble. Each of these hints once led
//! nowhere, or in a circle.

use std::fs;
use std::path::PathBuf;

use crate::{Place, Ran, files_below};
use runstone::unstable;

fn failed(place: &Place, arguments: &[&str], code: i32) -> Ran {
    let ran = place.run(arguments);
    assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    ran
}

/// The text without line breaks and the blanks after them.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first file of a store with this ending.
fn file(place: &Place, store: &str, extension: &str) -> PathBuf {
    let names = files_below(&place.path(store)).into_keys();
    let found = names.filter(|name| name.extension().is_some_and(|end| end == extension)).min();
    place.path(store).join(found.expect("a file"))
}

fn flip(path: &PathBuf, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("a file");
}

fn entries(place: &Place) {
    let lines: String = (0..3_000).map(|i| format!("key{i:05}\tvalue {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
}

/// The hint was "restore this file from a checkpoint", but a checkpoint on the same disk shares the
/// file, so the file was damaged there too. Only `export` itself said that it saves the rest.
#[test]
fn what_a_damaged_table_leaves_is_exported_and_imported() {
    let place = Place::new();
    entries(&place);
    flip(&file(&place, "s", "table"), 5_000);
    for command in ["scan", "count", "verify"] {
        let ran = failed(&place, &[command, "s"], 2);
        let told = flat(&format!("{}{}", ran.stdout, ran.stderr));
        assert!(told.contains("`runstone export STORE FILE` saves what can be read"), "{told}");
        assert!(told.contains("a checkpoint on this one shares it"), "{told}");
    }
    let ran = failed(&place, &["export", "s", "y.csv"], 2);
    assert!(ran.stderr.contains("y.csv.partial"), "{}", ran.stderr);
    place.ok(&["import", "saved", "y.csv.partial"]);
    assert!(place.json(&["count", "saved"])["count"].as_u64().is_some_and(|count| count > 2_000));
    place.ok(&["verify", "saved"]);
}

/// The ends of a gap were escaped twice, so that they could not be typed again.
#[test]
fn the_ends_of_a_gap_can_be_typed() {
    let place = Place::new();
    let lines: String = (0..3_000).map(|i| format!("k\\x00{i:05}\tvalue {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
    flip(&file(&place, "s", "table"), 5_000);
    let ran = failed(&place, &["export", "s", "y.tsv"], 2);
    let (_, gap) = ran.stderr.split_once("missing: keys from ").expect("a gap");
    let from = gap.split(' ').next().expect("a key");
    assert!(from.starts_with("k\\x00"), "{gap}");
    // The gap begins after the last key that was read.
    let last = from.strip_suffix("\\x00").expect("the least key behind it");
    assert!(place.ok(&["get", "s", last]).starts_with("value "));
}

/// A manifest of a checkpoint has another number and fits no other state of the store.
#[test]
fn a_store_without_its_manifest_is_replaced_as_a_whole() {
    let place = Place::new();
    entries(&place);
    place.ok(&["checkpoint", "s", "copy"]);
    let count = place.ok(&["count", "copy"]);
    for name in [file(&place, "s", "manifest"), place.path("s/CURRENT")] {
        let kept = fs::read(&name).expect("a file");
        fs::write(&name, b"junk that is longer than a header of a log").expect("a file");
        let ran = failed(&place, &["get", "s", "key00001"], 2);
        let told = flat(&ran.stderr);
        assert!(told.contains("use a checkpoint or another copy as a whole"), "{told}");
        fs::write(&name, kept).expect("a file");
    }
    fs::rename(place.path("s"), place.path("aside")).expect("a directory");
    fs::rename(place.path("copy"), place.path("s")).expect("a directory");
    assert_eq!(place.ok(&["count", "s"]), count);
}

/// A log file is kept for its records after the gap.
#[test]
fn dump_shows_what_lies_behind_a_gap() {
    let place = Place::new();
    place.crash("s", runstone::Options::default(), |store| {
        for key in ["k1", "k2", "k3", "k4", "k5"] {
            store.put(key, "v").expect("a put");
        }
    });
    let log = file(&place, "s", "wal");
    let at = fs::read(&log).expect("a log").windows(2).position(|two| two == b"k3");
    flip(&log, at.expect("the third record"));
    let ran = place.run(&["put", "s", "k9", "v"]);
    assert!(flat(&ran.stderr).contains("2 records at the end of the log are not used"));
    let names = files_below(&place.path("s")).into_keys();
    let mut names = names.map(|name| name.to_string_lossy().into_owned());
    let name = names.find(|name| name.starts_with("lost-")).expect("a file that is kept");
    let dump = place.ok(&["dump", "s", &name, "--entries"]);
    assert!(dump.contains("gap from ") && dump.contains("a record is damaged"), "{dump}");
    for key in ["k1", "k2", "k4", "k5"] {
        assert!(dump.contains(&format!("\"{key}\"")), "{key}: {dump}");
    }
    assert!(!dump.contains("\"k3\""), "{dump}");
}

#[test]
fn a_drop_that_was_not_confirmed_did_nothing() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v", "--keyspace", "other"]);
    let ran = failed(&place, &["drop", "s", "other"], 3);
    assert!(flat(&ran.stderr).contains("would be dropped with all its entries; nothing was done"));
    assert_eq!(place.ok(&["get", "s", "k", "--keyspace", "other"]), "v");
    let ran = failed(&place, &["drop", "s", "default"], 3);
    assert!(ran.stderr.contains("cannot be dropped"), "before it asks: {}", ran.stderr);
}

/// Once, `reshape --options` reset every option that the file does not name.
#[test]
fn a_merge_operator_is_set_and_nothing_else_changes() {
    let place = Place::new();
    place.write("ttl.toml", "ttl_seconds = 3600\n\n[shape]\nl0_trigger = 7\n");
    place.ok(&["put", "s", "a", "v", "--options", "ttl.toml"]);
    let ran = failed(&place, &["merge", "s", "k", "5"], 3);
    assert!(flat(&ran.stderr).contains("`runstone set STORE merge_operator=NAME"));
    place.write("o.toml", "merge_operator = \"add-i64\"\n");
    place.ok(&["reshape", "s", "--options", "o.toml"]);
    place.ok(&["merge", "s", "k", "5"]);
    let stats = place.ok(&["stats", "s"]);
    assert!(stats.contains("entries expire after 3600 s"), "{stats}");
    let store = runstone::Store::open(place.path("s"), runstone::Options::default());
    let options = store.expect("a store").default_keyspace().options();
    assert_eq!((options.ttl_seconds, unstable::numbers(&options).l0_trigger), (3600, 7));
}

/// Once, a misspelt operator could never be changed, and its keys could not be read.
#[test]
fn an_operator_that_nobody_knows_is_refused() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"append\"\n");
    let ran = failed(&place, &["put", "s", "k", "v", "--options", "o.toml"], 3);
    assert!(flat(&ran.stderr).contains("did you mean append(SEPARATOR)?"), "{}", ran.stderr);
    place.write("o.toml", "merge_operator = \"append(,)\"\n");
    place.ok(&["put", "s", "k", "v", "--options", "o.toml"]);
    place.ok(&["merge", "s", "k", "w"]);
    assert_eq!(place.ok(&["get", "s", "k"]), "v,w");
}

/// The advice "put the key" led to the same error again, because a decimal text is not a counter.
/// Such a put is refused now. A text that is older than the operator has to be deleted.
#[test]
fn a_counter_over_a_text_is_begun_anew() {
    let place = Place::new();
    place.write("o.toml", "merge_operator = \"add-i64\"\n");
    place.ok(&["put", "s", "c", "10"]);
    place.ok(&["reshape", "s", "--options", "o.toml"]);
    place.ok(&["merge", "s", "c", "5"]);
    let ran = failed(&place, &["get", "s", "c"], 2);
    let told = flat(&ran.stderr);
    assert!(told.contains("`runstone delete`") && !told.contains("`runstone put`"), "{told}");
    let ran = failed(&place, &["scan", "s"], 2);
    assert!(!ran.stderr.contains("verify"), "no file is damaged: {}", ran.stderr);
    place.ok(&["delete", "s", "c"]);
    place.ok(&["merge", "s", "c", "5"]);
    assert_eq!(place.ok(&["get", "s", "63", "--hex"]), "0500000000000000\n");
}

/// The advice "correct it and import again" led to a refusal, because the source had changed.
#[test]
fn a_strict_import_goes_on_with_the_corrected_source() {
    let place = Place::new();
    place.write("x.jsonl", "not json\n{\"key\":\"a\",\"value\":\"1\"}\n");
    let ran = failed(&place, &["import", "s", "x.jsonl", "--strict"], 1);
    assert!(ran.stderr.contains("the line is no JSON"), "{}", ran.stderr);
    place.write("x.jsonl", "{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":\"a\",\"value\":\"1\"}\n");
    place.ok(&["import", "s", "x.jsonl", "--strict"]);
    assert_eq!(place.ok(&["scan", "s"]), "a\t1\nb\t2\n");
}

/// Once, the advice repeated the target, which exists by then.
#[test]
fn what_a_format_cannot_hold_goes_into_another_file() {
    let place = Place::new();
    place.write("x.tsv", "a\t{\"n\":1}\nb\tno object\n");
    place.ok(&["import", "s", "x.tsv"]);
    let ran = failed(&place, &["export", "s", "y.csv", "--columns", "n"], 1);
    let told = flat(&ran.stderr);
    assert!(told.contains("a new file NAME.jsonl without --columns"), "{told}");
    place.ok(&["export", "s", "y.jsonl"]);
    place.ok(&["import", "t", "y.jsonl"]);
    assert_eq!(place.ok(&["scan", "t"]), place.ok(&["scan", "s"]));
}

/// The store would remove exported files that have the names of its own files.
#[test]
fn nothing_is_exported_into_the_store() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    for target in ["s/x.jsonl", "s/000099.table"] {
        let ran = failed(&place, &["export", "s", target, "--format", "jsonl"], 3);
        assert!(ran.stderr.contains("the target lies in the store"), "{}", ran.stderr);
        assert!(!place.path(target).exists());
    }
    let ran = failed(&place, &["export", "s", "s/below/", "--drop-expiry"], 3);
    assert!(ran.stderr.contains("the target lies in the store"), "{}", ran.stderr);
}

/// The hint for a file that was cut short does not blame the disk.
#[test]
fn a_cut_file_is_not_blamed_on_the_device() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "a value that is packed"]);
    for name in ["y.jsonl.gz", "y.jsonl.zst"] {
        place.ok(&["export", "s", name]);
        let bytes = fs::read(place.path(name)).expect("a file");
        place.write(name, &bytes[..bytes.len() - 6]);
        let ran = failed(&place, &["import", "t", name], 5);
        let told = flat(&ran.stderr);
        assert!(told.contains("cut short or damaged") && !told.contains("device"), "{told}");
    }
    let ran = failed(&place, &["put", "s", "k", "--file", "s"], 5);
    assert!(ran.stderr.contains("name a file"), "{}", ran.stderr);
}

/// Once, the hints for a path through a file were "check the device", "name a directory" and "pass
/// --force".
#[test]
fn a_file_in_the_way_is_not_blamed_on_something_else() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    place.write("file", "x");
    for arguments in [
        &["checkpoint", "s", "file/copy"][..],
        &["export", "s", "file/x.csv"],
        &["export", "s", "file/x/"],
        &["shape", "s", "--svg", "file/x.svg"],
        &["man", "file/pages"],
    ] {
        let ran = failed(&place, arguments, 5);
        let hint = "hint: check the path: a file is where a directory should be\n";
        assert!(ran.stderr.contains(hint), "{arguments:?}: {}", ran.stderr);
    }
    let ran = failed(&place, &["man", "file"], 5);
    assert!(ran.stderr.contains("name a directory: this is none"), "{}", ran.stderr);
}

/// Once, the hint for a name that is too long, and for links in a circle, was "check the device".
#[test]
fn a_wrong_path_is_not_blamed_on_the_device() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v"]);
    std::os::unix::fs::symlink("two", place.path("one")).expect("a link");
    std::os::unix::fs::symlink("one", place.path("two")).expect("a link");
    let long = "n".repeat(300);
    for (path, hint) in [(&long[..], "a shorter name"), ("one/x", "its links lead in a circle")] {
        for arguments in [
            &["put", path, "k", "v"][..],
            &["get", path, "k"],
            &["export", "s", path, "--format", "csv"],
            &["export", "s", path, "--format", "dir"],
            &["checkpoint", "s", path],
            &["shape", "s", "--svg", path],
            &["man", path],
            &["put", "s", "k", "--file", path],
            &["put", "s", "k", "v", "--options", path],
        ] {
            let ran = place.run(arguments);
            assert!([4, 5].contains(&ran.code), "{arguments:?}: {}", ran.stderr);
            assert!(ran.stderr.contains(hint), "{arguments:?}: {}", ran.stderr);
            assert!(!ran.stderr.contains("check the device"), "{arguments:?}: {}", ran.stderr);
        }
    }
}

/// The tables overlap, so a compaction reads the damaged block.
#[test]
fn every_command_that_meets_damage_names_the_export() {
    let place = Place::new();
    entries(&place);
    place.ok(&["put", "s", "key00000", "again"]);
    place.ok(&["put", "s", "key02999", "again"]);
    flip(&file(&place, "s", "table"), 5_000);
    for arguments in [&["compact", "s"][..], &["checkpoint", "s", "copy", "--verify"]] {
        let ran = failed(&place, arguments, 2);
        let told = flat(&format!("{}{}", ran.stdout, ran.stderr));
        assert!(told.contains("`runstone export STORE FILE` saves what can be read"), "{told}");
    }
}
