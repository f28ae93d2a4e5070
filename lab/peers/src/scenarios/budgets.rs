//! Peak memory under one small budget. The cases vary threads, workload, block size and placement
//! of values, and each pair of values of two of these factors occurs once. The peak before the
//! store opens is that of this program, which includes the libraries of all peers. Run it under all
//! allocators: `--engines runstone@glibc,runstone@jemalloc,runstone@mimalloc`.

use std::thread;

use runstone::Durability;
use runstone_kv::{Direction, KvStore};
use runstone_storage::process;
use runstone_workloads::generators::{Rng, ScrambledZipfian};

use super::{Bench, Figures, mebibytes};
use crate::Result;
use crate::data::{Data, SEED};
use crate::plan::{KEY_BYTES, Setup};

const CACHE_BYTES: u64 = 64 << 20;
const MEMTABLE_BYTES: u64 = 32 << 20;
const LOADED: u64 = 600_000;
const VALUE_BYTES: usize = 400;
const SEPARATE_AT_BYTES: u32 = 256;
/// Gets and updates of all threads together, or entries of scans.
const OPERATIONS: u64 = 1_200_000;
const SCAN_LENGTH: u64 = 100;

/// What the threads do once the store is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Gets,
    Scans,
    /// Gets and updates, half and half, as in YCSB A.
    Updates,
}

/// Threads, workload, KiB of a block, placement of values.
pub type Case = (u64, Work, u32, &'static str);

/// An orthogonal array of four factors with three values each.
pub const CASES: [Case; 9] = [
    (1, Work::Gets, 1, "inline"),
    (1, Work::Scans, 4, "vlog"),
    (1, Work::Updates, 32, "hash-grouped"),
    (4, Work::Gets, 4, "hash-grouped"),
    (4, Work::Scans, 32, "inline"),
    (4, Work::Updates, 1, "vlog"),
    (16, Work::Gets, 32, "vlog"),
    (16, Work::Scans, 1, "hash-grouped"),
    (16, Work::Updates, 4, "inline"),
];

/// Other stores than Runstone yield no figures, because they have neither the block sizes nor the
/// placements.
pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let (threads, work, block_kib, placement) = CASES[bench.part];
    let toml = format!(
        "write_buffer_bytes = {MEMTABLE_BYTES}\nblock_bytes = {}\n[values]\nplacement = \
         \"{placement}\"\nseparate_at = {SEPARATE_AT_BYTES}\n",
        block_kib << 10
    );
    let setup = Setup {
        cache_bytes: CACHE_BYTES,
        memtable_bytes: MEMTABLE_BYTES,
        runstone_toml: Some(toml),
        ..bench.setup.clone()
    };
    let program_peak = process::peak_resident_bytes();
    let store = (bench.peer.open)(&bench.path.join("store"), &setup)?;
    let (data, loaded) = (Data::of_sizes(KEY_BYTES, VALUE_BYTES), bench.scaled(LOADED));
    let mut key = Vec::new();
    for number in 0..loaded {
        data.keys.encode(number, &mut key);
        store.put(&key, data.value(number), Durability::Buffered)?;
    }
    let loaded_peak = process::peak_resident_bytes();
    let operations = bench.scaled(OPERATIONS) / threads;
    let store = store.as_ref();
    thread::scope(|scope| {
        let one = |at| {
            let data = &data;
            scope.spawn(move || each(store, data, work, loaded, operations, at))
        };
        let threads: Vec<_> = (0..threads).map(one).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread panicked"))
    })?;
    let mut figures = Figures::default();
    let case = format!("{threads} threads, {work:?}, {block_kib} KiB, {placement}");
    figures.add(format!("{case}: peak MiB of the program"), mebibytes(program_peak));
    figures.add(format!("{case}: peak MiB of the load"), mebibytes(loaded_peak));
    figures.add(format!("{case}: peak MiB"), mebibytes(process::peak_resident_bytes()));
    Ok(figures)
}

fn each(
    store: &dyn KvStore,
    data: &Data,
    work: Work,
    loaded: u64,
    operations: u64,
    at: u64,
) -> Result<()> {
    let (mut rng, mut key) = (Rng::stream(SEED, "budgets", at), Vec::new());
    let zipfian = ScrambledZipfian::new(loaded);
    let mut done = 0;
    while done < operations {
        done += 1;
        match work {
            Work::Gets => data.keys.encode(rng.below(loaded), &mut key),
            _ => data.keys.encode(zipfian.next(&mut rng), &mut key),
        }
        match work {
            Work::Updates if done.is_multiple_of(2) => {
                store.put(&key, data.value(done), Durability::Buffered)?;
            }
            Work::Gets | Work::Updates => {
                if store.get(&key)?.is_none() {
                    return Err(format!("{}: a key is lost", store.name()).into());
                }
            }
            Work::Scans => {
                let mut entries = 0;
                store.scan(Some(&key), Direction::Forward, &mut |_, _| {
                    entries += 1;
                    entries < SCAN_LENGTH
                })?;
                done += entries;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_pair_of_values_occurs() {
        let of = |&(threads, work, block, placement): &Case| {
            [threads.to_string(), format!("{work:?}"), block.to_string(), placement.to_string()]
        };
        let cases: Vec<[String; 4]> = CASES.iter().map(of).collect();
        for one in 0..4 {
            for other in one + 1..4 {
                let pairs: BTreeSet<_> =
                    cases.iter().map(|case| (&case[one], &case[other])).collect();
                assert_eq!(pairs.len(), 9, "{one} and {other}");
            }
        }
    }
}
