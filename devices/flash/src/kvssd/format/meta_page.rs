//! The metadata page of a table: which pages it has, and which part of each. Little-endian:
//!
//! ```text
//!  0 magic u32 | 4 level u32 | 8 table id u64 | 16 txn u64 | 24 min_seq u64 | 32 max_seq u64
//! 40 tombstones u64 | 48 counter u32 | 52 entry_count u32 | 56 used_bytes u32
//! 60 crc32c of bytes 0..60 and of the entries | 64 entries
//! entry: page u32 | page_count u16 | stratum u8
//!        flags u8 (1 charged, 2 tombstones, 4 real, 8 filter)
//!        record_count u32 | lo length u16 | hi length u16 | lo | hi
//!        with a filter: filter length u16, at least 1 | filter
//! ```
//!
//! The entries of a virtual table are real tables. `page` is the page of their metadata, and the
//! table has the part of their entries that is inside the clip. Either all entries are real, or
//! none is.
//!
//! Clips are mandatory. Without them, a page that two tables share, or that a later compaction cut,
//! would answer for keys that belong to another page.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::kvssd::format::key::Key;
use crate::kvssd::format::page_filter::PageFilter;
use crate::nand::SharedBytes;
use crate::rest::Rest;

const MAGIC: u32 = 0x5445_4d52; // "RMET"
const HEADER_BYTES: usize = 64;
const CRC_AT: usize = 60;
const ENTRY_BYTES: usize = 16;
const IS_CHARGED: u8 = 1;
const HAS_TOMBSTONES: u8 = 2;
const IS_REAL: u8 = 4;
const HAS_FILTER: u8 = 8;

/// A range of keys: from `lo` up to `hi`, without `hi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clip {
    /// First key inside.
    pub lo: Key,
    /// First key after it.
    pub hi: Key,
}

impl Clip {
    /// The range of the keys of a page; it ends just after the largest key.
    pub fn of_keys(min: &[u8], max: &[u8]) -> Clip {
        Clip { lo: min.into(), hi: Key::after(max) }
    }

    /// Whether the key is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.lo <= *key && *key < *self.hi
    }

    /// The largest key inside, if no key is longer than `most_bytes`. Policies and histograms use
    /// closed bounds. Policies rely on this key to find tables that do not overlap.
    pub fn last_inside(&self, most_bytes: usize) -> Vec<u8> {
        let mut key = self.hi.to_vec();
        match key.pop() {
            Some(0) | None => {}
            Some(byte) => {
                key.push(byte - 1);
                key.resize(most_bytes.max(key.len()), 0xff);
            }
        }
        key
    }

    /// Decodes a clip at the front of the bytes, and advances past it. A clip is encoded as both
    /// lengths and then both bounds.
    pub(crate) fn decode(rest: &mut Rest<'_>) -> Option<Clip> {
        let (lo_len, hi_len) = (rest.u16()?, rest.u16()?);
        let lo = rest.bytes(usize::from(lo_len))?.into();
        Some(Clip { lo, hi: rest.bytes(usize::from(hi_len))?.into() })
    }

    /// Whether the two ranges have a key in common.
    pub fn overlaps(&self, other: &Clip) -> bool {
        self.lo < other.hi && other.lo < self.hi
    }
}

/// A reference of a table to a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the page.
    pub page: u32,
    /// Pages of the group: 1, or more for a value larger than a page.
    pub page_count: u16,
    /// Age inside the table: if two entries have the key, the one with the higher stratum is newer.
    pub stratum: u8,
    /// Whether the page counts towards the size of this table.
    pub is_charged: bool,
    /// Whether the page contains deletes.
    pub has_tombstones: bool,
    /// Records of the page, including those outside the clip.
    pub record_count: u32,
    /// The keys for which the page answers here.
    pub clip: Clip,
    /// The filter of the keys of the page, including those outside the clip.
    pub filter: PageFilter,
}

/// A real table of a virtual table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Real {
    /// Number of its metadata page.
    pub page: u32,
    /// The smallest range that contains the clips of its entries here.
    pub clip: Clip,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMeta {
    /// Unique for ever.
    pub id: u64,
    /// The level that it is in.
    pub level: u8,
    /// Transaction that made it.
    pub txn: u64,
    /// Number of strata.
    pub counter: u8,
    /// Smallest sequence number of its pages.
    pub min_seq: u64,
    /// Largest sequence number of its pages.
    pub max_seq: u64,
    /// Deletes in its pages.
    pub tombstones: u64,
    /// Sorted by `clip.lo`; clips of one stratum are disjoint.
    pub entries: Vec<Entry>,
    /// For a virtual table, the real table of each stratum; otherwise empty.
    pub reals: Vec<Real>,
}

