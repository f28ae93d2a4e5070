//! A data block: sorted entries of internal keys and values, searched in place. Checksums and
//! compression are in `frame`, and the positions of blocks in a file in `index`.
//!
//! ```text
//! entry*      shared varint | unshared varint | value_len varint | tag varint | key rest | value
//! heads       restart_count x u64   first 8 key bytes after the block's common prefix, big-endian
//! offsets     restart_count x u32   where each restart's entry starts
//! hash index  bucket_count  x u8    optional: restart number of a user key; 254 empty, 255 unsure
//! footer      base_seq u64 | restart_count u32 | bucket_count u16 | prefix_len u16
//! ```
//!
//! Every `restart_interval` entries the key is stored whole (shared = 0). The tag is
//! `zigzag(seq - base_seq) << 3 | kind`; `base_seq` is the sequence number of the first entry.
//! The heads of all restarts of a 4 KiB block share one or two cache lines, so a search touches
//! those lines, the offset, and the entries of one restart. A restart interval of 16 with keys only
//! in the entries (LevelDB's layout) costs a cache line per probed restart and a walk over 8 values
//! on average.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::format::resident::Home;
use crate::keys::codec::{put_varint, three_varints_at, u32_at, u64_at, varint_at};
use crate::keys::{Kind, MAX_KEY_BYTES, MAX_SEQ, SeqNo};
use crate::keys::{common_prefix_len, compare, head, kind_of, seq_of};
use crate::memory::prefetch::{LINE_BYTES, prefetch};
use crate::memory::slabs::Buffer;

const FOOTER_BYTES: usize = 16;
/// Memory that the builder keeps from block to block.
const KEPT_BYTES: usize = 64 << 10;
const BUCKET_EMPTY: u8 = 254;
const BUCKET_UNSURE: u8 = 255;

/// How far ahead a walk prefetches. A scan over many runs returns to this block only after it has
/// visited others, and the processor recognises no pattern in that.
const PREFETCH_BYTES: usize = 2 * LINE_BYTES;

/// Why the bytes of a block do not decode. The caller adds the file and the offset.
pub type BadBlock = &'static str;

/// Builds one block after another.
#[derive(Debug)]
pub struct BlockBuilder {
    restart_interval: usize,
    hash_index: bool,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    /// Hash and restart number of each distinct user key; only with a hash index.
    hashes: Vec<(u64, usize)>,
    entries: usize,
    base_seq: SeqNo,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// A builder that stores every `restart_interval`-th key whole.
    pub fn new(restart_interval: usize, hash_index: bool) -> Self {
        assert!(restart_interval >= 1, "a block stores no key whole");
        BlockBuilder {
            restart_interval,
            hash_index,
            bytes: Vec::new(),
            restarts: Vec::new(),
            hashes: Vec::new(),
            entries: 0,
            base_seq: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// Appends an entry; internal keys must ascend.
    pub fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        let seq = seq_of(trailer);
        let shared = if self.entries.is_multiple_of(self.restart_interval) {
            if self.entries == 0 {
                self.base_seq = seq;
                self.first_key.clear();
                self.first_key.extend_from_slice(key);
            }
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            common_prefix_len(&self.last_key, key)
        };
        if self.hash_index {
            self.hashes.push((xxhash_rust::xxh3::xxh3_64(key), self.restarts.len() - 1));
        }
        let delta = seq.wrapping_sub(self.base_seq) as i64;
        let zigzag = (delta << 1 ^ delta >> 63) as u64;
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (key.len() - shared) as u64);
        put_varint(&mut self.bytes, value.len() as u64);
        put_varint(&mut self.bytes, zigzag << 3 | u64::from(kind_of(trailer) & 7));
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.entries += 1;
    }

