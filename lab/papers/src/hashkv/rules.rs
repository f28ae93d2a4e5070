//! The paper's rules for hash groups (sections 3.1 to 3.3), by counts: what the engine's groups are
//! measured against. It counts records, without headers, footers or ends of segments.
//!
//! 1. A write waits in the cache. A write of a key that waits there replaces it.
//! 2. Each group has a main segment with room for a mean group. What it holds beyond that lies in
//!    log segments, taken from the reserve one at a time and given to whoever needs them.
//! 3. When a flush would need more log segments than are free, the group that was written to most
//!    since its last collection is collected: its live records are written again, one a key.
//!
//! A collection writes into a spare main segment and spare log segments, on both sides: the engine
//! must not overwrite what a crash would need (P1).

use std::collections::BTreeSet;

use runstone_random::mix64;

use super::bench::value_bytes_and_draws;
use super::designs::{CACHE_BYTES, Workload};

/// Bytes of a pair in the paper.
const PAIR_BYTES: u64 = 1 << 10;

/// The records that the rules write in each phase, per update: loads and updates as a bench makes
/// them, with its groups and segments.
pub(super) fn written(
    workload: &Workload,
    groups: u32,
    slot_bytes: u32,
    permille: u32,
) -> Vec<f64> {
    let records = workload.records;
    let mut file = PaperGroups {
        main_records: records / u64::from(groups),
        segment_records: u64::from(slot_bytes) / PAIR_BYTES,
        groups: vec![Group::default(); groups as usize],
        known: vec![false; records as usize],
        free_segments: records * u64::from(permille) / 1000 * PAIR_BYTES / u64::from(slot_bytes),
        written: 0,
    };
    let (draws, (_, mut rng)) = (workload.draws(), value_bytes_and_draws(workload));
    let mut cache = BTreeSet::new();
    let phases = (0..4).map(|phase| {
        for at in 0..records {
            cache.insert(if phase == 0 { at } else { draws.next(&mut rng) });
            if cache.len() as u64 >= CACHE_BYTES / PAIR_BYTES {
                file.flush(std::mem::take(&mut cache));
            }
        }
        std::mem::take(&mut file.written) as f64 / records as f64
    });
    phases.collect()
}

#[derive(Clone, Debug, Default)]
struct Group {
    live: u64,
    /// All records, also those that newer ones replace.
    records: u64,
}

/// The groups, and what was written to them.
struct PaperGroups {
    main_records: u64,
    segment_records: u64,
    groups: Vec<Group>,
    known: Vec<bool>,
    free_segments: u64,
    written: u64,
}

impl PaperGroups {
    fn group_of(&self, record: u64) -> usize {
        (mix64(!record) % self.groups.len() as u64) as usize
    }

    fn flush(&mut self, cache: BTreeSet<u64>) {
        let mut incoming = vec![0; self.groups.len()];
        cache.iter().for_each(|record| incoming[self.group_of(*record)] += 1);
        // Where nothing can be freed, the file grows, as the engine's does. Only runs at a small
        // scale come there.
        while self.segments_for(&incoming) > self.free_segments && self.collect() {}
        self.free_segments = self.free_segments.saturating_sub(self.segments_for(&incoming));
        for (group, records) in self.groups.iter_mut().zip(incoming) {
            group.records += records;
        }
        for record in &cache {
            let at = self.group_of(*record);
            let is_new = !std::mem::replace(&mut self.known[*record as usize], true);
            self.groups[at].live += u64::from(is_new);
        }
        self.written += cache.len() as u64;
    }

    /// Collects the group that was written to most. Returns `false` if no record is garbage.
    fn collect(&mut self) -> bool {
        let garbage = |at: &usize| self.groups[*at].records - self.groups[*at].live;
        let at = (0..self.groups.len()).max_by_key(garbage).unwrap_or(0);
        if garbage(&at) == 0 {
            return false;
        }
        let Group { live, records } = self.groups[at];
        self.free_segments += self.log_segments(records) - self.log_segments(live);
        self.groups[at].records = live;
        self.written += live;
        true
    }

    /// The log segments that these records need beyond what their groups have.
    fn segments_for(&self, incoming: &[u64]) -> u64 {
        let more = |(group, records): (&Group, &u64)| {
            self.log_segments(group.records + records) - self.log_segments(group.records)
        };
        self.groups.iter().zip(incoming).map(more).sum()
    }

    /// The log segments of a group with this many records.
    fn log_segments(&self, records: u64) -> u64 {
        records.saturating_sub(self.main_records).div_ceil(self.segment_records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashkv::bench::Bench;
    use crate::hashkv::designs::{Design, RECORDS};

    /// The last phases of updates together: one collection more or less is a tenth of a phase.
    fn share(workload: &Workload, permille: u32) -> f64 {
        let design = Design::paper(workload).with_reserve(permille);
        let values = &design.keyspace.values;
        let rules = written(workload, values.groups, values.slot_bytes, permille);
        let mut bench = Bench::in_memory(&design, workload).expect("opens");
        bench.load().expect("loads");
        let phases = (0..3).map(|_| bench.update().expect("updates").value_records());
        phases.sum::<f64>() / rules[1..].iter().sum::<f64>()
    }

    #[test]
    fn the_engine_writes_what_the_papers_rules_write() {
        // 128 records of these fill a slot.
        let filling = Workload::of_pairs(RECORDS / 2, 1014);
        // 126 records of these do, and the ends are 6% of a reserve of 10%.
        let judged = Workload::of_pairs(RECORDS / 2, PAIR_BYTES as usize);
        let cases = [(&filling, 100, 1.03), (&judged, 100, 1.1), (&judged, 900, 1.08)];
        for (workload, permille, most) in cases {
            let share = share(workload, permille);
            assert!((0.95..=most).contains(&share), "reserve {permille}: {share:.3}");
        }
    }
}
