//! Flash images, KVSSDs and the directory of the block SSD: section 11 of docs/formats.md.

use std::collections::{BTreeMap, BTreeSet};

use runstone_sim::samples::Files;

use super::bytes::{Bytes, at, xxh3};

/// The content of an image, page by page.
pub struct Image<'a> {
    page_bytes: usize,
    page_count: u32,
    pages: BTreeMap<u32, Page<'a>>,
}

/// A programmed page.
struct Page<'a> {
    kind: u8,
    front_bytes: usize,
    program_seq: u64,
    txn: u64,
    owner: u64,
    index: u32,
    data: &'a [u8],
}

type Versions = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;
/// Key, number, and value or `None` for a delete.
type KvRecord = (Vec<u8>, u64, Option<Vec<u8>>);

fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of a page, over the number of the page too.
fn crc_of_page(bytes: &[u8], page: u32) -> u32 {
    crc32c::crc32c_append(crc(bytes), &page.to_le_bytes())
}

impl<'a> Image<'a> {
    pub fn read(bytes: &'a [u8]) -> Image<'a> {
        let mut header = at(bytes, 0);
        assert_eq!((header.take(8), header.u32()), (&b"RUNSNAND"[..], 1));
        let (page_bytes, spare_bytes) = (header.u32() as usize, header.u32() as usize);
        let (block_pages, block_count) = (header.u32(), header.u32());
        let (_channels, _dies) = (header.u32(), header.u32());
        assert_eq!(at(bytes, 4092).u32(), crc(&bytes[..4092]));
        let spare_area = (block_pages as usize * (spare_bytes + 16)).next_multiple_of(4096);
        let block_bytes = 4096 + spare_area + block_pages as usize * page_bytes;
        assert_eq!(bytes.len(), 4096 + block_count as usize * block_bytes);
        let mut pages = BTreeMap::new();
        for (block, bytes) in (0..).zip(bytes[4096..].chunks(block_bytes)) {
            let generation = erase_count(bytes, block, block_pages) + 1;
            if block == 0 {
                check_mark(&bytes[512..536], 0, block_pages);
            }
            let (spares, data) = bytes[4096..].split_at(spare_area);
            for index in 0..block_pages {
                let slot = &spares[index as usize * (spare_bytes + 16)..][..spare_bytes + 16];
                let (spare, stamp) = slot.split_at(spare_bytes);
                let flat = block * block_pages + index;
                let data = &data[index as usize * page_bytes..][..page_bytes];
                if is_programmed(stamp, flat, generation) {
                    pages.insert(flat, take_page(spare, data, flat, generation - 1));
                }
            }
        }
        Image { page_bytes, page_count: block_pages * block_count, pages }
    }

    pub fn is_block_ssd(&self) -> bool {
        self.pages.values().any(|page| page.kind == 6)
    }
}

fn erase_count(block: &[u8], number: u32, block_pages: u32) -> u64 {
    if block[..24].iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut record = at(block, 0);
    let (magic, flags, erase_count) = (record.take(4), record.u32(), record.u64());
    assert_eq!((magic, flags, record.u32()), (&b"RBLK"[..], 0, number));
    assert_eq!(record.u32(), crc(&block[..20]));
    check_mark(&block[24..48], number, block_pages);
    erase_count
}

/// The mark of the synced programs; an image of release 0.1 may have none.
fn check_mark(mark: &[u8], block: u32, block_pages: u32) {
    if mark.iter().any(|byte| *byte != 0) {
        assert_eq!(&mark[..4], b"RMRK");
        assert_eq!(at(mark, 20).u32(), crc_of_page(&mark[..20], block * block_pages));
    }
}

fn is_programmed(stamp: &[u8], page: u32, generation: u64) -> bool {
    let mut reader = Bytes(stamp);
    let (of, state, checksum) = (reader.u64(), reader.u32(), reader.u32());
    if stamp.iter().all(|byte| *byte == 0) {
        return false;
    }
    assert_eq!((state & 0xff, checksum), (1, crc_of_page(&stamp[..12], page)));
    of == generation
}

fn take_page<'a>(spare: &[u8], data: &'a [u8], number: u32, erase_count: u64) -> Page<'a> {
    let mut reader = Bytes(spare);
    assert_eq!(reader.take(4), b"ROOB");
    let (kind, _level, front_bytes) = (reader.u8(), reader.u8(), usize::from(reader.u16()));
    let (program_seq, txn, owner) = (reader.u64(), reader.u64(), reader.u64());
    let (index, erases, data_crc) = (reader.u32(), reader.u64(), reader.u32());
    assert_eq!((erases, reader.u32()), (erase_count, crc_of_page(&spare[..48], number)));
    assert!(reader.0.iter().all(|byte| *byte == 0xff));
    let covered = if front_bytes == 0 { data } else { &data[..front_bytes] };
    assert_eq!(data_crc, crc(covered));
    Page { kind, front_bytes, program_seq, txn, owner, index, data }
}

