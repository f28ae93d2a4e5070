//! Things that a later release may write, made by hand under valid checksums. They are refused by
//! name, with what to do, or skipped, as sections 6, 7.6 and 10 of docs/formats.md say.

use std::sync::Arc;

use runstone::dump::dump_file;
use runstone::{Error, Store};
use runstone_sim::samples::{Files, make, options, storage_of};

use super::bytes::{PHI, at, low32, xxh3, xxh3_seeded};
use super::{log, number_of};

fn sample(name: &str) -> Files {
    make().into_iter().find(|sample| sample.name == name).expect("a sample").files
}

/// The number of entries.
fn read(files: &Files) -> runstone::Result<usize> {
    let store = Store::open_on(Arc::new(storage_of(files)), options(None))?;
    let mut count = 0;
    for name in store.keyspaces() {
        for entry in store.keyspace(&name)?.iter()? {
            entry?;
            count += 1;
        }
    }
    Ok(count)
}

fn name_of(files: &Files, extension: &str) -> String {
    files.keys().rfind(|name| name.ends_with(extension)).expect("such a file").clone()
}

/// Opening and dumping refuse the file as newer, and report which formats they understand.
fn refused(files: &Files, name: &str, supported: u32) {
    let dumped = dump_file(&storage_of(files), name, true).map(drop);
    for outcome in [read(files).map(drop), dumped] {
        let error = outcome.expect_err(name);
        assert!(error.hint().contains("newer release"), "{name}: {error}: {}", error.hint());
        match &error {
            Error::NewerFormat { file, supported: of, found } => {
                assert!(file == name && *of == supported && *found > supported, "{error}");
            }
            other => panic!("{name}: {other}"),
        }
    }
}

/// Adds a record of one fragment to a log file.
fn append(files: &mut Files, name: &str, magic: &[u8; 8], record: &[u8]) {
    let bytes = files.get_mut(name).expect("such a file");
    let end = log::read(bytes, magic, number_of(name)).expect("a header").end;
    let id = at(bytes, 24).u64();
    let seed = id ^ end.wrapping_mul(PHI) ^ 1 << 56;
    let mut fragment = low32(xxh3_seeded(record, seed)).to_le_bytes().to_vec();
    fragment.extend_from_slice(&(record.len() as u16).to_le_bytes());
    fragment.push(1);
    fragment.extend_from_slice(record);
    bytes.resize(bytes.len().max(end as usize + fragment.len()), 0);
    bytes[end as usize..][..fragment.len()].copy_from_slice(&fragment);
}

