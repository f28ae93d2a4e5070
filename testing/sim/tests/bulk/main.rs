//! Bulk loads and ingests among all other operations: contents compared with the model, a crash or
//! a failure at every I/O operation, other threads at the same time, and the other features of a
//! store. Not here: the command (`crates/cli/tests`).

mod beside;
mod crash;
mod features;
mod ingest;
mod model;
mod simulator;
mod two_loads;

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{Error, Options, Store};
use runstone_sim::random::Random;
use runstone_sim::workload::{Operation, Run, generate, keyspaces};

/// An operation of the usual workloads, or a load.
#[derive(Debug)]
enum Step {
    Usual(Operation),
    /// A load of an iterator, or of this many files. `None` as a value deletes the key.
    Load {
        keyspace: usize,
        entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        files: usize,
    },
}

/// A workload with a load after about every `every` operations. The keys are those of the workload,
/// or new keys between them.
fn steps(seed: u64, count: usize, every: u64) -> Vec<Step> {
    let mut random = Random::new(seed ^ 0xb01c);
    let operations = generate(seed, count);
    let mut keys: Vec<Vec<u8>> = operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::Write { writes, .. } => Some(writes.iter().map(|write| write.key.clone())),
            _ => None,
        })
        .flatten()
        .collect();
    keys.sort();
    let mut all = Vec::new();
    for operation in operations {
        all.push(Step::Usual(operation));
        if random.one_in(every) {
            all.push(load(&mut random, &keys));
        }
    }
    all
}

fn load(random: &mut Random, keys: &[Vec<u8>]) -> Step {
    let mut entries = BTreeMap::new();
    let keyspace = random.below(2) as usize;
    let files = random.below(4) as usize;
    let from = random.below(keys.len() as u64) as usize;
    let most = if random.one_in(4) { keys.len() as u64 } else { 30 };
    let len = random.below(most) as usize;
    for key in keys.iter().skip(from).take(len) {
        let mut key = key.clone();
        if random.one_in(3) {
            key.push(b'+');
        }
        let value = vec![b'a' + random.below(26) as u8; random.below(300) as usize];
        let is_delete = files > 0 && random.one_in(5);
        entries.insert(key, (!is_delete).then_some(value));
    }
    Step::Load { keyspace, entries, files }
}

fn open(storage: &(impl Storage + Clone + 'static), options: &Options) -> Result<Store, Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(storage, options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

/// Applies a step.
fn apply(
    run: &mut Run,
    step: &Step,
    storage: &(impl Storage + Clone + 'static),
    options: &Options,
) -> Result<(), Error> {
    match step {
        Step::Usual(operation) => run.apply(operation, || open(storage, options)),
        Step::Load { keyspace, entries, files } => run.load(*keyspace, entries, |to| match files {
            0 => to.bulk_load(
                entries.iter().map(|(key, value)| (key, value.as_ref().expect("no deletes"))),
            ),
            _ => ingest::ingest(to, entries, *files),
        }),
    }
}