/// A table of a KVSSD, as commits describe it.
struct Node {
    meta_page: u32,
    level: u8,
    records: u64,
    fence: (Vec<u8>, Vec<u8>),
}

/// The state after all commits.
#[derive(Default)]
struct Tree {
    txn: u64,
    flushed_seq: u64,
    nodes: BTreeMap<u64, Node>,
    group_count: u8,
    /// Pages of values by their first page: count, group, starts.
    values: BTreeMap<u32, (u16, u8, Vec<u64>)>,
}

fn short<'a>(reader: &mut Bytes<'a>) -> &'a [u8] {
    let len = usize::from(reader.u16());
    reader.take(len)
}

impl Tree {
    fn apply(&mut self, body: &mut Bytes<'_>) {
        self.txn = body.u64();
        let next_table_id = body.u64();
        self.flushed_seq = body.u64();
        let (_last_seq, _last_level) = (body.u64(), body.u32());
        let (cursors, removed, moved, added) = (body.u32(), body.u32(), body.u32(), body.u32());
        for _ in 0..cursors {
            let (_level, _key) = (body.u32(), short(body));
        }
        for _ in 0..removed {
            self.nodes.remove(&body.u64()).expect("is there");
        }
        for _ in 0..moved {
            self.nodes.get_mut(&body.u64()).expect("is there").meta_page = body.u32();
        }
        for _ in 0..added {
            let (id, meta_page) = (body.u64(), body.u32());
            let (level, _counter, _charged) = (body.u8(), body.u8(), body.u32());
            let (records, _tombstones) = (body.u64(), body.u64());
            let (_min_seq, _max_seq) = (body.u64(), body.u64());
            let (lo, hi) = (usize::from(body.u16()), usize::from(body.u16()));
            let fence = (body.take(lo).to_vec(), body.take(hi).to_vec());
            assert!(id < next_table_id);
            self.nodes.insert(id, Node { meta_page, level, records, fence });
        }
        if !body.is_empty() {
            self.apply_values(body);
        }
    }

    fn apply_values(&mut self, body: &mut Bytes<'_>) {
        self.group_count = body.u8();
        for _ in 0..body.u32() {
            let (first, count) = (body.u32(), body.u32());
            self.values.retain(|page, _| !(first..first + count).contains(page));
        }
        for _ in 0..body.u32() {
            let (page, count, group) = (body.u32(), body.u16(), body.u8());
            let starts = (0..body.u16()).map(|_| body.u64()).collect();
            assert!(group < self.group_count);
            self.values.insert(page, (count, group, starts));
        }
    }

    /// The value of a pointer: its length is `len`.
    fn value(&self, image: &Image<'_>, key: &[u8], seq: u64, len: &[u8]) -> Vec<u8> {
        let product = u128::from(xxh3(key)) * u128::from(self.group_count);
        let group = (product >> 64) as u8;
        let of_group = self.values.iter().filter(|(_, (_, of, _))| *of == group);
        let starts = of_group.flat_map(|(page, (count, _, starts))| {
            starts.iter().map(move |start| (*start, *page, *count))
        });
        let home = starts.filter(|(start, ..)| *start <= seq).max().expect("a home");
        let (_, page, count) = home;
        let records = read_group(image, 7, page, u32::from(count));
        let found = records.into_iter().find(|(of, at, ..)| of == key && *at == seq);
        let (_, _, value, kind) = found.expect("is there");
        let value = value.expect("a put");
        assert_eq!((kind, (value.len() as u32).to_le_bytes().as_slice()), (1, len));
        value
    }
}

