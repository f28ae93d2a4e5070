//! Decides which versions of a key are kept by flushes and compactions: those that a reader can see
//! (I4).

use std::sync::Arc;

use runstone_policy::drop_guard::{DropGuard, RangeGuard};

use crate::env::Env;
use crate::jobs::neighbours::Neighbours;
use crate::jobs::outside::Outside;
use crate::keys::expiry::expiry_of;
use crate::keys::{
    Kind, SeqNo, expires, is_operand, is_range_delete, kind_of, range_delete, seq_of,
};
use crate::ranges::{RangeDeletes, deletes};
use crate::visibility::snapshot::Visibility;

/// Decides which versions stay (rule I4). It is given all versions of a key, newest first.
pub(crate) struct Liveness {
    /// The sequence numbers that readers read at, ascending; never empty.
    points: Vec<SeqNo>,
    /// Says whether a tombstone hides nothing outside the compaction; `None` keeps all tombstones.
    guard: Option<DropGuard>,
    /// What debug builds compare the guard with.
    outside: Option<Outside>,
    /// Says the same about range tombstones.
    range_guard: Option<RangeGuard>,
    /// The range deletes that are known to be durable once the outputs are.
    range_deletes: Option<Arc<RangeDeletes>>,
    /// Says whether two versions are neighbours; `None` if nothing outside is between any two.
    neighbours: Option<Neighbours>,
    /// Decides which expired entries nobody sees.
    past: Past,
    /// Whether versions that range deletes hide are dropped. Otherwise they only end chains of
    /// operands.
    drops_hidden: bool,
    key: Vec<u8>,
    /// The stripe of the last version of `key` that was judged; `None` before the first version.
    stripe: Option<usize>,
    /// Whether that version is an operand whose base was not found yet.
    is_open: bool,
    /// The sequence number of the last version of `key`.
    last_seq: SeqNo,
    /// The sequence numbers of the range deletes that were dropped.
    range_deletes_left: Vec<SeqNo>,
}

/// Decides which expired entries nobody sees any more: those that have expired and that no snapshot
/// sees, and those that expired before any snapshot was taken. Reads at a snapshot hide an expired
/// entry, but a cursor there may have begun before the entry expired, and it keeps what it saw.
/// Cursors are opened and closed all the time. So an entry that expired before all of them began
/// must be dropped although they see its sequence number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// Milliseconds since 1970.
    pub(crate) now_ms: u64,
    /// The sequence number of the newest snapshot, including those of cursors; 0 if there is none.
    pub(crate) newest_snapshot: SeqNo,
    /// The sequence number of the newest snapshot that the program holds.
    pub(crate) newest_held: SeqNo,
    /// No snapshot was taken before this, in milliseconds since 1970.
    pub(crate) snapshots_since_ms: u64,
}

impl Past {
    /// The time is taken first. So a cursor at a snapshot that is taken later also begins later,
    /// and sees nothing that has expired here.
    pub(crate) fn now(env: &Env, visibility: &Visibility) -> Past {
        let now_ms = env.watch.now_ms();
        if seeded!(ExpiryIgnoresSnapshots) {
            return Past { now_ms, snapshots_since_ms: now_ms, ..Past::default() };
        }
        let newest_held = visibility.newest_held();
        let (newest_snapshot, snapshots_since_ms) = visibility.tell_time(now_ms);
        Past { now_ms, newest_snapshot, newest_held, snapshots_since_ms }
    }

    /// The time up to which entries with this sequence number and later ones count as expired.
    pub(crate) fn end_ms(&self, seq: SeqNo) -> u64 {
        if seq > self.newest_snapshot { self.now_ms } else { self.snapshots_since_ms }
    }

    fn holds(&self, trailer: u64, value: &[u8]) -> bool {
        expiry_of(trailer, value).is_some_and(|at_ms| at_ms <= self.end_ms(seq_of(trailer)))
    }
}

