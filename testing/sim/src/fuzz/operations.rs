//! Operation sequences: any bytes are a configuration and a workload, judged by a map.
//!
//! These are the same operations as in `workload`, chosen by the input instead of by a seed: writes
//! and batches on two keyspaces (with range deletes, operands and entries that expire), gets, scans
//! in both directions, snapshots, flushes, compactions, collections, reopens. Whatever the
//! operations are, at the end the store verifies, and after a last reopen it shows the content of
//! the map.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, Error, Options, Store};

use crate::clock::WorkloadClock;
use crate::oracle::{Change, Oracle, Write};
use crate::workload::{Operation, Run, keyspaces, options};

/// A longer input would show nothing more.
const MOST_OPERATIONS: usize = 300;

/// Judges an input.
pub fn judge(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(seed) = input.arbitrary::<u16>() else { return };
    WorkloadClock::restart();
    let options = options(seed.into(), Background::Manual);
    let storage = MemoryStorage::new();
    let open = || open(&storage, &options);
    let mut run = Run::new(open().expect("a fresh store"), Oracle::default());
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        let Ok(operation) = operation(&mut input) else { break };
        run.apply(&operation, open).expect("no faults");
    }
    for operation in [Operation::Scan, Operation::Reopen, Operation::Scan] {
        run.apply(&operation, open).expect("no faults");
    }
    let report = run.store.as_ref().expect("open").verify().expect("no faults");
    assert!(report.is_clean(), "{:?}", report.damage);
}

fn open(storage: &MemoryStorage, options: &Options) -> std::result::Result<Store, Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(storage, options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

fn operation(input: &mut Unstructured<'_>) -> Result<Operation> {
    Ok(match input.int_in_range(0..=15)? {
        0..=4 => Operation::Write { writes: vec![write(input)?], sync: input.arbitrary()? },
        5 => {
            let count = input.int_in_range(0..=7)?;
            let writes = (0..count).map(|_| write(input)).collect::<Result<_>>()?;
            Operation::Write { writes, sync: input.arbitrary()? }
        }
        6 => Operation::Get(write(input)?),
        7 => Operation::Scan,
        8 => Operation::Snapshot,
        9 => Operation::CheckSnapshot,
        10 => Operation::Sync,
        11 => Operation::Flush,
        12 => Operation::Compact,
        13 => Operation::Collect,
        14 => Operation::RunOneJob,
        _ => Operation::Reopen,
    })
}

/// Draws a write. There are few keys, so that they recur; some keys are any bytes.
fn write(input: &mut Unstructured<'_>) -> Result<Write> {
    let keyspace = input.int_in_range(0..=1)?;
    let key = match input.arbitrary::<u8>()? {
        255 => input.arbitrary::<Vec<u8>>()?,
        254 => Vec::new(),
        number => format!("key{:02}", number % 24).into_bytes(),
    };
    let change = match input.arbitrary::<u8>()? {
        0..8 => Change::DeleteRange(Some([&key[..], &[input.arbitrary()?]].concat())),
        8 => Change::DeleteRange(None),
        9..40 => Change::Delete,
        kind @ 40..48 => Change::PutPassing(vec![kind; usize::from(input.arbitrary::<u8>()?)]),
        kind @ 48..56 => Change::PutLasting(vec![kind; usize::from(input.arbitrary::<u8>()?)]),
        kind @ 56..64 => Change::Merge(vec![kind; usize::from(input.arbitrary::<u8>()? % 16)]),
        kind @ 64..240 => Change::Put(vec![kind; usize::from(input.arbitrary::<u8>()?)]),
        // Values of up to more than a block, a slot, or a memtable's share.
        kind => Change::Put(vec![kind; usize::from(input.arbitrary::<u16>()?) / 4]),
    };
    Ok(Write { keyspace, key, change })
}