/// Every entry of a KVSSD.
pub fn kvssd(image: &Image<'_>, saved: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut tree, is_logged) = newest_checkpoint(image);
    for (_, page) in newest(image, 3, |page| (page.txn, 0)) {
        let mut reader = Bytes(page.data);
        assert_eq!(reader.take(4), b"RJNL");
        let used = reader.u32() as usize;
        let mut body = Bytes(&page.data[8..used]);
        if page.txn == tree.txn + 1 {
            tree.apply(&mut body);
            assert!(body.is_empty() && tree.txn == page.txn);
        }
        assert!(page.data[used..].iter().all(|byte| *byte == 0));
    }
    let mut versions = Versions::new();
    let mut add = |(key, seq, value): KvRecord| {
        let newest = versions.entry(key).or_insert((0, None));
        if seq > newest.0 {
            *newest = (seq, value);
        }
    };
    let mut pointers = BTreeSet::new();
    for (id, node) in &tree.nodes {
        for (key, seq, value, kind) in read_table(image, *id, node) {
            pointers.extend((kind == 3).then_some(seq));
            add((key, seq, value));
        }
    }
    let mut next = tree.flushed_seq + 1;
    for (key, seq, value) in if is_logged { logged(image) } else { frames(Bytes(saved)) } {
        if seq == next {
            next += 1;
            add((key, seq, value));
        }
    }
    let live = versions.into_iter().filter_map(|(key, (seq, value))| {
        let value = match pointers.contains(&seq) {
            true => tree.value(image, &key, seq, &value?),
            false => value?,
        };
        Some((key, value))
    });
    live.collect()
}

