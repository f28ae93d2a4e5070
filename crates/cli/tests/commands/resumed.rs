//! An import that resumes finds what it read before, or refuses: two sources are never mixed.

use std::fs;
use std::path::Path;

use crate::Place;

/// Begins an import that ends at its second line.
fn begin(place: &Place, store: &str, file: &str, text: &str) {
    place.write(file, text);
    assert_eq!(place.run(&["import", store, file, "--strict"]).code, 1);
}

/// Writes a file again with its old time.
fn write_with_old_time(path: &Path, bytes: &[u8]) {
    let time = path.metadata().and_then(|found| found.modified()).expect("a time");
    fs::write(path, bytes).expect("a file");
    let file = fs::File::options().write(true).open(path);
    file.and_then(|file| file.set_modified(time)).expect("a time");
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

/// Once, an import was resumed if the file had the same length and time: the store contained the
/// first lines of one file and the last lines of another. If length or time differed, the import
/// began again, and the store kept the entries that only the older file had, without a warning.
#[test]
fn a_file_that_changed_is_not_mixed_with_what_it_was() {
    let old = "a\t1\nbad\nb\t2\n";
    for store in ["s", "kvssd:n.img?blocks=48"] {
        for new in ["z\t1\nx\t0\nb\t2\n", "z\t1\nb\t2\n", "a\t1\r\nb\t2\n", "a\t"] {
            let place = Place::new();
            begin(&place, store, "x.tsv", old);
            write_with_old_time(&place.path("x.tsv"), new.as_bytes());
            let ran = place.run(&["import", store, "x.tsv"]);
            assert_eq!(ran.code, 1, "{new:?}: {}", ran.stderr);
            let told = "the source has changed since an import of it was cut short, which stored 1";
            assert!(ran.stderr.contains(told), "{}", ran.stderr);
            assert!(ran.stderr.contains("--restart"), "{}", ran.stderr);
            assert_eq!(place.ok(&["scan", store]), "a\t1\n", "nothing was written");
            let ran = place.run(&["import", "new", "x.tsv"]);
            assert_eq!(ran.code, 0, "another store takes it: {}", ran.stderr);
            place.ok(&["import", store, "x.tsv", "--restart"]);
        }
    }
}

/// Lines may have been added after those that were read: an import resumes there, even if the file
/// was copied or touched.
#[test]
fn what_was_appended_is_imported_too() {
    let place = Place::new();
    for (i, new) in
        ["a\t1\nb\t2\n", "a\t1\nb\t2\nc\t3\n", "a\t1\nbad\nb\t2\nc\t3\n"].iter().enumerate()
    {
        let store = format!("s{i}");
        begin(&place, &store, "x.tsv", "a\t1\nbad\nb\t2\n");
        place.write("x.tsv", new);
        let report = place.json(&["import", &store, "x.tsv"]);
        assert_eq!(report["resumed_records"], 1, "{report}");
        assert_eq!(place.ok(&["scan", &store]), new.replace("bad\n", ""));
    }
}

/// Checks the same for compressed files, whose unpacked lines count, and for csv with its header.
#[test]
fn every_format_knows_what_it_read() {
    let jsonl = |key: &str| format!("{{\"key\":\"{key}\",\"value\":\"1\"}}\nbad\n");
    for (file, old, new) in [
        ("x.jsonl", jsonl("a"), jsonl("b")),
        ("x.csv", "key,value\na,1\nbad\n".into(), "value,key\na,1\nbad\n".into()),
        ("y.csv", "key,value\n\"a\nb\",1\nbad\n".into(), "key,value\n\"a\nc\",1\nbad\n".into()),
    ] {
        let place = Place::new();
        begin(&place, "s", file, &old);
        let packed = format!("{file}.gz");
        place.write(&packed, gzip(&old));
        assert_eq!(place.run(&["import", "s", &packed, "--strict"]).code, 1);
        let resumed = place.json(&["import", "s", &packed])["resumed_records"].clone();
        assert_eq!(resumed, 1, "{packed}");
        assert_eq!(place.run(&["import", "s", &packed, "--strict"]).code, 1);
        write_with_old_time(&place.path(&packed), &gzip(&new));
        write_with_old_time(&place.path(file), new.as_bytes());
        for file in [file, &packed] {
            let ran = place.run(&["import", "s", file]);
            assert!(ran.code == 1 && ran.stderr.contains("has changed"), "{file}: {}", ran.stderr);
        }
    }
}

/// Once, the files of a database or store became values under the files' names.
#[test]
fn a_database_given_as_a_directory_is_refused() {
    let place = Place::new();
    for (current, other, told) in [
        ("MANIFEST-000004\n", "000005.ldb", "runstone import STORE leveldb:db"),
        ("MANIFEST-000004\n", "OPTIONS-000007", "runstone import STORE rocksdb:db"),
        ("MANIFEST-000004\n", "000009.sst", "runstone import STORE rocksdb:db"),
    ] {
        let _ = fs::remove_dir_all(place.path("db"));
        place.write("db/CURRENT", current);
        place.write(&format!("db/{other}"), "x");
        let ran = place.run(&["import", "s", "db"]);
        assert!(ran.code == 3 && ran.stderr.contains(told), "{}", ran.stderr);
        assert!(!place.path("s").exists());
        place.ok(&["import", "files", "db", "--format", "dir"]);
    }
    place.ok(&["put", "other", "k", "v"]);
    let ran = place.run(&["import", "s", "other"]);
    assert!(ran.code == 3 && ran.stderr.contains("is a store of Runstone"), "{}", ran.stderr);
    assert!(ran.stderr.contains("runstone checkpoint other"), "{}", ran.stderr);
    // A file of that name alone is not a database.
    place.write("d/CURRENT", "of the river\n");
    place.ok(&["import", "s", "d"]);
}

/// The disk space of the tables and value files of a store, in bytes.
fn disk_bytes(store: &Path) -> u64 {
    let files = fs::read_dir(store).expect("a store").flatten();
    files.map(|file| file.metadata().expect("a file").len()).sum()
}

/// Once, each import doubled the space, in every format and for every placement of values.
#[test]
fn a_finished_import_that_is_run_again_takes_no_more_disk() {
    let lines: String =
        (0..20_000).map(|i| format!("key{:06}\tvalue {i}\n", i * 7919 % 20_000)).collect();
    for flags in [&[][..], &["--sort"], &["--batch", "100"], &["--preset", "large-values"]] {
        let place = Place::new();
        place.write("x.tsv", &lines);
        let import = |more: &[&str]| place.ok(&[&["import", "s", "x.tsv"], more].concat());
        import(flags);
        let once = disk_bytes(&place.path("s"));
        for _ in 0..3 {
            import(flags);
            let again = disk_bytes(&place.path("s"));
            assert!(again <= once + once / 3, "{flags:?}: {again} bytes, {once} at first");
        }
        assert_eq!(place.ok(&["count", "s"]).trim(), "20000");
    }
}
