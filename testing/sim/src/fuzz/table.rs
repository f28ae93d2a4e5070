//! Table files: any bytes as a file, read with or without checking its checksums.
//!
//! 1. The table is opened, walked in both directions, and searched for each key. Each step gives an
//!    answer or an error.
//! 2. If checksums hold, and the walk is in order and has the number of entries that the table
//!    reports, all ways to read it must agree.
//! 3. Entries that are in order are written as a new table. Every way to read that table must show
//!    them.

use std::sync::Arc;

use runstone::seeded::{Bug, with};
use runstone::storage::{Category, MemoryStorage};
use runstone::testing::{
    Access, Cache, KeyspaceOptions, ProbeStats, TableBuilder, TableContext, TableIter, TableReader,
    hash,
};
use runstone::{Compression, Result};
use runstone_policy::shape::Shape;

use super::parts::put_file;

/// Flags of an input: one turns checksums off, the others say how entries are written again.
const UNCHECKED: u8 = 1;
const HASH_INDEX: u8 = 2;
const ZSTD: u8 = 4;
const FOOTER_BYTES: usize = 56;
/// A file of made-up partitions can list its blocks many times, so reading stops here.
const MOST_ENTRIES: usize = 5_000;

/// Key, trailer, value.
type Entry = (Vec<u8>, u64, Vec<u8>);

/// Judges an input.
pub fn judge(data: &[u8]) {
    let Some((flags, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if flags & UNCHECKED != 0 {
        seal_footer(&mut file);
        with(Bug::BlocksUnchecked, || look(&file, *flags));
    } else {
        look(&file, *flags);
    }
}

/// Rewrites the footer's checksum.
fn seal_footer(file: &mut [u8]) {
    let Some(footer) = file.last_chunk_mut::<FOOTER_BYTES>() else { return };
    let sum = xxhash_rust::xxh3::xxh3_64(&footer[..44]) as u32;
    footer[44..48].copy_from_slice(&sum.to_le_bytes());
}

fn look(file: &[u8], flags: u8) {
    let storage = MemoryStorage::new();
    put_file(&storage, "000001.table", Category::Table, file);
    let cache = Arc::new(Cache::new(1 << 20));
    let Ok(reader) = TableReader::inspect(&storage, 1, cache) else { return };
    let reader = Arc::new(reader);
    let Ok(Some(forward)) = walk(&reader, true) else {
        let _ = walk(&reader, false);
        return;
    };
    let is_whole = is_in_order(&forward) && forward.len() as u64 == reader.properties().entries;
    if flags & UNCHECKED == 0 && is_whole {
        agree(&reader, &forward);
    } else {
        let _ = walk(&reader, false);
        for entry in &forward {
            let _ = seek(&reader, entry);
            let _ = newest(&reader, &entry.0);
        }
    }
    if is_in_order(&forward) && !forward.is_empty() {
        agree(&write_again(&forward, flags), &forward);
    }
}

/// Checks that all ways to read a table show these entries.
fn agree(reader: &Arc<TableReader>, forward: &[Entry]) {
    let mut backward = walk(reader, false).expect("readable forward").expect("as many");
    backward.reverse();
    assert_eq!(backward, forward, "both directions show the same");
    for (i, entry) in forward.iter().enumerate() {
        let found = seek(reader, entry).expect("readable forward");
        assert_eq!(found.as_ref(), Some(entry), "a seek finds what a walk shows");
        if i == 0 || forward[i - 1].0 != entry.0 {
            let found = newest(reader, &entry.0).expect("readable forward");
            assert_eq!(found.as_ref(), Some(entry), "a get finds what a walk shows");
        }
    }
}

/// Keys ascend, versions of one key descend, and trailers are of kinds that are written.
fn is_in_order(entries: &[Entry]) -> bool {
    let known = |trailer: u64| matches!(trailer & 0xff, 0 | 1 | 4 | 5) && trailer >> 8 > 0;
    entries.iter().all(|(_, trailer, _)| known(*trailer))
        && entries.windows(2).all(|pair| (&pair[0].0, !pair[0].1) < (&pair[1].0, !pair[1].1))
}

/// All entries in one direction; `None` if there are too many.
fn walk(reader: &Arc<TableReader>, is_forward: bool) -> Result<Option<Vec<Entry>>> {
    let mut iter = TableIter::new(Arc::clone(reader), Access::Cached { fill: false });
    if is_forward {
        iter.seek_to_first()?
    } else {
        iter.seek_to_last()?
    };
    let mut entries = Vec::new();
    while let Some(entry) = at(&iter) {
        entries.push(entry);
        if entries.len() > MOST_ENTRIES {
            return Ok(None);
        }
        if is_forward {
            iter.next()?
        } else {
            iter.prev()?
        };
    }
    Ok(Some(entries))
}

fn at(iter: &TableIter) -> Option<Entry> {
    let cursor = iter.cursor().filter(|cursor| cursor.valid())?;
    Some((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()))
}

fn seek(reader: &Arc<TableReader>, entry: &Entry) -> Result<Option<Entry>> {
    let mut iter = TableIter::new(Arc::clone(reader), Access::Cached { fill: false });
    iter.seek(&entry.0, entry.1)?;
    Ok(at(&iter))
}

fn newest(reader: &TableReader, key: &[u8]) -> Result<Option<Entry>> {
    let part = reader.find_partition(key);
    let found = reader.get(part, key, hash(key), u64::MAX, &mut ProbeStats::default())?;
    Ok(found.map(|(found, block)| {
        let value = block.slice(found.value_at, found.value_len);
        (key.to_vec(), found.trailer, value.to_vec())
    }))
}

fn write_again(entries: &[Entry], flags: u8) -> Arc<TableReader> {
    let context =
        TableContext::new(Arc::new(MemoryStorage::new()), Arc::new(Cache::new(1 << 20)), 7);
    let options = KeyspaceOptions::default()
        .block_bytes(256)
        .hash_index(flags & HASH_INDEX != 0)
        .compression(vec![if flags & ZSTD != 0 { Compression::Zstd } else { Compression::Lz4 }]);
    let layout = runstone::testing::TableLayout::of_level(&options, &Shape::default(), 0);
    let mut builder = TableBuilder::create(&context, 1, layout).expect("memory");
    for (key, trailer, value) in entries {
        builder.add(key, *trailer, value).expect("memory");
    }
    let meta = builder.finish().expect("memory");
    let (uid, cache) = (context.table_uid(1), Arc::clone(&context.cache));
    let reader = TableReader::open(&*context.storage, &meta, uid, cache);
    Arc::new(reader.expect("just written"))
}
