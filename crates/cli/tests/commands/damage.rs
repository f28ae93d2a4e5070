//! Files cut short, with a flipped byte, or missing: reported by name with exit code 2 or 4, never
//! a panic, and never a wrong value.

use std::fs;
use std::path::{Path, PathBuf};

use runstone::storage::{Category, Storage};
use runstone_device::DeviceUrl;

use crate::Place;

const ENTRIES: usize = 3_000;

/// A store of tables, or of a log that was not flushed.
fn make(place: &Place) {
    let lines: String = (0..ENTRIES).map(|i| format!("key{i:06}\tvalue number {i}\n")).collect();
    place.write("x.tsv", lines);
    place.ok(&["import", "good", "x.tsv"]);
    // The entries are in the log, and in no table.
    place.crash("logged", runstone::Options::default(), |store| {
        for i in 0..100 {
            store.put(format!("key{i:06}"), "logged").expect("a put");
            // Damage to synced records is reported.
            store.sync().expect("a sync");
        }
    });
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

fn files(store: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(store).expect("a directory");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    // These files contain no data.
    files.retain(|file| !file.ends_with("LOCK") && !file.ends_with("RESERVE"));
    files.sort();
    files
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).expect("a file");
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 0x40;
    }
    fs::write(file, bytes).expect("a file");
}

#[test]
fn a_sound_store_is_sound() {
    let place = Place::new();
    make(&place);
    for store in ["good", "logged"] {
        let report = place.json(&["verify", store]);
        assert_eq!((&report["clean"], &report["opens"]), (&true.into(), &true.into()));
    }
    assert_eq!(place.ok(&["count", "logged"]), "100\n");
}

