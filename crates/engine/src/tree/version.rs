//! An immutable tree: its shape, with its tables open for reading.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use runstone_policy::options::{Charge, Numbers};
use runstone_policy::plan::Heat;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::shape::{Edit, Shape, Table, TableId};

use crate::cache::{Cache, Reservation};
use crate::error::{Error, Result};
use crate::keys::{SeqNo, seek_trailer};
use crate::ranges::RangeDeletes;
use crate::table::handle::TableHandle;
use crate::table::reader::ProbeStats;
use crate::tree::level::{OldLevel, ReadLevel};
use crate::tree::probe::{Hit, Lookup, ProbeQueue};
use crate::tree::seeks::Seeks;
use crate::tree::seq_list::SeqNoList;

/// How an edit changes the range deletes of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct RangeChange<'a> {
    /// The range deletes of the memtables that the edit flushes, or of all tables of a tree that
    /// was just opened. They may include range deletes that no reader needs.
    pub flushed: Option<&'a RangeDeletes>,
    /// The sequence numbers of the range deletes that flushes and compactions dropped.
    pub left: &'a [SeqNo],
}

/// Range deletes that are no longer in tables stay in the set until they outnumber the others by
/// more than this.
const LEAST_REBUILT: u64 = 1024;

fn are_too_many(left: u64, in_tables: u64) -> bool {
    left > in_tables + LEAST_REBUILT
}

/// An immutable tree.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// Metadata, as policies see it.
    pub shape: Shape,
    /// The same tables, opened for reading.
    pub levels: Vec<Arc<ReadLevel>>,
    /// Shared with the previous and the next version, except for changes. Ordered by id, because a
    /// simulation can be repeated exactly only if it handles tables in a fixed order.
    handles: RedBlackTreeMapSync<TableId, Arc<TableHandle>>,
    /// The range deletes of all tables, if there are any. Some of them may no longer be in tables.
    /// These hide nothing that the tables contain.
    pub range_deletes: Option<Arc<RangeDeletes>>,
    /// How many of the range deletes are in tables.
    range_delete_count: u64,
    /// The sequence numbers of those that are not in tables.
    left: SeqNoList,
    /// Accounts for the memory of all of them. It is shared with the versions that have the same
    /// set.
    range_memory: Option<Arc<Reservation>>,
    /// The seeks that reads charge to tables, if the policy uses them.
    pub(super) seeks: Option<Arc<Seeks>>,
}

impl Version {
    /// Makes the version of `shape`. `open` makes handles for tables that `self` lacks. Unchanged
    /// levels and handles are shared; see [`ReadLevel`] for the cost.
    pub fn next(
        &self,
        shape: Shape,
        RangeChange { flushed, left }: RangeChange<'_>,
        mut open: impl FnMut(&Arc<Table>) -> Arc<TableHandle>,
    ) -> Version {
        let mut handles = self.handles.clone();
        let mut count = self.range_delete_count;
        for table in self.missing_in(&shape) {
            handles.remove_mut(&table.id);
            count -= table.range_deletes;
        }
        let mut handle = |table: &Arc<Table>| {
            count += table.range_deletes;
            let handle = match (self.handles.get(&table.id), shape.trims.get(&table.id)) {
                (Some(known), _) if known.meta().min_key == table.min_key => {
                    // The count of seeks begins again in each level.
                    known.forget_seeks();
                    Arc::clone(known)
                }
                (Some(known), _) => Arc::new(known.trimmed(Arc::clone(table))),
                (None, None) => open(table),
                (None, Some(file_min_key)) => {
                    let whole = Table { min_key: file_min_key.clone(), ..(**table).clone() };
                    Arc::new(open(&Arc::new(whole)).trimmed(Arc::clone(table)))
                }
            };
            handles.insert_mut(table.id, Arc::clone(&handle));
            handle
        };
        let old = |index: usize| {
            Some(OldLevel { level: self.shape.levels.get(index)?, read: self.levels.get(index)? })
        };
        let levels = shape.levels.iter().enumerate();
        let levels =
            levels.map(|(index, level)| ReadLevel::next(old(index), level, &mut handle)).collect();
        debug_assert_eq!(
            count,
            shape.tables().map(|(_, table)| table.range_deletes).sum::<u64>(),
            "range deletes come and go with their tables"
        );
        let mut next = Version {
            shape,
            levels,
            handles,
            range_deletes: self.range_deletes.clone(),
            range_delete_count: count,
            left: self.left.clone(),
            range_memory: self.range_memory.clone(),
            seeks: self.seeks.clone(),
        };
        next.change_range_deletes(flushed, left);
        next
    }