    /// Bytes that the block would take if finished now.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + self.restarts.len() * 12 + FOOTER_BYTES
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The last key added.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Writes the completed block to `out` (cleared first) and starts the next.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        assert!(self.entries > 0, "a block without entries is written");
        let prefix_len =
            common_prefix_len(&self.first_key, &self.last_key).min(usize::from(u16::MAX));
        out.clear();
        out.append(&mut self.bytes);
        self.bytes.shrink_to(KEPT_BYTES);
        for at in &self.restarts {
            // A restart entry stores its key whole. The key starts after the four varints.
            let (_, key) = restart_key(out, *at as usize).unwrap_or((0, &[]));
            let word = head(key, prefix_len);
            out.extend_from_slice(&word.to_le_bytes());
        }
        for at in &self.restarts {
            out.extend_from_slice(&at.to_le_bytes());
        }
        let bucket_count = self.put_hash_index(out);
        out.extend_from_slice(&self.base_seq.to_le_bytes());
        out.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        out.extend_from_slice(&bucket_count.to_le_bytes());
        out.extend_from_slice(&(prefix_len as u16).to_le_bytes());
        self.restarts.clear();
        self.hashes.clear();
        self.entries = 0;
    }

    fn put_hash_index(&self, out: &mut Vec<u8>) -> u16 {
        let wanted = self.hashes.len() + self.hashes.len() / 3 + 1;
        if !self.hash_index || self.restarts.len() >= 254 || wanted > usize::from(u16::MAX) {
            return 0;
        }
        let start = out.len();
        out.resize(start + wanted, BUCKET_EMPTY);
        for (hash, restart) in &self.hashes {
            let bucket = &mut out[start + (*hash % wanted as u64) as usize];
            *bucket = match *bucket {
                BUCKET_EMPTY => *restart as u8,
                same if usize::from(same) == *restart => same,
                _ => BUCKET_UNSURE,
            };
        }
        wanted as u16
    }
}

/// The tag and whole key of a restart entry.
fn restart_key(bytes: &[u8], at: usize) -> Option<(u64, &[u8])> {
    let ([shared, unshared, _value_len], at) = three_varints_at(bytes, at)?;
    let (tag, at) = varint_at(bytes, at)?;
    if shared != 0 || unshared > MAX_KEY_BYTES as u64 {
        return None;
    }
    Some((tag, bytes.get(at..at + unshared as usize)?))
}

/// A block in memory. Its footer and arrays are checked when it is parsed. Entries are checked as
/// they are read.
pub struct Block {
    bytes: Buffer,
    entries_end: usize,
    restart_count: usize,
    bucket_count: u16,
    prefix_len: u16,
    /// The turn in which the block's use was last reported to the cache; 0 for never.
    pub(crate) told: AtomicU32,
    base_seq: SeqNo,
    pub(super) home: Home,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// One decoded entry header.
#[derive(Clone, Copy)]
struct Entry {
    shared: usize,
    key_at: usize,
    value_at: usize,
    end: usize,
    trailer: u64,
}

/// The result of a point search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Sequence number and kind.
    pub trailer: u64,
    /// The offset of the value in the block.
    pub value_at: u32,
    /// The length of the value.
    pub value_len: u32,
}

impl Block {
    /// Checks the footer and the arrays. O(1).
    pub fn parse(bytes: impl Into<Buffer>) -> Result<Block, BadBlock> {
        let bytes = bytes.into();
        let footer_at = bytes.len().checked_sub(FOOTER_BYTES).ok_or("shorter than its footer")?;
        let base_seq = u64_at(&bytes, footer_at).unwrap_or(u64::MAX);
        let restart_count = u32_at(&bytes, footer_at + 8).unwrap_or(0) as usize;
        let tail = u32_at(&bytes, footer_at + 12).unwrap_or(0);
        let bucket_count = tail as u16;
        let prefix_len = (tail >> 16) as u16;
        let buckets_at =
            footer_at.checked_sub(usize::from(bucket_count)).ok_or("hash index too long")?;
        let entries_end = restart_count
            .checked_mul(12)
            .and_then(|array_bytes| buckets_at.checked_sub(array_bytes))
            .ok_or("more restarts than bytes")?;
        if restart_count == 0 || base_seq > MAX_SEQ {
            return Err("no entries");
        }
        Ok(Block {
            bytes,
            entries_end,
            restart_count,
            bucket_count,
            prefix_len,
            told: AtomicU32::new(0),
            base_seq,
            home: Home::default(),
        })
    }

