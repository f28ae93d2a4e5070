//! Which entries of a table expire, as metadata of the table. A policy sees no clock. It sees a
//! tree in which expired entries count as tombstones ([`Shape::at`]), because a compaction turns
//! them into tombstones.
//!
//! A table names at most [`MOST_STEPS`] instants, and how many of its entries have expired by each.
//! So a few entries that live long do not hide that the others have expired.

use std::borrow::Cow;
use std::sync::Arc;

use crate::shape::overlapping::OverlappingTables;
use crate::shape::{Level, Run, SeqNo, Shape, Table};

/// The most steps of a table.
pub const MOST_STEPS: usize = 16;

/// The entries of a table that expire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    /// How many there are.
    pub entries: u64,
    /// When the first one expires, in milliseconds since 1970; 0 if there is none.
    pub first_ms: u64,
    /// When the last one expires, in milliseconds since 1970; 0 if there is none.
    pub last_ms: u64,
    /// Instants in ascending order, the last one of them `last_ms`.
    steps: Box<[ExpiryStep]>,
}

/// Entries that have all expired by an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryStep {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// How many entries there are, without those of earlier steps.
    pub entries: u64,
}

impl Expiries {
    /// Expiries of these steps; `None` if there are too many steps, if they are out of order or
    /// begin before the first entry expires, or if a step has no entries.
    pub fn of(first_ms: u64, steps: Vec<ExpiryStep>) -> Option<Expiries> {
        let is_ascending = steps.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms);
        let are_full = steps.iter().all(|step| step.entries > 0);
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return (first_ms == 0).then(Expiries::default);
        };
        let entries = steps.iter().try_fold(0u64, |sum, step| sum.checked_add(step.entries))?;
        let is_sound = first_ms <= first.at_ms && is_ascending && are_full;
        let last_ms = last.at_ms;
        let steps = steps.into_boxed_slice();
        (is_sound && steps.len() <= MOST_STEPS).then_some(Expiries {
            entries,
            first_ms,
            last_ms,
            steps,
        })
    }

    /// Expiries spread evenly from the first to the last.
    pub fn even(entries: u64, first_ms: u64, last_ms: u64) -> Expiries {
        let step = ExpiryStep { at_ms: last_ms, entries };
        Expiries::of(first_ms, vec![step]).unwrap_or_default()
    }

    /// Instants in ascending order.
    pub fn steps(&self) -> &[ExpiryStep] {
        &self.steps
    }

    /// How many entries have certainly expired at `now_ms`.
    pub fn surely_expired(&self, now_ms: u64) -> u64 {
        self.steps.iter().take_while(|step| step.at_ms <= now_ms).map(|step| step.entries).sum()
    }

    /// About how many entries have expired at `now_ms`, assuming that the entries of a step are
    /// spread evenly since the previous step: none before the first expiry, all from the last on.
    pub fn expired(&self, now_ms: u64) -> u64 {
        if now_ms < self.first_ms {
            return 0;
        }
        let mut before_ms = self.first_ms;
        let mut expired = 0;
        for step in &self.steps {
            if step.at_ms <= now_ms {
                expired += step.entries;
                before_ms = step.at_ms;
                continue;
            }
            let gone = u128::from(now_ms - before_ms);
            let share = u128::from(step.entries) * gone / u128::from(step.at_ms - before_ms);
            return expired + u64::try_from(share).unwrap_or(step.entries);
        }
        expired
    }

    /// The earliest instant at which this many entries have certainly expired.
    fn when_expired(&self, entries: u64) -> Option<u64> {
        let mut expired = 0;
        let is_enough = |step: &&ExpiryStep| {
            expired += step.entries;
            expired >= entries
        };
        self.steps.iter().find(is_enough).map(|step| step.at_ms)
    }
}

/// Counts entries that expire, one after another, in little memory.
///
/// 1. An entry becomes a step of its own, after the others.
/// 2. When there are `MOST_COUNTED` steps, they are sorted. A step is joined to the next one if the
///    added lifetime of its entries, in milliseconds times entries, is at most `patience`.
///    `patience` grows until few steps are left.
///
/// An entry is never counted at a step before it expires. O(log `MOST_COUNTED`) per entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryCounts {
    entries: u64,
    first_ms: u64,
    steps: Vec<ExpiryStep>,
    /// Milliseconds times entries.
    patience: u64,
}

/// The number of steps at which some are joined.
const MOST_COUNTED: usize = 256;