/// Once, `verify` looked for the files in a directory named like the URL if the store did not open.
#[test]
fn damage_on_a_block_ssd_is_told_by_name() {
    let place = Place::new();
    place.ok(&["put", "blockssd:b.img?blocks=64", "a", "1"]);
    let url = format!("blockssd:{}", place.path("b.img").display());
    let url = DeviceUrl::parse(&url).expect("a URL").expect("it is known");
    let device = url.open_block(false).expect("a device");
    let file = device.open("CURRENT", Category::Manifest).expect("a file");
    file.write_at(0, b"nonsense").and_then(|()| file.sync()).expect("a write");
    drop((file, device));
    let ran = place.run(&["verify", "blockssd:b.img"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("CURRENT") && ran.stdout.contains("does not open"),
        "{}",
        ran.stdout
    );
}

#[test]
fn damaged_files_are_told_by_name() {
    let place = Place::new();
    make(&place);
    for original in files(&place.path("good")) {
        let name = original.file_name().expect("a name").to_string_lossy().into_owned();
        let len = fs::metadata(&original).expect("a file").len() as usize;
        // The early place is after a manifest's header, which exists twice and survives a flip.
        let early = 200.min(len - 1);
        for (kind, at) in [("cut", len / 2), ("flip", len / 2), ("flip", early), ("gone", 0)] {
            let store = place.path("bad");
            let _ = fs::remove_dir_all(&store);
            copy(&place.path("good"), &store);
            let file = store.join(&name);
            match kind {
                "cut" => fs::write(&file, &fs::read(&file).expect("a file")[..at]).expect("cut"),
                "flip" => flip(&file, at),
                _ => fs::remove_file(&file).expect("gone"),
            }
            let ran = place.run(&["verify", "bad"]);
            assert_eq!(ran.code, 2, "{name} {kind} {at}: {} {}", ran.stdout, ran.stderr);
            assert!(ran.stdout.contains(&name), "{name} {kind} {at}: {}", ran.stdout);
            let ran = place.run(&["scan", "bad"]);
            assert!([0, 2, 4, 5].contains(&ran.code), "{name} {kind} {at}: {}", ran.code);
            for (i, line) in ran.stdout.lines().enumerate() {
                assert_eq!(line, format!("key{i:06}\tvalue number {i}"), "{name} {kind} {at}");
            }
            if ran.code == 0 {
                assert_eq!(ran.stdout.lines().count(), ENTRIES, "{name} {kind} {at}");
            } else {
                assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
            }
        }
    }
}

#[test]
fn a_flipped_log_is_told() {
    let place = Place::new();
    make(&place);
    let log = files(&place.path("logged"))
        .into_iter()
        .find(|file| file.extension().is_some_and(|extension| extension == "wal"));
    flip(&log.expect("a log"), 1500);
    let ran = place.run(&["get", "logged", "key000000"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains(".wal"), "{}", ran.stderr);
    let ran = place.run(&["verify", "logged", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one object");
    assert_eq!((ran.code, &report["opens"]), (2, &false.into()));
    let file = report["damage"][0]["file"].as_str().expect("a name");
    assert!(file.ends_with(".wal"), "{report}");
}

/// Once, `verify` reported "0 entries" for a store whose records were all in the log. Where one
/// segment was damaged, it also blamed the segments that are prepared for future records, which are
/// empty.
#[test]
fn only_the_damaged_segment_of_the_log_is_blamed() {
    let place = Place::new();
    let options = runstone::Options::default().wal_segment_bytes(64 << 10);
    place.crash("logged", options, |store| {
        (0..2_000).for_each(|i| store.put(format!("k{i:04}"), [7; 150]).expect("a put"));
        // Only damage to synced records is reported, and only a later record shows what was synced.
        store.sync().expect("a sync");
        store.put("k0000", [7; 150]).expect("a put");
        // Prepares the next segment.
        while store.run_one_job().expect("a job") {}
    });
    let is_log = |file: &PathBuf| file.extension().is_some_and(|found| found == "wal");
    let is_prepared =
        |file: &PathBuf| fs::read(file).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    let ran = place.run(&["verify", "logged"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let report = place.json(&["verify", "logged"]);
    assert!(report["log_entries"].as_u64().is_some_and(|count| count >= 2_000), "{report}");
    assert!(ran.stdout.contains(" more in the log"), "{}", ran.stdout);
    let segments: Vec<PathBuf> = files(&place.path("logged")).into_iter().filter(is_log).collect();
    assert!(segments.len() > 3 && segments.iter().any(is_prepared), "{segments:?}");
    for at in [&[30_000][..], &[10, 74]] {
        let store = place.path("bad");
        let _ = fs::remove_dir_all(&store);
        copy(&place.path("logged"), &store);
        let name = segments[1].file_name().expect("a name");
        at.iter().for_each(|at| flip(&store.join(name), *at));
        let ran = place.run(&["verify", "bad", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one object");
        let damage = report["damage"].as_array().expect("an array");
        assert_eq!(damage.len(), 1, "{at:?}: {report}");
        assert_eq!(damage[0]["file"], *name.to_string_lossy(), "{at:?}: {report}");
    }
}

#[test]
fn single_files_can_be_dumped() {
    let place = Place::new();
    make(&place);
    let list = place.json(&["dump", "good"]);
    for file in list["files"].as_array().expect("files") {
        let name = file["name"].as_str().expect("a name");
        let ran = place.run(&["dump", "good", name, "--entries"]);
        let is_known = name != "LOCK" && name != "RESERVE";
        assert_eq!(ran.code, if is_known { 0 } else { 3 }, "{name}: {}", ran.stderr);
        if name.ends_with(".table") {
            assert!(ran.stdout.contains("value number 2999"), "{name}");
        }
    }
    assert_eq!(place.run(&["dump", "good", "000099.table"]).code, 5);
}

/// A missing file is damage, as a truncated one is, and not a wrong path.
#[test]
fn missing_files_are_damage() {
    let place = Place::new();
    let options = "[values]\nplacement = \"hash-grouped\"\nseparate_at = 64\n";
    place.write("o.toml", options);
    place.write("x.tsv", format!("k\t{}\n", "v".repeat(1000)));
    for extension in ["table", "values", "manifest"] {
        place.ok(&["import", extension, "x.tsv", "--options", "o.toml"]);
        let gone = files(&place.path(extension))
            .into_iter()
            .find(|file| file.extension().is_some_and(|found| found == extension))
            .expect("such a file");
        std::fs::remove_file(&gone).expect("it is removed");
        let name = gone.file_name().expect("a name").to_string_lossy().into_owned();
        let ran = place.run(&["get", extension, "k"]);
        assert_eq!(ran.code, 2, "{extension}: {}", ran.stderr);
        assert!(ran.stderr.contains(&name) && ran.stderr.contains("checkpoint"), "{}", ran.stderr);
        let ran = place.run(&["verify", extension, "--json"]);
        assert_eq!(ran.code, 2, "{extension}: {}", ran.stderr);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one object");
        let damage = report["damage"].as_array().expect("an array");
        assert!(damage.len() == 1 && damage[0].to_string().contains(&name), "{report}");
    }
}