    /// Gives all entries this sequence number. They must have been written with sequence number 0.
    pub fn numbered(mut self, seq: SeqNo) -> Result<Block, BadBlock> {
        if self.base_seq != 0 {
            return Err("entries have numbers where the manifest gives them theirs");
        }
        self.base_seq = seq;
        Ok(self)
    }

    /// The bytes that the block was parsed from.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }

    /// Prefetches the cache lines that a search begins with.
    #[inline]
    fn prefetch_search(&self) {
        prefetch(&self.bytes, 0);
        prefetch(&self.bytes, self.entries_end);
        prefetch(&self.bytes, self.offsets_at());
    }

    /// How many keys are stored whole.
    pub fn restart_count(&self) -> usize {
        self.restart_count
    }

    /// Whether the block has a hash index.
    pub fn has_hash_index(&self) -> bool {
        self.bucket_count > 0
    }

    /// Memory that the block takes.
    pub fn size_bytes(&self) -> usize {
        self.bytes.taken_bytes() + size_of::<Block>()
    }

    /// The bytes of a value that [`Block::get`] or a cursor located.
    #[inline]
    pub fn slice(&self, at: u32, len: u32) -> &[u8] {
        self.bytes.get(at as usize..at as usize + len as usize).unwrap_or(&[])
    }

    /// The newest entry of `key` whose trailer is at most `seek_trailer`. O(log entries).
    pub fn get(&self, key: &[u8], seek_trailer: u64) -> Result<Option<Found>, BadBlock> {
        let restart = match self.bucket(key) {
            Some(BUCKET_EMPTY) => return Ok(None),
            Some(restart) if restart < BUCKET_EMPTY => usize::from(restart),
            _ => self.last_restart_at_or_before(key, seek_trailer)?.unwrap_or_default(),
        };
        let mut at = self.offset(restart)?;
        let mut next_restart = restart + 1;
        // `matched` is the length of the common prefix of `key` and the previous entry, which sorts
        // before `key`. If shared > matched, this entry also sorts before `key`; if shared <
        // matched, it sorts after.
        let mut matched = 0;
        while at < self.entries_end {
            let entry = self.entry(at)?;
            if next_restart < self.restart_count && at >= self.offset(next_restart)? {
                // A restart stores its key whole, however much it has in common with the previous
                // key.
                matched = 0;
                next_restart += 1;
            }
            if entry.shared < matched {
                return Ok(None);
            }
            if entry.shared == matched {
                let rest = &self.bytes[entry.key_at..entry.value_at];
                let wanted = &key[matched..];
                let more = common_prefix_len(rest, wanted);
                if more == wanted.len() {
                    if more < rest.len() {
                        return Ok(None);
                    }
                    if entry.trailer <= seek_trailer {
                        return Ok(Some(found(&entry)));
                    }
                } else if more < rest.len() && rest[more] > wanted[more] {
                    return Ok(None);
                }
                matched += more;
            }
            at = entry.end;
        }
        Ok(None)
    }

    #[inline]
    fn bucket(&self, key: &[u8]) -> Option<u8> {
        if self.bucket_count == 0 {
            return None;
        }
        let slot = xxhash_rust::xxh3::xxh3_64(key) % u64::from(self.bucket_count);
        let buckets_at = self.offsets_at() + self.restart_count * 4;
        self.bytes.get(buckets_at + slot as usize).copied()
    }

    #[inline]
    fn offsets_at(&self) -> usize {
        self.entries_end + self.restart_count * 8
    }

