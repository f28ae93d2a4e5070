//! Estimates how many entries of a keyspace readers see, by counting the entries of some stretches
//! of keys. A cursor's walk could not be used, because it jumps over hidden entries without
//! counting them.

use std::ops::AddAssign;

use crate::catalog::keyspace::View;
use crate::error::Result;
use crate::format::block::BEFORE_ALL_VERSIONS;
use crate::keys::expiry::expiry_of;
use crate::keys::{MAX_SEQ, is_delete, seq_of};
use crate::read::covers::Covers;
use crate::read::merge::MergeIter;
use crate::read::source::sources;
use crate::table::iterator::Access;

/// Counts of the entries of a stretch, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// All entries.
    pub(crate) entries: u64,
    /// Deletes and range deletes.
    pub(crate) tombstones: u64,
    /// Entries that have expired and are not hidden by anything newer.
    pub(crate) expired: u64,
    /// Entries that a newer version, a delete or a range delete hides.
    pub(crate) hidden: u64,
}

impl Stretch {
    /// Entries that readers see.
    pub(crate) fn live(&self) -> u64 {
        self.entries - self.tombstones - self.expired - self.hidden
    }
}

impl AddAssign for Stretch {
    fn add_assign(&mut self, other: Stretch) {
        self.entries += other.entries;
        self.tombstones += other.tombstones;
        self.expired += other.expired;
        self.hidden += other.hidden;
    }
}

/// Counts entries of a view, as a current reader sees them.
pub(crate) struct Sampler {
    merge: MergeIter,
    covers: Covers,
    now_ms: u64,
}

impl Sampler {
    pub(crate) fn new(view: &View, now_ms: u64) -> Sampler {
        let merge = MergeIter::new(sources(view, Access::Cached { fill: true }));
        Sampler { merge, covers: Covers::of(view, MAX_SEQ), now_ms }
    }

    /// Counts the entries from one key up to another, exclusive, but at most `most`. Then counts at
    /// most `most` other versions of the last key.
    pub(crate) fn count(&mut self, from: &[u8], to: Option<&[u8]>, most: u64) -> Result<Stretch> {
        let mut found = Stretch::default();
        let mut last: Option<Vec<u8>> = None;
        self.merge.seek(from, BEFORE_ALL_VERSIONS)?;
        while let Some((key, trailer)) = self.merge.current() {
            let is_older = last.as_deref() == Some(key);
            let is_enough = found.entries >= most && (!is_older || found.entries >= 2 * most);
            if is_enough || to.is_some_and(|to| key >= to) {
                break;
            }
            found.entries += 1;
            let value = self.merge.value();
            if is_delete(trailer) {
                found.tombstones += 1;
            } else if is_older || self.covers.hide(key, seq_of(trailer)) {
                found.hidden += 1;
            } else if expiry_of(trailer, value).is_some_and(|at_ms| at_ms <= self.now_ms) {
                found.expired += 1;
            }
            if !is_older {
                last = Some(key.to_vec());
            }
            self.merge.step()?;
        }
        Ok(found)
    }
}
