//! Value files by the papers' own rules, counted in records. They are the reference for the
//! engine's files, and provide the pointers for a tree if values are only counted. Headers, footers
//! and unused ends of segments are left out.
//!
//! On all sides, a collection writes its output beside its input: the engine must not overwrite
//! what it would need after a crash (P1).

use std::collections::{BTreeSet, VecDeque};

use runstone_random::mix64;

/// The tree that records where the newest record of each key is.
pub trait Pointers {
    /// Notes that a record was written.
    fn put(&mut self, key: u64);
    /// Notes that a collection looks up whether a record is the newest of its key.
    fn get(&mut self, key: u64);
}

/// A value file without a tree.
impl Pointers for () {
    fn put(&mut self, _: u64) {}
    fn get(&mut self, _: u64) {}
}

/// HashKV's segment groups (sections 3.1 to 3.3).
///
/// 1. Each group has a main segment with room for a mean group. Further records go to log segments,
///    which groups take from the reserve one at a time when they need them.
/// 2. When a flush would need more log segments than are free, the group that was written to most
///    since its last collection is collected: its newest records are written again, without a
///    look-up in the tree.
#[derive(Clone, Debug)]
pub struct SegmentGroups {
    main_records: u64,
    segment_records: u64,
    groups: Vec<SegmentGroup>,
    known: Vec<bool>,
    free_segments: u64,
    /// Records that flushes and collections wrote.
    pub written: u64,
}

#[derive(Clone, Debug, Default)]
struct SegmentGroup {
    keys: Vec<u64>,
    /// All records, including those that newer ones replace.
    records: u64,
}

impl SegmentGroups {
    /// Groups for this many keys, numbered from 0, in this many groups.
    pub fn new(keys: u64, groups: u32, segment_records: u64, reserve_permille: u32) -> Self {
        SegmentGroups {
            main_records: keys / u64::from(groups),
            segment_records,
            groups: vec![SegmentGroup::default(); groups as usize],
            known: vec![false; keys as usize],
            free_segments: keys * u64::from(reserve_permille) / 1000 / segment_records,
            written: 0,
        }
    }

    /// Writes a full cache of keys.
    pub fn flush(&mut self, cache: &BTreeSet<u64>, tree: &mut impl Pointers) {
        let count = self.groups.len() as u64;
        let group_of = |key: u64| (mix64(!key) % count) as usize;
        let mut incoming = vec![0; self.groups.len()];
        cache.iter().for_each(|key| incoming[group_of(*key)] += 1);
        // If nothing can be freed, the file grows, as the engine's does. This happens only in runs
        // at a small scale.
        while self.segments_for(&incoming) > self.free_segments && self.collect(tree) {}
        self.free_segments = self.free_segments.saturating_sub(self.segments_for(&incoming));
        for (group, records) in self.groups.iter_mut().zip(incoming) {
            group.records += records;
        }
        for key in cache {
            if !std::mem::replace(&mut self.known[*key as usize], true) {
                self.groups[group_of(*key)].keys.push(*key);
            }
            tree.put(*key);
        }
        self.written += cache.len() as u64;
    }

    /// Collects the group that was written to most. Returns `false` if no record is garbage.
    fn collect(&mut self, tree: &mut impl Pointers) -> bool {
        let garbage = |at: &usize| self.groups[*at].records - self.groups[*at].keys.len() as u64;
        let at = (0..self.groups.len()).max_by_key(garbage).unwrap_or(0);
        if garbage(&at) == 0 {
            return false;
        }
        let (live, records) = (self.groups[at].keys.len() as u64, self.groups[at].records);
        self.free_segments += self.log_segments(records) - self.log_segments(live);
        self.groups[at].records = live;
        self.groups[at].keys.iter().for_each(|key| tree.put(*key));
        self.written += live;
        true
    }

    /// The log segments that these records need beyond what their groups have.
    fn segments_for(&self, incoming: &[u64]) -> u64 {
        let more = |(group, records): (&SegmentGroup, &u64)| {
            self.log_segments(group.records + records) - self.log_segments(group.records)
        };
        self.groups.iter().zip(incoming).map(more).sum()
    }

    /// The log segments of a group with this many records.
    fn log_segments(&self, records: u64) -> u64 {
        records.saturating_sub(self.main_records).div_ceil(self.segment_records)
    }
}

