//! Estimates which keys are big, and what a keyspace contains, from a bounded number of reads.
//!
//! 1. Places are spread evenly over the bytes of all tables, from a random start, and the block at
//!    each place is read. So each byte is as likely to be looked at as any other, and a block
//!    represents as many bytes as there are between two places. If there are fewer blocks than
//!    places, all blocks are read.
//! 2. Memtables are walked, which reads nothing.
//! 3. For separated values, the tree has pointers with the lengths of the values, so no value is
//!    read. The sum of these lengths is scaled to the size of the value files.
//! 4. A large inline value makes a large block. Each index partition has the lengths of some
//!    hundred blocks. The partitions that were loaded for step 1, and some more, show which blocks
//!    are the largest, and these are read too.
//! 5. A separated value that is larger than a slot of its file has a segment of its own, which the
//!    manifest names. Its key is read from there and looked up in the tree, so that replaced values
//!    are not shown.
//!
//! The result includes replaced and deleted entries, because they use space until a compaction.

mod frame;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_random::Random;

use self::frame::{Frame, Look};
use crate::catalog::keyspace::View;
use crate::error::Result;
use crate::format::filter;
use crate::format::record::Pointer;
use crate::keys::heaviest::heaviest;
use crate::keys::{MAX_SEQ, is_delete, is_pointer, is_range_delete};
use crate::memtable::{Memtable, MemtableIter};
use crate::store::keyspace::Keyspace;
use crate::table::reader::ProbeStats;

/// The number of places among the tables.
const PLACES: u64 = 48;
/// The most reads of tables and value files together.
const MOST_READS: u64 = 400;
/// A table that nobody has opened needs this many reads: footer, properties, root.
const READS_TO_OPEN: u64 = 3;
/// The number of partitions that are loaded only for the lengths of their blocks.
const MORE_PARTITIONS: u64 = 48;
/// The most blocks that are read because they are large.
const LARGE_BLOCKS: usize = 32;
/// The most segments of single values that are read.
const LARGE_SEGMENTS: usize = 32;
/// The number of places in a memtable.
const MEMTABLE_PLACES: u64 = 256;
/// The most large entries of a memtable that are noted in addition.
const LARGE_RECORDS: usize = 64;

/// What [`Keyspace::survey`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeySurvey {
    /// An upper bound on the number of reads of tables and value files.
    pub reads: u64,
    /// Entries that were looked at.
    pub looked_at: u64,
    /// Entries of tables and memtables: replaced and deleted ones too.
    pub entries: u64,
    /// Bytes of tables, memtables and separated values.
    pub bytes: u64,
    /// Keys drawn at random, in key order. Each stored byte is equally likely to be drawn. A large
    /// entry can be drawn several times.
    pub sample: Vec<SurveyedKey>,
    /// The largest entries that were found, the largest first. The survey may miss others.
    pub largest: Vec<SurveyedKey>,
    /// Prefixes, the largest first. No entry counts for two of them. A prefix is split further only
    /// if one of its longer prefixes has much more of the space than the others.
    pub prefixes: Vec<PrefixBytes>,
}

/// An entry that a survey looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyedKey {
    /// Its key.
    pub key: Vec<u8>,
    /// Bytes of its key and its value, before compression.
    pub bytes: u64,
    /// Whether the value is in a value file.
    pub is_separated: bool,
    /// Whether it deletes the key.
    pub is_delete: bool,
}

/// An estimate of the space under a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixBytes {
    /// The prefix.
    pub prefix: Vec<u8>,
    /// Bytes as they are stored.
    pub bytes: u64,
    /// Whether only one key was found under it.
    pub is_key: bool,
}

impl Keyspace {
    /// Estimates which keys and prefixes are big, without a scan: it needs at most 400 reads,
    /// however large the keyspace is. At most `limit` of each kind are listed. Values are not read,
    /// and no block enters the cache. O(tables), and a walk over the memtables.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// (0..100).try_for_each(|number| keyspace.put(format!("user/{number}"), "small"))?;
    /// keyspace.put("log/today", vec![b'x'; 10_000])?;
    /// let survey = keyspace.survey(10)?;
    /// let largest = &survey.largest[0];
    /// assert_eq!((&largest.key[..], largest.bytes), (&b"log/today"[..], 10_009));
    /// assert_eq!(survey.prefixes[0].prefix, b"log/today");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a block that is read is damaged, or a storage error.
    pub fn survey(&self, limit: usize) -> Result<KeySurvey> {
        self.survey_from(limit, Random::from_entropy().draw())
    }

