//! Estimates how many entries of a range readers see.
//!
//! 1. The metadata say how many entries there are, and about how many of them are deletes or have
//!    expired. If there are no deletes and no expired entries, the number of entries is the answer.
//! 2. If there are few entries, they are counted one by one.
//! 3. Otherwise up to [`STRETCHES`] stretches, evenly spaced among all entries, are sampled. They
//!    show two things: which share of all entries readers see, and how many entries are hidden for
//!    each delete. Either gives an estimate. The first errs if the visible entries are close
//!    together. The second errs if deletes hide different numbers of entries. The estimate that
//!    fits the individual stretches better is used.
//!
//! There is at most one seek per stretch. The estimate reads at most two index partitions of each
//! table for the range, and at most three in each run for a stretch.

use std::sync::Arc;

use crate::catalog::keyspace::View;
use crate::error::Result;
use crate::keys::expiry::expiry_of;
use crate::keys::range::KeyRange;
use crate::memtable::{Memtable, MemtableIter};
use crate::read::sample::{Sampler, Stretch};
use crate::store::keyspace::{Keyspace, range_of};
use crate::store::queries::{WHOLE, places_of, tally_of};

/// The largest number of stretches that are sampled.
const STRETCHES: u64 = 64;

/// The number of entries of a stretch.
const STRETCH_ENTRIES: u64 = 128;

/// Up to this many entries are counted one by one.
const COUNTED: u64 = STRETCHES * STRETCH_ENTRIES;

impl Keyspace {
    /// Estimates how many entries of a range readers see: those that were not deleted or replaced
    /// and have not expired. Up to a few thousand entries are counted exactly. If there are more,
    /// but nothing was deleted and nothing has expired, the error is at most the content of the
    /// blocks at the ends of the range, and replaced versions count too. Otherwise a few thousand
    /// entries in up to 64 places are sampled, and the estimate is usually within a factor of two.
    /// O(tables), and 64 seeks.
    ///
    /// # Errors
    /// If the range ends before it starts.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// (0..100u8).try_for_each(|key| keyspace.put([key], "value"))?;
    /// (0..90u8).try_for_each(|key| keyspace.delete([key]))?;
    /// assert_eq!(keyspace.approximate_count(..)?, 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn approximate_count(&self, range: impl KeyRange) -> Result<u64> {
        self.inner.check_readable()?;
        let Some((from, to)) = range_of(&range)? else { return Ok(0) };
        let to = (!to.is_empty()).then_some(to);
        let (view, to) = (self.inner.view.load_full(), to.as_deref());
        let now_ms = self.store.env.watch.now_ms();
        let parts = parts_of(&view, &from, to, now_ms)?;
        let known = Known::of(&view, &parts);
        if !known.may_hide {
            return Ok(known.entries);
        }
        let mut sampler = Sampler::new(&view, now_ms);
        if known.entries <= COUNTED {
            let found = sampler.count(&from, to, 2 * COUNTED)?;
            if found.entries < 2 * COUNTED {
                return Ok(found.live());
            }
        }
        let mut starts = starts_of(&parts, known.entries)?;
        starts.retain(|key| *from < **key && to.is_none_or(|to| **key < *to));
        starts.push(from);
        starts.sort_unstable();
        starts.dedup();
        let mut stretches = Vec::with_capacity(starts.len());
        // The number of visible entries, if the keys between two stretches are like the first of
        // the two.
        let mut by_share = 0;
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).map(Vec::as_slice).or(to);
            let found = sampler.count(start, end, STRETCH_ENTRIES)?;
            stretches.push(found);
            let counts = parts.iter().map(|part| (part.between)(start, end));
            let all = match found.entries < STRETCH_ENTRIES {
                true => found.entries,
                false => counts.sum::<Result<u64>>()?,
            };
            by_share += ratio(all, found.live(), found.entries);
        }
        Ok(known.live(&stretches, by_share))
    }
}

