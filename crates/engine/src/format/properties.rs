//! The properties of a table: a list of (tag, bytes) that later releases can extend.
//!
//! ```text
//! properties := (tag varint | bytes)*
//! ```
//!
//! Tags below 128 must be understood by the reader; an unknown one is a newer format. Tags from 128
//! on are hints and may be skipped. Tags 10 and 11 are reserved for value pointers and policy
//! hints. Tag 12 has no bytes: all entries are stored with sequence number 0, and the manifest has
//! the real number.
//!
//! ```text
//! expiries (tag 129)    := count (0: nothing follows) | first u64
//!                          | (milliseconds varint | entries varint)*
//! range deletes (tag 9) := count | (start bytes | end bytes, empty if there is none | seq varint)*
//! ```
//!
//! ```text
//! home (tag 130) := keyspace id | uid of the store
//! ```
//!
//! In expiries, `first` is when the first entry expires, in milliseconds since 1970. Each step says
//! how many entries expire by an instant. It stores the instant as the distance from the previous
//! step's instant; the first step stores the distance from `first`.

use runstone_policy::shape::expiry::{Expiries, ExpiryStep};
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::sketch::Sketch;

use crate::keys::codec::{
    Decoded, Reader, Truncated, put_bytes, put_varint, take_list, take_number, take_size, take_u32,
};
use crate::keys::{KeyspaceId, range_delete};

const TAG_MIN_KEY: u64 = 1;
const TAG_MAX_KEY: u64 = 2;
const TAG_NUMBERS: u64 = 3;
const TAG_PREFIXES: u64 = 4;
const TAG_KINDS: u64 = 5;
const TAG_RANGE_DELETES: u64 = 9;
const TAG_NUMBERED_LATER: u64 = 12;
/// A hint. Readers without it lose an estimate.
const TAG_SKETCH: u64 = 128;
/// A hint. Readers without it drop no table without reading it.
const TAG_EXPIRIES: u64 = 129;
/// A hint. The manifest has this information too; a reader without the hint needs the manifest.
const TAG_HOME: u64 = 130;

/// Where a table belongs. A repair without a manifest needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The uid of the store.
    pub store: u64,
}

/// Properties of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Smallest user key.
    pub min_key: Vec<u8>,
    /// Largest user key.
    pub max_key: Vec<u8>,
    /// Entries of every kind.
    pub entries: u64,
    /// Deletes and range deletes.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub min_seq: u64,
    /// Largest sequence number.
    pub max_seq: u64,
    /// Key and value bytes as the user gave them.
    pub user_bytes: u64,
    /// Data blocks.
    pub block_count: u64,
    /// Filter memory in bits.
    pub filter_bits: u64,
    /// Bit `1 << kind` for each kind that occurs.
    pub kinds: u64,
    /// Sorted key prefixes, if an extractor is set.
    pub prefixes: Vec<Box<[u8]>>,
    /// Sketch of the user keys.
    pub sketch: Sketch,
    /// The range deletes among the entries, by start.
    pub range_deletes: Vec<RangeDelete>,
    /// The entries that expire.
    pub expiries: Expiries,
    /// Whether all entries have the same sequence number, which the manifest gives the table. A
    /// bulk load writes such tables, because it has no sequence number yet.
    pub is_numbered_later: bool,
    /// Where the table belongs; `None` if the table belongs to no store, or was written by an
    /// earlier release.
    pub home: Option<Home>,
}

/// Why properties do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadProperties {
    /// The bytes do not fit the format.
    Malformed,
    /// There is a required tag of a newer release.
    Newer,
}

