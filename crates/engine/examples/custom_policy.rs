//! A custom compaction policy: once level 0 has `l0_trigger` runs, the whole tree becomes one run.
//! The policy is registered by name, chosen by name, and judged by its cost.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::policy::custom::plan::{Compaction, CompactionInput, Plan};
use runstone::policy::custom::shape::{RunSlot, Shape};
use runstone::policy::custom::{CompactionPolicy, Job, LevelTarget, PolicyOptions, registry};
use runstone::storage::MemoryStorage;
use runstone::{KeyspaceOptions, Result, Store};

struct AllAtOnce;

impl CompactionPolicy for AllAtOnce {
    fn name(&self) -> &'static str {
        "all-at-once"
    }

    fn doc(&self) -> &'static str {
        "everything becomes one run when level 0 is full"
    }

    /// The limits of each level, on which back-pressure and metrics are based.
    fn targets(&self, _shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        let most_runs = |count| LevelTarget::UNBOUNDED.max_runs(count);
        vec![most_runs(options.l0_trigger() - 1), most_runs(1), LevelTarget::UNBOUNDED]
    }

    /// A pure function of the shape: it only names tables, and the store does the work.
    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        let fresh = job.shape.level(0).runs();
        if fresh.len() < job.options.l0_trigger() as usize || job.busy.writes_into(1) {
            return None;
        }
        let runs = fresh.iter().map(|run| (0, run));
        let runs = runs.chain(job.shape.level(1).runs().iter().map(|run| (1, run)));
        let inputs = runs.map(|(level, run)| {
            CompactionInput::new(level, run.tables.iter().map(|table| table.id))
        });
        let compaction = Compaction::new(inputs, (1, RunSlot::New(1)), job.options.cut());
        Some(Plan::new(format!("{} runs in level 0", fresh.len())).compact(compaction))
    }
}

pub(crate) fn main() -> Result<()> {
    registry::register(&AllAtOnce).expect("the name is free");
    let policy = Policy::named("all-at-once").option("l0_trigger", 3);
    let options = KeyspaceOptions::default().policy(policy);
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).keyspace(options).open()?;
    for round in 0..9u8 {
        (0..200u8).try_for_each(|key| store.put([key], [round; 100]))?;
        store.flush()?;
        store.wait_idle()?;
    }
    let metrics = store.metrics();
    println!(
        "9 flushes, {} compactions, {} bytes written per byte put",
        metrics.counters.compactions, metrics.write_amplification
    );
    assert_eq!((metrics.counters.compactions, metrics.keyspaces[0].runs), (3, 1));
    assert_eq!(store.get([7])?.as_deref(), Some(&[8; 100][..]));
    assert!(store.verify()?.is_clean());
    store.close()
}
