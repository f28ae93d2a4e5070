//! Damage: every byte of small samples is changed, and every file is cut short at every byte. A
//! read then returns an error, or the right entries, or the entries up to an earlier end of a log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use runstone_foreign::Dialect;

use crate::reading::{read, sample};
use crate::writer::{DELETE, Entry, Form, PUT, batch, operation};

type Found = BTreeMap<String, String>;

/// A small database, since every byte of it is tried. Returns the state after each number of its
/// three batches.
fn small(path: &Path, form: &Form) -> Vec<Found> {
    let below: [Entry<'_>; 4] =
        [("ka", 1, PUT, "1"), ("kb", 2, PUT, "2"), ("kc", 3, PUT, "3"), ("kd", 4, PUT, "4")];
    let above: [Entry<'_>; 2] = [("kb", 9, DELETE, ""), ("kc", 8, PUT, "newer")];
    let batches = [
        batch(100, &[operation(PUT, None, "ka", Some("logged"))]),
        batch(101, &[operation(DELETE, None, "ka", None), operation(PUT, None, "x", Some("y"))]),
        batch(103, &[operation(PUT, None, "kd", Some("last"))]),
    ];
    sample(path, std::slice::from_ref(form), &[(1, &below), (0, &above)], &batches);
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    vec![
        of(&[("ka", "1"), ("kc", "newer"), ("kd", "4")]),
        of(&[("ka", "logged"), ("kc", "newer"), ("kd", "4")]),
        of(&[("kc", "newer"), ("kd", "4"), ("x", "y")]),
        of(&[("kc", "newer"), ("kd", "last"), ("x", "y")]),
    ]
}

fn forms() -> Vec<Form> {
    let mut forms = vec![Form::leveldb(1), Form::leveldb(2)];
    for (version, checksum, compression) in
        [(2, 1, 0), (4, 2, 4), (5, 3, 2), (5, 4, 7), (6, 4, 1), (6, 1, 0)]
    {
        let mut form = Form::rocksdb(version, checksum, compression);
        form.is_partitioned = version == 5;
        form.range_deletes = vec![("kx", 3, "kz")];
        forms.push(form);
    }
    forms
}

fn files(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("lists").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0)).collect()
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn read_all(path: &Path, dialect: Dialect) -> Result<Found, String> {
    read(path, dialect, 0).map(|pairs| pairs.into_iter().collect())
}

#[test]
fn changed_bytes_are_found_or_harmless() {
    for form in forms() {
        let place = tempfile::tempdir().expect("a directory");
        let states = small(place.path(), &form);
        let whole = &states[3];
        assert_eq!(read_all(place.path(), form.dialect).as_ref(), Ok(whole));
        for file in files(place.path()) {
            let bytes = fs::read(&file).expect("reads");
            for at in 0..bytes.len() {
                for change in [1, 4, 0x80] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= change;
                    fs::write(&file, &damaged).expect("writes");
                    if let Ok(found) = read_all(place.path(), form.dialect) {
                        // Padding of footers and the name in IDENTITY have no meaning.
                        assert_eq!(&found, whole, "{} byte {at} ^ {change}", file.display());
                    }
                }
            }
            fs::write(&file, &bytes).expect("writes");
        }
    }
}

#[test]
fn files_that_are_cut_short_are_found() {
    for form in forms() {
        let place = tempfile::tempdir().expect("a directory");
        let states = small(place.path(), &form);
        for file in files(place.path()) {
            let bytes = fs::read(&file).expect("reads");
            for length in 0..bytes.len() {
                fs::write(&file, &bytes[..length]).expect("writes");
                let Ok(found) = read_all(place.path(), form.dialect) else { continue };
                let name = file.display();
                match is_log(&file) {
                    true => assert!(states.contains(&found), "{name} of {length}: {found:?}"),
                    // After a crash, the end of a manifest may be missing. Then earlier tables
                    // count.
                    false if name.to_string().contains("MANIFEST") => {}
                    false => assert_eq!(&found, &states[3], "{name} of {length}"),
                }
            }
            fs::write(&file, &bytes).expect("writes");
        }
    }
}

/// Without checksums, reading ends without a panic, whatever the bytes are.
#[test]
fn without_checksums_nothing_panics() {
    for compression in [0, 1, 2, 4, 7] {
        let mut form = Form::rocksdb(5, 0, compression);
        form.has_buckets = true;
        form.range_deletes = vec![("kx", 3, "kz")];
        let place = tempfile::tempdir().expect("a directory");
        small(place.path(), &form);
        let file = place.path().join("000010.sst");
        let bytes = fs::read(&file).expect("reads");
        for at in 0..bytes.len() {
            for change in [1, 0x10, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                fs::write(&file, &damaged).expect("writes");
                let _ = read_all(place.path(), form.dialect);
            }
        }
    }
}