/// The page that was programmed last for each owner (or transaction) and index, among the pages of
/// a type.
fn newest<'a, 'b>(
    image: &'b Image<'a>,
    kind: u8,
    place: impl Fn(&Page<'a>) -> (u64, u32),
) -> BTreeMap<(u64, u32), &'b Page<'a>> {
    let mut found: BTreeMap<(u64, u32), &Page<'_>> = BTreeMap::new();
    for page in image.pages.values().filter(|page| page.kind == kind) {
        let last = found.entry(place(page)).or_insert(page);
        if page.program_seq > last.program_seq {
            *last = page;
        }
    }
    found
}

/// The tree of the newest checkpoint, and whether writes are in the log.
fn newest_checkpoint(image: &Image<'_>) -> (Tree, bool) {
    let pages = newest(image, 4, |page| (page.owner, page.index));
    let (number, _) = *pages.keys().next_back().expect("a checkpoint");
    let of_it = pages.range((number, 0)..=(number, u32::MAX));
    let bytes: Vec<u8> = of_it.flat_map(|(_, page)| page.data).copied().collect();
    let mut header = at(&bytes, 0);
    assert_eq!(header.take(4), b"RCKP");
    assert_eq!(header.u32(), 1);
    let len = header.u32() as usize;
    assert!(bytes[len..].iter().all(|byte| *byte == 0));
    let mut body = Bytes(&bytes[12..len]);
    let (placement, _threshold, durability) = (body.u8(), body.u8(), body.u8());
    let _over_provision = body.u8();
    let _numbers = [(); 6].map(|()| body.u32());
    let (_policy, cuts) = (short(&mut body), body.u8());
    let (values, _values_from) = (body.u8(), body.u32());
    assert!(placement <= 2 && durability <= 1 && cuts <= 2 && values <= 2);
    let mut tree = Tree::default();
    tree.apply(&mut body);
    assert!(body.is_empty());
    (tree, durability == 1)
}

/// The entry as a record, and its kind.
type Stamped = (Vec<u8>, u64, Option<Vec<u8>>, u8);

fn read_table(image: &Image<'_>, id: u64, node: &Node) -> Vec<Stamped> {
    let page = &image.pages[&node.meta_page];
    assert_eq!((page.kind, page.owner), (2, id));
    let data = page.data;
    let mut meta = at(data, 0);
    assert_eq!(meta.take(4), b"RMET");
    let (_level, of, _txn) = (meta.u32(), meta.u64(), meta.u64());
    let (min_seq, max_seq, _tombstones) = (meta.u64(), meta.u64(), meta.u64());
    let (counter, entries, used, checksum) = (meta.u32(), meta.u32(), meta.u32(), meta.u32());
    let covered = [&data[..60], &data[64..used as usize]].concat();
    assert_eq!((of, checksum), (id, crc(&covered)));
    let (mut found, mut counted) = (Vec::new(), 0);
    for _ in 0..entries {
        let (page, pages, stratum) = (meta.u32(), meta.u16(), meta.u8());
        let (flags, count) = (meta.u8(), meta.u32());
        let (lo, hi) = (usize::from(meta.u16()), usize::from(meta.u16()));
        let (lo, hi) = (meta.take(lo), meta.take(hi));
        assert!(lo >= &node.fence.0[..] && hi <= &node.fence.1[..]);
        assert!(u32::from(stratum) < counter && flags <= 3);
        let records = read_group(image, 1, page, u32::from(pages));
        assert_eq!(records.len(), count as usize);
        assert_eq!(flags & 2 != 0, records.iter().any(|record| record.2.is_none()));
        counted += records.len() as u64;
        let inside = records.into_iter().filter(|(key, ..)| lo <= &key[..] && &key[..] < hi);
        found.extend(inside.inspect(|(_, seq, ..)| assert!((min_seq..=max_seq).contains(seq))));
    }
    assert_eq!(data.len() - meta.0.len(), used as usize);
    assert!(node.level < 64 && counted >= node.records);
    found
}

fn read_group(image: &Image<'_>, kind: u8, first: u32, count: u32) -> Vec<Stamped> {
    let pages: Vec<&Page<'_>> = (first..first + count).map(|at| &image.pages[&at]).collect();
    assert!(pages.iter().all(|page| page.kind == kind));
    let bytes: Vec<u8> = pages.iter().flat_map(|page| page.data).copied().collect();
    let mut reader = at(&bytes, 0);
    assert_eq!((reader.take(4), reader.u64()), (&b"RSKV"[..], 0));
    let slots: Vec<(u64, usize, usize, u32)> = (0..reader.u32())
        .map(|_| (reader.u64(), reader.u32() as usize, reader.u32() as usize, reader.u32()))
        .collect();
    let (_, keys_end, values_end, _) = *slots.last().expect("a record");
    let (keys, values) = (reader.take(keys_end), reader.take(values_end));
    assert!(reader.0.iter().all(|byte| *byte == 0));
    let front_bytes = bytes.len() - reader.0.len() - values_end;
    assert!(pages.iter().all(|page| page.front_bytes == if count > 1 { 0 } else { front_bytes }));
    let (mut key_at, mut value_at) = (0, 0);
    let record = |(word, key_end, value_end, checksum): (u64, usize, usize, u32)| {
        let (key, value) = (&keys[key_at..key_end], &values[value_at..value_end]);
        (key_at, value_at) = (key_end, value_end);
        assert_eq!(checksum, crc(value));
        let value = match word & 0xff {
            1 | 3 => Some(value.to_vec()),
            2 => None,
            kind => panic!("kind {kind}"),
        };
        (key.to_vec(), word >> 8, value, word as u8)
    };
    slots.into_iter().map(record).collect()
}

/// The writes of all groups of the log, in the order of the groups' numbers.
fn logged(image: &Image<'_>) -> Vec<KvRecord> {
    let mut groups: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for ((number, _), page) in newest(image, 5, |page| (page.owner, page.index)) {
        groups.entry(number).or_default().extend_from_slice(page.data);
    }
    let writes = groups.into_values().flat_map(|bytes| {
        let mut reader = at(&bytes, 0);
        assert_eq!(reader.take(4), b"RLOG");
        let len = reader.u32() as usize;
        frames(Bytes(&bytes[8..len]))
    });
    writes.collect()
}

fn frames(mut bytes: Bytes<'_>) -> Vec<KvRecord> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let header = bytes.0;
        let (len, body_crc, header_crc) = (bytes.u32(), bytes.u32(), bytes.u32());
        assert_eq!(header_crc, crc(&header[..8]));
        let mut body = Bytes(bytes.take(len as usize));
        assert_eq!(body_crc, crc(body.0));
        let (first_seq, count) = (body.u64(), u64::from(body.u32()));
        for seq in first_seq..first_seq + count {
            let (kind, key_len, value_len) = (body.u8(), body.u16(), body.u32());
            let key = body.take(usize::from(key_len)).to_vec();
            let value = body.take(value_len as usize).to_vec();
            assert!(matches!(kind, 1 | 2));
            records.push((key, seq, (kind == 1).then_some(value)));
        }
        assert!(body.is_empty());
    }
    records
}