/// The entries of a range in a table or memtable, according to its metadata.
struct Part<'a> {
    /// Where the range begins and ends among all entries of the table or memtable, in parts of
    /// [`WHOLE`].
    places: (u128, u128),
    entries: u64,
    tombstones: u64,
    /// Entries that have expired; `None` if the number is unknown.
    expired: Option<u64>,
    may_hide: bool,
    /// Whether the whole table or memtable is inside the range. Then the numbers are exact.
    is_exact: bool,
    /// Finds a key at a place.
    key_at: Box<dyn Fn(u128) -> Result<Option<Vec<u8>>> + 'a>,
    /// Estimates the number of entries from one key (included) to another (excluded).
    between: Between<'a>,
}

type Between<'a> = Box<dyn Fn(&[u8], Option<&[u8]>) -> Result<u64> + 'a>;

fn parts_of<'a>(
    view: &'a View,
    from: &[u8],
    to: Option<&[u8]>,
    now_ms: u64,
) -> Result<Vec<Part<'a>>> {
    let mut parts = Vec::new();
    for table in view.version.handles() {
        let (places, meta) = (places_of(table, from, to)?, table.meta());
        let share = places.1.saturating_sub(places.0);
        if share > 0 {
            let of = |count: u64| (u128::from(count) * share / WHOLE) as u64;
            let expired = meta.expiries.expired(now_ms);
            parts.push(Part {
                places,
                entries: of(meta.entries),
                tombstones: of(meta.tombstones),
                expired: Some(of(expired)),
                may_hide: meta.tombstones + expired > 0,
                is_exact: places == (0, WHOLE),
                key_at: Box::new(|place| table.reader()?.key_at(place)),
                between: Box::new(move |from, to| {
                    let (start, end) = places_of(table, from, to)?;
                    Ok((u128::from(meta.entries) * end.saturating_sub(start) / WHOLE) as u64)
                }),
            });
        }
    }
    parts.extend(view.memtables().filter_map(|memtable| of_memtable(memtable, from, to, now_ms)));
    Ok(parts)
}

/// Returns `None` if the memtable has no entry of the range.
fn of_memtable<'a>(
    memtable: &'a Arc<Memtable>,
    from: &[u8],
    to: Option<&[u8]>,
    now_ms: u64,
) -> Option<Part<'a>> {
    let about = tally_of(memtable, from, to).entries;
    if about == 0 {
        return None;
    }
    let all = memtable.tally(&[], None).entries.max(1);
    let place = |key: &[u8]| {
        let before = memtable.tally(&[], Some(key)).entries.min(all);
        u128::from(before) * WHOLE / u128::from(all)
    };
    let mut last = MemtableIter::new(Arc::clone(memtable));
    last.seek_to_last();
    let is_last = |to: &&[u8]| last.record().is_some_and(|record| record.key() >= *to);
    let start = place(from);
    // The tally is an estimate, which need not ascend with the key.
    let places = (start, to.filter(is_last).map_or(WHOLE, place).max(start));
    let of = |count: u64| {
        let share = places.1 - places.0;
        (u128::from(count) * share / WHOLE) as u64
    };
    // The memtable knows its exact number of entries, except for batches that write to several
    // keyspaces.
    let all = memtable.entries();
    let is_exact = places == (0, WHOLE) && all.abs_diff(about) <= all / 4;
    let entries = if is_exact { all } else { about };
    Some(Part {
        places,
        entries,
        tombstones: of(memtable.deletes()).min(entries),
        expired: memtable.expired(now_ms).map(of),
        may_hide: memtable.deletes() > 0 || has_past(memtable, now_ms),
        is_exact,
        key_at: Box::new(|place| {
            Ok(memtable.tree().record_at(place, WHOLE).map(|record| record.key().to_vec()))
        }),
        between: Box::new(|from, to| Ok(memtable.tally(from, to).entries)),
    })
}

/// Whether some entries of a memtable have expired, judged by a sample.
fn has_past(memtable: &Memtable, now_ms: u64) -> bool {
    let places = (0..u128::from(STRETCHES)).map(|at| at * WHOLE / u128::from(STRETCHES));
    let mut records = places.filter_map(|place| memtable.tree().record_at(place, WHOLE));
    records.any(|one| expiry_of(one.trailer(), one.value()).is_some_and(|at_ms| at_ms <= now_ms))
}