impl TableMeta {
    /// The smallest range that contains all clips; `None` if there are no entries.
    pub fn fence(&self) -> Option<Clip> {
        let lo = self.entries.first()?.clip.lo.clone();
        let hi = self.entries.iter().map(|entry| &entry.clip.hi).max()?.clone();
        Some(Clip { lo, hi })
    }

    /// Pages that count towards its size.
    pub fn charged_pages(&self) -> u32 {
        let charged = self.entries.iter().filter(|entry| entry.is_charged);
        charged.map(|entry| u32::from(entry.page_count)).sum()
    }

    /// Length of the encoding; it must fit a page.
    pub fn encoded_bytes(entries: &[Entry]) -> usize {
        let own_bytes = |entry: &Entry| {
            let filter_bytes = match entry.filter.bytes().len() {
                0 => 0,
                len => 2 + len,
            };
            ENTRY_BYTES + entry.clip.lo.len() + entry.clip.hi.len() + filter_bytes
        };
        HEADER_BYTES + entries.iter().map(own_bytes).sum::<usize>()
    }

    /// The entries that are encoded: those of pages, or those of real tables.
    fn written_entries(&self) -> Cow<'_, [Entry]> {
        if self.reals.is_empty() {
            return Cow::Borrowed(&self.entries);
        }
        let real = |(stratum, real): (u8, &Real)| Entry {
            page: real.page,
            page_count: 1,
            stratum,
            is_charged: false,
            has_tombstones: false,
            record_count: 0,
            clip: real.clip.clone(),
            filter: PageFilter::default(),
        };
        let mut entries: Vec<Entry> = (0..).zip(&self.reals).map(real).collect();
        entries.sort_by(|one, two| one.clip.lo.cmp(&two.clip.lo));
        Cow::Owned(entries)
    }

    /// The entries of a range of keys, cut to that range. The result keeps the table's number, for
    /// the lists.
    pub fn clipped(&self, range: &Clip) -> TableMeta {
        let entries = self.entries.iter().filter(|entry| entry.clip.overlaps(range));
        let entries = entries.map(|entry| {
            let lo = entry.clip.lo.clone().max(range.lo.clone());
            let hi = entry.clip.hi.clone().min(range.hi.clone());
            Entry { clip: Clip { lo, hi }, ..entry.clone() }
        });
        TableMeta { entries: entries.collect(), ..self.clone() }
    }

    /// Makes one virtual table of several tables, older ones first, each with its metadata page.
    /// Every real table behind them that has entries becomes a stratum. Returns `None` if there are
    /// more than `most`, or if a table has strata that remapping made.
    pub fn over<'a>(
        tables: impl IntoIterator<Item = (&'a TableMeta, u32)>,
        most: u8,
    ) -> Option<TableMeta> {
        let mut whole = TableMeta::default();
        for (table, meta_page) in tables {
            if table.reals.is_empty() && table.counter > 1 {
                return None;
            }
            for stratum in 0..table.counter {
                let inside = table.entries.iter().filter(|entry| entry.stratum == stratum);
                let entries: Vec<Entry> = inside.cloned().collect();
                let part = TableMeta { entries, ..TableMeta::default() };
                let Some(clip) = part.fence() else { continue };
                if whole.counter == most {
                    return None;
                }
                let page = table.reals.get(usize::from(stratum)).map_or(meta_page, |r| r.page);
                whole.reals.push(Real { page, clip });
                let counter = whole.counter;
                let moved = part.entries.into_iter();
                whole.entries.extend(moved.map(|entry| Entry { stratum: counter, ..entry }));
                whole.counter += 1;
            }
        }
        whole.sort();
        Some(whole)
    }

    /// Adds the entries of one of its real tables to a virtual table.
    pub(crate) fn expand(&mut self, stratum: u8, real: &TableMeta) {
        let inside = real.clipped(&self.reals[usize::from(stratum)].clip);
        self.entries.extend(inside.entries.into_iter().map(|entry| Entry { stratum, ..entry }));
    }

    /// The entries of a stratum, as a table of their own.
    pub(crate) fn stratum(&self, stratum: u8) -> TableMeta {
        let inside = self.entries.iter().filter(|entry| entry.stratum == stratum);
        let entries = inside.map(|entry| Entry { stratum: 0, ..entry.clone() }).collect();
        TableMeta { counter: 1, entries, reals: Vec::new(), ..*self }
    }

    pub(crate) fn sort(&mut self) {
        self.entries
            .sort_by(|one, two| (&one.clip.lo, one.stratum).cmp(&(&two.clip.lo, two.stratum)));
    }

    /// The bytes of the page; `None` if they do not fit.
    pub fn encode(&self, page_bytes: usize) -> Option<Vec<u8>> {
        let entries = self.written_entries();
        let used_bytes = TableMeta::encoded_bytes(&entries);
        if used_bytes > page_bytes {
            return None;
        }
        let mut bytes = SharedBytes::buffer(page_bytes);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.level).to_le_bytes());
        for word in [self.id, self.txn, self.min_seq, self.max_seq, self.tombstones] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in [u32::from(self.counter), entries.len() as u32, used_bytes as u32, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let is_real = if self.reals.is_empty() { 0 } else { IS_REAL };
        for entry in entries.iter() {
            let flags = is_real
                | if entry.is_charged { IS_CHARGED } else { 0 }
                | if entry.has_tombstones { HAS_TOMBSTONES } else { 0 }
                | if entry.filter.bytes().is_empty() { 0 } else { HAS_FILTER };
            bytes.extend_from_slice(&entry.page.to_le_bytes());
            bytes.extend_from_slice(&entry.page_count.to_le_bytes());
            bytes.extend_from_slice(&[entry.stratum, flags]);
            bytes.extend_from_slice(&entry.record_count.to_le_bytes());
            for key in [&entry.clip.lo, &entry.clip.hi] {
                bytes.extend_from_slice(&u16::try_from(key.len()).ok()?.to_le_bytes());
            }
            bytes.extend_from_slice(&entry.clip.lo);
            bytes.extend_from_slice(&entry.clip.hi);
            if let filter @ [_, ..] = entry.filter.bytes() {
                bytes.extend_from_slice(&u16::try_from(filter.len()).ok()?.to_le_bytes());
                bytes.extend_from_slice(filter);
            }
        }
        let crc = checksum(&bytes);
        bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes.resize(page_bytes, 0);
        Some(bytes)
    }

    /// Decodes a page and checks it: order, disjoint strata, counter.
    pub fn decode(bytes: &[u8]) -> Result<TableMeta> {
        let corrupt = |why: &str| Error::Corrupt { what: "metadata page", why: why.to_string() };
        let table = decode(bytes).ok_or_else(|| corrupt("its layout or checksum"))?;
        // A virtual table is checked once it has the entries of its real tables.
        if table.reals.is_empty() {
            table.check().map_err(corrupt)?;
        }
        Ok(table)
    }

    /// The invariants of a table.
    pub fn check(&self) -> std::result::Result<(), &'static str> {
        if self.entries.is_empty() {
            return Err("it has no entries");
        }
        if !self.entries.is_sorted_by(|one, two| one.clip.lo <= two.clip.lo) {
            return Err("its entries are not sorted");
        }
        let mut ends: Vec<&[u8]> = vec![&[]; usize::from(self.counter)];
        for entry in &self.entries {
            if entry.clip.lo >= entry.clip.hi || entry.page_count == 0 {
                return Err("an entry is empty");
            }
            let end = ends.get_mut(usize::from(entry.stratum)).ok_or("a stratum is too high")?;
            if *entry.clip.lo < **end {
                return Err("entries of one stratum overlap");
            }
            *end = &entry.clip.hi;
        }
        Ok(())
    }
}

