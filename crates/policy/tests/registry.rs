//! Tests the promises of every registered policy on random trees: plans use idle inputs that exist,
//! age order holds (I1), runs stay disjoint, the work ends, and a plan depends on its arguments
//! alone. The tables have contents here, so I1 and the tombstone rule (I4) are checked on versions
//! of keys, not on bounds. Expectations of a single policy belong in the text tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use runstone_policy::drop_guard::DropGuard;
use runstone_policy::edit::edit_for;
use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::partition::PARTITIONERS;
use runstone_policy::plan::{Busy, Compaction, Heat, Plan};
use runstone_policy::policies::fragmented_leveling::L0_PATIENCE;
use runstone_policy::policy::{
    CompactionPolicy, LevelTarget, compaction_debt_bytes, idle_plan, next_plan,
};
use runstone_policy::range::range_plan;
use runstone_policy::registry::POLICIES;
use runstone_policy::shape::{Edit, Level, Placement, RunSlot, SeqNo, Shape, Table, TableId};
use runstone_policy::sketch::Sketch;
use runstone_policy::units::Thousandths;

/// Picking and applying must end long before this.
const MAX_STEPS: usize = 10_000;
/// Small enough that a table of the smallest allowed size has four keys.
const ENTRY_BYTES: u64 = 1 << 10;

/// The versions of each key by sequence number; true is a delete.
type Contents = BTreeMap<u8, BTreeMap<SeqNo, bool>>;

#[derive(Clone, Debug)]
enum Op {
    /// Writes these keys (true: delete) and flushes them as one run of about `pieces` tables.
    Flush { keys: BTreeMap<u8, bool>, pieces: usize },
    /// Picks a plan beside the running jobs and starts it.
    Start,
    /// Finishes one of the running jobs.
    Finish(usize),
    /// Picks with some more tables busy and only checks the plan.
    Look(u64),
    /// Heats some tables.
    Warm(u64),
    /// Compacts a range of keys, if nothing runs.
    CompactRange(u8, u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let keys = (0u8..32, 1u8..32, any::<u64>()).prop_flat_map(|(from, width, seed)| {
        let last = from.saturating_add(width).min(31);
        prop::collection::btree_map(from..=last, Just(seed % 4 == 0), 1..12)
    });
    let flush = (keys, 1usize..4).prop_map(|(keys, pieces)| Op::Flush { keys, pieces });
    let op = prop_oneof![
        4 => flush,
        4 => Just(Op::Start),
        3 => (0usize..4).prop_map(Op::Finish),
        1 => any::<u64>().prop_map(Op::Look),
        1 => any::<u64>().prop_map(Op::Warm),
        1 => (0u8..32, 0u8..8).prop_map(|(from, width)| Op::CompactRange(from, from + width)),
    ];
    prop::collection::vec(op, 1..60)
}

fn options() -> impl Strategy<Value = PolicyOptions> {
    let runs = (1u32..5, 1u32..4);
    let c_permille = prop_oneof![Just(1000u32), 300u32..1000];
    let universal = (1u32..6, prop_oneof![Just(200u32), 1u32..400], 0u32..50, 2u32..4, 0u32..4);
    let stack = (1u32..7, universal, prop::sample::select(PARTITIONERS));
    let share = (prop_oneof![Just(0u32), Just(50), 0u32..=100], any::<bool>());
    let space = prop_oneof![Just(0u32), Just(110), 110u32..400];
    let numbers = (2u32..6, 1u32..5, 1u64..4, 1u64..4, runs, c_permille, share);
    (numbers, stack, space).prop_map(|(numbers, stack, max_space_percent)| {
        let (size_ratio, l0_trigger, base, table, (k, z), c_permille, share) = numbers;
        let (l0_share_percent, seek_compaction) = share;
        let (stack_runs, (trigger, amp, ratio, min_width, more), partitioner) = stack;
        Numbers {
            stack_runs,
            universal_trigger: trigger,
            universal_amp_percent: amp,
            universal_ratio_percent: ratio,
            universal_min_width: min_width,
            universal_max_width: min_width + more,
            partitioner,
            size_ratio,
            l0_trigger,
            l0_share_percent,
            seek_compaction,
            base_bytes: base << 13,
            table_bytes: table << 12,
            split_bytes: table << 12,
            max_runs: k,
            last_level_runs: z,
            c: Thousandths::of_parts(c_permille),
            max_space_percent,
            ..Numbers::default()
        }
        .into_options()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        // PROPTEST_CASES can set more.
        ..ProptestConfig::with_cases(ProptestConfig::default().cases.max(2000))
    })]