/// The most steps that are left after joining: more than a table has in the end, so that early
/// joins matter less.
const MOST_JOINED: usize = 64;

impl ExpiryCounts {
    /// Adds an entry.
    pub fn add(&mut self, at_ms: u64) {
        self.add_all(ExpiryStep { at_ms, entries: 1 });
    }

    /// Adds entries that expire by an instant.
    pub fn add_all(&mut self, step: ExpiryStep) {
        let ExpiryStep { at_ms, entries } = step;
        self.first_ms = if self.entries == 0 { at_ms } else { self.first_ms.min(at_ms) };
        self.entries += entries;
        match self.steps.last_mut() {
            Some(last) if last.at_ms == at_ms => last.entries += entries,
            _ => self.steps.push(step),
        }
        if self.steps.len() >= MOST_COUNTED {
            self.join(MOST_JOINED);
        }
    }

    /// The expiries of all entries.
    pub fn finish(mut self) -> Expiries {
        self.join(MOST_STEPS);
        Expiries::of(self.first_ms, self.steps).unwrap_or_default()
    }

    /// Joins steps until this many are left. The last one stays.
    fn join(&mut self, most: usize) {
        self.steps.sort_unstable_by_key(|step| step.at_ms);
        loop {
            let patience = self.patience;
            self.steps.dedup_by(|next, step| {
                let is_close = step.entries.saturating_mul(next.at_ms - step.at_ms) <= patience;
                if is_close {
                    *step = ExpiryStep { at_ms: next.at_ms, entries: step.entries + next.entries };
                }
                is_close
            });
            if self.steps.len() <= most {
                return;
            }
            self.patience = self.patience.saturating_add(self.patience / 2 + 1);
        }
    }
}

impl Table {
    /// Whether every entry has expired at `now_ms`.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expiries.entries == self.entries && self.expiries.last_ms <= now_ms
    }

    /// The next instant after `now_ms` at which a quarter or a half of the entries is dead, or at
    /// which the last expiring entry has expired. At that time a policy may find something to do.
    fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        let dead = |share: u64| {
            let missing = self.entries.div_ceil(share).saturating_sub(self.tombstones);
            self.expiries.when_expired(missing)
        };
        let last_ms = Some(self.expiries.last_ms);
        [dead(4), dead(2), last_ms].into_iter().flatten().filter(|at_ms| *at_ms > now_ms).min()
    }
}

