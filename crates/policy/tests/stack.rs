//! Tests the stack-based policies against known figures: how much they write and how many runs they
//! keep after equal flushes. Also tests stacks that lag and trees that another policy left. Text
//! tests check their rules one by one.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::edit::edit_for;
use runstone_policy::options::{MAX_OPTION_BYTES, Numbers, PolicyOptions};
use runstone_policy::plan::{Busy, Heat, Plan};
use runstone_policy::policy::{CompactionPolicy, compaction_debt_bytes};
use runstone_policy::registry::find;
use runstone_policy::shape::{Edit, Level, Placement, RunSlot, Shape, Table, TableId};
use support::{placing, table};

const FLUSH_BYTES: u64 = 1000;

/// A store of equal flushes that all span the same keys.
struct Stack {
    policy: &'static dyn CompactionPolicy,
    options: PolicyOptions,
    shape: Shape,
    next_id: TableId,
    written: u64,
    most_runs: usize,
}

impl Stack {
    fn new(policy: &str, stack_runs: u32) -> Stack {
        let options = Numbers { stack_runs, table_bytes: MAX_OPTION_BYTES, ..Numbers::default() }
            .into_options();
        let policy = find(policy).unwrap();
        policy.check(&options).unwrap();
        let shape = Shape::default();
        Stack { policy, options, shape, next_id: 1, written: 0, most_runs: 0 }
    }

    fn flush(&mut self) {
        let table = table(self.next_id, ("a", "z"), (self.next_id, self.next_id), FLUSH_BYTES);
        let place = vec![Placement { level: 0, slot: RunSlot::New(self.next_id), table }];
        self.shape = self.shape.apply(&Edit { place, flushes: 1, ..Edit::default() }).unwrap();
        self.next_id += 1;
        self.written += FLUSH_BYTES;
    }

    fn pick(&self, busy: &Busy) -> Option<Plan> {
        self.policy.pick(&self.shape, busy, &Heat::default(), &self.options)
    }

    /// Installs a plan, each of whose compactions writes one table.
    fn finish(&mut self, plan: &Plan) {
        let tables: BTreeMap<TableId, Arc<Table>> =
            self.shape.tables().map(|(_, table)| (table.id, Arc::clone(table))).collect();
        let mut outputs = Vec::new();
        for compaction in &plan.compactions {
            let inputs = || compaction.input_ids().map(|id| &tables[&id]);
            let bytes = inputs().map(|table| table.bytes).sum();
            let min_seq = inputs().map(|table| table.min_seq).min().unwrap();
            let max_seq = inputs().map(|table| table.max_seq).max().unwrap();
            outputs.push(vec![table(self.next_id, ("a", "z"), (min_seq, max_seq), bytes)]);
            self.next_id += 1;
            self.written += bytes;
        }
        self.shape = self.shape.apply(&edit_for(&self.shape, plan, &outputs)).unwrap();
    }

    fn settle(&mut self) {
        while let Some(plan) = self.pick(&Busy::default()) {
            self.finish(&plan);
        }
        self.most_runs = self.most_runs.max(self.shape.level(0).runs().len());
    }

    /// For each run, newest first: its last flush, and its count of flushes.
    fn runs(&self) -> Vec<(u64, u64)> {
        let runs = self.shape.level(0).runs().iter();
        runs.map(|run| (run.last_flush, run.bytes() / FLUSH_BYTES)).collect()
    }
}

/// Write amplification in hundredths, rounded, with flushes included; and the largest number of
/// runs at rest.
fn figures(policy: &str, flushes: u64, stack_runs: u32) -> (u64, usize) {
    let mut stack = Stack::new(policy, stack_runs);
    for _ in 0..flushes {
        stack.flush();
        stack.settle();
    }
    let user_bytes = flushes * FLUSH_BYTES;
    let hundredths = (stack.written * 100 + user_bytes / 2) / user_bytes;
    (hundredths, stack.most_runs)
}

#[test]
fn write_amplification_and_most_runs_are_the_known_ones() {
    assert_eq!(figures("binomial", 1000, 4), (956, 4));
    assert_eq!(figures("min-latency", 1000, 4), (872, 4));
    assert_eq!(figures("bigtable", 1000, 4), (1339, 4));
    assert_eq!(figures("constant", 1000, 4), (12575, 4));
    assert_eq!(figures("binomial", 1000, 6).0, 611);
    assert_eq!(figures("min-latency", 1000, 6).0, 641);
    assert_eq!(figures("bigtable", 1000, 6).0, 631);
    assert_eq!(figures("constant", 1000, 6).0, 8433);
}

