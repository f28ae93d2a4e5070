//! Table files: section 7 of docs/formats.md.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::bytes::{Bytes, PHI, at, common_prefix, head, low32, xxh3, xxh3_seeded};
use super::manifest::{Expiries, Table, take_expiries, take_range_delete};

/// One entry of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Vec<u8>,
    pub seq: u64,
    pub kind: u8,
    pub value: Vec<u8>,
}

/// The features that were seen in the files of one store, so that a test knows that they occurred.
#[derive(Debug, Default)]
pub struct Seen {
    pub frame_kinds: BTreeSet<u8>,
    pub has_hash_index: bool,
    pub partitions: usize,
    pub spanning_keys: usize,
    pub filter_probes: BTreeSet<u8>,
    pub has_loaded: bool,
}

struct File<'a> {
    bytes: &'a [u8],
    uid: u64,
    /// The hashes of the frames that were read.
    content: Cell<u64>,
}

/// All entries of a file, in its order; everything in it is checked.
pub fn read(bytes: &[u8], store_uid: u64, table: &Table, seen: &mut Seen) -> Vec<Entry> {
    assert_eq!(bytes.len() as u64, table.bytes);
    let uid = xxh3_seeded(&table.id.to_le_bytes(), store_uid);
    let file = File { bytes, uid, content: Cell::new(0) };
    let footer_at = bytes.len() as u64 - 56;
    let mut footer = at(bytes, footer_at);
    let root = (footer.u64(), u64::from(footer.u32()));
    let properties = (footer.u64(), u64::from(footer.u32()));
    let (own_uid, content) = (footer.u64(), footer.u64());
    assert_eq!((own_uid, footer.u32()), (uid, 1));
    assert_eq!(footer.u32(), low32(xxh3(&bytes[footer_at as usize..][..44])));
    assert_eq!(footer.0, b"RunTable");
    assert_eq!((root.0 + root.1, properties.0 + properties.1), (properties.0, footer_at));

    let raw = file.frame(root, seen);
    let mut reader = at(&raw, 0);
    let last_separators = take_keys(&mut reader);
    let mut entries: Vec<Entry> = Vec::new();
    let (mut position, mut filter_bits, mut blocks) = (0, 0, 0);
    for last_separator in &last_separators {
        let place = (reader.varint(), reader.varint());
        let raw = file.frame(place, seen);
        let mut partition = at(&raw, 0);
        let filter = partition.bytes();
        assert_eq!(partition.varint(), position, "blocks lie without gaps");
        let separators = take_keys(&mut partition);
        assert_eq!(separators.last(), Some(last_separator));
        let from = entries.len();
        for separator in &separators {
            let len = partition.varint();
            let block = read_block(&file.frame((position, len), seen), seen);
            check_separator(entries.last(), &block, separator, seen);
            entries.extend(block);
            position += len;
        }
        assert!(partition.is_empty() && separators.len() <= 512);
        assert_eq!(position, place.0, "the partition follows its blocks");
        position += place.1;
        blocks += separators.len() as u64;
        filter_bits += check_filter(filter, &entries[from..], seen);
        seen.partitions = seen.partitions.max(last_separators.len());
    }
    assert!(reader.is_empty() && position == root.0);
    check_order(&entries);
    assert_eq!(filter_bits, table.filter_bits);
    let properties = file.frame(properties, seen);
    assert_eq!(file.content.get(), content, "the footer has a hash of all frames");
    let is_loaded =
        check_properties(&properties, &entries, table, (blocks, filter_bits, store_uid));
    if is_loaded {
        assert_eq!(table.min_seq, table.max_seq);
        entries.iter_mut().for_each(|entry| entry.seq = table.min_seq);
        seen.has_loaded = true;
    }
    entries
}

