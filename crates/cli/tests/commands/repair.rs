//! `repair`: its results, its messages and its refusals.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::{Place, files_below};

fn entries(place: &Place) {
    let lines: String = (0..3_000).map(|i| format!("key{i:05}\tvalue {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "s", "x.tsv"]);
}

#[test]
fn a_healthy_store_is_left_alone() {
    let place = Place::new();
    entries(&place);
    assert_eq!(place.ok(&["repair", "s", "t"]), "s is healthy; nothing was done\n");
    assert_eq!(place.json(&["repair", "s", "t"])["healthy"], true);
    assert!(!place.path("t").exists());
}

#[test]
fn a_store_without_current_is_whole_again() {
    let place = Place::new();
    entries(&place);
    fs::remove_file(place.path("s/CURRENT")).expect("it is there");
    let before = files_below(&place.path("s"));
    let told = place.run(&["get", "s", "key00007"]).stderr.replace("\n   ", "");
    assert!(told.contains("runstone repair STORE TARGET"), "{told}");
    let ran = place.run(&["repair", "s", "t"]);
    // `CURRENT` is missing, so the report lists it.
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("t is made of s\n  3000 entries in 1 keyspace"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("CURRENT: the file is missing"), "{}", ran.stdout);
    // Both stores share the file of the table.
    assert!(ran.stdout.contains("\n  1 of 1 table carried over unchanged\n"), "{}", ran.stdout);
    let is_table = |path: &PathBuf| path.extension().is_some_and(|own| own == "table");
    let table = files_below(&place.path("t")).into_keys().find(is_table).expect("there is one");
    let links = fs::metadata(place.path("t").join(table)).expect("it is there").nlink();
    assert_eq!(links, 2);
    assert!(!ran.stdout.contains("perhaps wrong"), "{}", ran.stdout);
    assert_eq!(place.json(&["count", "t"])["count"], 3_000);
    assert_eq!(files_below(&place.path("s")), before, "it is only read");
    assert_ne!(place.run(&["repair", "s", "t"]).code, 0, "the target is not empty");
}

#[test]
fn a_lost_table_and_a_lost_manifest_are_told() {
    let place = Place::new();
    entries(&place);
    for (ending, reason) in [("table", "may-be-old"), ("manifest", "may-be-back")] {
        let names = files_below(&place.path("s")).into_keys();
        let file = names.filter(|name| name.extension().is_some_and(|own| own == ending)).max();
        let file = place.path("s").join(file.expect("there is one"));
        let bytes = fs::read(&file).expect("it can be read");
        fs::remove_file(&file).expect("it is there");
        let ran = place.run(&["--json", "repair", "s", ending]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let doubts = report["doubts"].as_array().expect("a list");
        let is_told =
            doubts.iter().any(|one| one["reason"] == reason && one["keyspace"] == "default");
        assert!(is_told, "{report}");
        assert!(!report["lost"].as_array().expect("a list").is_empty());
        place.ok(&["verify", ending]);
        fs::write(&file, bytes).expect("it comes back");
    }
}

#[test]
fn what_is_no_store_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).expect("a directory");
    for (store, code) in [("empty", 4), ("nowhere", 4), ("mem:", 3)] {
        let ran = place.run(&["repair", store, "t"]);
        assert_eq!(ran.code, code, "{store}: {}", ran.stderr);
        assert!(!place.path("t").exists());
    }
    entries(&place);
    let ran = place.run(&["repair", "s", "s/inside"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
}
