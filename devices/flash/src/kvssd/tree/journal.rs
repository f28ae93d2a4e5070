//! The bytes of commits, each of which is one journal page; and of checkpoints, each of which is
//! one large commit over several pages. Little-endian:
//!
//! ```text
//! journal page: magic u32 | length u32 | commit | zeros
//! checkpoint, cut into pages: magic u32 | format u32 | length u32 | options | commit | zeros
//! options: placement u8 | threshold u8 | durability u8 | over-provision u8 | memtable_pages u32
//!          level1_pages u32 | size_ratio u32 | l0_trigger u32 | checkpoint_commits u32
//!          wear_gap u32 | policy: length u16, name | cuts u8 | values u8 | values_from u32
//! commit: txn u64 | next_table_id u64 | flushed_seq u64 | last_seq u64 | last_level u32
//!         counts u32: cursors, removed, moved, added | these
//!         with separated values: group_count u8 | count u32 | emptied | count u32 | value pages
//! cursor: level u32 | length u16 | key          removed: id u64
//! moved: id u64 | meta_page u32
//! added: id u64 | meta_page u32 | level u8 | counter u8 | charged_pages u32 | record_count u64
//!        tombstones u64 | min_seq u64 | max_seq u64 | lo length u16 | hi length u16 | lo | hi
//! emptied: first page u32 | page count u32
//! value page: page u32 | page_count u16 | group u8 | start count u16 | starts u64 each
//! ```
//!
//! The checksum is that of the page, in its spare bytes.

use super::commit::{Commit, Node, ValueEntry, Values};
use crate::error::{Error, Result};
use crate::kvssd::format::meta_page::Clip;
use crate::kvssd::options::KvSsdOptions;
use crate::nand::SharedBytes;
use crate::rest::Rest;

const JOURNAL_MAGIC: u32 = 0x4c4e_4a52; // "RJNL"
const CHECKPOINT_MAGIC: u32 = 0x504b_4352; // "RCKP"
/// The format of a device.
const FORMAT: u32 = 1;
const JOURNAL_HEADER_BYTES: usize = 8;
const CHECKPOINT_HEADER_BYTES: usize = 12;
const NODE_BYTES: usize = 54;

/// The page of a commit; `None` if it does not fit.
pub(crate) fn encode_commit(commit: &Commit, page_bytes: usize) -> Option<Vec<u8>> {
    let mut bytes = SharedBytes::buffer(page_bytes);
    bytes.resize(JOURNAL_HEADER_BYTES, 0);
    put_commit(commit, &mut bytes);
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&JOURNAL_MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    (bytes.len() <= page_bytes).then(|| {
        bytes.resize(page_bytes, 0);
        bytes
    })
}

/// Bytes that an added table takes in its commit.
pub(crate) fn node_bytes(fence: &Clip) -> usize {
    NODE_BYTES + fence.lo.len() + fence.hi.len()
}

/// Decodes a journal page.
pub(crate) fn decode_commit(bytes: &[u8]) -> Result<Commit> {
    let decode = || {
        let mut rest = Rest(bytes);
        let is_known = rest.u32()? == JOURNAL_MAGIC;
        let used = bytes.get(..rest.u32()? as usize).filter(|_| is_known)?;
        let mut rest = Rest(used.get(JOURNAL_HEADER_BYTES..)?);
        take_commit(&mut rest).filter(|_| rest.0.is_empty())
    };
    let why = || Error::Corrupt { what: "journal page", why: "its layout".into() };
    decode().ok_or_else(why)
}

/// The pages of a checkpoint.
pub(crate) fn encode_checkpoint(
    options: &KvSsdOptions,
    commit: &Commit,
    page_bytes: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; CHECKPOINT_HEADER_BYTES];
    options.encode(&mut bytes);
    put_commit(commit, &mut bytes);
    let len = bytes.len() as u32;
    let header = [CHECKPOINT_MAGIC, FORMAT, len];
    for (word, place) in header.iter().zip(bytes.chunks_exact_mut(4)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(page_bytes), 0);
    bytes
}

/// How many pages a checkpoint has, according to its first page.
pub(crate) fn checkpoint_pages(first: &[u8]) -> Result<usize> {
    let mut rest = Rest(first);
    let corrupt = || Error::Corrupt { what: "checkpoint", why: "its layout".into() };
    let mut word = || rest.u32().ok_or_else(corrupt);
    let (magic, format, len) = (word()?, word()?, word()?);
    if magic != CHECKPOINT_MAGIC {
        return Err(corrupt());
    }
    if format != FORMAT {
        return Err(Error::NewerFormat { found: format, supported: FORMAT });
    }
    Ok((len as usize).div_ceil(first.len().max(1)))
}