impl File<'_> {
    /// The raw bytes of a frame.
    fn frame(&self, (offset, len): (u64, u64), seen: &mut Seen) -> Vec<u8> {
        let stored = &self.bytes[offset as usize..(offset + len) as usize];
        let (covered, checksum) = stored.split_at(stored.len() - 4);
        let hash = xxh3_seeded(covered, self.uid ^ offset.wrapping_mul(PHI));
        assert_eq!(checksum, low32(hash).to_le_bytes(), "frame at {offset}");
        self.content.set(self.content.get() ^ hash);
        let (kind, body) = covered.split_last().expect("a kind");
        seen.frame_kinds.insert(*kind);
        if *kind == 0 {
            return body.to_vec();
        }
        let mut reader = at(body, 0);
        let raw_len = reader.u32() as usize;
        let raw = match kind {
            1 => lz4(reader),
            2 => zstd::bulk::decompress(reader.0, raw_len).expect("zstd"),
            _ => panic!("frame kind {kind}"),
        };
        assert_eq!(raw.len(), raw_len);
        assert!(body.len() - 4 <= raw_len - raw_len / 8, "worth it: {} of {raw_len}", body.len());
        raw
    }
}

/// An LZ4 block: tokens of literals and matches.
fn lz4(mut bytes: Bytes<'_>) -> Vec<u8> {
    let mut raw = Vec::new();
    let length = |bytes: &mut Bytes<'_>, nibble: u8| {
        let mut len = usize::from(nibble);
        let mut more = nibble == 15;
        while more {
            let byte = bytes.u8();
            len += usize::from(byte);
            more = byte == 255;
        }
        len
    };
    loop {
        let token = bytes.u8();
        let literals = length(&mut bytes, token >> 4);
        raw.extend_from_slice(bytes.take(literals));
        if bytes.is_empty() {
            return raw;
        }
        let from = raw.len() - usize::from(bytes.u16());
        let len = 4 + length(&mut bytes, token & 15);
        (from..from + len).for_each(|at| raw.push(raw[at]));
    }
}

fn take_keys(reader: &mut Bytes<'_>) -> Vec<Vec<u8>> {
    let count = reader.varint();
    let prefix = reader.bytes();
    let keys: Vec<Vec<u8>> = (0..count).map(|_| [prefix, reader.bytes()].concat()).collect();
    assert!(keys.is_sorted());
    let (first, last) = (keys.first().expect("one"), keys.last().expect("one"));
    assert_eq!(prefix.len(), common_prefix(first, last));
    keys
}

/// A separator is not below any key of its block, and is below the first key of the next block,
/// unless both blocks have versions of that key.
fn check_separator(before: Option<&Entry>, block: &[Entry], separator: &[u8], seen: &mut Seen) {
    assert!(block.iter().all(|entry| entry.key[..] <= *separator));
    let Some(before) = before else { return };
    if before.key == block[0].key {
        seen.spanning_keys += 1;
    }
}

fn check_order(entries: &[Entry]) {
    let order = |entry: &Entry| (entry.key.clone(), std::cmp::Reverse(entry.seq));
    assert!(entries.windows(2).all(|pair| order(&pair[0]) < order(&pair[1])));
}