    /// Changes the set of range deletes. O(log n) for the range deletes of a flush. A compaction
    /// adds none. A range delete that it drops hides nothing any more, so it may stay in the set
    /// for a while.
    fn change_range_deletes(&mut self, flushed: Option<&RangeDeletes>, left: &[SeqNo]) {
        if let Some(flushed) = flushed.filter(|set| !set.is_empty()) {
            let mut set = self.range_deletes.as_deref().cloned().unwrap_or_default();
            set.append(flushed);
            self.range_deletes = Some(Arc::new(set));
        }
        self.left.add(left);
        if self.range_delete_count == 0 {
            (self.range_deletes, self.left) = (None, SeqNoList::default());
        } else if are_too_many(self.left.len() as u64, self.range_delete_count) {
            let left = self.left.sorted();
            let stays = |range: &RangeDelete| left.binary_search(&range.seq).is_err();
            let all = self.range_deletes.iter().flat_map(|set| set.iter());
            let set = RangeDeletes::of(all.filter(stays).map(Arc::new).collect());
            (self.range_deletes, self.left) = (Some(Arc::new(set)), SeqNoList::default());
        }
    }

    /// Whether the set would have too many range deletes that are no longer in tables, if this many
    /// are added for the tables of `shape`. O(tables).
    pub fn would_know_too_many(&self, added: usize, shape: &Shape) -> bool {
        let known = self.range_deletes.as_ref().map_or(0, |set| set.len()) + added;
        let in_tables: u64 = shape.tables().map(|(_, table)| table.range_deletes).sum();
        are_too_many((known as u64).saturating_sub(in_tables), in_tables)
    }

    /// The same tree without its known range deletes.
    pub fn without_range_deletes(&self) -> Version {
        Version {
            range_deletes: None,
            left: SeqNoList::default(),
            range_memory: None,
            ..Version::clone(self)
        }
    }

    /// Whether a range delete that a reader at `seq` sees hides an entry with this sequence number.
    /// O(1) without newer range deletes, otherwise O(log n).
    #[inline]
    pub fn hides(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        self.range_deletes.as_ref().is_some_and(|ranges| ranges.hide(key, entry, seq))
    }

    /// The same tree, in which reads charge tables according to these options.
    pub fn with_seeks_of(self, options: &Numbers) -> Version {
        let seeks = match self.seeks {
            Some(seeks) if seeks.follow(options) => Some(seeks),
            _ => Seeks::of(options),
        };
        Version { seeks, ..self }
    }

    /// Whether a get with these counts should charge a table.
    #[inline]
    pub fn wants_seek(&self, stats: &ProbeStats) -> bool {
        stats.tables > 1 && self.seeks.is_some()
    }

    /// Whether reads charge tables.
    pub fn has_seeks(&self) -> bool {
        self.seeks.is_some()
    }

    /// Takes the memory of the range deletes from the budget, if their set differs from that of the
    /// previous version.
    pub fn count_memory(&mut self, before: &Version, cache: &Arc<Cache>) {
        let place = |version: &Version| version.range_deletes.as_ref().map(Arc::as_ptr);
        if place(self) != place(before) {
            let set = self.range_deletes.as_ref();
            self.range_memory = set.map(|set| Arc::new(cache.pin(set.bytes() as u64)));
        }
    }

    /// The tables that another shape lacks, or has in another place or form.
    fn missing_in<'a>(&'a self, other: &'a Shape) -> impl Iterator<Item = &'a Arc<Table>> {
        (0..)
            .zip(&self.shape.levels)
            .flat_map(|(index, level)| crate::tree::level::missing(level, other.level(index)))
    }

    /// The handles of the tables that `next`, which was made from this version, does not have.
    pub fn left_by<'a>(&'a self, next: &'a Version) -> impl Iterator<Item = &'a Arc<TableHandle>> {
        self.missing_in(&next.shape)
            .filter(|table| next.handle(table.id).is_none())
            .filter_map(|table| self.handle(table.id))
    }