/// The checksum over the header without the checksum's own bytes, and over the entries.
fn checksum(used: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&used[..CRC_AT]), &used[HEADER_BYTES..])
}

fn decode(bytes: &[u8]) -> Option<TableMeta> {
    let mut rest = Rest(bytes);
    if rest.u32()? != MAGIC {
        return None;
    }
    let level = u8::try_from(rest.u32()?).ok()?;
    let (id, txn, min_seq, max_seq) = (rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?);
    let tombstones = rest.u64()?;
    let counter = u8::try_from(rest.u32()?).ok()?;
    let (entry_count, used_bytes, crc) = (rest.u32()?, rest.u32()? as usize, rest.u32()?);
    let used = bytes.get(..used_bytes).filter(|used| used.len() >= HEADER_BYTES)?;
    if checksum(used) != crc || entry_count as usize > used_bytes / ENTRY_BYTES {
        return None;
    }
    let mut rest = Rest(&used[HEADER_BYTES..]);
    let mut entries = Vec::with_capacity(entry_count as usize);
    let mut reals = BTreeMap::new();
    for _ in 0..entry_count {
        match decode_entry(&mut rest)? {
            (entry, false) => entries.push(entry),
            (Entry { page, clip, stratum, .. }, true) => {
                reals.insert(stratum, Real { page, clip });
            }
        }
    }
    let is_one_kind = match reals.len() {
        0 => true,
        count => {
            entries.is_empty() && count == usize::from(counter) && count == entry_count as usize
        }
    };
    let reals = reals.into_values().collect();
    let table = TableMeta { id, level, txn, counter, min_seq, max_seq, tombstones, entries, reals };
    (rest.0.is_empty() && is_one_kind).then_some(table)
}

