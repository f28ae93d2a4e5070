//! Measures what range deletes and operands cost: `cargo run --release -p runstone-limits --example
//! data_model`. The figures are ratios within one run, or so far below a bound that noise does not
//! matter.

use std::time::{Duration, Instant};

use runstone::{KeyspaceOptions, Options, ReadOptions, Result, Store, WriteOptions};

/// A fast pseudo-random sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let started = Instant::now();
    let value = work()?;
    Ok((started.elapsed(), value))
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key0000000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Measures how long one call takes that deletes half of many keys, and then a scan across the
/// hole.
fn a_hole(path: &std::path::Path, keys: u64) -> Result<()> {
    let store = Store::open(path, Options::default())?;
    for number in 0..keys {
        store.put(key(number), [7; 100])?;
    }
    store.wait_idle()?;
    let keyspace = store.default_keyspace();
    let (from, to) = (keys / 4, keys / 4 * 3);
    let (took, ()) = timed(|| keyspace.delete_range(key(from)..key(to)))?;
    println!("delete {} of {keys} keys by one call: {took:?}", to - from);
    let mut cursor = keyspace.cursor(ReadOptions::default())?;
    cursor.seek(key(from - 1))?;
    let (took, ()) = timed(|| cursor.next())?;
    assert_eq!(cursor.key(), key(to));
    println!("step across the hole: {took:?}");
    let before = store.disk_bytes();
    store.compact()?;
    println!("on disk: {} MB, compacted {} MB", before >> 20, store.disk_bytes() >> 20);
    store.close()
}

/// Measures gets before and after overlapping range deletes, in memtables and in tables.
fn overlapping(path: &std::path::Path) -> Result<()> {
    let store = Store::open(path, Options::default())?;
    let keys = 1_000_000;
    (0..keys).try_for_each(|number| store.put(key(number), [7; 100]))?;
    store.compact()?;
    let gets = |store: &Store| {
        let mut state = 1;
        timed(|| (0..300_000).try_for_each(|_| store.get(key(next(&mut state) % keys)).map(drop)))
    };
    gets(&store)?;
    let (plain, ()) = gets(&store)?;
    let mut state = 7;
    for _ in 0..10_000 {
        let from = keys / 2 + next(&mut state) % (keys / 2);
        store.default_keyspace().delete_range(key(from)..key(from + 500))?;
    }
    let (in_memory, ()) = gets(&store)?;
    store.flush()?;
    let (in_tables, ()) = gets(&store)?;
    let ratio = |one: Duration| one.as_secs_f64() / plain.as_secs_f64();
    println!(
        "gets over 10,000 overlapping range deletes, to none: {:.2} in memory, {:.2} in tables",
        ratio(in_memory),
        ratio(in_tables)
    );
    store.close()
}

/// Compares increments with operands to puts, and to reading, adding and writing.
fn counters(path: &std::path::Path) -> Result<()> {
    let options = KeyspaceOptions::default().merge_operator("add-u64");
    let store = Store::open(path, Options::default().keyspace(options))?;
    let keyspace = store.default_keyspace();
    let write = WriteOptions::buffered();
    let rounds = 1_000_000u64;
    let one = 1u64.to_le_bytes();
    let (mut puts, mut merges, mut updates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (mut state, mut same, mut again) = (3, 3, 3);
        puts.push(
            timed(|| {
                (0..rounds)
                    .try_for_each(|_| keyspace.put_with(key(next(&mut state) % 1000), one, write))
            })?
            .0,
        );
        merges.push(
            timed(|| {
                (0..rounds)
                    .try_for_each(|_| keyspace.merge_with(key(next(&mut same) % 1000), one, write))
            })?
            .0,
        );
        updates.push(
            timed(|| {
                (0..rounds).try_for_each(|_| {
                    let key = key(next(&mut again) % 1000);
                    let old = keyspace.get(key)?.map_or(0, |value| {
                        value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
                    });
                    keyspace.put_with(key, (old + 1).to_le_bytes(), write)
                })
            })?
            .0,
        );
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[1].as_secs_f64()
    };
    let (puts, merges, updates) = (median(puts), median(merges), median(updates));
    println!(
        "a million increments of a thousand counters: {:.2} of the speed of puts, {:.2} of \
         reading and writing",
        puts / merges,
        updates / merges
    );
    store.close()
}

fn main() -> Result<()> {
    let keys = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000_000);
    let directory = tempfile::tempdir().expect("a directory");
    overlapping(&directory.path().join("overlapping"))?;
    counters(&directory.path().join("counters"))?;
    a_hole(&directory.path().join("hole"), keys)
}