/// All files of a block SSD.
pub fn files(image: &Image<'_>) -> Files {
    let mut logical: BTreeMap<u64, &Page<'_>> = BTreeMap::new();
    for page in image.pages.values() {
        assert!(page.kind == 6 && page.index == 0);
        let last = logical.entry(page.owner).or_insert(page);
        if page.program_seq > last.program_seq {
            *last = page;
        }
    }
    let per_page = (image.page_bytes / 4096) as u64;
    let block = |at: u64| {
        let page = logical.get(&(at / per_page))?;
        Some(&page.data[(at % per_page) as usize * 4096..][..4096])
    };
    let mut directory = Directory::default();
    directory.read(&block, u64::from(image.page_count) * per_page);
    let mut files = Files::new();
    for (name, id) in &directory.names {
        let (len, runs) = &directory.inodes[id];
        let mut bytes = vec![0; len.next_multiple_of(4096) as usize];
        for (file_block, start, count) in runs {
            for at in 0..*count {
                let from = ((file_block + at) * 4096) as usize;
                if let (Some(place), Some(data)) =
                    (bytes.get_mut(from..from + 4096), block(start + at))
                {
                    place.copy_from_slice(data);
                }
            }
        }
        bytes.truncate(*len as usize);
        files.insert(name.clone(), bytes);
    }
    files
}

/// Length, and runs of (file block, block of the device, count).
type Inode = (u64, Vec<(u64, u64, u64)>);

#[derive(Default)]
struct Directory {
    block_count: u64,
    names: BTreeMap<String, u64>,
    inodes: BTreeMap<u64, Inode>,
}

impl Directory {
    /// Reads the newest epoch, which begins at the start of an area.
    fn read<'a>(&mut self, block: &impl Fn(u64) -> Option<&'a [u8]>, limit: u64) {
        let snapshots = (0..limit).filter_map(|at| {
            let (kind, epoch, ..) = header(block(at)?)?;
            (kind == 1).then_some((epoch, at))
        });
        let (epoch, start) = snapshots.max().expect("a snapshot");
        let mut next = start;
        for index in 0.. {
            let found = block(next).and_then(header);
            let Some((kind, of, at, count, len)) = found.filter(|found| found.1 == epoch) else {
                break;
            };
            assert_eq!((kind, at), (if index == 0 { 1 } else { 2 }, index));
            let blocks = (next..next + u64::from(count)).map(|at| block(at).expect("written"));
            let bytes: Vec<u8> = blocks.flatten().copied().collect();
            let payload = &bytes[36..36 + len as usize];
            assert_eq!(at_u32(&bytes, 28), crc(payload));
            assert_eq!(of, epoch);
            self.apply(Bytes(payload));
            next += u64::from(count);
        }
        let area_blocks = (self.block_count / 256).max(32);
        assert!(start == epoch % 2 * area_blocks && next <= start + area_blocks);
    }

    fn apply(&mut self, mut reader: Bytes<'_>) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        while !reader.is_empty() {
            match reader.u8() {
                1 => self.block_count = reader.u64(),
                2 => {
                    let (id, category, len) = (reader.u64(), reader.u8(), reader.u64());
                    assert!(category < 6);
                    let count = reader.u32();
                    let run = |_| (reader.u64(), reader.u64(), reader.u64());
                    let runs = (0..count).map(run).collect();
                    self.inodes.insert(id, (len, runs));
                }
                3 => {
                    let (id, place) = (reader.u64(), short(&mut reader));
                    assert!(place.is_empty());
                    self.names.insert(text(short(&mut reader)), id);
                }
                4 => {
                    let (_place, name) = (short(&mut reader), short(&mut reader));
                    self.names.remove(&text(name));
                }
                kind => panic!("record {kind}"),
            }
        }
    }
}

fn at_u32(bytes: &[u8], offset: u64) -> u32 {
    at(bytes, offset).u32()
}

/// Kind, epoch, index, block count, length of the payload.
fn header(block: &[u8]) -> Option<(u32, u64, u32, u32, u32)> {
    let mut reader = at(block, 0);
    let (is_magic, kind, epoch) = (reader.take(4) == b"RJNL", reader.u32(), reader.u64());
    let (index, count, len) = (reader.u32(), reader.u32(), reader.u32());
    let is_whole = at_u32(block, 32) == crc(&block[..32]);
    (is_magic && is_whole).then_some((kind, epoch, index, count, len))
}