/// Decodes an entry. Also returns whether it is a real table.
fn decode_entry(rest: &mut Rest<'_>) -> Option<(Entry, bool)> {
    let (page, page_count) = (rest.u32()?, rest.u16()?);
    let [stratum, flags] = rest.array()?;
    let entry = Entry {
        page,
        page_count,
        stratum,
        is_charged: flags & IS_CHARGED != 0,
        has_tombstones: flags & HAS_TOMBSTONES != 0,
        record_count: rest.u32()?,
        clip: Clip::decode(rest)?,
        filter: match flags & HAS_FILTER {
            0 => PageFilter::default(),
            _ => {
                let len = Some(rest.u16()?).filter(|len| *len > 0)?;
                PageFilter::from_bytes(rest.bytes(usize::from(len))?)
            }
        },
    };
    Some((entry, flags & IS_REAL != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvssd::format::page_filter::FilterSize;

    fn entry(page: u32, stratum: u8, lo: &str, hi: &str) -> Entry {
        let clip = Clip { lo: lo.as_bytes().into(), hi: hi.as_bytes().into() };
        let (is_charged, has_tombstones) = (page.is_multiple_of(2), stratum > 0);
        let keys = [lo.as_bytes()];
        let size = FilterSize { millibits_per_key: 10_000, most_bytes: 8 };
        let size = if stratum > 0 { size } else { FilterSize::default() };
        let filter = PageFilter::of_keys(keys.into_iter(), size);
        let (page_count, record_count) = (1, 7);
        Entry { page, page_count, stratum, is_charged, has_tombstones, record_count, clip, filter }
    }

    fn table(entries: Vec<Entry>) -> TableMeta {
        let (min_seq, max_seq) = (3, 99);
        let (counter, tombstones, reals) = (2, 1, Vec::new());
        TableMeta { id: 8, level: 2, txn: 5, counter, min_seq, max_seq, tombstones, entries, reals }
    }

    /// Three entries, and a filter of two bytes with its length.
    const SOUND_BYTES: usize = 64 + 3 * 18 + 4;

    fn sound() -> TableMeta {
        table(vec![entry(4, 0, "a", "c"), entry(9, 1, "b", "f"), entry(5, 0, "c", "d")])
    }

    #[test]
    fn a_table_comes_back() {
        let table = sound();
        let bytes = table.encode(512).unwrap();
        assert_eq!((bytes.len(), TableMeta::decode(&bytes).unwrap()), (512, table.clone()));
        assert_eq!(table.fence(), Some(Clip { lo: b"a"[..].into(), hi: b"f"[..].into() }));
        assert_eq!(table.charged_pages(), 1);
        assert!(table.encode(SOUND_BYTES - 1).is_none() && table.encode(SOUND_BYTES).is_some());
    }

    /// Two real tables. One has lost its first pages to another table.
    #[test]
    fn a_virtual_table_comes_back_from_its_real_ones() {
        let plain = |entries| TableMeta { counter: 1, ..table(entries) };
        let older = plain(vec![entry(4, 0, "a", "c"), entry(5, 0, "c", "e")]);
        let newer = plain(vec![entry(8, 0, "b", "d"), entry(9, 0, "d", "f")]);
        let cut = older.clipped(&Clip { lo: b"d"[..].into(), hi: b"z"[..].into() });
        let whole = TableMeta::over([(&cut, 70), (&newer, 71)], 2).unwrap();
        let pages: Vec<_> = whole.entries.iter().map(|entry| (entry.page, entry.stratum)).collect();
        assert_eq!(pages, [(8, 1), (5, 0), (9, 1)]);
        let mut back = TableMeta::decode(&whole.encode(512).unwrap()).unwrap();
        assert_eq!(back.reals, whole.reals);
        back.expand(0, &older);
        back.expand(1, &newer);
        back.sort();
        assert_eq!(back, whole);
        assert_eq!(TableMeta::over([(&whole, 72), (&older, 73)], 2), None, "three tables");
        assert_eq!(TableMeta::over([(&sound(), 72)], 9), None, "it has strata");
        assert_eq!(whole.stratum(1).entries, newer.entries);
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let bytes = sound().encode(SOUND_BYTES).unwrap();
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                assert!(TableMeta::decode(&damaged).is_err(), "byte {at}");
            }
            assert!(TableMeta::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn impossible_tables_are_refused() {
        let wrong = [
            vec![],
            vec![entry(1, 0, "b", "c"), entry(2, 0, "a", "b")],
            vec![entry(1, 0, "a", "c"), entry(2, 0, "b", "d")],
            vec![entry(1, 2, "a", "c")],
            vec![entry(1, 0, "c", "c")],
        ];
        for entries in wrong {
            assert!(TableMeta::decode(&table(entries).encode(512).unwrap()).is_err());
        }
    }
}
