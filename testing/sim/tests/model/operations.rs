//! The store compared with a map: random options, batches over two keyspaces, snapshots, iterators
//! in both directions, flushes, compactions, reopen.

use std::sync::Arc;

use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, Store};
use runstone_sim::oracle::Oracle;
use runstone_sim::workload::{self, Run, generate, keyspaces, read_all};

fn check(seed: u64, count: usize, background: Background) {
    let storage = MemoryStorage::new();
    let options = workload::options(seed, background);
    let open = || {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let store = Store::open_on(storage, options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(open().expect("fresh"), Oracle::default());
    for (i, operation) in generate(seed, count).iter().enumerate() {
        let outcome = run.apply(operation, open);
        outcome
            .unwrap_or_else(|error| panic!("seed {seed}, operation {i}, {operation:?}: {error}"));
    }
    let store = run.store.take().expect("open");
    store.flush().expect("flush");
    store.wait_idle().expect("idle");
    assert_eq!(&read_all(&store, None).expect("read"), run.oracle.state(), "seed {seed}");
    let report = store.verify().expect("verify");
    assert!(report.is_clean(), "seed {seed}: {:?}", report.damage);
    store.close().expect("close");
    let store = open().expect("reopen");
    assert_eq!(&read_all(&store, None).expect("read"), run.oracle.state(), "seed {seed}");
}

#[test]
fn stepped_background() {
    (0..120).for_each(|seed| check(seed, 500, Background::Manual));
}

#[test]
fn threaded_background() {
    (1_000..1_060).for_each(|seed| check(seed, 500, Background::Threads(2)));
}

#[test]
fn long_runs() {
    (2_000..2_004).for_each(|seed| check(seed, 8_000, Background::Threads(3)));
}