/// The decision on a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) stays: bool,
    /// Whether it has expired, and no snapshot sees it. If it stays, it stays as a tombstone.
    pub(crate) has_expired: bool,
    /// What the version means for the operands above it that have no base yet. Only the version
    /// that is known to be the next one below them (I7) has such a meaning.
    pub(crate) link: Option<Link>,
    /// Whether there are operands above the version whose base was not found yet. They may be of a
    /// newer stripe.
    pub(crate) is_below_operands: bool,
}

/// A version below operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Another operand.
    Operand,
    /// The value that they apply to.
    Base,
    /// The key was deleted below them: by this version if it is a delete or has expired, otherwise
    /// by a range delete.
    Deleted,
    /// The value that they apply to, or a delete, in an older stripe. It stays for the readers
    /// there.
    Beneath,
}

impl Liveness {
    pub(crate) fn new(points: Vec<SeqNo>, guard: Option<DropGuard>) -> Liveness {
        assert!(!points.is_empty(), "at least the present is visible");
        Liveness {
            points,
            guard,
            outside: None,
            range_guard: None,
            range_deletes: None,
            neighbours: None,
            past: Past::default(),
            drops_hidden: true,
            key: Vec::new(),
            stripe: None,
            is_open: false,
            last_seq: 0,
            range_deletes_left: Vec::new(),
        }
    }

    /// Compares some of the dropped tombstones with the tables around the compaction.
    pub(crate) fn compared_with(self, outside: Option<Outside>) -> Liveness {
        Liveness { outside, ..self }
    }

    /// Drops what these range deletes hide. With a guard, also drops range tombstones that no
    /// longer hide anything.
    pub(crate) fn with_range_deletes(
        self,
        range_deletes: Option<Arc<RangeDeletes>>,
        range_guard: Option<RangeGuard>,
    ) -> Liveness {
        Liveness { range_deletes, range_guard, ..self }
    }

    /// Turns expired entries into tombstones.
    pub(crate) fn with_past(self, past: Past) -> Liveness {
        Liveness { past, ..self }
    }

    /// Treats a version as the next one below operands only if `neighbours` shows that it is (I7).
    pub(crate) fn with_neighbours(self, neighbours: Option<Neighbours>) -> Liveness {
        Liveness { neighbours, ..self }
    }

    /// Leaves what range deletes hide to a later compaction.
    pub(crate) fn keep_hidden(self) -> Liveness {
        Liveness { drops_hidden: false, ..self }
    }

    /// The sequence numbers of the range deletes that were dropped.
    pub(crate) fn range_deletes_left(self) -> Vec<SeqNo> {
        self.range_deletes_left
    }

