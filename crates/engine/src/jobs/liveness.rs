//! Decides which versions of a key flushes and compactions keep: those that a reader can see (I4).

use runstone_policy::drop_guard::DropGuard;

use crate::base::key::{Kind, SeqNo, kind_of, seq_of};

/// Decides which versions stay (rule I4). It is given all versions of a key, newest first.
pub(crate) struct Liveness {
    /// Sequence numbers that readers look from, ascending; never empty.
    points: Vec<SeqNo>,
    /// Says whether a tombstone hides nothing outside the compaction; `None` keeps all tombstones.
    guard: Option<DropGuard>,
    key: Vec<u8>,
    /// The stripe of the last version of `key` that was kept or dropped as a spent tombstone;
    /// `None` before the first version.
    stripe: Option<usize>,
}

impl Liveness {
    pub(crate) fn new(points: Vec<SeqNo>, guard: Option<DropGuard>) -> Liveness {
        assert!(!points.is_empty(), "at least the present is visible");
        Liveness { points, guard, key: Vec::new(), stripe: None }
    }

    /// Whether the key differs from that of the previous call.
    pub(crate) fn enter(&mut self, key: &[u8]) -> bool {
        if self.stripe.is_some() && self.key == key {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.stripe = None;
        true
    }

    /// Moves to the state after many versions that all stay, each of its own key. This is the last.
    pub(crate) fn pass(&mut self, key: &[u8], trailer: u64) {
        self.enter(key);
        let stays = self.keeps(trailer);
        debug_assert!(stays, "the only version of a key is kept");
    }

    /// Whether a version of the entered key stays.
    pub(crate) fn keeps(&mut self, trailer: u64) -> bool {
        let seq = seq_of(trailer);
        // The stripe is the first point that sees this version. A version newer than every point,
        // written after the compaction began, is in no stripe and stays.
        let stripe = self.points.partition_point(|point| *point < seq);
        let shadowed = self.stripe == Some(stripe) && stripe < self.points.len();
        self.stripe = Some(stripe);
        if shadowed {
            return false;
        }
        let spent = kind_of(trailer) == Kind::Delete as u8
            && stripe == 0
            && self.guard.as_mut().is_some_and(|guard| guard.allows(&self.key, seq));
        !spent
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::key::pack;

    fn kept(points: &[SeqNo], versions: &[(u64, Kind)], guard: bool) -> Vec<u64> {
        let guard = guard.then(|| DropGuard::new(&Default::default(), &BTreeSet::new()));
        let mut rule = Liveness::new(points.to_vec(), guard);
        let mut kept = Vec::new();
        for (seq, kind) in versions {
            rule.enter(b"k");
            if rule.keeps(pack(*seq, *kind)) {
                kept.push(*seq);
            }
        }
        kept
    }

    #[test]
    fn one_version_stays_per_stripe() {
        use Kind::{Delete, Put};
        let puts: Vec<(u64, Kind)> = [9, 7, 5, 4, 2, 1].map(|seq| (seq, Put)).to_vec();
        assert_eq!(kept(&[9], &puts, true), [9]);
        assert_eq!(kept(&[4, 9], &puts, true), [9, 4]);
        assert_eq!(kept(&[1, 2, 6, 9], &puts, true), [9, 5, 2, 1]);
        assert_eq!(kept(&[5], &puts, true), [9, 7, 5], "versions newer than the compact all stay");
        let deleted = [(9, Delete), (5, Put), (3, Delete), (1, Put)];
        assert_eq!(kept(&[9], &deleted, true), [0u64; 0], "a spent tombstone goes with its prey");
        assert_eq!(kept(&[9], &deleted, false), [9], "without proof it stays");
        assert_eq!(kept(&[4, 9], &deleted, true), [9], "only the oldest stripe's may go");
        assert_eq!(kept(&[5, 9], &deleted, true), [9, 5]);
    }
}