    #[test]
    fn promises_hold(
        ops in ops(),
        options in options(),
        inherited in 0u32..4,
        keeps_history in any::<bool>(),
    ) {
        for policy in POLICIES {
            let mut world = World::new(*policy, options.clone(), inherited, keeps_history);
            for op in &ops {
                world.run(op);
            }
            world.settle();
        }
    }
}

/// A job: its plan and, per compaction, the guard made when it was picked.
struct Running {
    plan: Plan,
    guards: Vec<DropGuard>,
}

struct World {
    policy: &'static dyn CompactionPolicy,
    options: PolicyOptions,
    /// Whether compactions keep all versions (I1 in its strict form). Otherwise they keep only what
    /// a store without snapshots would keep: tombstones are dropped, and reads are checked.
    keeps_history: bool,
    shape: Shape,
    contents: BTreeMap<TableId, Contents>,
    running: Vec<Running>,
    /// Access counters of some tables, drawn at any time.
    heat: Heat,
    next_id: TableId,
    next_seq: SeqNo,
    /// The newest version of each key, if it is not a delete.
    expected: BTreeMap<u8, SeqNo>,
}

impl World {
    fn new(
        policy: &'static dyn CompactionPolicy,
        mut options: PolicyOptions,
        inherited: u32,
        keeps_history: bool,
    ) -> World {
        if let Some(own) = policy.own_partitioner() {
            Numbers::of_mut(&mut options).partitioner = own;
        }
        policy.check(&options).unwrap();
        let mut world = World {
            policy,
            options,
            keeps_history,
            shape: Shape::default(),
            contents: BTreeMap::new(),
            running: Vec::new(),
            heat: Heat::default(),
            next_id: 1,
            next_seq: 1,
            expected: BTreeMap::new(),
        };
        world.inherit(inherited);
        world
    }

    /// Makes a tree that another policy left: deeper levels with overlapping tables or several
    /// runs, and a last level that is too deep for the tree.
    fn inherit(&mut self, layout: u32) {
        let edit = Edit { last_level: Some(2 * layout), ..Edit::default() };
        self.shape = self.shape.apply(&edit).unwrap();
        for (level, is_overlapping) in [(3, layout & 2 != 0), (1, layout & 1 != 0)] {
            for batch in 0u8..if layout == 0 { 0 } else { 4 } {
                let keys = (batch..32).step_by(3).map(|key| (key, key % 8 == 0)).collect();
                let contents = self.write(&keys);
                // Both levels use the same run ids: tables that sink must not join a run that has
                // their id below.
                let run = u64::from(batch);
                let slot = if is_overlapping { RunSlot::Overlapping } else { RunSlot::New(run) };
                self.add(level, slot, vec![contents], 0);
            }
        }
        self.check();
    }

    fn write(&mut self, keys: &BTreeMap<u8, bool>) -> Contents {
        let mut contents = Contents::new();
        for (key, is_delete) in keys {
            contents.insert(*key, BTreeMap::from([(self.next_seq, *is_delete)]));
            match is_delete {
                true => self.expected.remove(key),
                false => self.expected.insert(*key, self.next_seq),
            };
            self.next_seq += 1;
        }
        contents
    }

    fn add(&mut self, level: u32, slot: RunSlot, parts: Vec<Contents>, flushes: u64) {
        let tables: Vec<Arc<Table>> = parts.into_iter().map(|part| self.table(part)).collect();
        let place = tables.into_iter().map(|table| Placement { level, slot, table }).collect();
        self.shape = self.shape.apply(&Edit { place, flushes, ..Edit::default() }).unwrap();
    }

