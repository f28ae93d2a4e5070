//! Full disks. A limit on the size of files stands in for one: the system refuses to write, and the
//! test needs no right to mount.

use crate::Place;

/// Writes a file of records: keys of 1 + 8 characters, and values that hardly compress.
fn file(place: &Place, name: &str, keys: std::ops::Range<u64>) {
    let mut random = keys.start + 1;
    let mut line = |i: u64| {
        let mut value = String::new();
        for _ in 0..20 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value.push_str(&format!("{:016x}", random.rotate_left(29)));
        }
        format!("k{i:08}\t{value}\n")
    };
    let text: String = keys.map(&mut line).collect();
    place.write(name, text);
}

/// Once, the import stored all of its records, and then failed in the compaction that would remove
/// the replaced ones.
#[test]
fn an_import_ends_in_order_where_its_tidying_finds_no_room() {
    let place = Place::new();
    file(&place, "a.tsv", 0..2000);
    file(&place, "b.tsv", 1000..3000);
    file(&place, "c.tsv", 500..2500);
    place.ok(&["import", "s", "a.tsv"]);
    place.ok(&["import", "s", "b.tsv"]);
    let tables = |place: &Place| place.json(&["stats", "s"])["keyspaces"][0]["tables"].clone();
    let runstone = env!("CARGO_BIN_EXE_runstone");
    // There is room for a table of 2000 records, but not for one of the 3000 that are live.
    let line = format!("ulimit -f LIMIT; {runstone} import s c.tsv --memory-budget 4M");
    let largest = std::fs::read_dir(place.path("s")).expect("a store").flatten();
    let tables_bytes = largest
        .filter(|file| file.path().extension().is_some_and(|end| end == "table"))
        .map(|file| file.metadata().expect("a file").len());
    let limit = tables_bytes.max().expect("a table") * 5 / 4 / 512;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &line.replace("LIMIT", &limit.to_string())]);
    let output = command.current_dir(place.path(".")).output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("2000 records"), "{told}");
    assert_eq!(tables(&place), 3, "there was no room to compact");
    assert_eq!(place.ok(&["count", "s"]), "3000\n");
    place.ok(&["verify", "s"]);
    // With room, the same import compacts.
    place.ok(&["import", "s", "c.tsv"]);
    assert_eq!(tables(&place), 1);
}

/// Once, the error of the close hid how much was stored, and nothing said that the import can be
/// continued.
#[test]
fn an_import_without_room_says_what_is_stored_and_goes_on() {
    let place = Place::new();
    file(&place, "x.tsv", 0..160_000);
    let runstone = env!("CARGO_BIN_EXE_runstone");
    // There is room for segments of the log, but not for the table of the first flush.
    let line =
        format!("ulimit -f 20000; {runstone} import s x.tsv --batch 100 --options o.toml --json");
    place.write("o.toml", "write_buffer_bytes = \"12M\"\n");
    let mut command = std::process::Command::new("sh");
    let output =
        command.args(["-c", &line]).current_dir(place.path(".")).output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let stored = report["records"].as_u64().expect("a number");
    assert!(stored > 0 && report["complete"] == false, "{report}");
    assert!(told.contains("run the same command again to go on there"), "{told}");
    let report = place.json(&["import", "s", "x.tsv", "--batch", "100"]);
    assert_eq!(report["resumed_records"], stored);
    assert_eq!(place.ok(&["count", "s"]), "160000\n");
}

/// Once, the close of the store found no room for a flush, and the command reported this, as if the
/// stored delete had failed.
#[test]
fn a_delete_on_a_full_disk_succeeds() {
    let place = Place::new();
    file(&place, "x.tsv", 0..160_000);
    let runstone = env!("CARGO_BIN_EXE_runstone");
    place.write("o.toml", "write_buffer_bytes = \"12M\"\n");
    let limited = |arguments: &str| {
        let line = format!("ulimit -f 20000; {runstone} {arguments}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]).current_dir(place.path(".")).output().expect("a shell")
    };
    let imported = limited("import s x.tsv --batch 100 --options o.toml");
    assert_eq!(imported.status.code(), Some(5));
    let count = place.ok(&["count", "s"]);
    let refused = limited("put s more value");
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    for delete in ["delete s k00000001 k00000002", "delete s --from k00000100 --to k00000200"] {
        let deleted = limited(delete);
        assert_eq!(deleted.status.code(), Some(0), "{deleted:?}");
    }
    let count: u64 = count.trim().parse().expect("a number");
    assert_eq!(place.ok(&["count", "s"]).trim(), (count - 102).to_string());
}
