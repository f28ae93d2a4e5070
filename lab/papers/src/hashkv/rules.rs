//! The paper's rules for hash groups (sections 3.1 to 3.3), by counts, with the updates that a
//! bench makes. They are the reference for the engine's groups.

use std::collections::BTreeSet;

use runstone_simulator::by_paper::SegmentGroups;

use super::bench::value_bytes_and_draws;
use super::designs::{CACHE_BYTES, Workload};

/// Bytes of a pair in the paper.
const PAIR_BYTES: u64 = 1 << 10;

/// The records that the rules write in each phase, per update. Loads and updates are those of a
/// bench, with its groups and segments.
pub(super) fn written(
    workload: &Workload,
    groups: u32,
    slot_bytes: u32,
    permille: u32,
) -> Vec<f64> {
    let (records, segment_records) = (workload.records, u64::from(slot_bytes) / PAIR_BYTES);
    let mut file = SegmentGroups::new(records, groups, segment_records, permille);
    let (draws, (_, mut rng)) = (workload.draws(), value_bytes_and_draws(workload));
    let mut cache = BTreeSet::new();
    let phases = (0..4).map(|phase| {
        for at in 0..records {
            cache.insert(if phase == 0 { at } else { draws.next(&mut rng) });
            if cache.len() as u64 >= CACHE_BYTES / PAIR_BYTES {
                file.flush(&std::mem::take(&mut cache), &mut ());
            }
        }
        std::mem::take(&mut file.written) as f64 / records as f64
    });
    phases.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashkv::bench::Bench;
    use crate::hashkv::designs::{Design, RECORDS};

    /// The share in the last phases together, because one collection more or less is a tenth of a
    /// phase.
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
        // 128 of these records fill a slot.
        let filling = Workload::of_pairs(RECORDS / 2, 1014);
        // 126 of these records fill a slot, and the unused ends of slots are 6% of a reserve of
        // 10%.
        let judged = Workload::of_pairs(RECORDS / 2, PAIR_BYTES as usize);
        let cases = [(&filling, 100, 1.03), (&judged, 100, 1.1), (&judged, 900, 1.08)];
        for (workload, permille, most) in cases {
            let share = share(workload, permille);
            assert!((0.95..=most).contains(&share), "reserve {permille}: {share:.3}");
        }
    }
}