    /// Does the same, with places drawn from a seed.
    pub(crate) fn survey_from(&self, limit: usize, seed: u64) -> Result<KeySurvey> {
        self.inner.check_readable()?;
        let view = self.inner.view.load_full();
        let mut random = Random::new(seed);
        let mut survey = Survey::default();
        view.memtables().for_each(|memtable| survey.see_memtable(memtable));
        let mut frame = Frame::of(&view.version, MOST_READS);
        frame.look(&mut random, &mut |look| survey.see(look))?;
        self.see_large_values(&view, &mut frame, &mut survey)?;
        let in_files: u64 = self.value_usage().iter().map(super::queries::records_bytes).sum();
        survey.scale_values(in_files);
        let tables = view.version.shape.tables();
        let of_tables: u64 = tables.map(|(_, table)| table.entries).sum();
        let all = |pick: fn(&Memtable) -> u64| view.memtables().map(|one| pick(one)).sum::<u64>();
        Ok(KeySurvey {
            reads: frame.reads(),
            entries: of_tables + all(Memtable::entries),
            ..survey.told(limit, &mut random)
        })
    }

    /// Runs step 5.
    fn see_large_values(&self, view: &View, frame: &mut Frame, into: &mut Survey) -> Result<()> {
        let files = self.inner.values.load_full();
        let segments = files.all().flat_map(|file| {
            let of_file = move |segment| (Arc::clone(file), segment);
            file.single_values().into_iter().map(of_file)
        });
        let mut segments: Vec<_> = segments.collect();
        segments.sort_by_key(|(_, segment)| (Reverse(segment.bytes), segment.stream_offset));
        for (file, segment) in segments.into_iter().take(LARGE_SEGMENTS) {
            if !frame.may_read(1) {
                return Ok(());
            }
            let Some(key) = file.key_of_first(&segment)? else { continue };
            if view.in_memtables(&key, MAX_SEQ).is_some() {
                continue;
            }
            // A table that the filter excludes costs the read of one partition; any other table
            // costs one block more.
            let covering = view.version.handles().filter(|table| table.meta().overlaps(&key, &key));
            if !frame.may_read(covering.count() as u64 * (READS_TO_OPEN + 2)) {
                return Ok(());
            }
            let hash = filter::hash(&key);
            let found = view.version.search(&key, hash, MAX_SEQ, &mut ProbeStats::default())?;
            let Some((found, block)) = found.filter(|(found, _)| is_pointer(found.trailer)) else {
                continue;
            };
            let pointer = Pointer::of_entry(block.slice(found.value_at, found.value_len));
            if let Ok(pointer) = pointer
                && pointer.store == file.number
                && u64::from(pointer.value_bytes) <= segment.bytes
            {
                let bytes = key.len() as u64 + u64::from(pointer.value_bytes);
                into.note_large(SurveyedKey { key, bytes, is_separated: true, is_delete: false });
            }
        }
        Ok(())
    }
}

/// The entries seen so far.
#[derive(Debug, Default)]
struct Survey {
    seen: Vec<Seen>,
    /// Large entries. They do not represent other entries.
    large: Vec<SurveyedKey>,
    looked_at: u64,
}

/// An entry, and the bytes that it represents.
#[derive(Debug)]
struct Seen {
    entry: SurveyedKey,
    /// Bytes of tables and memtables.
    stands_for: u64,
    /// Bytes of value files, before they are scaled.
    values: u64,
}

impl Survey {
    fn note_large(&mut self, entry: SurveyedKey) {
        self.looked_at += 1;
        self.large.push(entry);
    }

    /// Adds an entry of a table. In a block that was chosen for its place, the entry represents
    /// bytes in proportion to its own size.
    fn see(&mut self, look: Look<'_>) {
        let entry = surveyed(look.key, look.trailer, look.value);
        let separated = separated_bytes(look.trailer, look.value);
        let Some((bytes, of)) = look.stands_for else { return self.note_large(entry) };
        self.looked_at += 1;
        let own = (look.key.len() + look.value.len()) as u128;
        let stands_for = u128::from(bytes) * own / u128::from(look.block_bytes.max(1));
        let values = u128::from(separated) * u128::from(bytes) / u128::from(of.max(1));
        let clip = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        self.seen.push(Seen { entry, stands_for: clip(stands_for), values: clip(values) });
    }