    #[inline]
    fn head(&self, restart: usize) -> u64 {
        u64_at(&self.bytes, self.entries_end + restart * 8).unwrap_or(0)
    }

    #[inline]
    fn offset(&self, restart: usize) -> Result<usize, BadBlock> {
        match u32_at(&self.bytes, self.offsets_at() + restart * 4) {
            Some(at) if (at as usize) < self.entries_end => Ok(at as usize),
            _ => Err("restart out of range"),
        }
    }

    fn restart_internal_key(&self, restart: usize) -> Result<(&[u8], u64), BadBlock> {
        let at = self.offset(restart)?;
        let (tag, key) = restart_key(&self.bytes[..self.entries_end], at).ok_or("bad restart")?;
        Ok((key, self.trailer(tag)?))
    }

    /// The last restart whose internal key is <= the given one.
    fn last_restart_at_or_before(
        &self,
        key: &[u8],
        trailer: u64,
    ) -> Result<Option<usize>, BadBlock> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let prefix_len = usize::from(self.prefix_len);
        if prefix_len > 0 {
            let (first_key, _) = self.restart_internal_key(0)?;
            let prefix = first_key.get(..prefix_len).ok_or("prefix longer than the key")?;
            match key.get(..prefix_len).unwrap_or(key).cmp(prefix) {
                Less => return Ok(None),
                Greater => return Ok(Some(self.restart_count - 1)),
                Equal => {}
            }
        }
        let wanted = head(key, prefix_len);
        let (mut low, mut high) = (0, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            let word = self.head(middle);
            let before = if word != wanted {
                word < wanted
            } else {
                let (middle_key, middle_trailer) = self.restart_internal_key(middle)?;
                compare(middle_key, middle_trailer, key, trailer) != Greater
            };
            if before { low = middle + 1 } else { high = middle }
        }
        Ok(low.checked_sub(1))
    }

    #[inline]
    fn trailer(&self, tag: u64) -> Result<u64, BadBlock> {
        let zigzag = tag >> 3;
        let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let seq = self.base_seq.wrapping_add(delta as u64);
        let kind = (tag & 7) as u8;
        if seq > MAX_SEQ || Kind::from_u8(kind).is_none() {
            return Err("sequence number or kind out of range");
        }
        Ok(seq << 8 | u64::from(kind))
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> Result<Entry, BadBlock> {
        self.entry_inner(at).ok_or("entry runs past the block")?
    }

    #[inline(always)]
    fn entry_inner(&self, at: usize) -> Option<Result<Entry, BadBlock>> {
        let bytes = self.bytes.get(..self.entries_end)?;
        let ([shared, unshared, value_len], at) = three_varints_at(bytes, at)?;
        let (tag, key_at) = varint_at(bytes, at)?;
        let trailer = match self.trailer(tag) {
            Ok(trailer) => trailer,
            Err(what) => return Some(Err(what)),
        };
        let limit = MAX_KEY_BYTES as u64;
        if shared > limit || unshared > limit || shared + unshared > limit {
            return Some(Err("key too long"));
        }
        let value_at = key_at + unshared as usize;
        let end = value_at.checked_add(usize::try_from(value_len).ok()?)?;
        if end > bytes.len() {
            return None;
        }
        Some(Ok(Entry { shared: shared as usize, key_at, value_at, end, trailer }))
    }
}

fn found(entry: &Entry) -> Found {
    Found {
        trailer: entry.trailer,
        value_at: entry.value_at as u32,
        value_len: (entry.end - entry.value_at) as u32,
    }
}

/// Walks the entries of a block in both directions.
#[derive(Debug)]
pub struct BlockCursor {
    block: Arc<Block>,
    /// Start of the current entry; `entries_end` when past the end.
    at: usize,
    next_at: usize,
    restart: usize,
    key: Vec<u8>,
    trailer: u64,
    value_at: u32,
    value_len: u32,
}