/// Decodes a whole checkpoint.
pub(crate) fn decode_checkpoint(bytes: &[u8]) -> Result<(KvSsdOptions, Commit)> {
    let decode = || {
        let mut rest = Rest(bytes);
        let (_, _, len) = (rest.u32()?, rest.u32()?, rest.u32()?);
        let mut rest = Rest(bytes.get(CHECKPOINT_HEADER_BYTES..len as usize)?);
        let options = KvSsdOptions::decode(&mut rest)?;
        let commit = take_commit(&mut rest)?;
        rest.0.is_empty().then_some((options, commit))
    };
    let why = || Error::Corrupt { what: "checkpoint", why: "its layout".into() };
    decode().ok_or_else(why)
}

fn put_commit(commit: &Commit, bytes: &mut Vec<u8>) {
    for word in [commit.txn, commit.next_table_id, commit.flushed_seq, commit.last_seq] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    let counts =
        [commit.cursors.len(), commit.removed.len(), commit.moved.len(), commit.added.len()];
    bytes.extend_from_slice(&commit.last_level.to_le_bytes());
    counts.iter().for_each(|count| bytes.extend_from_slice(&(*count as u32).to_le_bytes()));
    for (level, key) in &commit.cursors {
        bytes.extend_from_slice(&level.to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(key);
    }
    commit.removed.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
    for (id, meta_page) in &commit.moved {
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&meta_page.to_le_bytes());
    }
    commit.added.iter().for_each(|node| put_node(node, bytes));
    if commit.values != Values::default() {
        put_values(&commit.values, bytes);
    }
}

fn put_values(values: &Values, bytes: &mut Vec<u8>) {
    bytes.push(values.group_count);
    bytes.extend_from_slice(&(values.emptied.len() as u32).to_le_bytes());
    for word in values.emptied.iter().flat_map(|(first, count)| [first, count]) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&(values.added.len() as u32).to_le_bytes());
    for entry in &values.added {
        bytes.extend_from_slice(&entry.page.to_le_bytes());
        bytes.extend_from_slice(&entry.page_count.to_le_bytes());
        bytes.push(entry.group);
        bytes.extend_from_slice(&(entry.starts.len() as u16).to_le_bytes());
        entry.starts.iter().for_each(|start| bytes.extend_from_slice(&start.to_le_bytes()));
    }
}

fn put_node(node: &Node, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&node.id.to_le_bytes());
    bytes.extend_from_slice(&node.meta_page.to_le_bytes());
    bytes.extend_from_slice(&[node.level, node.counter]);
    bytes.extend_from_slice(&node.charged_pages.to_le_bytes());
    for word in [node.record_count, node.tombstones, node.min_seq, node.max_seq] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for key in [&node.fence.lo, &node.fence.hi] {
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    }
    bytes.extend_from_slice(&node.fence.lo);
    bytes.extend_from_slice(&node.fence.hi);
}

/// Numbers that grow by one, or by a count of records, stay below this limit. A larger number is
/// not genuine, and sums with it would overflow.
const NUMBER_LIMIT: u64 = 1 << 56;

fn take_number(rest: &mut Rest<'_>) -> Option<u64> {
    rest.u64().filter(|number| *number < NUMBER_LIMIT)
}

fn take_commit(rest: &mut Rest<'_>) -> Option<Commit> {
    let mut commit = Commit {
        txn: take_number(rest)?,
        next_table_id: take_number(rest)?,
        flushed_seq: take_number(rest)?,
        last_seq: take_number(rest)?,
        last_level: rest.u32()?,
        ..Commit::default()
    };
    let (cursors, removed, moved, added) = (rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?);
    // No count reserves memory: each item is decoded from bytes that are present.
    for _ in 0..cursors {
        let level = rest.u32()?;
        let len = rest.u16()?;
        commit.cursors.push((level, rest.bytes(usize::from(len))?.into()));
    }
    for _ in 0..removed {
        commit.removed.push(rest.u64()?);
    }
    for _ in 0..moved {
        commit.moved.push((rest.u64()?, rest.u32()?));
    }
    for _ in 0..added {
        commit.added.push(take_node(rest)?);
    }
    if !rest.0.is_empty() {
        commit.values = take_values(rest)?;
    }
    Some(commit)
}

fn take_values(rest: &mut Rest<'_>) -> Option<Values> {
    let [group_count] = rest.array()?;
    let mut values = Values { group_count, ..Values::default() };
    for _ in 0..rest.u32()? {
        values.emptied.push((rest.u32()?, rest.u32()?));
    }
    for _ in 0..rest.u32()? {
        let (page, page_count) = (rest.u32()?, rest.u16()?);
        let [group] = rest.array()?;
        let mut entry = ValueEntry { page, page_count, group, starts: Vec::new() };
        for _ in 0..rest.u16()? {
            entry.starts.push(take_number(rest)?);
        }
        values.added.push(entry);
    }
    Some(values)
}

