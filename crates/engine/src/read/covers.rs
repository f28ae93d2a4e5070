//! The range deletes that a walk sees: those of its memtables and of its tables, as of its number.
//! Walks go from key to key, so the stretch around the last key answers most questions.

use crate::base::key::SeqNo;
use crate::base::range_deletes::{Skyline, Stretch, deletes};
use crate::catalog::keyspace::View;

/// The range deletes of a view, as of a number.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    skylines: Vec<Skyline>,
    /// Around the last key asked about, in all of them.
    stretch: Stretch,
}

impl Covers {
    pub(crate) fn of(view: &View, seq: SeqNo) -> Covers {
        let memtables = view.memtables();
        let sets = memtables.filter_map(|memtable| memtable.range_deletes());
        let sets = sets.chain(view.version.range_deletes.clone());
        let skylines: Vec<Skyline> = sets.filter_map(|set| set.at(seq).cloned()).collect();
        let mut covers = Covers { skylines, stretch: Stretch::default() };
        covers.search(&[]);
        covers
    }

    /// Whether a range delete hides this version of a key.
    #[inline]
    pub(crate) fn hide(&mut self, key: &[u8], seq: SeqNo) -> bool {
        !self.skylines.is_empty() && deletes(self.around(key).seq, seq)
    }

    /// The stretch around a key.
    pub(crate) fn around(&mut self, key: &[u8]) -> &Stretch {
        if !self.stretch.holds(key) {
            self.search(key);
        }
        &self.stretch
    }

    fn search(&mut self, key: &[u8]) {
        let around = self.skylines.iter().map(|skyline| skyline.stretch(key));
        self.stretch = around.reduce(Stretch::narrowed).unwrap_or_default();
    }
}