impl Properties {
    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |tag: u64, bytes: &[u8]| {
            put_varint(out, tag);
            put_bytes(out, bytes);
        };
        put(TAG_MIN_KEY, &self.min_key);
        put(TAG_MAX_KEY, &self.max_key);
        let mut numbers = Vec::new();
        for number in [
            self.entries,
            self.tombstones,
            self.min_seq,
            self.max_seq,
            self.user_bytes,
            self.block_count,
            self.filter_bits,
        ] {
            put_varint(&mut numbers, number);
        }
        put(TAG_NUMBERS, &numbers);
        if !self.prefixes.is_empty() {
            let mut list = Vec::new();
            for prefix in &self.prefixes {
                put_bytes(&mut list, prefix);
            }
            put(TAG_PREFIXES, &list);
        }
        put(TAG_KINDS, &self.kinds.to_le_bytes());
        if !self.range_deletes.is_empty() {
            let mut list = Vec::new();
            put_range_deletes(&mut list, &self.range_deletes);
            put(TAG_RANGE_DELETES, &list);
        }
        if self.is_numbered_later {
            put(TAG_NUMBERED_LATER, &[]);
        }
        put(TAG_SKETCH, self.sketch.as_bytes());
        if self.expiries.entries > 0 {
            let mut numbers = Vec::new();
            put_expiries(&mut numbers, &self.expiries);
            put(TAG_EXPIRIES, &numbers);
        }
        if let Some(home) = self.home {
            let mut numbers = Vec::new();
            put_varint(&mut numbers, u64::from(home.keyspace));
            put_varint(&mut numbers, home.store);
            put(TAG_HOME, &numbers);
        }
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Properties, BadProperties> {
        let malformed = |_| BadProperties::Malformed;
        let mut properties = Properties::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let tag = reader.take_varint().map_err(malformed)?;
            let value = reader.take_bytes().map_err(malformed)?;
            let mut value_reader = Reader::new(value);
            match tag {
                TAG_MIN_KEY => properties.min_key = value.to_vec(),
                TAG_MAX_KEY => properties.max_key = value.to_vec(),
                TAG_NUMBERS => {
                    let mut next = || value_reader.take_varint().map_err(malformed);
                    properties.entries = next()?;
                    properties.tombstones = next()?;
                    properties.min_seq = next()?;
                    properties.max_seq = next()?;
                    properties.user_bytes = next()?;
                    properties.block_count = next()?;
                    properties.filter_bits = next()?;
                }
                TAG_PREFIXES => {
                    while !value_reader.is_empty() {
                        let prefix = value_reader.take_bytes().map_err(malformed)?;
                        properties.prefixes.push(prefix.into());
                    }
                }
                TAG_RANGE_DELETES => {
                    properties.range_deletes =
                        take_range_deletes(&mut value_reader).map_err(malformed)?;
                }
                TAG_NUMBERED_LATER => properties.is_numbered_later = true,
                TAG_KINDS => properties.kinds = value_reader.take_u64().map_err(malformed)?,
                TAG_SKETCH => {
                    let sketch = Sketch::from_bytes(value);
                    properties.sketch = sketch.ok_or(BadProperties::Malformed)?;
                }
                TAG_EXPIRIES => {
                    properties.expiries = take_expiries(&mut value_reader).map_err(malformed)?;
                    if !value_reader.is_empty() {
                        return Err(BadProperties::Malformed);
                    }
                }
                TAG_HOME => {
                    let keyspace = take_u32(&mut value_reader).map_err(malformed)?;
                    let store = value_reader.take_varint().map_err(malformed)?;
                    properties.home = Some(Home { keyspace, store });
                }
                0..128 => return Err(BadProperties::Newer),
                _ => {}
            }
        }
        if properties.min_key > properties.max_key || properties.entries == 0 {
            return Err(BadProperties::Malformed);
        }
        Ok(properties)
    }
}

/// Appends a list of range deletes, in the form that the manifest uses too.
pub fn put_range_deletes(out: &mut Vec<u8>, ranges: &[RangeDelete]) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        put_bytes(out, &range.start);
        put_bytes(out, range.end.as_deref().unwrap_or_default());
        put_varint(out, range.seq);
    }
}