    fn table(&mut self, contents: Contents) -> Arc<Table> {
        let id = self.next_id;
        self.next_id += 1;
        let seqs = || contents.values().flat_map(|versions| versions.keys().copied());
        let deletes = contents.values().flat_map(BTreeMap::values).filter(|delete| **delete);
        let key = |key: Option<&u8>| Box::from([*key.unwrap()]);
        let table = Table {
            id,
            min_key: key(contents.keys().next()),
            prefixes: prefixes_of(&contents),
            max_key: key(contents.keys().next_back()),
            bytes: contents.len() as u64 * ENTRY_BYTES,
            entries: contents.values().map(|versions| versions.len() as u64).sum(),
            tombstones: deletes.count() as u64,
            min_seq: seqs().min().unwrap(),
            max_seq: seqs().max().unwrap(),
            filter_bits: 0,
            sketch: sketch_of(&contents),
            ..Table::default()
        };
        self.contents.insert(id, contents);
        Arc::new(table)
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Flush { keys, pieces } => {
                let contents: Vec<_> = self.write(keys).into_iter().collect();
                let parts = contents.chunks(contents.len().div_ceil(*pieces));
                let parts = parts.map(|part| part.iter().cloned().collect()).collect();
                self.add(0, RunSlot::New(self.next_id), parts, 1);
            }
            Op::Start => {
                let busy = self.busy();
                self.start(&busy);
            }
            Op::Finish(at) if !self.running.is_empty() => {
                let job = self.running.remove(at % self.running.len());
                self.finish(job);
            }
            Op::Finish(_) => {}
            Op::Warm(bits) => {
                let ids = self.shape.tables().map(|(_, table)| table.id);
                let hot = ids.filter(|id| bits >> (id % 64) & 1 == 1);
                self.heat.accesses = hot.map(|id| (id, 1 << 20)).collect();
                self.heat.seeks = self.heat.accesses.clone();
            }
            Op::CompactRange(from, to) => self.compact_range(&[*from], &[*to]),
            Op::Look(bits) => {
                let mut busy = self.busy();
                let ids = self.shape.tables().map(|(_, table)| table.id);
                busy.tables.extend(ids.filter(|id| bits >> (id % 64) & 1 == 1));
                self.pick(&busy);
            }
        }
        self.check();
    }

    /// Compacts a range. Afterwards the range has one layer, and no tombstones unless all history
    /// is kept.
    fn compact_range(&mut self, from: &[u8], to: &[u8]) {
        let range =
            |shape: &Shape| range_plan(shape, self.policy, &self.options, 0, (from, Some(to)));
        if !self.running.is_empty() || self.shape.pending.is_some() {
            return;
        }
        let Some(plan) = self.checked(&Busy::default(), range) else { return };
        self.begin(plan);
        let job = self.running.pop().unwrap();
        self.finish(job);
        let range = range_plan(&self.shape, self.policy, &self.options, 0, (from, Some(to)));
        let rest = range.iter().flat_map(|plan| &plan.compactions).map(|one| one.inputs.len());
        assert!(rest.max().unwrap_or(0) <= 1, "{range:?}");
        assert!(range.is_none() || self.keeps_history, "{range:?}");
    }

    /// Finishes all jobs, then works until nothing is left to do.
    fn settle(&mut self) {
        while let Some(job) = self.running.pop() {
            self.finish(job);
            self.check();
        }
        // New tables start with new counters. If tables stayed hot, compaction would never end.
        // Tables that stay charged with seeks end up in the deepest level.
        self.heat.accesses.clear();
        let mut steps = 0;
        while self.start(&Busy::default()) {
            let job = self.running.pop().unwrap();
            self.finish(job);
            self.check();
            steps += 1;
            assert!(steps < MAX_STEPS, "{} does not come to an end", self.policy.name());
        }
        let name = self.policy.name();
        let targets = self.policy.targets(&self.shape, &self.options);
        assert!(targets.len() > self.shape.levels.len(), "{name}: one below the deepest in use");
        // The same holds for level 0: the waiting runs are within its run count, or their
        // compaction is not worth its cost yet.
        assert!(self.shape.level(0).runs().len() as u64 <= self.most_waiting_runs(&targets[0]));
        for (index, level) in self.shape.levels.iter().enumerate().skip(1) {
            let runs = level.runs().len();
            assert!(!targets[index].is_over(level.bytes(), runs), "{name} L{index}: {level:?}");
            let may_overlap = ["adaptive-tiering", "guards"].contains(&name);
            let is_reshaped = matches!(level, Level::Runs(_)) || may_overlap;
            assert!(is_reshaped, "{name} L{index} still overlaps");
        }
        let debt = compaction_debt_bytes(&self.shape, self.policy, &self.options);
        assert!(debt <= 8 * self.shape.bytes());
        self.idle();
    }

    /// Checks that the work of an idle store ends, and that the policy does not undo it.
    fn idle(&mut self) {
        let busy = Busy::default();
        for step in 0.. {
            let plan = self.pick(&busy).or_else(|| self.pick_idle());
            let Some(plan) = plan else { break };
            self.begin(plan);
            let job = self.running.pop().unwrap();
            self.finish(job);
            self.check();
            // Where all history is kept, tombstones are never dropped, so a store tries only once.
            if self.keeps_history && step > 0 {
                return;
            }
            assert!(step < MAX_STEPS, "{} never idles", self.policy.name());
        }
        let sum = |of: fn(&Table) -> u64| self.shape.tables().map(|(_, t)| of(t)).sum::<u64>();
        let (tombstones, entries) = (sum(|table| table.tombstones), sum(|table| table.entries));
        assert!(self.keeps_history || tombstones * 4 < entries.max(1), "{:?}", self.shape);
    }

    /// Policies that sink single tables let more runs wait until a compaction is worth its cost.
    fn most_waiting_runs(&self, target: &LevelTarget) -> u64 {
        let patience = match self.policy.name() {
            "fragmented-leveling" | "garnering"
                if Numbers::of(&self.options).l0_share_percent > 0 =>
            {
                L0_PATIENCE
            }
            _ => 1,
        };
        (u64::from(target.max_runs) + 1) * u64::from(patience) - 1
    }

    fn busy(&self) -> Busy {
        Busy::of(&self.shape, self.running.iter().map(|job| &job.plan))
    }

    fn start(&mut self, busy: &Busy) -> bool {
        let Some(plan) = self.pick(busy) else {
            return false;
        };
        self.begin(plan);
        true
    }

    fn begin(&mut self, plan: Plan) {
        let guard = |m: &Compaction| DropGuard::new(&self.shape, &m.input_ids().collect());
        let guards = plan.compactions.iter().map(guard).collect();
        self.running.push(Running { plan, guards });
    }

    fn pick(&self, busy: &Busy) -> Option<Plan> {
        let next = |shape: &Shape| next_plan(self.policy, shape, busy, &self.heat, &self.options);
        let plan = self.checked(busy, next)?;
        self.check_age(&plan, &plan.table_ids().collect());
        Some(plan)
    }

    fn pick_idle(&self) -> Option<Plan> {
        let busy = Busy::default();
        self.checked(&busy, |shape| idle_plan(self.policy, shape, &busy, &self.options, 1))
    }

    /// Returns what `next` picks, after a check of the promises of a plan.
    fn checked(&self, busy: &Busy, next: impl Fn(&Shape) -> Option<Plan>) -> Option<Plan> {
        let plan = next(&self.shape);
        assert_eq!(plan, next(&self.shape.clone()));
        let plan = plan?;
        assert!(!plan.why.is_empty() && !plan.why.contains('\n'), "{plan:?}");
        let ids: Vec<TableId> = plan.table_ids().collect();
        let unique: BTreeSet<TableId> = ids.iter().copied().collect();
        assert!(self.changes_something(&plan) && ids.len() == unique.len(), "{plan:?}");
        let owned = Busy::of(&self.shape, [&plan]).tables;
        assert!(
            unique.is_subset(&owned) && owned.is_disjoint(&busy.tables),
            "{plan:?} of {busy:?}"
        );
        for (from, to) in &plan.relabel {
            // Tables that still arrive in an overlapping level are newer, so they may arrive before
            // the relabelling or after it.
            let is_open = matches!(self.shape.level(*from), Level::Overlapping(_));
            assert!(*from > 0 && (is_open || !busy.writes_into(*from)), "{plan:?}");
            assert!(!busy.writes_into(*to), "{plan:?}");
        }
        let places: BTreeMap<TableId, u32> =
            self.shape.tables().map(|(level, table)| (table.id, level)).collect();
        let moved = plan.moves.iter().map(|step| (step.table, step.from_level));
        let inputs = plan.compactions.iter().flat_map(|compaction| &compaction.inputs);
        let compacted = inputs.flat_map(|part| part.tables.iter().map(|id| (*id, part.level)));
        for (id, level) in moved.chain(compacted) {
            assert_eq!(places.get(&id), Some(&level), "{plan:?}");
        }
        // Tables of an overlapping level need not wait for each other.
        let slots = plan.compactions.iter().map(|compaction| compaction.slot);
        let overlaps =
            slots.chain(plan.moves.iter().map(|step| step.slot)).all(|s| s == RunSlot::Overlapping);
        let ranges = plan.ranges(&self.shape);
        for range in ranges.iter().filter(|range| range.level > 0 && !overlaps) {
            assert!(!busy.writes(range.level, &range.min_key, &range.max_key), "{plan:?}");
        }
        Some(plan)
    }

    /// A plan that leaves the shape unchanged would be picked again for ever.
    fn changes_something(&self, plan: &Plan) -> bool {
        let is_new = |level: u32| level != self.shape.state.last_level;
        let renames = |(from, _): &(u32, u32)| !self.shape.level(*from).is_empty();
        plan.table_ids().next().is_some()
            || plan.last_level.is_some_and(is_new)
            || plan.relabel.iter().any(renames)
    }

    /// Checks that a plan uses whole level-0 runs that are neighbours and that, if runs leave level
    /// 0, the oldest is among them.
    fn check_age(&self, plan: &Plan, ids: &BTreeSet<TableId>) {
        let runs = self.shape.level(0).runs();
        let taken: Vec<usize> = (0..runs.len())
            .filter(|at| runs[*at].tables.iter().any(|table| ids.contains(&table.id)))
            .collect();
        let (Some(first), Some(last)) = (taken.first(), taken.last()) else {
            return;
        };
        assert_eq!(taken, (*first..=*last).collect::<Vec<_>>(), "{plan:?}");
        for at in &taken {
            assert!(runs[*at].tables.iter().all(|table| ids.contains(&table.id)), "{plan:?}");
        }
        let targets = plan.compactions.iter().map(|compaction| compaction.output_level);
        if targets.chain(plan.moves.iter().map(|step| step.to_level)).any(|level| level > 0) {
            assert_eq!(*last, runs.len() - 1, "{plan:?}");
        }
    }

    fn finish(&mut self, job: Running) {
        let Running { plan, guards } = job;
        let mut outputs = Vec::new();
        for (compaction, guard) in plan.compactions.iter().zip(guards) {
            outputs.push(self.compact(compaction, guard));
        }
        let edit = edit_for(&self.shape, &plan, &outputs);
        match self.shape.apply(&edit) {
            Ok(shape) => self.shape = shape,
            Err(error) => panic!("{}: {error}: {plan:?}", self.policy.name()),
        }
        for id in plan.compactions.iter().flat_map(Compaction::input_ids) {
            self.contents.remove(&id);
        }
    }

    fn compact(&mut self, compaction: &Compaction, mut guard: DropGuard) -> Vec<Arc<Table>> {
        let mut union = Contents::new();
        for id in compaction.input_ids() {
            for (key, versions) in &self.contents[&id] {
                union.entry(*key).or_default().extend(versions);
            }
        }
        if !self.keeps_history {
            union.retain(|key, versions| {
                let (seq, is_delete) = versions.pop_last().unwrap();
                *versions = BTreeMap::from([(seq, is_delete)]);
                !is_delete || !guard.allows(&[*key], seq)
            });
        }
        let entries: Vec<_> = union.into_iter().collect();
        let per_table = usize::try_from(compaction.cut.cap_bytes() / ENTRY_BYTES).unwrap();
        let parts = entries.chunks(per_table).map(|part| part.iter().cloned().collect());
        let parts: Vec<Contents> = parts.collect();
        parts.into_iter().map(|part| self.table(part)).collect()
    }

    /// Checks I1 and the result of a read of each key.
    fn check(&self) {
        let mut found: BTreeMap<u8, (SeqNo, bool)> = BTreeMap::new();
        let mut oldest: BTreeMap<u8, SeqNo> = BTreeMap::new();
        for level in &self.shape.levels {
            // A layer is a run or a whole overlapping level. There is no order to keep inside the
            // latter.
            let layers: Vec<&[Arc<Table>]> = match level {
                Level::Runs(runs) => runs.iter().map(|run| &run.tables[..]).collect(),
                Level::Overlapping(tables) => vec![tables],
            };
            for tables in layers {
                let mut layer: BTreeMap<u8, BTreeMap<SeqNo, bool>> = BTreeMap::new();
                for (key, versions) in tables.iter().flat_map(|t| &self.contents[&t.id]) {
                    layer.entry(*key).or_default().extend(versions);
                }
                for (key, versions) in layer {
                    let (newest, is_delete) = versions.last_key_value().unwrap();
                    if let Some(above) = oldest.insert(key, *versions.keys().next().unwrap()) {
                        assert!(*newest < above, "I1 broken by {}", self.policy.name());
                    }
                    found.entry(key).or_insert((*newest, *is_delete));
                }
            }
        }
        let live = found.into_iter().filter(|(_, (_, is_delete))| !is_delete);
        let live: BTreeMap<u8, SeqNo> = live.map(|(key, (seq, _))| (key, seq)).collect();
        assert_eq!(live, self.expected, "reads under {}", self.policy.name());
    }
}

/// The sketch of the keys. Any hash will do.
fn sketch_of(contents: &Contents) -> Sketch {
    let mut sketch = Sketch::of_nothing();
    for key in contents.keys() {
        let hash = (u64::from(*key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sketch.add(hash ^ (hash >> 29));
    }
    sketch
}

/// Eight keys share a prefix.
fn prefixes_of(contents: &Contents) -> Vec<Box<[u8]>> {
    let prefixes: BTreeSet<u8> = contents.keys().map(|key| key / 8 * 8).collect();
    prefixes.into_iter().map(|prefix| Box::from([prefix])).collect()
}