/// Keys that are evenly spaced among all entries. O(parts), and an index partition for each key.
fn starts_of(parts: &[Part<'_>], entries: u64) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let (mut before, mut at) = (0, 0);
    for part in parts {
        let own = u128::from(part.entries);
        // The middle of a stretch, counted in half entries.
        let middle = |at: u64| (2 * u128::from(at) + 1) * u128::from(entries);
        while at < STRETCHES && middle(at) < (before + own) * 2 * u128::from(STRETCHES) {
            let inside = middle(at) - before * 2 * u128::from(STRETCHES);
            let share = part.places.1 - part.places.0;
            let place = part.places.0 + share * inside / (own * 2 * u128::from(STRETCHES));
            keys.extend((part.key_at)(place)?);
            at += 1;
        }
        before += own;
    }
    Ok(keys)
}

/// The facts about a range that the metadata contain.
#[derive(Default)]
struct Known {
    entries: u64,
    tombstones: u64,
    expired: u64,
    /// Whether `expired` counts all expired entries.
    are_expired_known: bool,
    /// Whether all tables and memtables are inside the range, and there are no range deletes.
    /// Otherwise the deletes and the expired entries may be outside the range, and a delete may
    /// hide any number of entries.
    is_whole: bool,
    /// Whether readers may see fewer than all entries.
    may_hide: bool,
}

impl Known {
    fn of(view: &View, parts: &[Part<'_>]) -> Known {
        let in_memtables = view.memtables().any(|memtable| memtable.range_deletes().is_some());
        let may_hide = in_memtables || view.version.range_deletes.is_some();
        let is_whole = !may_hide;
        let mut known = Known { are_expired_known: true, is_whole, may_hide, ..Known::default() };
        for part in parts {
            known.entries += part.entries;
            known.tombstones += part.tombstones;
            known.expired += part.expired.unwrap_or(0);
            known.are_expired_known &= part.expired.is_some();
            known.is_whole &= part.is_exact;
            known.may_hide |= part.may_hide;
        }
        known
    }

    /// The number of visible entries, if these stretches are like the rest. `by_share` is the
    /// estimate from the shares of visible entries.
    fn live(&self, stretches: &[Stretch], by_share: u64) -> u64 {
        let mut sum = Stretch::default();
        stretches.iter().for_each(|stretch| sum += *stretch);
        if !self.is_whole || !self.are_expired_known && sum.expired > 0 {
            return by_share;
        }
        let (hidden, misfit) = match sum.tombstones {
            0 => (
                ratio(self.entries, sum.hidden, sum.entries),
                misfit(stretches, |one| (one.hidden, one.entries)),
            ),
            deletes => (
                ratio(self.tombstones, sum.hidden, deletes),
                misfit(stretches, |one| (one.hidden, one.tombstones)),
            ),
        };
        let seen = self.entries.saturating_sub(self.tombstones + self.expired);
        if misfit <= self::misfit(stretches, |one| (one.live(), one.entries)) {
            return seen.saturating_sub(hidden);
        }
        by_share.min(seen)
    }
}

/// `all * part / whole`; 0 if `whole` is 0.
fn ratio(all: u64, part: u64, whole: u64) -> u64 {
    (u128::from(all) * u128::from(part)).checked_div(whole.into()).unwrap_or(0) as u64
}

/// How much the ratio of one count to another differs between the stretches.
fn misfit(stretches: &[Stretch], of: impl Fn(&Stretch) -> (u64, u64)) -> u64 {
    let (mut counts, mut wholes) = (0, 0);
    stretches.iter().map(&of).for_each(|(count, whole)| {
        counts += count;
        wholes += whole;
    });
    let distance = |(count, whole): (u64, u64)| count.abs_diff(ratio(counts, whole, wholes));
    stretches.iter().map(&of).map(distance).sum()
}