/// Reads what [`put_range_deletes`] wrote.
pub fn take_range_deletes(reader: &mut Reader<'_>) -> Decoded<Vec<RangeDelete>> {
    take_list(reader, |reader| {
        let (start, end) = (reader.take_bytes()?, reader.take_bytes()?);
        Ok(range_delete(start, take_number(reader)?, end))
    })
}

/// Appends expiries, in the form that the manifest uses too.
pub fn put_expiries(out: &mut Vec<u8>, expiries: &Expiries) {
    put_varint(out, expiries.steps().len() as u64);
    if expiries.steps().is_empty() {
        return;
    }
    out.extend_from_slice(&expiries.first_ms.to_le_bytes());
    let mut before_ms = expiries.first_ms;
    for step in expiries.steps() {
        put_varint(out, step.at_ms - before_ms);
        put_varint(out, step.entries);
        before_ms = step.at_ms;
    }
}

/// Reads what [`put_expiries`] wrote. Too many steps, steps without entries, instants that repeat
/// and sums beyond 64 bits are damage.
pub fn take_expiries(reader: &mut Reader<'_>) -> Decoded<Expiries> {
    let count = reader.take_len()?;
    if count == 0 {
        return Ok(Expiries::default());
    }
    let first_ms = reader.take_u64()?;
    let mut at_ms = first_ms;
    let mut steps = Vec::new();
    for _ in 0..count {
        at_ms = at_ms.checked_add(reader.take_varint()?).ok_or(Truncated)?;
        steps.push(ExpiryStep { at_ms, entries: take_size(reader)? });
    }
    Expiries::of(first_ms, steps).ok_or(Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(of: &[(u64, u64)]) -> Vec<ExpiryStep> {
        of.iter().map(|&(at_ms, entries)| ExpiryStep { at_ms, entries }).collect()
    }

    #[test]
    fn round_trip_and_unknown_tags() {
        let properties = Properties {
            min_key: b"a".to_vec(),
            max_key: b"z".to_vec(),
            entries: 3,
            tombstones: 1,
            min_seq: 7,
            max_seq: 9,
            user_bytes: 100,
            block_count: 1,
            filter_bits: 512,
            kinds: 3,
            prefixes: vec![(*b"a").into(), (*b"z").into()],
            sketch: Sketch::of_nothing(),
            range_deletes: vec![range_delete(b"a", 8, b"k"), range_delete(b"b", 9, b"")],
            expiries: Expiries::of(5, steps(&[(7, 2), (u64::MAX, 1)])).expect("sound"),
            is_numbered_later: true,
            home: Some(Home { keyspace: 300, store: u64::MAX }),
        };
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        assert_eq!(Properties::decode(&bytes), Ok(properties.clone()));
        let mut hinted = bytes.clone();
        put_varint(&mut hinted, 200);
        put_bytes(&mut hinted, b"a hint of a later release");
        assert_eq!(Properties::decode(&hinted), Ok(properties));
        let mut newer = bytes.clone();
        put_varint(&mut newer, 100);
        put_bytes(&mut newer, b"");
        assert_eq!(Properties::decode(&newer), Err(BadProperties::Newer));
        assert_eq!(Properties::decode(&[]), Err(BadProperties::Malformed));
        // Steps without entries, an instant that occurs twice, one beyond the clock, and too many
        // steps.
        let many = [[1, 1]; 17].concat();
        let bad: [(u64, &[u64]); 4] =
            [(5, &[1, 0]), (5, &[1, 1, 0, 1]), (u64::MAX, &[1, 1]), (5, &many)];
        for (first_ms, numbers) in bad {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, numbers.len() as u64 / 2);
            bytes.extend_from_slice(&first_ms.to_le_bytes());
            numbers.iter().for_each(|number| put_varint(&mut bytes, *number));
            assert!(take_expiries(&mut Reader::new(&bytes)).is_err(), "{first_ms} {numbers:?}");
        }
    }
}
