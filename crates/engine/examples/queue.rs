//! A queue that outlives a crash: jobs have numbers, two workers take one job at a time with
//! `pop_first`, and `drain` takes what is left in batches. No job is taken twice.

use std::sync::Arc;
use std::thread;

use runstone::storage::MemoryStorage;
use runstone::{Keyspace, Result, Store};

const JOBS: u64 = 200;

fn number_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("eight bytes"))
}

/// Takes a quarter of the jobs, and returns their numbers.
fn work(queue: &Keyspace) -> Result<Vec<u64>> {
    let mut done = Vec::new();
    for _ in 0..JOBS / 4 {
        let (key, job) = queue.pop_first()?.expect("there are more");
        assert_eq!(*job, *format!("job {}", number_of(&key)).as_bytes());
        done.push(number_of(&key));
    }
    Ok(done)
}

pub(crate) fn main() -> Result<()> {
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).open()?;
    let queue = store.open_keyspace("jobs", None)?;

    // Big-endian numbers sort as numbers do, so the oldest job is the first key. After a reopen,
    // the next number is one above the last key, which `queue.last_key_value()` returns.
    for number in 0..JOBS {
        queue.put(number.to_be_bytes(), format!("job {number}"))?;
    }
    let done = thread::scope(|scope| {
        let workers = [(); 2].map(|()| scope.spawn(|| work(&queue)));
        let done = workers.map(|worker| worker.join().expect("no panic"));
        done.into_iter().collect::<Result<Vec<_>>>()
    })?;
    let mut done = done.concat();
    println!("two workers took {} jobs one by one", done.len());

    // All of a batch is taken, or none of it.
    while !queue.is_empty()? {
        let batch = queue.drain(.., 30)?;
        println!("took {} together", batch.len());
        done.extend(batch.iter().map(|(key, _)| number_of(key)));
    }
    done.sort();
    assert!(done.into_iter().eq(0..JOBS), "each job once");
    store.close()
}
