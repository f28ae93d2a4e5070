//! The range deletes that a walk sees: those of its memtables and of its tables, as of its sequence
//! number. Walks move from key to key, so the stretch around the last key usually has the answer.

use std::sync::Arc;

use crate::catalog::keyspace::View;
use crate::keys::SeqNo;
use crate::ranges::{self, RangeDeletes, deletes};

/// Keys with one sequence number over them: from `start` to `end`, or without a bound on that side.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// The first key.
    pub(crate) start: Option<Vec<u8>>,
    /// The smallest key after the stretch.
    pub(crate) end: Option<Vec<u8>>,
    /// The sequence number of the range delete that hides older versions; 0 if there is none.
    pub(crate) seq: SeqNo,
}

impl Stretch {
    #[inline]
    fn holds(&self, key: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| **start <= *key)
            && self.end.as_ref().is_none_or(|end| *key < **end)
    }
}

/// The range deletes of a view, as of a sequence number.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// Newest first: the range deletes of each set are newer than those of the next one.
    sets: Vec<Arc<RangeDeletes>>,
    seq: SeqNo,
    /// The stretch around the key that was searched last, in all sets.
    stretch: Stretch,
}

impl Covers {
    pub(crate) fn of(view: &View, seq: SeqNo) -> Covers {
        let memtables = view.memtables();
        let sets = memtables.filter_map(|memtable| memtable.range_deletes());
        let sets = sets.chain(view.version.range_deletes.clone());
        let mut covers = Covers { sets: sets.collect(), seq, stretch: Stretch::default() };
        covers.search(&[]);
        covers
    }

    /// Whether a range delete hides this version of a key.
    #[inline]
    pub(crate) fn hide(&mut self, key: &[u8], seq: SeqNo) -> bool {
        !self.sets.is_empty() && deletes(self.around(key).seq, seq)
    }

    /// The stretch around a key.
    pub(crate) fn around(&mut self, key: &[u8]) -> &Stretch {
        if !self.stretch.holds(key) {
            self.search(key);
        }
        &self.stretch
    }

    fn search(&mut self, key: &[u8]) {
        let mut found = ranges::Stretch::default();
        for set in &self.sets {
            set.narrow(key, self.seq, &mut found);
            if found.seq > 0 {
                break;
            }
        }
        let keep = |into: &mut Option<Vec<u8>>, bound: Option<&[u8]>| match bound {
            Some(bound) => {
                let into = into.get_or_insert_default();
                into.clear();
                into.extend_from_slice(bound);
            }
            None => *into = None,
        };
        keep(&mut self.stretch.start, found.start);
        keep(&mut self.stretch.end, found.end);
        self.stretch.seq = found.seq;
    }
}