fn read_block(raw: &[u8], seen: &mut Seen) -> Vec<Entry> {
    let footer_at = raw.len() - 16;
    let mut footer = at(raw, footer_at as u64);
    let (base_seq, restart_count) = (footer.u64(), footer.u32() as usize);
    let (bucket_count, prefix_len) = (usize::from(footer.u16()), usize::from(footer.u16()));
    let buckets_at = footer_at - bucket_count;
    let heads_at = buckets_at - 12 * restart_count;
    let mut offsets = Bytes(&raw[heads_at + 8 * restart_count..buckets_at]);
    let restarts: Vec<usize> = (0..restart_count).map(|_| offsets.u32() as usize).collect();
    let mut reader = Bytes(&raw[..heads_at]);
    let mut entries: Vec<Entry> = Vec::new();
    let mut restart_of = Vec::new();
    while !reader.is_empty() {
        let place = heads_at - reader.0.len();
        let (shared, unshared) = (reader.varint() as usize, reader.varint() as usize);
        let (value_len, tag) = (reader.varint() as usize, reader.varint());
        let last = entries.last().map_or(&[][..], |entry| &entry.key);
        let key = [&last[..shared], reader.take(unshared)].concat();
        let zigzag = tag >> 3;
        let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let seq = base_seq.wrapping_add(difference as u64);
        let value = reader.take(value_len).to_vec();
        if let Some(restart) = restarts.iter().position(|at| *at == place) {
            assert_eq!(shared, 0);
            let mut heads = at(raw, (heads_at + 8 * restart) as u64);
            assert_eq!(heads.u64(), head(&key[prefix_len.min(key.len())..]));
        }
        restart_of.push(restarts.iter().rposition(|at| *at <= place).expect("the first is at 0"));
        entries.push(Entry { key, seq, kind: (tag & 7) as u8, value });
    }
    let (first, last) = (&entries[0], &entries[entries.len() - 1]);
    assert_eq!((base_seq, prefix_len), (first.seq, common_prefix(&first.key, &last.key)));
    if bucket_count > 0 {
        seen.has_hash_index = true;
        check_hash_index(&raw[buckets_at..footer_at], &entries, &restart_of);
    }
    entries
}

fn check_hash_index(buckets: &[u8], entries: &[Entry], restart_of: &[usize]) {
    assert_eq!(buckets.len(), entries.len() + entries.len() / 3 + 1);
    let mut expected = vec![254; buckets.len()];
    for (entry, restart) in entries.iter().zip(restart_of) {
        let bucket = &mut expected[(xxh3(&entry.key) % buckets.len() as u64) as usize];
        *bucket = match *bucket {
            254 => *restart as u8,
            same if usize::from(same) == *restart => same,
            _ => 255,
        };
    }
    assert_eq!(buckets, expected);
}

/// Checks the filter, and returns the number of its bits.
fn check_filter(filter: &[u8], entries: &[Entry], seen: &mut Seen) -> u64 {
    let Some((probes, lines)) = filter.split_first() else { return 0 };
    assert!((1..=12).contains(probes) && lines.len().is_multiple_of(64));
    seen.filter_probes.insert(*probes);
    let line_count = (lines.len() / 64) as u64;
    let keys: BTreeSet<&[u8]> = entries.iter().map(|entry| &entry.key[..]).collect();
    for key in &keys {
        let h = xxh3(key);
        let line = (((h >> 32) * line_count) >> 32) as usize;
        let mut state = h;
        for _ in 0..*probes {
            let bit = state & 511;
            let mut word = at(lines, line as u64 * 64 + (bit >> 6) * 8);
            assert!(word.u64() & 1 << (bit & 63) != 0, "a probe of {key:?}");
            state = state.rotate_right(9).wrapping_mul(PHI);
        }
    }
    // 10 bits per key, the default.
    let wanted = (keys.len() as u64 * 10).div_ceil(512).max(1);
    assert_eq!((line_count, *probes), (wanted, 6), "{} keys", keys.len());
    lines.len() as u64 * 8
}