#[test]
fn binomial_compacts_before_the_stack_is_full() {
    // If the policy waited for k runs first (a known mistake), this would be 7.96.
    assert_eq!(figures("binomial", 1000, 8).0, 587);
}

#[test]
fn universal_keeps_its_number_of_runs() {
    let (hundredths, most_runs) = figures("universal", 1000, 6);
    assert!(most_runs <= 6 && hundredths < 1500, "{hundredths} {most_runs}");
}

#[test]
fn a_stack_that_lags_jumps_to_the_newest_layout() {
    for policy in ["binomial", "min-latency"] {
        let (mut prompt, mut late) = (Stack::new(policy, 4), Stack::new(policy, 4));
        for flush in 1..=2000 {
            prompt.flush();
            prompt.settle();
            late.flush();
            // The number of flushes between two settles varies.
            if flush * flush % 97 < 9 {
                late.settle();
                assert_eq!(late.runs(), prompt.runs(), "{policy} after {flush}");
            }
        }
        assert!(late.written < prompt.written, "what is skipped is not written");
    }
}

#[test]
fn compactions_of_several_runs_of_a_layout_go_side_by_side() {
    let mut stack = Stack::new("binomial", 3);
    for _ in 0..40 {
        stack.flush();
    }
    let debt = compaction_debt_bytes(&stack.shape, stack.policy, &stack.options);
    assert!((20 * FLUSH_BYTES..40 * FLUSH_BYTES).contains(&debt), "{debt}");
    let mut plans: Vec<Plan> = Vec::new();
    while let Some(plan) = stack.pick(&Busy::of(&stack.shape, &plans)) {
        plans.push(plan);
        // Flushes continue meanwhile. A job that is already running stays valid in any later
        // layout.
        stack.flush();
    }
    assert!(plans.len() >= 2, "{plans:?}");
    // Compactions may finish in any order.
    plans.iter().for_each(|plan| stack.finish(plan));
    stack.settle();
    let mut prompt = Stack::new("binomial", 3);
    for _ in 0..stack.shape.state.flush_count {
        prompt.flush();
        prompt.settle();
    }
    assert_eq!(stack.runs(), prompt.runs());
    assert_eq!(compaction_debt_bytes(&stack.shape, stack.policy, &stack.options), 0);
}

/// A run moves up to a shallower level, and other jobs stay out of its way meanwhile.
#[test]
fn what_comes_up_is_the_oldest_and_keeps_its_way_free() {
    let mut stack = Stack::new("constant", 6);
    let runs = [(2, 5, 1), (2, 4, 2), (1, 1, 3)];
    for (level, run, id) in runs {
        let edit = placing(level, RunSlot::New(run), &[table(id, ("c", "m"), (id, id), 10)]);
        stack.shape = stack.shape.apply(&edit).unwrap();
    }
    stack.next_id = 4;
    stack.flush();
    let plan = stack.pick(&Busy::default()).unwrap();
    assert_eq!(plan.table_ids().collect::<Vec<_>>(), [3], "level by level");
    let busy = Busy::of(&stack.shape, [&plan]);
    assert!(busy.writes(0, b"c", b"c") && busy.writes(1, b"c", b"c"));
    assert!(!busy.writes_into(2));
    assert_eq!(stack.pick(&busy), None, "the next level would overtake it");
    // A tiered policy does not look at tables that it does not compact. The range into which the
    // running plan writes stops such a policy.
    let tiering = find("tiering").unwrap();
    let options = Numbers { l0_trigger: 1, ..Numbers::default() }.into_options();
    assert_eq!(tiering.pick(&stack.shape, &busy, &Heat::default(), &options), None);
    stack.finish(&plan);
    stack.flush();
    stack.settle();
    let Level::Runs(runs) = stack.shape.level(0) else { panic!("no runs") };
    let runs: Vec<(u64, u64)> = runs.iter().map(|run| (run.id, run.last_flush)).collect();
    assert_eq!(runs, [(5, 2), (4, 1), (1, 0), (2, 0), (3, 0)], "level 2's newer run first");
    assert_eq!(stack.shape.levels.len(), 1);
}