/// Rewrites the checksum of a frame of a table.
fn reseal(table: &mut [u8], offset: usize, len: usize) {
    let uid = at(table, table.len() as u64 - 32).u64();
    let seed = uid ^ (offset as u64).wrapping_mul(PHI);
    let sum = low32(xxh3_seeded(&table[offset..offset + len - 4], seed));
    table[offset + len - 4..offset + len].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_later_format_number_is_refused() {
    let files = sample("log");
    for (extension, copies, supported) in [("wal", 2, 1), ("manifest", 2, 1)] {
        let name = name_of(&files, extension);
        let mut newer = files.clone();
        for copy in newer.get_mut(&name).expect("listed").chunks_mut(64).take(copies) {
            copy[8] += 1;
            let sum = low32(xxh3(&copy[..60]));
            copy[60..64].copy_from_slice(&sum.to_le_bytes());
        }
        refused(&newer, &name, supported);
    }
    let name = name_of(&files, "table");
    let mut newer = files.clone();
    let table = newer.get_mut(&name).expect("listed");
    let footer = table.len() - 56;
    table[footer + 40] += 1;
    let sum = low32(xxh3(&table[footer..footer + 44]));
    table[footer + 44..footer + 48].copy_from_slice(&sum.to_le_bytes());
    refused(&newer, &name, 1);

    let mut newer = sample("hash-grouped");
    let name = name_of(&newer, "values");
    let values = newer.get_mut(&name).expect("listed");
    values[8] += 1;
    let sum = low32(xxh3(&values[..24]));
    values[24..28].copy_from_slice(&sum.to_le_bytes());
    refused(&newer, &name, 1);
}

#[test]
fn later_tags_and_options_of_a_manifest_are_refused() {
    let files = sample("plain");
    let name = name_of(&files, "manifest");
    let with = |record: &[u8]| {
        let mut newer = files.clone();
        append(&mut newer, &name, b"RunstMan", record);
        newer
    };
    let whole = read(&files).expect("sound");
    // A record that begins with 0 says that nothing before it is synced.
    assert_eq!(read(&with(&[0])).expect("a seal"), whole);
    for tag in [0, 13, 24, 99] {
        let newer = with(&[0, tag, 1, 7]);
        let error = read(&newer).expect_err("a later tag");
        assert!(matches!(&error, Error::NewerFormat { file, .. } if *file == name), "{error}");
        assert!(error.hint().contains("newer release"));
        let text = dump_file(&storage_of(&newer), &name, true).expect("the rest is readable");
        assert!(text.contains("newer release"), "{text}");
    }
    let error = read(&with(&[0, 4, 2, 1, 7])).expect_err("a byte more than the tag has");
    assert!(matches!(&error, Error::Corruption { file, .. } if *file == name), "{error}");
    let mut options = vec![0, 3, 24, 0, 7];
    options.extend_from_slice(b"default\x0eflux_bytes = 1");
    let error = read(&with(&options)).expect_err("a later option");
    assert!(matches!(error, Error::NewerFormat { .. }), "{error}");
    assert!(error.to_string().contains("options"), "{error}");
}

#[test]
fn later_properties_are_refused_or_passed_over() {
    let files = sample("plain");
    let whole = read(&files).expect("sound");
    let name = name_of(&files, "table");
    let mut footer = at(&files[&name], files[&name].len() as u64 - 44);
    let (offset, len) = (footer.u64() as usize, footer.u32() as usize);
    let raw = &files[&name][offset..offset + len];
    // Tag 5 with its 8 bytes, then tag 128, which takes two bytes like 131.
    let tag_at = raw.windows(2).rposition(|pair| pair == [5, 8]).expect("kinds of entries");
    assert_eq!(raw[tag_at + 10..tag_at + 12], [0x80, 1]);
    let mut newer = files.clone();
    let table = newer.get_mut(&name).expect("listed");
    table[offset + tag_at] = 100;
    reseal(table, offset, len);
    refused(&newer, &name, 1);
    let mut newer = files.clone();
    let table = newer.get_mut(&name).expect("listed");
    table[offset + tag_at + 10] = 0x83;
    reseal(table, offset, len);
    assert_eq!(read(&newer).expect("a hint"), whole);
}

#[test]
fn later_codecs_and_kinds_are_refused() {
    let files = sample("plain");
    let name = name_of(&files, "table");
    let mut newer = files.clone();
    let table = newer.get_mut(&name).expect("listed");
    let mut footer = at(table, table.len() as u64 - 56);
    let (root, len) = (footer.u64() as usize, footer.u32() as usize);
    table[root + len - 5] = 3;
    reseal(table, root, len);
    let error = read(&newer).expect_err("a later codec");
    assert!(matches!(&error, Error::Corruption { file, .. } if *file == name), "{error}");
    assert!(error.to_string().contains("newer release"), "{error}");

    let mut newer = sample("log");
    let name = name_of(&newer, "wal");
    let bytes = &newer[&name];
    let log = log::read(bytes, b"RunstWAL", number_of(&name)).expect("a header");
    let last = &log.records.last().expect("writes").1;
    let mut reader = at(last, 0);
    let (first, _, count) = (reader.varint(), reader.varint(), reader.varint());
    let next = first + count;
    let mut record = Vec::new();
    let mut left = next;
    while left >= 0x80 {
        record.push(left as u8 | 0x80);
        left >>= 7;
    }
    // The record's sequence number, no unsynced writes, and one operation of kind 2 in keyspace 0
    // on a key of one byte.
    record.extend_from_slice(&[left as u8, 0, 1, 2, 0, 1, b'k']);
    append(&mut newer, &name, b"RunstWAL", &record);
    let error = read(&newer).expect_err("a later kind");
    assert!(matches!(&error, Error::Corruption { file, .. } if *file == name), "{error}");
}