/// Returns whether it is a table of a bulk load, whose sequence number only the manifest has.
fn check_properties(
    raw: &[u8],
    entries: &[Entry],
    table: &Table,
    (blocks, filter, store_uid): (u64, u64, u64),
) -> bool {
    let mut reader = at(raw, 0);
    let mut tags = BTreeSet::new();
    while !reader.is_empty() {
        let tag = reader.varint();
        let value = reader.bytes();
        let mut of = at(value, 0);
        tags.insert(tag);
        match tag {
            1 => assert!(value == entries[0].key && value == table.file_min_key),
            2 => assert!(value == entries[entries.len() - 1].key && value == table.max_key),
            3 => {
                let found: Vec<u64> = (0..7).map(|_| of.varint()).collect();
                assert!(of.is_empty());
                let seqs = || entries.iter().map(|entry| entry.seq);
                let user = entries.iter().map(|entry| entry.key.len() + entry.value.len());
                let deletes =
                    entries.iter().filter(|entry| matches!(entry.kind, 0 | 3)).count() as u64;
                let (min_seq, max_seq) = (seqs().min().expect("one"), seqs().max().expect("one"));
                let user = user.sum::<usize>() as u64;
                let count = entries.len() as u64;
                assert_eq!(found, [count, deletes, min_seq, max_seq, user, blocks, filter]);
                assert_eq!(found[..2], [table.entries, table.tombstones]);
                assert!(max_seq == 0 || found[2..4] == [table.min_seq, table.max_seq]);
            }
            4 => {
                let mut found = Vec::new();
                while !of.is_empty() {
                    found.push(of.bytes().to_vec());
                }
                assert!(found == table.prefixes && found.is_sorted());
            }
            5 => {
                let kinds = entries.iter().fold(0, |kinds, entry| kinds | 1u64 << entry.kind);
                assert_eq!(of.u64(), kinds);
            }
            9 => {
                let found = of.list(take_range_delete);
                let ranges = entries.iter().filter(|entry| entry.kind == 3);
                let ranges =
                    ranges.map(|entry| (entry.key.clone(), entry.value.clone(), entry.seq));
                assert_eq!(found.len() as u64, table.range_deletes);
                assert!(ranges.eq(found));
            }
            129 => check_expiries(&take_expiries(&mut of), table, entries),
            130 => {
                let (keyspace, store) = (of.varint(), of.varint());
                assert!(keyspace < u64::from(u32::MAX) && store == store_uid && of.is_empty());
            }
            12 => assert!(value.is_empty() && entries.iter().all(|entry| entry.seq == 0)),
            128 => assert!(value == table.sketch && value == sketch(entries)),
            _ => panic!("property {tag}"),
        }
    }
    assert_eq!(tags.contains(&4), !table.prefixes.is_empty());
    assert_eq!(tags.contains(&9), table.range_deletes > 0);
    assert_eq!(tags.contains(&129), !table.expiries.steps.is_empty());
    assert_eq!(tags.contains(&12), entries[0].seq == 0);
    assert!([1, 2, 3, 5, 128].iter().all(|tag| tags.contains(tag)));
    tags.contains(&12)
}

/// Checks that the steps say how many entries have expired, and count no entry before it has
/// expired.
fn check_expiries(expiries: &Expiries, table: &Table, entries: &[Entry]) {
    let of_entry = |entry: &Entry| at(&entry.value, entry.value.len() as u64 - 8).u64();
    let all = entries.iter().filter(|entry| matches!(entry.kind, 6 | 7)).map(of_entry);
    let all: Vec<u64> = all.collect();
    assert_eq!(expiries, &table.expiries);
    assert!((1..=16).contains(&expiries.steps.len()));
    assert_eq!(Some(&expiries.first_ms), all.iter().min());
    assert_eq!(expiries.steps.last().map(|(at_ms, _)| at_ms), all.iter().max());
    let mut sum = 0;
    for (at_ms, count) in &expiries.steps {
        sum += count;
        let past = all.iter().filter(|at| *at <= at_ms).count() as u64;
        assert!(*count > 0 && past >= sum);
    }
    assert_eq!(sum, all.len() as u64);
}

/// HyperLogLog registers of the user keys.
fn sketch(entries: &[Entry]) -> Vec<u8> {
    let mut registers = vec![0; 256];
    for entry in entries {
        let h = xxh3(&entry.key);
        let register = &mut registers[(h >> 56) as usize];
        let rank = (h << 8).leading_zeros().min(56) as u8 + 1;
        *register = rank.max(*register);
    }
    registers
}