fn take_node(rest: &mut Rest<'_>) -> Option<Node> {
    let (id, meta_page) = (take_number(rest)?, rest.u32()?);
    let [level, counter] = rest.array()?;
    Some(Node {
        id,
        level,
        meta_page,
        counter,
        charged_pages: rest.u32()?,
        record_count: take_number(rest)?,
        // In a table of remapped pages this is an estimate, which may exceed the number of records.
        tombstones: take_number(rest)?,
        min_seq: take_number(rest)?,
        max_seq: take_number(rest)?,
        fence: Clip::decode(rest)?,
    })
}

#[cfg(test)]
mod tests {
    use runstone_policy::partition::Partitioner;

    use super::*;
    use crate::kvssd::options::ValuePlacement;

    fn commit() -> Commit {
        let fence = Clip { lo: b"a"[..].into(), hi: b"czz"[..].into() };
        let node = Node {
            id: 7,
            level: 2,
            meta_page: 99,
            counter: 2,
            charged_pages: 127,
            record_count: 4000,
            tombstones: 3,
            min_seq: 5,
            max_seq: 900,
            fence,
        };
        Commit {
            txn: 12,
            next_table_id: 8,
            flushed_seq: 900,
            last_seq: 950,
            last_level: 3,
            cursors: vec![(1, b"m".as_slice().into())],
            removed: vec![1, 2],
            moved: vec![(3, 44)],
            added: vec![node],
            values: Values::default(),
        }
    }

    /// A commit of a device with separated values.
    fn apart() -> Commit {
        let entry = |page, starts: &[u64]| {
            let (page_count, group) = (1 + (page % 2) as u16, (page % 3) as u8);
            ValueEntry { page, page_count, group, starts: starts.to_vec() }
        };
        let added = vec![entry(70, &[1, 40]), entry(71, &[1 << 50]), entry(74, &[90, 91, 92])];
        let values = Values { group_count: 3, emptied: vec![(64, 8), (128, 8)], added };
        Commit { values, ..commit() }
    }

    #[test]
    fn commits_and_checkpoints_come_back() {
        let page = encode_commit(&commit(), 512).unwrap();
        assert_eq!((page.len(), decode_commit(&page).unwrap()), (512, commit()));
        assert_eq!(decode_commit(&encode_commit(&apart(), 512).unwrap()).unwrap(), apart());
        assert!(encode_commit(&commit(), 100).is_none());
        let options = KvSsdOptions { threshold: 4, ..KvSsdOptions::nlsm() };
        let pages = encode_checkpoint(&options, &commit(), 64);
        assert_eq!(checkpoint_pages(&pages[..64]).unwrap() * 64, pages.len());
        assert_eq!(decode_checkpoint(&pages).unwrap(), (options, commit()));
        let options = KvSsdOptions {
            values: ValuePlacement::Groups,
            values_from: 77,
            ..KvSsdOptions::default()
        };
        let pages = encode_checkpoint(&options, &apart(), 64);
        assert_eq!(decode_checkpoint(&pages).unwrap(), (options, apart()));
        assert_eq!(pages[4..8], FORMAT.to_le_bytes());
        for format in [0, 2] {
            let mut newer = pages.clone();
            newer[4] = format;
            let error = checkpoint_pages(&newer[..64]).err();
            let Some(Error::NewerFormat { found, supported }) = error else { panic!("{error:?}") };
            assert_eq!((found, supported), (format.into(), FORMAT));
        }
    }

    #[test]
    fn checkpoints_say_where_tables_are_cut() {
        let cuts = Partitioner::GroupedGlobalRange;
        let options = KvSsdOptions { cuts, ..KvSsdOptions::default() };
        let pages = encode_checkpoint(&options, &commit(), 512);
        assert_eq!(decode_checkpoint(&pages).unwrap(), (options.clone(), commit()));
        let mut encoded = Vec::new();
        options.encode(&mut encoded);
        // The bytes that say where tables are cut and where values are placed. The least size of
        // separated values follows these bytes.
        for (place, code) in [(6, 3), (5, 3)] {
            let mut unknown = pages.clone();
            unknown[CHECKPOINT_HEADER_BYTES + encoded.len() - place] = code;
            assert!(decode_checkpoint(&unknown).is_err());
        }
    }

    /// Without the checksum of the page, no byte makes the decoders panic or allocate much.
    #[test]
    fn damaged_bytes_never_panic() {
        let page = encode_commit(&apart(), 512).unwrap();
        let cuts = Partitioner::GlobalRange;
        let options = KvSsdOptions { cuts, ..KvSsdOptions::default() };
        let pages = encode_checkpoint(&options, &apart(), 512);
        for at in 0..512 {
            for changed in [0, 1, 0x7f, 0xff] {
                let (mut one, mut two) = (page.clone(), pages.clone());
                one[at] = changed;
                two[at] = changed;
                let _ = decode_commit(&one);
                let _ = checkpoint_pages(&two).and_then(|_| decode_checkpoint(&two));
            }
        }
    }
}