    /// Enters a key. Returns whether it differs from the key of the previous call.
    pub(crate) fn enter(&mut self, key: &[u8]) -> bool {
        if self.stripe.is_some() && self.key == key {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.stripe = None;
        self.is_open = false;
        true
    }

    /// Moves to the state after many versions that all stay, each of a different key. The arguments
    /// are those of the last version.
    pub(crate) fn pass(&mut self, key: &[u8], trailer: u64) {
        self.enter(key);
        let fate = self.judge(trailer, &[]);
        debug_assert!(fate.stays, "the only version of a key is kept");
    }

    /// Whether nothing outside has an older version of a key.
    pub(crate) fn is_lowest(&mut self, key: &[u8], seq: SeqNo) -> bool {
        may_drop(&mut self.guard, &mut self.outside, key, seq)
    }

    /// Decides on a version of the entered key. `value` is read only if the version is a range
    /// tombstone or expires.
    pub(crate) fn judge(&mut self, trailer: u64, value: &[u8]) -> Fate {
        let seq = seq_of(trailer);
        let has_expired = self.has_expired(trailer, value);
        // The stripe is the first point that sees this version. A version newer than every point,
        // written after the compaction began, is in no stripe and stays.
        let stripe = self.points.partition_point(|point| *point < seq);
        let newer_stripe = self.stripe.unwrap_or(stripe);
        let is_same = self.stripe == Some(stripe);
        let has_stripe = stripe < self.points.len();
        let is_below_operands = self.is_open;
        let is_below = self.is_open && (is_same || seeded!(OperandsFoldedAcrossSnapshots));
        let is_next = self.is_open && self.is_next(seq);
        // If another version may be between the operands and this version, that one may be an
        // operand whose base is this version.
        let is_shadowed = is_same && has_stripe && (!is_below || is_next);
        self.stripe = Some(stripe);
        self.last_seq = seq;
        let stays = self.keeps(trailer, value, has_expired, is_shadowed);
        let link = match Kind::from_u8(kind_of(trailer)) {
            _ if !is_next => None,
            kind if !is_below => {
                let is_hidden = self.is_covered(seq, newer_stripe);
                beneath(kind, has_expired, is_hidden).filter(|_| stays)
            }
            Some(Kind::Delete) if seeded!(OperandsFoldedOverDeletes) => Some(Link::Operand),
            Some(Kind::Delete | Kind::RangeDelete) => Some(Link::Deleted),
            _ if has_expired || self.is_covered(seq, stripe) => Some(Link::Deleted),
            Some(Kind::Merge) => Some(Link::Operand),
            _ => Some(Link::Base),
        };
        let is_operand = is_operand(trailer);
        // A version that no reader sees yet is in no stripe, so nothing is below it.
        self.is_open = match link {
            Some(link) => link == Link::Operand,
            None => stays && is_operand && has_stripe,
        };
        Fate { stays, has_expired, link, is_below_operands }
    }

    /// Whether a version of the entered key is known to be the next below the last one.
    fn is_next(&mut self, seq: SeqNo) -> bool {
        let Liveness { neighbours, key, last_seq, .. } = self;
        neighbours.as_mut().is_none_or(|neighbours| neighbours.are(key, *last_seq, seq))
    }

    /// Whether current readers see a version with this sequence number, or would see it if its key
    /// had no newer version. False if a snapshot that the program holds sees it.
    pub(crate) fn is_of_now(&self, seq: SeqNo) -> bool {
        let is_visible = self.points.last().is_some_and(|now| seq <= *now);
        if seeded!(FilterIgnoresSnapshots) {
            return is_visible;
        }
        is_visible && seq > self.past.newest_held
    }

    /// Whether a delete that replaces a version of the entered key would hide nothing.
    pub(crate) fn may_go(&mut self, seq: SeqNo) -> bool {
        self.stripe == Some(0) && may_drop(&mut self.guard, &mut self.outside, &self.key, seq)
    }

    fn has_expired(&self, trailer: u64, value: &[u8]) -> bool {
        let is_visible = || self.points.last().is_some_and(|now| seq_of(trailer) <= *now);
        expires(trailer) && is_visible() && self.past.holds(trailer, value)
    }

    /// Whether a version of the entered key stays. `shadowed` says whether a newer version of its
    /// stripe replaces it.
    fn keeps(&mut self, trailer: u64, value: &[u8], has_expired: bool, shadowed: bool) -> bool {
        let seq = seq_of(trailer);
        let stripe = self.stripe.unwrap_or(usize::MAX);
        if is_range_delete(trailer) {
            // A range tombstone is more than a version of its key, so a newer version of the key
            // does not replace it.
            let is_shadowed = shadowed && seeded!(RangeTombstonesShadowed);
            let stays = !is_shadowed && self.keeps_range(seq, stripe, value);
            if !stays {
                self.range_deletes_left.push(seq);
            }
            return stays;
        }
        if shadowed || self.drops_hidden && self.is_covered(seq, stripe) {
            return false;
        }
        if has_expired && seeded!(ExpiredDroppedEarly) {
            return false;
        }
        let spent = (kind_of(trailer) == Kind::Delete as u8 || has_expired)
            && stripe == 0
            && may_drop(&mut self.guard, &mut self.outside, &self.key, seq);
        !spent
    }

    /// Whether a range delete of the same stripe hides a version of the entered key.
    fn is_covered(&self, seq: SeqNo, stripe: usize) -> bool {
        let Some(ranges) = &self.range_deletes else { return false };
        self.points.get(stripe).is_some_and(|point| deletes(ranges.over(&self.key, *point), seq))
    }

    /// Whether a range tombstone stays. It is dropped if newer ones of its stripe cover all of its
    /// range, or if all readers see it and nothing is left to hide.
    fn keeps_range(&self, seq: SeqNo, stripe: usize, end: &[u8]) -> bool {
        let range = range_delete(&self.key, seq, end);
        let is_hidden = |ranges: &Arc<RangeDeletes>| {
            let is_last = stripe + 1 == self.points.len();
            self.points.get(stripe).is_some_and(|at| ranges.hides_range(&range, *at, is_last))
        };
        if self.drops_hidden && self.range_deletes.as_ref().is_some_and(is_hidden) {
            return false;
        }
        let may_go =
            |guard: &RangeGuard| guard.allows(&range) || seeded!(RangeTombstonesDroppedEarly);
        stripe != 0 || !self.range_guard.as_ref().is_some_and(may_go)
    }

    /// Whether a range delete hides an entry whose key is between the two keys and whose sequence
    /// number is at least this one. A block may be copied unread only if this is false.
    pub(crate) fn covers_any(&self, min_key: &[u8], max_key: &[u8], min_seq: SeqNo) -> bool {
        let ranges = self.range_deletes.as_ref().filter(|_| !seeded!(CoveredBlocksCopied));
        ranges.is_some_and(|ranges| ranges.over_any(min_key, max_key) > min_seq)
    }
}

/// Whether the guard shows that nothing outside has a version of the key older than `seq`.
fn may_drop(
    guard: &mut Option<DropGuard>,
    outside: &mut Option<Outside>,
    key: &[u8],
    seq: SeqNo,
) -> bool {
    let may = guard.as_mut().is_some_and(|guard| guard.allows(key, seq));
    debug_invariant!(
        !may || outside.as_mut().is_none_or(|outside| outside.allows(key, seq)),
        "a tombstone is dropped above an older version of its key (I4)"
    );
    may
}

/// What a version of an older stripe means for operands above it. `is_hidden`: whether a range
/// delete hides it from the readers of the operands.
fn beneath(kind: Option<Kind>, has_expired: bool, is_hidden: bool) -> Option<Link> {
    match kind? {
        _ if has_expired => None,
        Kind::Delete => Some(Link::Beneath),
        // Versions of these kinds do not end the chain: what applies to the operands above is below
        // these versions, or is not known here.
        Kind::Merge | Kind::RangeDelete | Kind::Relocate => None,
        _ if is_hidden => Some(Link::Deleted),
        Kind::Put | Kind::ValuePointer => Some(Link::Beneath),
        // Operands that were folded onto this value would be lost when it expires.
        Kind::ExpiringPut | Kind::ExpiringPointer => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::pack;

    fn kept(points: &[SeqNo], versions: &[(u64, Kind)], guard: bool) -> Vec<u64> {
        let guard = guard.then(|| DropGuard::new(&Default::default(), &Default::default()));
        let mut rule = Liveness::new(points.to_vec(), guard);
        let mut kept = Vec::new();
        for (seq, kind) in versions {
            rule.enter(b"k");
            if rule.judge(pack(*seq, *kind), &[]).stays {
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
        assert_eq!(kept(&[5], &puts, true), [9, 7, 5], "versions newer than the points all stay");
        let deleted = [(9, Delete), (5, Put), (3, Delete), (1, Put)];
        assert_eq!(kept(&[9], &deleted, true), [0u64; 0], "a spent tombstone goes with its prey");
        assert_eq!(kept(&[9], &deleted, false), [9], "without proof it stays");
        assert_eq!(kept(&[4, 9], &deleted, true), [9], "only the oldest stripe's may go");
        assert_eq!(kept(&[5, 9], &deleted, true), [9, 5]);
    }
}
