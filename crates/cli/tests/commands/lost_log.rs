//! The end of a log after a gap: it is reported, counted and kept, and `dump` reads it.

use std::fs;

use crate::{Place, Ran, files_below};

const ENTRIES: u64 = 2_000;

/// A store that stopped with unsynced writes. A bit is flipped near the beginning of its log.
fn torn(place: &Place) {
    place.crash("s", runstone::Options::default().wal_segment_bytes(64 << 10), |store| {
        for i in 0..ENTRIES {
            store.put(format!("key{i:05}"), [b'v'; 100]).expect("a put");
        }
    });
    let names = files_below(&place.path("s")).into_keys();
    let first = names.filter(|name| name.extension().is_some_and(|end| end == "wal")).min();
    let first = place.path("s").join(first.expect("a log"));
    let mut bytes = fs::read(&first).expect("a segment");
    bytes[10_000] ^= 1;
    fs::write(&first, bytes).expect("a segment");
}

fn kept(place: &Place) -> Vec<String> {
    let names = files_below(&place.path("s")).into_keys();
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("lost-")).collect()
}

/// Once, `verify` printed "no damage" and nothing about 1,900 records that the open had not used.
/// They do not count as damage, but they are reported.
#[test]
fn verify_counts_what_is_not_used() {
    let place = Place::new();
    torn(&place);
    let report = place.json(&["verify", "s"]);
    let count = place.json(&["count", "s"])["count"].as_u64().expect("a number");
    // The damaged record itself does not count as lost.
    assert_eq!(report["lost_records"].as_u64(), Some(ENTRIES - 1 - count), "{report}");
    assert_eq!(report["clean"], true);
    let ran = place.run(&["verify", "s"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told = format!("not used: {} records of the log", ENTRIES - 1 - count);
    assert!(ran.stdout.contains(&told) && ran.stdout.contains("power loss"), "{}", ran.stdout);
    assert!(ran.stdout.contains("lost-NNNNNN.wal") && ran.stdout.contains("runstone dump"));
    assert!(ran.stdout.contains("no damage"), "{}", ran.stdout);
    assert_eq!(ran.stderr, "", "once is enough");

    place.ok(&["put", "sound", "k", "v"]);
    assert_eq!(place.json(&["verify", "sound"])["lost_records"], 0);
    assert!(!place.ok(&["verify", "sound"]).contains("not used"));
}

/// Once, one copy of a header was damaged, and `verify` did not mention it.
#[test]
fn verify_names_a_file_with_one_copy_of_its_header() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v", "--sync"]);
    let names = files_below(&place.path("s")).into_keys();
    let log = names.filter(|name| name.extension().is_some_and(|end| end == "wal")).min();
    let log = log.expect("a log");
    let path = place.path("s").join(&log);
    let mut bytes = fs::read(&path).expect("a segment");
    bytes[20] ^= 1;
    fs::write(&path, bytes).expect("a segment");
    let ran = place.run(&["verify", "s"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let told = format!(
        "damaged: s/{}: byte 0: one of two copies of the header is damaged\n",
        log.display()
    );
    assert!(ran.stdout.starts_with(&told), "{}", ran.stdout);
    let ends = "1 damaged file\n  hint: nothing is lost: the other copy serves\n";
    assert!(ran.stdout.ends_with(ends), "{}", ran.stdout);
}

/// Once, an open that lost the end of the log reported this only to subscribers of `tracing`, and
/// the command has none.
#[test]
fn an_open_tells_of_a_lost_end() {
    let notes = |ran: &Ran| ran.stderr.lines().filter(|line| line.contains("not used")).count();
    for write in [
        &["put", "s", "k", "v"][..],
        &["delete", "s", "k"],
        &["compact", "s"],
        &["import", "s", "x.tsv"],
        &["checkpoint", "s", "copy"],
        &["shell", "s"],
        &["bench", "readrandom", "--num", "10", "--use-existing", "--store", "s"],
        &["put", "s", "k", "v", "--json"],
    ] {
        let place = Place::new();
        torn(&place);
        place.write("x.tsv", "a\tb\n");
        for read in [&["get", "s", "key00001"][..], &["scan", "s"], &["shell", "s", "--read-only"]]
        {
            let ran = place.run(read);
            assert_eq!((ran.code, notes(&ran)), (0, 1), "{read:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("an open for writing keeps the file"), "{}", ran.stderr);
            assert!(!ran.stdout.contains("not used"), "{}", ran.stdout);
        }
        assert_eq!(kept(&place), Vec::<String>::new());
        let ran = place.run(write);
        assert_eq!((ran.code, notes(&ran)), (0, 1), "{write:?}: {}", ran.stderr);
        assert!(!ran.stdout.contains("not used"), "{}", ran.stdout);
        let kept = kept(&place);
        assert!(ran.stderr.contains(&kept[0]), "{write:?}: {}", ran.stderr);
        let ran = place.run(&["get", "s", "key00001"]);
        assert_eq!(ran.stderr, "", "it is told once");
    }
}

/// Once, a program that asked for JSON got a line that was not JSON.
#[test]
fn it_is_an_object_for_programs() {
    for arguments in [&["get", "s", "key00001"][..], &["put", "s", "k", "v"], &["get", "s", "none"]]
    {
        let place = Place::new();
        torn(&place);
        let ran = place.run(&[arguments, &["--json"]].concat());
        let objects: Vec<serde_json::Value> = ran
            .stderr
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
            })
            .collect();
        let note = objects[0]["note"].as_str().expect("a note");
        assert!(note.contains("at the end of the log are not used"), "{note}");
        assert_eq!(objects.len(), if arguments[2] == "none" { 2 } else { 1 }, "{objects:?}");
    }
}

/// Kept files are listed as such, can be read, and are not counted by `verify` or `stats`.
#[test]
fn dump_reads_what_is_kept() {
    let place = Place::new();
    torn(&place);
    place.ok(&["put", "s", "k", "v"]);
    let kept = kept(&place);
    let list = place.ok(&["dump", "s"]);
    for name in &kept {
        let line = list.lines().find(|line| line.contains(name.as_str())).expect("it is listed");
        assert!(line.ends_with("(of a lost end of the log; not used)"), "{line}");
        place.ok(&["dump", "s", name]);
    }
    let files = place.json(&["dump", "s"])["files"].as_array().expect("a list").clone();
    let lost = files.iter().filter(|file| file["is_lost"] == true).count();
    assert_eq!(lost, kept.len(), "{files:?}");
    let last = place.ok(&["dump", "s", kept.last().expect("a file"), "--entries"]);
    assert!(last.contains("key01999"), "{last}");
    let report = place.json(&["verify", "s"]);
    assert_eq!((&report["clean"], &report["lost_records"]), (&true.into(), &0.into()), "{report}");
    for command in ["stats", "shape"] {
        let ran = place.run(&[command, "s"]);
        assert!(ran.code == 0 && !ran.stdout.contains("lost-"), "{}", ran.stdout);
    }

    // The kept files of a store that does not open do not count as damage: their damage is
    // known.
    fs::write(place.path("s").join(&kept[0]), "cut").expect("a file");
    let files = files_below(&place.path("s"));
    let manifest = files.keys().find(|name| name.extension().is_some_and(|end| end == "manifest"));
    fs::write(place.path("s").join(manifest.expect("a manifest")), "gone").expect("a file");
    let ran = place.run(&["verify", "s"]);
    assert!(ran.code == 2 && !ran.stdout.contains("lost-"), "{}", ran.stdout);
}
