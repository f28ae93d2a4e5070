//! How a walk passes hidden entries: one by one, or by a jump over the entries that a range delete
//! hides, over a dead range, or over the versions of one key.

use std::sync::Arc;

use super::Walker;
use crate::catalog::dead_ranges::DeadRange;
use crate::error::Result;
use crate::format::block::{AFTER_ALL_VERSIONS, BEFORE_ALL_VERSIONS};
use crate::keys::seek_trailer;

/// How many versions of one key a cursor steps over before it seeks beyond the others. A seek costs
/// as much as about ten steps. The number is smaller in builds with seeded bugs, so that tests need
/// few versions.
const PATIENCE: u64 = if cfg!(feature = "seeded-bugs") { 2 } else { 8 };

/// Counts the versions of a key that a walk passes in a row.
#[derive(Debug, Default)]
pub(super) struct Versions {
    pub(super) key: Vec<u8>,
    pub(super) passed: u64,
}

impl Versions {
    /// Passes a version. Returns whether to seek beyond the other versions.
    pub(super) fn pass(&mut self, key: &[u8]) -> bool {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.passed = 0;
        }
        self.passed += 1;
        self.passed.is_multiple_of(PATIENCE)
    }
}

impl Walker {
    /// Skips the entries after `saved_key` that the range delete over this key hides. Sources that
    /// may contain newer entries are not moved. Returns whether the merge has moved.
    #[inline(never)]
    pub(super) fn skip_covered_up(&mut self) -> Result<bool> {
        let stretch = self.covers.around(&self.saved_key);
        let moved = self.merge.skip_covered(stretch.end.as_deref(), stretch.seq)?;
        self.hidden_passed += u64::from(moved);
        // The skipped entries are between the keys that the walk passes.
        if moved {
            self.walk.pass_up(&self.saved_key, 0);
        }
        Ok(moved)
    }

    /// As `skip_covered_up`, on the way down, from the current key on.
    #[inline(never)]
    pub(super) fn skip_covered_down(&mut self) -> Result<()> {
        let Some((key, _)) = self.merge.current() else { return Ok(()) };
        let stretch = self.covers.around(key);
        if stretch.seq > 0 {
            self.merge.skip_covered(stretch.start.as_deref(), stretch.seq)?;
        }
        Ok(())
    }

    /// The dead range that the cursor may jump over from this key.
    pub(super) fn range_over(&self, key: &[u8]) -> Option<Arc<DeadRange>> {
        let now_ms = || *self.now_ms.get_or_init(|| self.reader.env.watch.now_ms());
        self.keyspace.dead_ranges.over(key, self.seq, now_ms)
    }

    /// Steps past a hidden entry, or jumps over the dead range or the versions of a key that the
    /// entry is part of. `expired_ms` is when the entry expired, or 0. Not inlined, so that walks
    /// without hidden entries stay fast.
    #[inline(never)]
    pub(super) fn pass_up(
        &mut self,
        is_spent: bool,
        skipping: bool,
        expired_ms: u64,
    ) -> Result<()> {
        self.hidden_passed += 1;
        let Some((key, _)) = self.merge.current() else { return Ok(()) };
        // Versions of a key that was shown belong to no dead range.
        let is_inside = !is_spent || !self.walk.is_empty();
        if is_inside
            && self.walk.pass_up(key, expired_ms)
            && let Some(range) = self.range_over(key)
        {
            self.walk.jump_up(&range);
            return self.merge.seek(&range.high, BEFORE_ALL_VERSIONS);
        }
        if self.versions.pass(key) {
            // Either the key is already decided, or its first visible version decides.
            let is_decided =
                skipping && key == &self.saved_key[..] || seeded!(VersionsSkippedForAllSnapshots);
            let next = if is_decided { AFTER_ALL_VERSIONS } else { seek_trailer(self.seq) };
            return self.merge.skip_versions(&self.versions.key, next);
        }
        self.merge.step()
    }

    /// Passes `saved_key` with its hidden entries; `expired_ms` is when the deciding entry expired,
    /// or 0. If the next key is in a dead range, jumps over the range.
    #[inline(never)]
    pub(super) fn pass_down(&mut self, entries: u64, expired_ms: u64) -> Result<()> {
        self.hidden_passed += entries;
        if self.walk.pass_down(&self.saved_key, entries, expired_ms)
            && let Some((key, _)) = self.merge.current()
            && let Some(range) = self.range_over(key)
        {
            self.walk.jump_down(&range);
            return self.merge.seek_before(&range.low, BEFORE_ALL_VERSIONS);
        }
        Ok(())
    }

    /// Ends a walk, upward or downward, that has reached an entry to show, or its bound, or the
    /// end.
    #[inline]
    pub(super) fn end_walk(&mut self, is_upward: bool) {
        if self.walk.is_long() {
            if is_upward {
                self.walk.end_up(&self.saved_key);
            }
            self.reader.walks.note_walk(&self.keyspace.dead_ranges, &self.walk, self.seq);
        }
    }
}