impl BlockCursor {
    /// A cursor past the end; seek before use. `key_buffer` is reused to save an allocation.
    pub fn new(block: Arc<Block>, mut key_buffer: Vec<u8>) -> Self {
        key_buffer.clear();
        let end = block.entries_end;
        block.prefetch_search();
        BlockCursor {
            block,
            at: end,
            next_at: end,
            restart: 0,
            key: key_buffer,
            trailer: 0,
            value_at: 0,
            value_len: 0,
        }
    }

    /// Gives the key buffer back.
    pub fn into_buffer(self) -> Vec<u8> {
        self.key
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.at < self.block.entries_end
    }

    /// User key of the current entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the current entry is the block's first.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.at == 0
    }

    /// Moves past the end.
    pub fn skip_all(&mut self) {
        self.at = self.block.entries_end;
        self.next_at = self.at;
    }

    /// Trailer of the current entry.
    #[inline]
    pub fn trailer(&self) -> u64 {
        self.trailer
    }

    /// Value bytes of the current entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.slice(self.value_at, self.value_len)
    }

    /// The block.
    pub fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Block, offset and length of the current value, to pin it.
    pub fn pin(&self) -> (&Arc<Block>, u32, u32) {
        (&self.block, self.value_at, self.value_len)
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<(), BadBlock> {
        self.go_to_restart(0)?;
        self.step()
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) -> Result<(), BadBlock> {
        self.go_to_restart(self.block.restart_count - 1)?;
        self.step()?;
        while self.next_at < self.block.entries_end {
            self.step()?;
        }
        Ok(())
    }

    /// Moves to the first entry at or after the internal key.
    pub fn seek(&mut self, key: &[u8], trailer: u64) -> Result<(), BadBlock> {
        let restart = self.block.last_restart_at_or_before(key, trailer)?.unwrap_or(0);
        self.go_to_restart(restart)?;
        self.step()?;
        while self.valid() && compare(&self.key, self.trailer, key, trailer).is_lt() {
            self.step()?;
        }
        Ok(())
    }

    /// Moves to the next entry, or past the end if there is none.
    #[inline]
    pub fn next(&mut self) -> Result<(), BadBlock> {
        debug_assert!(self.valid(), "a cursor moves on although it is at no entry");
        self.step()
    }

    /// Moves to the previous entry, or past the end if there is none. O(restart interval).
    pub fn prev(&mut self) -> Result<(), BadBlock> {
        debug_assert!(self.valid(), "a cursor moves on although it is at no entry");
        let current = self.at;
        let mut restart = self.restart;
        while self.block.offset(restart)? >= current {
            if restart == 0 {
                self.at = self.block.entries_end;
                self.next_at = self.at;
                return Ok(());
            }
            restart -= 1;
        }
        self.go_to_restart(restart)?;
        self.step()?;
        while self.next_at < current {
            self.step()?;
        }
        Ok(())
    }

    fn go_to_restart(&mut self, restart: usize) -> Result<(), BadBlock> {
        self.next_at = self.block.offset(restart)?;
        self.restart = restart;
        self.key.clear();
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> Result<(), BadBlock> {
        self.at = self.next_at;
        if self.at >= self.block.entries_end {
            return Ok(());
        }
        let entry = self.block.entry(self.at)?;
        if entry.shared > self.key.len() {
            return Err("shares more than the previous key has");
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&self.block.bytes[entry.key_at..entry.value_at]);
        // A restart entry always has `shared == 0`. The offset is checked against the array too, so
        // that another key that happens to share nothing does not count as a restart.
        if entry.shared == 0
            && self.restart + 1 < self.block.restart_count
            && self.at >= self.block.offset(self.restart + 1)?
        {
            self.restart += 1;
        }
        self.trailer = entry.trailer;
        self.value_at = entry.value_at as u32;
        self.value_len = (entry.end - entry.value_at) as u32;
        self.next_at = entry.end;
        prefetch(&self.block.bytes, entry.end + PREFETCH_BYTES);
        prefetch(&self.block.bytes, entry.end + PREFETCH_BYTES + LINE_BYTES);
        Ok(())
    }
}

/// A trailer that sorts before every version of its key.
pub const BEFORE_ALL_VERSIONS: u64 = u64::MAX;
/// A trailer that sorts after every version of its key, because no version has sequence number 0.
pub const AFTER_ALL_VERSIONS: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::pack;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Vec<u8>>;

    fn build(model: &Model, interval: usize, hash_index: bool) -> Arc<Block> {
        let mut builder = BlockBuilder::new(interval, hash_index);
        for ((key, trailer), value) in model {
            builder.add(key, trailer.0, value);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        Arc::new(Block::parse(bytes).expect("own block"))
    }

    fn models() -> impl Strategy<Value = Model> {
        let key = prop_oneof![
            proptest::collection::vec(0u8..3, 0..5),
            proptest::collection::vec(any::<u8>(), 0..12),
            "user[0-9]{1,4}".prop_map(String::into_bytes),
        ];
        let entry = (key, 1u64..50, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20));
        proptest::collection::vec(entry, 1..60).prop_map(|entries| {
            entries
                .into_iter()
                .map(|(key, seq, put, value)| {
                    let kind = if put { Kind::Put } else { Kind::Delete };
                    ((key, std::cmp::Reverse(pack(seq, kind))), value)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn cursor_and_get_agree_with_a_map(
            model in models(), interval in 1usize..9, hash in any::<bool>(), probe in models()
        ) {
            let block = build(&model, interval, hash);
            let mut cursor = BlockCursor::new(Arc::clone(&block), Vec::new());
            cursor.seek_to_first().unwrap();
            for ((key, trailer), value) in &model {
                prop_assert!(cursor.valid());
                prop_assert_eq!((cursor.key(), cursor.trailer()), (&key[..], trailer.0));
                prop_assert_eq!(cursor.value(), &value[..]);
                cursor.next().unwrap();
            }
            prop_assert!(!cursor.valid());
            cursor.seek_to_last().unwrap();
            for ((key, trailer), _) in model.iter().rev() {
                prop_assert_eq!((cursor.key(), cursor.trailer()), (&key[..], trailer.0));
                cursor.prev().unwrap();
            }
            prop_assert!(!cursor.valid());
            for (key, trailer) in probe.keys().chain(model.keys()) {
                let from = (key.clone(), *trailer);
                let expected = model.range(from..).next();
                cursor.seek(key, trailer.0).unwrap();
                prop_assert_eq!(cursor.valid(), expected.is_some());
                if let Some(((found_key, found_trailer), _)) = expected {
                    prop_assert_eq!(cursor.key(), &found_key[..]);
                    prop_assert_eq!(cursor.trailer(), found_trailer.0);
                }
                let newest = expected.filter(|((found_key, _), _)| found_key == key);
                let got = block.get(key, trailer.0).unwrap();
                prop_assert_eq!(got.map(|f| f.trailer), newest.map(|((_, t), _)| t.0));
            }
        }

        #[test]
        fn garbage_never_panics(model in models(), at in any::<prop::sample::Index>(), byte: u8) {
            let block = build(&model, 3, true);
            let mut bytes = block.bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(block) = Block::parse(bytes) {
                let block = Arc::new(block);
                for (key, trailer) in model.keys() {
                    let _ = block.get(key, trailer.0);
                    let mut cursor = BlockCursor::new(Arc::clone(&block), Vec::new());
                    let _ = cursor.seek(key, trailer.0);
                    while cursor.valid() && cursor.next().is_ok() {}
                    if cursor.seek_to_last().is_ok() {
                        while cursor.valid() && cursor.prev().is_ok() {}
                    }
                }
            }
        }
    }
}