    /// Applies an edit.
    pub fn apply(&self, edit: &Edit) -> Result<Shape> {
        self.shape.apply(edit).map_err(|bad| {
            Error::corruption("manifest", 0, format!("an edit does not fit the tree: {bad}"))
        })
    }

    /// The handle of a table.
    pub fn handle(&self, id: TableId) -> Option<&Arc<TableHandle>> {
        self.handles.get(&id)
    }

    /// The access counters for this kind of charge that have reached `least`, of tables in
    /// overlapping levels, and the seeks of tables that have used up their seeks. O(tables of these
    /// levels).
    pub fn heat(&self, charge: Charge, least: u64) -> Heat {
        let overlapping = self.levels.iter().filter_map(|level| match &**level {
            ReadLevel::Overlapping(index) => Some(&index.tables),
            ReadLevel::Runs(_) => None,
        });
        let counts = overlapping.flatten().map(|table| (table.meta().id, table.accesses(charge)));
        let mut heat = Heat::default();
        heat.accesses = counts.filter(|(_, count)| *count >= least).collect();
        heat.seeks = self.spent_seeks();
        heat
    }

    /// Whether a policy uses entries that cursors sample: because a level may have tables that
    /// overlap, or because seeks are charged.
    pub fn wants_samples(&self) -> bool {
        let overlaps = |level: &Arc<ReadLevel>| matches!(&**level, ReadLevel::Overlapping(_));
        self.seeks.is_some() || self.levels.iter().any(overlaps)
    }

    /// Charges a seek for a key that a cursor sampled. In each level where two or more tables
    /// overlap at this key, it also charges the newest of them. Returns whether the policy should
    /// decide again.
    pub fn charge_sample(&self, key: &[u8]) -> bool {
        let is_spent = self.charge_sampled_seek(key);
        self.levels.iter().fold(is_spent, |hot, level| match &**level {
            ReadLevel::Overlapping(index) => index.charge_sample(key) | hot,
            ReadLevel::Runs(_) => hot,
        })
    }

    /// All handles, by table id.
    pub fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.handles.values()
    }

    /// The newest entry of `key` visible at `seq`. Counts the work in `stats`, which must be new,
    /// and charges tables with it.
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Option<Hit>> {
        let hit = self.search(key, hash, seq, stats)?;
        if self.wants_seek(stats) {
            self.charge_seek(key);
        }
        Ok(hit)
    }

    /// As `get`, but the caller checks [`Version::wants_seek`] and charges. Visits levels from
    /// shallow to deep. The first hit wins across levels and runs (I1), and rule I3 applies inside
    /// an overlapping level.
    pub fn search(
        &self,
        key: &[u8],
        hash: u64,
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Option<Hit>> {
        let lookup = Lookup { key, hash, trailer: seek_trailer(seq) };
        let mut ahead = ProbeQueue::new(lookup);
        for (index, level) in self.levels.iter().enumerate() {
            match &**level {
                ReadLevel::Runs(runs) => {
                    for table in runs.iter().filter_map(|run| run.find(key)) {
                        if let Some(hit) = ahead.push(index, table, stats)? {
                            return Ok(Some(hit));
                        }
                    }
                }
                ReadLevel::Overlapping(tables) => {
                    if let Some(hit) = ahead.probe_all(stats)? {
                        return Ok(Some(hit));
                    }
                    if let Some(hit) = tables.get(lookup, seq, stats)? {
                        stats.hit_level = Some(index);
                        return Ok(Some(hit));
                    }
                }
            }
        }
        ahead.probe_all(stats)
    }
}

