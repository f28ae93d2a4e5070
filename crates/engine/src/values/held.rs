//! Records of a value file that a compaction filter dropped while readers could still reach them. A
//! pure data structure.

use std::collections::BTreeMap;

/// Records that a filter dropped, by the epoch up to which readers can reach them.
#[derive(Debug, Default)]
pub(crate) struct HeldRecords {
    /// The records, by epoch and group.
    records: BTreeMap<(u64, u32), Vec<HeldRecord>>,
    /// The bytes of the records, by group. They are summed up here because each choice of a job
    /// needs them, and there may be millions of records.
    bytes: BTreeMap<u32, u64>,
}

#[derive(Clone, Copy, Debug)]
struct HeldRecord {
    stream_offset: u64,
    bytes: u32,
}

impl HeldRecords {
    /// Adds a record that readers of this epoch and earlier ones may reach.
    pub(crate) fn add(&mut self, epoch: u64, group: u32, stream_offset: u64, bytes: u32) {
        *self.bytes.entry(group).or_default() += u64::from(bytes);
        self.records.entry((epoch, group)).or_default().push(HeldRecord { stream_offset, bytes });
    }

    /// Forgets the records that no reader can reach, because no reader is of an earlier epoch than
    /// this one. O(forgotten records).
    pub(crate) fn release(&mut self, oldest_epoch: u64) {
        while let Some(first) = self.records.first_entry()
            && first.key().0 < oldest_epoch
        {
            let ((_, group), records) = first.remove_entry();
            let released: u64 = records.iter().map(|one| u64::from(one.bytes)).sum();
            let left = self.bytes.get_mut(&group).expect("the records of the group are counted");
            *left -= released;
            if *left == 0 {
                self.bytes.remove(&group);
            }
        }
    }

    /// The bytes of a group's records. O(log n).
    pub(crate) fn bytes_of(&self, group: u32) -> u64 {
        self.bytes.get(&group).copied().unwrap_or(0)
    }

    /// The stream offsets of a group's records.
    pub(crate) fn offsets_of(&self, group: u32) -> impl Iterator<Item = u64> {
        let of_group = self.records.iter().filter(move |((_, of), _)| *of == group);
        of_group.flat_map(|(_, records)| records.iter().map(|one| one.stream_offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_held_until_no_reader_of_its_epoch_is_left() {
        let mut held = HeldRecords::default();
        held.add(2, 7, 100, 10);
        held.add(1, 7, 200, 20);
        held.add(1, 8, 300, 30);
        held.release(1);
        assert_eq!((held.bytes_of(7), held.bytes_of(8), held.bytes_of(9)), (30, 30, 0));
        assert_eq!(held.offsets_of(7).collect::<Vec<_>>(), [200, 100]);
        held.release(2);
        assert_eq!((held.bytes_of(7), held.bytes_of(8)), (10, 0));
        assert_eq!(held.offsets_of(7).collect::<Vec<_>>(), [100]);
        assert_eq!(held.offsets_of(8).count(), 0);
        held.release(3);
        assert_eq!((held.bytes_of(7), held.offsets_of(7).count()), (0, 0));
    }
}
