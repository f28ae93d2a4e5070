//! The purposes of compactions, from the reasons that policies give, and a breakdown of the bytes
//! that a run of writes wrote.

use std::collections::BTreeMap;
use std::sync::Mutex;

use runstone::unstable;
use runstone::{Event, EventListener};
use runstone_policy::shape::Level;

use super::tree::{Phase, Tree};

/// What compactions read and wrote, by the policy's reason.
#[derive(Debug, Default)]
pub(super) struct Reasons(Mutex<BTreeMap<&'static str, Reason>>);

#[derive(Clone, Copy, Debug, Default)]
struct Reason {
    compactions: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// Words in the reasons of adaptive tiering and tiering, and their meanings. The first match
/// counts.
const REASONS: [(&str, &str); 7] = [
    ("compaction and split", "compaction and split of level 0"),
    ("accesses of", "inside a level, by accesses"),
    ("tables overlap at", "inside a level, deeper than T"),
    ("most overlap at", "inside a level, obsolete"),
    ("is obsolete", "sunk early, obsolete"),
    ("move, L", "compaction and move"),
    ("over target", "levels that sink"),
];

impl EventListener for Reasons {
    fn on_event(&self, event: &Event) {
        let Event::Compacted { why, read_bytes, written_bytes, .. } = event else { return };
        let found = REASONS.iter().find(|(words, _)| why.contains(words));
        let mut reasons = self.0.lock().expect("no holder panics");
        let reason = reasons.entry(found.map_or("other", |(_, name)| *name)).or_default();
        reason.compactions += 1;
        reason.read_bytes += read_bytes;
        reason.written_bytes += written_bytes;
    }
}

impl Reasons {
    /// Bytes written per byte that the user wrote, and the share of the bytes read that was written
    /// again.
    fn text(&self, user_bytes: u64) -> String {
        let reasons = self.0.lock().expect("no holder panics");
        let text = |(name, reason): (&&str, &Reason)| {
            let Reason { compactions, read_bytes, written_bytes } = *reason;
            let per_byte = written_bytes as f64 / user_bytes.max(1) as f64;
            let kept = written_bytes as f64 / read_bytes.max(1) as f64 * 100.0;
            format!(
                "{name} {per_byte:.2} ({compactions} compactions, {kept:.0}% of what they read)"
            )
        };
        reasons.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

/// The bytes that flushes, and compactions for each reason, wrote, and the obsolete share of the
/// tree.
pub(super) fn taken_apart(tree: &Tree, phase: &Phase, distinct: usize) -> String {
    let shape = unstable::shape(tree.store.default_keyspace());
    let entries: u64 = shape.tables().map(|(_, table)| table.entries).sum();
    let obsolete = obsolete_share(entries, distinct as u64);
    let user_bytes = phase.counters.user_bytes_written;
    let flushed = phase.counters.flush_bytes_written as f64 / user_bytes.max(1) as f64;
    let levels: Vec<String> = (1..)
        .zip(shape.levels.iter().skip(1))
        .filter_map(|(index, level)| match level {
            Level::Overlapping(tables) if !tables.is_empty() => {
                let percent = tables.stats().obsolete_share().get() * 100.0;
                Some(format!("L{index} {percent:.0}%"))
            }
            _ => None,
        })
        .collect();
    format!(
        "flushes {flushed:.2}; {}; {:.0}% of the tree is obsolete at the end{}",
        tree.reasons.text(user_bytes),
        obsolete * 100.0,
        match levels.is_empty() {
            true => String::new(),
            false => format!(", by level as estimated {}", levels.join(", ")),
        }
    )
}

/// The share of the tables' entries that is obsolete. Memtables count among the distinct keys, not
/// among the entries.
fn obsolete_share(entries: u64, distinct: u64) -> f64 {
    entries.saturating_sub(distinct) as f64 / entries.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a bug: at small scales, where all keys are in memory, -31800% of the tree was
    /// reported as obsolete.
    #[test]
    fn no_less_than_nothing_is_obsolete() {
        assert_eq!(obsolete_share(0, 318), 0.0);
        assert_eq!(obsolete_share(100, 318), 0.0);
        assert_eq!(obsolete_share(100, 75), 0.25);
    }
}