impl Version {
    /// Whether a range delete may hide entries of a table from readers that see it.
    pub fn hides_some_of(&self, table: &Table) -> bool {
        let over = |set: &Arc<RangeDeletes>| set.over_any(&table.min_key, &table.max_key);
        self.range_deletes.as_ref().is_some_and(|set| over(set) > table.min_seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::format::filter;
    use crate::keys::{Kind, pack, seq_of};
    use crate::options::store::KeyspaceOptions;
    use crate::table::builder::TableBuilder;
    use crate::table::builder::TableLayout;
    use crate::table::handle::TableContext;
    use crate::tree::level::RunTables;
    use runstone_policy::overlapping::OverlappingTables;
    use runstone_policy::shape::{Level, Placement, Run, RunSlot};
    use runstone_random::Random;
    use runstone_storage::MemoryStorage;

    fn context() -> Arc<TableContext> {
        Arc::new(TableContext::new(
            Arc::new(MemoryStorage::new()),
            Arc::new(Cache::new(1 << 20)),
            7,
        ))
    }

    /// Tables, each given as a list of key and sequence number, which is also the value.
    fn write(context: &Arc<TableContext>, tables: &[&[(&str, SeqNo)]]) -> Vec<Arc<Table>> {
        let write = |(id, entries): (u64, &&[(&str, SeqNo)])| {
            let layout = TableLayout::of_level(&KeyspaceOptions::default(), &Shape::default(), 2);
            let mut builder = TableBuilder::create(context, id, layout).unwrap();
            for (key, seq) in *entries {
                let value = seq.to_string();
                builder.add(key.as_bytes(), pack(*seq, Kind::Put), value.as_bytes()).unwrap();
            }
            Arc::new(builder.finish().unwrap())
        };
        (1..).zip(tables).map(write).collect()
    }

    fn of_levels(context: &Arc<TableContext>, levels: Vec<Level>) -> Version {
        Version::default().next(
            Shape { levels, ..Shape::default() },
            RangeChange::default(),
            |table| Arc::new(TableHandle::new(Arc::clone(context), Arc::clone(table))),
        )
    }

    /// A level 2 of overlapping tables.
    fn version(tables: &[&[(&str, SeqNo)]]) -> Version {
        let context = context();
        let level = Level::Overlapping(OverlappingTables::new(write(&context, tables)));
        let empty = || Level::Runs(Vec::new());
        of_levels(&context, vec![empty(), empty(), level])
    }

    fn get(version: &Version, key: &str, seq: SeqNo) -> Option<SeqNo> {
        let (key, mut stats) = (key.as_bytes(), ProbeStats::default());
        let hit = version.get(key, filter::hash(key), seq, &mut stats).unwrap();
        hit.map(|(found, _)| seq_of(found.trailer))
    }

    /// X, Y and Z were compacted into one table, and Q was moved beside it (PTierDB). The compacted
    /// table has the larger sequence numbers, but its version of q1 is older than that in Q. If
    /// reads went by the paper's file numbers, or took the first hit by `max_seq`, they would find
    /// the stale version.
    #[test]
    fn x_y_z_q() {
        let compacted: &[(&str, SeqNo)] =
            &[("p1", 300), ("p2", 290), ("p3", 100), ("p8", 250), ("p9", 390), ("q1", 101)];
        let version = version(&[compacted, &[("q1", 201)]]);
        assert_eq!(get(&version, "q1", 1000), Some(201));
        assert_eq!(get(&version, "q1", 200), Some(101), "as of before Q was written");
        assert_eq!(get(&version, "q1", 100), None);
        assert_eq!(get(&version, "p9", 1000), Some(390));
    }

    /// The hit in the compacted table is older than a version that Q may contain, so Q is probed as
    /// well, and is counted separately. If the hit is newer than all of Q, Q is not probed.
    #[test]
    fn probes_behind_a_hit_are_counted_apart() {
        let compacted: &[(&str, SeqNo)] = &[("p1", 300), ("q1", 101), ("q2", 390)];
        let version = version(&[compacted, &[("q1", 201), ("q3", 202)]]);
        let probed = |key: &str| {
            let (key, mut stats) = (key.as_bytes(), ProbeStats::default());
            version.get(key, filter::hash(key), 1000, &mut stats).unwrap();
            (stats.tables, stats.tables_after_hit)
        };
        assert_eq!([probed("p1"), probed("q1"), probed("q2")], [(1, 0), (2, 1), (1, 0)]);
    }

    /// A random edit. If it adds a table, the table gets this id.
    fn random_edit(shape: &Shape, draw: &mut impl FnMut(u64) -> u64, id: TableId) -> Edit {
        let tables: Vec<(u32, Arc<Table>)> =
            shape.tables().map(|(level, table)| (level, Arc::clone(table))).collect();
        let picked = tables.get(draw(tables.len().max(1) as u64) as usize);
        let from = draw(60);
        let fresh = Arc::new(Table {
            id,
            min_key: format!("{from:02}").as_bytes().into(),
            max_key: format!("{:02}", from + draw(12)).as_bytes().into(),
            max_seq: 1 + draw(40),
            min_seq: 1,
            ..table_of_nothing()
        });
        let slot = |level| match level {
            0 => RunSlot::New(100 + id),
            3.. => RunSlot::Overlapping,
            level => RunSlot::New(level.into()),
        };
        let place = |level, table: &Arc<Table>| {
            vec![Placement { level, slot: slot(level), table: Arc::clone(table) }]
        };
        let mut edit = Edit::default();
        match (draw(8), picked) {
            (0, Some((_, table))) => edit.remove.push(table.id),
            (1, Some((level, table))) => {
                edit.remove.push(table.id);
                edit.place = place(level + 1, table);
            }
            (2, Some((_, table))) => edit.trim.push((table.id, table.max_key.clone())),
            (3, Some((level, _))) => edit.relabel.push((*level, level + 1)),
            (choice, _) => edit.place = place(choice as u32 % 5, &fresh),
        }
        edit
    }

    fn table_of_nothing() -> Table {
        Table { bytes: 1, entries: 1, ..Table::default() }
    }

    /// A level as readers see it.
    fn sight(version: &Version) -> Vec<String> {
        let row = |run: &RunTables| {
            let tables = run.tables.iter().map(|table| {
                let key = String::from_utf8_lossy(&table.meta().min_key).into_owned();
                let at = run.lower_bound(key.as_bytes());
                (table.meta().id, key, at)
            });
            format!("{:?}", tables.collect::<Vec<_>>())
        };
        let sight = |level: &Arc<ReadLevel>| match &**level {
            ReadLevel::Runs(runs) => runs.iter().map(|run| row(run)).collect::<Vec<_>>().concat(),
            ReadLevel::Overlapping(index) => {
                let found = (0..80).map(|key| {
                    let key = format!("{key:02}");
                    let covers = |table: &&Arc<TableHandle>| {
                        table.meta().overlaps(key.as_bytes(), key.as_bytes())
                    };
                    let mut expected: Vec<_> = index.tables.iter().filter(covers).collect();
                    expected.sort_by_key(|table| std::cmp::Reverse(table.meta().max_seq));
                    let ids = |table: &Arc<TableHandle>| table.meta().id;
                    let found = index.cover(key.as_bytes()).iter();
                    let found: Vec<_> = found.map(|at| ids(&index.tables[*at as usize])).collect();
                    assert_eq!(found, expected.into_iter().map(ids).collect::<Vec<_>>());
                    found
                });
                let found: Vec<_> = found.collect();
                let rows: Vec<String> = index.chains.iter().map(|run| row(run)).collect();
                format!("{rows:?} {found:?}")
            }
        };
        version.levels.iter().map(sight).collect()
    }

    /// A version that is made from the previous one equals a version that is made from scratch. It
    /// keeps the handles of unchanged tables, and shares unchanged levels.
    #[test]
    fn versions_share_what_stays() {
        let context = context();
        let open = |table: &Arc<Table>| {
            Arc::new(TableHandle::new(Arc::clone(&context), Arc::clone(table)))
        };
        let (mut random, mut shared, mut applied) = (Random::new(7), 0, 0);
        let mut draw = |below: u64| random.below(below);
        let mut version = Version::default();
        for id in 1..4000 {
            let edit = random_edit(&version.shape, &mut draw, id);
            let Ok(shape) = version.shape.apply(&edit) else { continue };
            applied += 1;
            let next = version.next(shape.clone(), RangeChange::default(), open);
            assert_eq!(
                sight(&next),
                sight(&Version::default().next(shape, RangeChange::default(), open)),
                "{edit:?}"
            );
            let mut ids: Vec<TableId> = next.handles().map(|handle| handle.meta().id).collect();
            ids.sort_unstable();
            let mut expected: Vec<TableId> = next.shape.tables().map(|(_, t)| t.id).collect();
            expected.sort_unstable();
            assert_eq!(ids, expected);
            let is_left = |handle: &&Arc<TableHandle>| next.handle(handle.meta().id).is_none();
            let mut left: Vec<TableId> = version.left_by(&next).map(|h| h.meta().id).collect();
            left.sort_unstable();
            let mut gone: Vec<TableId> =
                version.handles().filter(is_left).map(|h| h.meta().id).collect();
            gone.sort_unstable();
            assert_eq!(left, gone, "{edit:?}");
            for (_, table) in next.shape.tables() {
                let same = version.handle(table.id).zip(next.handle(table.id));
                assert!(same.is_none_or(|(old, new)| old.is_same_file(new)), "{edit:?}");
            }
            let levels = version.levels.iter().zip(&next.levels);
            shared += levels.filter(|(old, new)| Arc::ptr_eq(old, new)).count();
            version = next;
        }
        assert!(applied > 1000 && shared > 2 * applied, "{applied} edits, {shared} levels shared");
    }

    /// Thirty tables that may all contain the key: runs of two levels, an overlapping level, and
    /// runs again. A get finds the newest visible version, and probes nothing older.
    #[test]
    fn gets_find_the_newest_of_many_tables() {
        const TABLES: SeqNo = 30;
        let context = context();
        // Table i, counted from the newest, contains "k" at 100 - i, if at all.
        let has = |i: SeqNo| i % 7 == 3;
        let entries: Vec<Vec<(&str, SeqNo)>> = (0..TABLES)
            .map(|i| [("a", 100 - i), ("k", 100 - i), ("z", 100 - i)].into())
            .map(|all: Vec<_>| all.into_iter().filter(|(k, s)| *k != "k" || has(100 - s)).collect())
            .collect();
        let slices: Vec<&[(&str, SeqNo)]> = entries.iter().map(|entries| &entries[..]).collect();
        let tables = write(&context, &slices);
        let runs = |tables: &[Arc<Table>]| {
            let run = |table: &Arc<Table>| Run {
                id: table.id,
                last_flush: 0,
                tables: vec![Arc::clone(table)],
            };
            Level::Runs(tables.iter().map(run).collect())
        };
        let overlapping = Level::Overlapping(OverlappingTables::new(tables[12..22].to_vec()));
        let levels =
            vec![runs(&tables[..11]), runs(&tables[11..12]), overlapping, runs(&tables[22..])];
        let level_of = |i: SeqNo| (i > 10) as usize + (i > 11) as usize + (i > 21) as usize;
        let version = of_levels(&context, levels);
        for seq in 100 - TABLES..=100 {
            let mut stats = ProbeStats::default();
            let hit = version.get(b"k", filter::hash(b"k"), seq, &mut stats).unwrap();
            let expected = (100 - seq..TABLES).find(|i| has(*i));
            assert_eq!(hit.map(|(found, _)| seq_of(found.trailer)), expected.map(|i| 100 - i));
            assert_eq!(stats.hit_level, expected.map(level_of), "as of {seq}");
            // Tables of an overlapping level that begin after `seq` are skipped.
            let passed = (12..22).filter(|i| 100 - i > seq).count() as u64;
            let to_probe = expected.map_or(TABLES, |i| i + 1);
            let passed =
                if to_probe > 22 { passed } else { passed.min(to_probe.saturating_sub(12)) };
            assert_eq!(stats.tables, to_probe - passed, "as of {seq}");
        }
    }

    #[test]
    fn gets_charge_tables_only_where_they_overlap() {
        let version = version(&[&[("a", 1), ("m", 2)], &[("f", 3), ("z", 4)]]);
        for _ in 0..3 {
            get(&version, "b", 9);
            get(&version, "h", 9);
            get(&version, "y", 9);
        }
        let heat = version.heat(Charge::Probes, 1);
        assert_eq!(heat.accesses.into_iter().collect::<Vec<_>>(), [(1, 3), (2, 3)]);
        assert!(version.heat(Charge::Probes, 4).accesses.is_empty());
        assert!(version.heat(Charge::BlockReads, 1).accesses.is_empty(), "the filters said no");
        for key in [b"b", b"h", b"y"] {
            version.charge_sample(key);
        }
        let heat = version.heat(Charge::Probes, 1);
        assert_eq!(heat.accesses.into_iter().collect::<Vec<_>>(), [(1, 3), (2, 4)], "the newest");
    }
}