impl Shape {
    /// The tree as a policy sees it: entries that have certainly expired count as tombstones.
    /// `until_ms` returns the time up to which entries with a sequence number and later ones count
    /// as expired. That time is earlier for entries that a snapshot may see, because a compaction
    /// would keep them. If expired entries were only estimated, a compaction could find nothing to
    /// drop. O(tables), and a copy of the tree if any entry has expired.
    pub fn at(&self, until_ms: impl Fn(SeqNo) -> u64) -> Cow<'_, Shape> {
        let expired = |table: &Table| {
            let puts = table.entries - table.tombstones.min(table.entries);
            table.expiries.surely_expired(until_ms(table.min_seq)).min(puts)
        };
        if !self.tables().any(|(_, table)| expired(table) > 0) {
            return Cow::Borrowed(self);
        }
        let seen = |table: &Arc<Table>| match expired(table) {
            0 => Arc::clone(table),
            expired => {
                Arc::new(Table { tombstones: table.tombstones + expired, ..(**table).clone() })
            }
        };
        let run = |run: &Run| Run { tables: run.tables.iter().map(seen).collect(), ..*run };
        let level = |level: &Level| match level {
            Level::Runs(runs) => Level::Runs(runs.iter().map(run).collect()),
            Level::Overlapping(tables) => {
                Level::Overlapping(OverlappingTables::new(tables.iter().map(seen).collect()))
            }
        };
        Cow::Owned(Shape { levels: self.levels.iter().map(level).collect(), ..self.clone() })
    }

    /// The next instant after `now_ms` at which a policy may find something to do, because entries
    /// of some table expire. At most three instants of each table count. O(tables).
    pub fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        self.tables().filter_map(|(_, table)| table.next_expiry_ms(now_ms)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(instants: impl Iterator<Item = u64>) -> Expiries {
        let mut counts = ExpiryCounts::default();
        instants.for_each(|at_ms| counts.add(at_ms));
        counts.finish()
    }

    #[test]
    fn past_entries_are_tombstones_unless_a_snapshot_sees_the_table() {
        let expiries = counted([10, 10, 20, 20].into_iter());
        let table = Table { entries: 5, min_seq: 7, expiries, ..Table::default() };
        let run = Run { id: 1, last_flush: 0, tables: vec![Arc::new(table)] };
        let shape = Shape { levels: vec![Level::Runs(vec![run])], ..Shape::default() };
        let tombstones = |now_ms, newest_snapshot| {
            let seen = shape.at(|seq| if seq > newest_snapshot { now_ms } else { 9 });
            seen.tables().map(|(_, table)| table.tombstones).sum::<u64>()
        };
        assert_eq!(shape.tables().map(|(_, table)| table.expiries.expired(9)).sum::<u64>(), 0);
        assert_eq!([tombstones(9, 0), tombstones(15, 0), tombstones(20, 6)], [0, 2, 4]);
        assert_eq!(tombstones(20, 7), 0, "a compaction would keep them");
        let next = [0, 9, 10, 15, 20].map(|now_ms| shape.next_expiry_ms(now_ms));
        assert_eq!(next, [Some(10), Some(10), Some(20), Some(20), None]);
    }

    #[test]
    fn the_number_of_past_entries_grows_evenly() {
        let expiries = Expiries::even(11, 1000, 1100);
        assert_eq!(Expiries::default().expired(u64::MAX), 0);
        let expired = [999, 1000, 1050, 1099, 1100, 5000].map(|now| expiries.expired(now));
        assert_eq!(expired, [0, 0, 5, 10, 11, 11]);
    }

    /// In any order of adding, the steps are wrong by at most an eighth of all entries, and they
    /// never count an entry that has not expired.
    #[test]
    fn few_steps_tell_how_many_are_past() {
        const COUNT: u64 = 100_000;
        let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let shapes: [(&str, &dyn Fn(u64) -> u64); 5] = [
            ("ascending", &|i| 1_000 + i),
            ("descending", &|i| 1_000_000 - i),
            ("in no order", &|i| 1_000 + spread(i) % 3_600_000),
            ("a few live long", &|i| if i % 300 == 0 { 1 << 42 } else { spread(i) % 3_600_000 }),
            ("two in three at once", &|i| if i % 3 == 0 { spread(i) % 1_000_000 } else { 500 }),
        ];
        for (name, at_ms) in shapes {
            let expiries = counted((0..COUNT).map(at_ms));
            assert!(expiries.steps().len() <= MOST_STEPS);
            let mut all: Vec<u64> = (0..COUNT).map(at_ms).collect();
            all.sort_unstable();
            let ends = (expiries.entries, expiries.first_ms, expiries.last_ms);
            assert_eq!(ends, (COUNT, all[0], all[COUNT as usize - 1]), "{name}");
            for i in (0..COUNT as usize).step_by(777) {
                let truth = all.partition_point(|at_ms| *at_ms <= all[i]) as u64;
                let (surely, about) = (expiries.surely_expired(all[i]), expiries.expired(all[i]));
                assert!(surely <= truth && truth - surely <= COUNT / 4, "{name} {i}: {surely}");
                assert!(about.abs_diff(truth) <= COUNT / 8, "{name} {i}: {about} for {truth}");
            }
        }
        let all_time = counted((0..COUNT).map(|i| 1 << (spread(i) % 64)));
        assert_eq!((all_time.entries, all_time.last_ms), (COUNT, 1 << 63));
        let few = counted((0..300_000).map(|i| if i % 300 == 0 { 1 << 42 } else { 5_000 + i }));
        assert_eq!(few.surely_expired(310_000), 299_000, "those that live long hide nothing");
    }

    #[test]
    fn steps_that_cannot_be_are_refused() {
        let step = |at_ms, entries| ExpiryStep { at_ms, entries };
        assert!(Expiries::of(5, vec![step(5, 1), step(6, 2)]).is_some());
        assert!(Expiries::of(0, Vec::new()).is_some());
        let bad = [
            Expiries::of(1, Vec::new()),
            Expiries::of(6, vec![step(5, 1)]),
            Expiries::of(5, vec![step(6, 1), step(6, 1)]),
            Expiries::of(5, vec![step(6, 0)]),
            Expiries::of(5, vec![step(6, u64::MAX), step(7, 1)]),
            Expiries::of(0, (1..18).map(|at_ms| step(at_ms, 1)).collect()),
        ];
        assert!(bad.iter().all(Option::is_none), "{bad:?}");
    }
}
