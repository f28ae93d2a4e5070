//! A walk past damage: after a block that cannot be read, it continues at the next readable key.
//!
//! The engine reports that a read failed, but not which keys the block contains. So the walk
//! searches for the next readable key: in ever larger steps until a read succeeds, then by a binary
//! search of the last step. It uses no entry in the gap from other tables, because such an entry
//! may be older than the lost one.

use runstone::unstable;
use runstone::{Keyspace, ReadOptions, Snapshot, prefix_successor};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt;
use crate::range::{Missing, Range, Visit};

/// The largest number of reads of one binary search.
const MOST_HALVES: usize = 256;

/// Visits the keys of a range that can be read, and reports the others. A backward walk ends at the
/// first damage. A key without a value is not a gap: it is visited, and the walk continues after
/// it.
pub fn walk(
    keyspace: &Keyspace,
    snapshot: Option<&Snapshot>,
    range: &Range,
    visit: &mut Visit<'_>,
    missing: &mut Vec<Missing>,
) -> Result<u64> {
    let mut left = range.clone();
    let mut count = 0;
    loop {
        let mut last: Option<Vec<u8>> = None;
        let (mut visited, mut has_ended) = (0, false);
        let walked = left.walk(keyspace, snapshot, &mut |found| {
            visited += 1;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(found.as_ref().map_or_else(|failed| failed.key, |e| e.key));
            visit(found).inspect_err(|_| has_ended = true)
        });
        count += visited;
        let failure = match walked {
            Ok(_) => return Ok(count),
            Err(failure) if failure.exit == Exit::Damaged && !has_ended => failure,
            Err(failure) => return Err(failure),
        };
        let what = failure.what;
        if range.reverse {
            let before = last.or(left.end.take());
            missing.push(Missing { from: left.start, before, what });
            return Ok(count);
        }
        let from = last.map(|last| behind(&last)).or(left.start.take());
        left.limit = left.limit.map(|limit| limit - visited);
        let search = Search { keyspace, snapshot, end: left.end.as_deref() };
        // A walk reads separated values ahead, so it fails before it reaches the damage.
        if visited > 0
            && let Found::Key(next) = search.read(from.as_deref().unwrap_or_default())?
        {
            left.start = Some(next);
            continue;
        }
        let next = search.next_readable(from.as_deref().unwrap_or_default())?;
        missing.push(Missing { from, before: next.clone().or(left.end.clone()), what });
        let Some(next) = next else { return Ok(count) };
        left.start = Some(next);
    }
}

/// The least key after a key.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

struct Search<'a> {
    keyspace: &'a Keyspace,
    snapshot: Option<&'a Snapshot>,
    end: Option<&'a [u8]>,
}

/// The result of a read that begins at a key.
enum Found {
    Key(Vec<u8>),
    /// There is no key.
    Nothing,
    Damage,
}

impl Search<'_> {
    /// The next readable key after a place at which reads fail; `None` if the range has none.
    fn next_readable(&self, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut bad = from.to_vec();
        for step in self.steps(from) {
            match self.read(&step)? {
                Found::Damage => bad = step,
                Found::Nothing => return self.halve(bad, step, None),
                Found::Key(key) => return self.halve(bad, step, Some(key)),
            }
        }
        Ok(None)
    }

    /// Places after a given one, the nearest first: keys that differ from it in ever earlier bytes,
    /// and the ends of tables, because a table without a readable block is skipped as a whole.
    fn steps(&self, from: &[u8]) -> Vec<Vec<u8>> {
        let near = (1..=from.len()).filter_map(|len| prefix_successor(&from[..len]));
        let mut steps: Vec<Vec<u8>> = near.collect();
        for (_, table) in unstable::shape(self.keyspace).tables() {
            steps.push(table.min_key.to_vec());
            steps.push(behind(&table.max_key));
        }
        steps.retain(|step| &step[..] > from && self.end.is_none_or(|end| &step[..] < end));
        steps.sort();
        steps.dedup();
        steps
    }

    /// The first readable key between a place at which reads fail and one at which they do not.
    fn halve(
        &self,
        mut bad: Vec<u8>,
        mut good: Vec<u8>,
        mut found: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        for _ in 0..MOST_HALVES {
            let Some(middle) = middle(&bad, &good) else { break };
            match self.read(&middle)? {
                Found::Damage => bad = middle,
                Found::Nothing => (good, found) = (middle, None),
                Found::Key(key) => (good, found) = (middle, Some(key)),
            }
        }
        Ok(found)
    }

    fn read(&self, from: &[u8]) -> Result<Found> {
        interrupt::check()?;
        let mut options =
            ReadOptions::default().with_bounds(Some(from), self.end).fill_cache(false).keys_only();
        if let Some(snapshot) = self.snapshot {
            options = options.at(snapshot);
        }
        let sought = self.keyspace.cursor(options).and_then(|mut cursor| {
            cursor.seek_to_first()?;
            Ok(cursor.valid().then(|| cursor.key().to_vec()))
        });
        match sought.map_err(Failure::from) {
            Ok(Some(key)) => Ok(Found::Key(key)),
            Ok(None) => Ok(Found::Nothing),
            Err(failure) if failure.exit == Exit::Damaged => Ok(Found::Damage),
            Err(failure) => Err(failure),
        }
    }
}

/// A key about halfway between two, computed from the eight bytes after their common prefix; `None`
/// if there is none.
fn middle(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    let shared = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = &key[shared..];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    };
    let (low_number, high_number) = (number(low), number(high));
    let half = low_number + high_number.checked_sub(low_number)? / 2;
    let mut middle = low[..shared].to_vec();
    middle.extend_from_slice(&half.to_be_bytes());
    (low < &middle[..] && &middle[..] < high).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_middle_lies_between() {
        let mut low = b"key000123".to_vec();
        let high = b"key9".to_vec();
        let mut steps = 0;
        while let Some(found) = middle(&low, &high) {
            assert!(low < found && found < high);
            low = found;
            steps += 1;
        }
        assert!(steps > 30 && steps < 200, "{steps}");
        assert_eq!(middle(b"", b"\0"), None);
        assert!(middle(b"", b"a").is_some_and(|found| found[..] < b"a"[..]));
    }
}