/// WiscKey's circular log, in the form of HashKV's vLog (section 2.2): collections read chunks at
/// the tail until they have found a chunk's worth of garbage. They look each record up, and append
/// it again if it is the newest of its key.
#[derive(Clone, Debug)]
pub struct CircularLog {
    capacity_records: u64,
    chunk_records: u64,
    records: VecDeque<u64>,
    /// The number of the first record, counted since the log was made.
    tail: u64,
    /// The number of the newest record of each key.
    newest: Vec<u64>,
    /// Records that flushes and collections wrote.
    pub written: u64,
}

impl CircularLog {
    /// A log for this many keys, numbered from 0.
    pub fn new(keys: u64, chunk_records: u64, reserve_permille: u32) -> Self {
        CircularLog {
            capacity_records: keys + keys * u64::from(reserve_permille) / 1000,
            chunk_records,
            records: VecDeque::new(),
            tail: 0,
            newest: vec![u64::MAX; keys as usize],
            written: 0,
        }
    }

    /// Writes a full cache of keys.
    pub fn flush(&mut self, cache: &BTreeSet<u64>, tree: &mut impl Pointers) {
        while self.records.len() as u64 + cache.len() as u64 > self.capacity_records {
            if !self.collect(tree) {
                break;
            }
        }
        cache.iter().for_each(|key| self.append(*key, tree));
    }

    fn append(&mut self, key: u64, tree: &mut impl Pointers) {
        self.newest[key as usize] = self.tail + self.records.len() as u64;
        self.records.push_back(key);
        self.written += 1;
        tree.put(key);
    }

    /// Collects at the tail. Returns `false` if the whole log has no garbage.
    fn collect(&mut self, tree: &mut impl Pointers) -> bool {
        let (mut garbage, mut left) = (0, self.records.len());
        while garbage < self.chunk_records && left > 0 {
            let mut live = Vec::new();
            for _ in 0..(self.chunk_records as usize).min(left) {
                let Some(key) = self.records.pop_front() else { break };
                tree.get(key);
                if self.newest[key as usize] == self.tail {
                    live.push(key);
                } else {
                    garbage += 1;
                }
                self.tail += 1;
                left -= 1;
            }
            live.into_iter().for_each(|key| self.append(key, tree));
        }
        garbage > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The newest pointer of each key, as in a tree, and the number of look-ups.
    #[derive(Default)]
    struct Tree {
        puts: u64,
        gets: u64,
    }

    impl Pointers for Tree {
        fn put(&mut self, _: u64) {
            self.puts += 1;
        }
        fn get(&mut self, _: u64) {
            self.gets += 1;
        }
    }

    fn caches() -> impl Iterator<Item = BTreeSet<u64>> {
        let load = (0..1024u64).collect::<Vec<_>>();
        let updates = (0..8192u64).map(|i| mix64(i) % 64 * 16);
        let all: Vec<u64> = load.into_iter().chain(updates).collect();
        all.chunks(32).map(|chunk| chunk.iter().copied().collect()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn groups_ask_nobody_and_stay_in_their_space() {
        let (mut groups, mut tree) = (SegmentGroups::new(1024, 4, 8, 300), Tree::default());
        let mut flushed = 0;
        for cache in caches() {
            groups.flush(&cache, &mut tree);
            flushed += cache.len() as u64;
            let extra = |group: &SegmentGroup| groups.log_segments(group.records);
            let used: u64 = groups.groups.iter().map(extra).sum();
            assert_eq!(used + groups.free_segments, 1024 * 300 / 1000 / 8);
        }
        assert_eq!((tree.gets, tree.puts), (0, groups.written));
        assert!(groups.written > flushed * 3 / 2, "{} of {flushed}", groups.written);
    }

    #[test]
    fn a_log_asks_for_all_that_it_reads() {
        let (mut log, mut tree) = (CircularLog::new(1024, 32, 300), Tree::default());
        for cache in caches() {
            log.flush(&cache, &mut tree);
            assert!(log.records.len() <= 1024 + 1024 * 300 / 1000);
        }
        assert_eq!(tree.puts, log.written);
        assert_eq!(tree.gets, log.written - log.records.len() as u64, "all that left the tail");
        let at = |key: u64| log.records[(log.newest[key as usize] - log.tail) as usize];
        assert!((0..1024).all(|key| at(key) == key), "no key is lost");
    }
}