    /// Walks a memtable, which reads nothing. A place is a number of bytes, as in tables.
    fn see_memtable(&mut self, memtable: &Arc<Memtable>) {
        let step = (memtable.allocated_bytes() as u64 / MEMTABLE_PLACES).max(1);
        let (mut iter, mut before, mut place) = (MemtableIter::new(Arc::clone(memtable)), 0, 0);
        let mut large: BTreeMap<(u64, u64), SurveyedKey> = BTreeMap::new();
        iter.seek_to_first();
        while let Some(record) = iter.record() {
            let (key, value, trailer) = (record.key(), record.value(), record.trailer());
            let own = (key.len() + value.len()).max(1) as u64;
            before += own;
            self.looked_at += 1;
            let separated = separated_bytes(trailer, value);
            let is_entry = !is_range_delete(trailer);
            if is_entry && place < before {
                let entry = surveyed(key, trailer, value);
                let places = before.saturating_sub(place).div_ceil(step);
                place += places * step;
                let values = u128::from(separated) * u128::from(places * step) / u128::from(own);
                let values = u64::try_from(values).unwrap_or(u64::MAX);
                self.seen.push(Seen { entry, stands_for: places * step, values });
            }
            let size = (own + separated, self.looked_at);
            let is_full = large.len() == LARGE_RECORDS;
            let is_large =
                !is_full || large.first_key_value().is_some_and(|(least, _)| size > *least);
            if is_entry && is_large {
                large.insert(size, surveyed(key, trailer, value));
                if is_full {
                    large.pop_first();
                }
            }
            iter.next();
        }
        self.large.extend(large.into_values());
    }

    /// Scales the sizes of the separated values seen, which are a sample, to the total size of the
    /// files.
    fn scale_values(&mut self, in_files: u64) {
        let seen: u128 = self.seen.iter().map(|one| u128::from(one.values)).sum();
        for one in &mut self.seen {
            let values = u128::from(one.values) * u128::from(in_files);
            let values = values.checked_div(seen).unwrap_or(0);
            one.values = u64::try_from(values).unwrap_or(u64::MAX);
        }
    }

    fn told(mut self, limit: usize, random: &mut Random) -> KeySurvey {
        self.seen.sort_by(|a, b| a.entry.key.cmp(&b.entry.key));
        let weight = |one: &Seen| one.stands_for.saturating_add(one.values);
        let weighted = self.seen.iter().map(|one| (&one.entry.key[..], weight(one)));
        let weighted: Vec<(&[u8], u64)> = weighted.collect();
        let prefixes = heaviest(&weighted, limit).into_iter().map(|heavy| PrefixBytes {
            prefix: heavy.prefix,
            bytes: heavy.weight,
            is_key: heavy.is_key,
        });
        let prefixes = prefixes.collect();
        let bytes = weighted.iter().fold(0, |sum: u64, (_, more)| sum.saturating_add(*more));
        let sample = drawn(&weighted, limit as u64, random);
        let sample = sample.into_iter().map(|at| self.seen[at].entry.clone()).collect();
        let mut largest: Vec<SurveyedKey> = self.seen.into_iter().map(|one| one.entry).collect();
        largest.append(&mut self.large);
        largest.sort_by(|a, b| (Reverse(a.bytes), &a.key).cmp(&(Reverse(b.bytes), &b.key)));
        let mut listed = BTreeSet::new();
        largest.retain(|one| listed.len() < limit && listed.insert(one.key.clone()));
        KeySurvey {
            looked_at: self.looked_at,
            bytes,
            sample,
            largest,
            prefixes,
            ..KeySurvey::default()
        }
    }
}

/// The bytes of an entry's value in a value file.
fn separated_bytes(trailer: u64, value: &[u8]) -> u64 {
    let pointer = is_pointer(trailer).then(|| Pointer::of_entry(value).ok()).flatten();
    pointer.map_or(0, |pointer| u64::from(pointer.value_bytes))
}

fn surveyed(key: &[u8], trailer: u64, value: &[u8]) -> SurveyedKey {
    let is_separated = is_pointer(trailer);
    let inline = if is_separated { 0 } else { value.len() as u64 };
    SurveyedKey {
        key: key.to_vec(),
        bytes: key.len() as u64 + inline + separated_bytes(trailer, value),
        is_separated,
        is_delete: is_delete(trailer),
    }
}

/// The indexes of the weighted entries at places spread evenly over the sum of all weights.
fn drawn(weighted: &[(&[u8], u64)], count: u64, random: &mut Random) -> Vec<usize> {
    let sum: u128 = weighted.iter().map(|(_, weight)| u128::from(*weight)).sum();
    if sum == 0 || count == 0 {
        return Vec::new();
    }
    let step = sum.div_ceil(u128::from(count));
    let (mut place, mut before) = (u128::from(random.below(step.min(u64::MAX.into()) as u64)), 0);
    let mut found = Vec::new();
    for (at, (_, weight)) in weighted.iter().enumerate() {
        before += u128::from(*weight);
        while place < before {
            found.push(at);
            place += step;
        }
    }
    found
}
