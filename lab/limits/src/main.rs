//! Measures the steps of a put, each against its alternatives: the memtable against an
//! arena skiplist and a lock-free one, the mapped log segment against a write per record, and two
//! writers of a store against one. This is not a test: it asserts nothing, and prints ratios from
//! interleaved rounds. The results are in docs/limits.md. The arguments name the parts
//! (`memtables`, `logs`, `writers`); without any, all run.

mod skiplist;
mod writers;

use std::sync::{Arc, RwLock};
use std::time::Instant;

use crossbeam_skiplist::SkipMap;
use runstone::storage::{Access, Category, PosixStorage, Storage, StorageFile};
use runstone::unstable::Memtable;
use runstone_workloads::generators::Rng;
use runstone_workloads::median;
use skiplist::Skiplist;

const ENTRIES: u64 = 500_000;
const ROUNDS: usize = 5;
const VALUE: [u8; 100] = [7; 100];
const LOG_RECORDS: u64 = 200_000;
const LOG_BYTES: u64 = 32 << 20;

/// An ordered map under measurement.
trait Map: Sync {
    fn insert(&self, key: &[u8], trailer: u64);
    fn contains(&self, key: &[u8]) -> bool;
}

impl Map for Memtable {
    fn insert(&self, key: &[u8], trailer: u64) {
        Memtable::insert(self, key, trailer >> 8, &VALUE).expect("a small key");
    }
    fn contains(&self, key: &[u8]) -> bool {
        Memtable::contains(self, key, u64::MAX >> 8)
    }
}

impl Map for RwLock<Skiplist> {
    fn insert(&self, key: &[u8], trailer: u64) {
        self.write().expect("no panic").insert(key, trailer, &VALUE);
    }
    fn contains(&self, key: &[u8]) -> bool {
        self.read().expect("no panic").contains(key)
    }
}

impl Map for SkipMap<Vec<u8>, Vec<u8>> {
    fn insert(&self, key: &[u8], _trailer: u64) {
        SkipMap::insert(self, key.to_vec(), VALUE.to_vec());
    }
    fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }
}

fn keys(seed: u64) -> Vec<[u8; 16]> {
    keys_from(seed, ENTRIES as usize)
}

fn keys_from(seed: u64, count: usize) -> Vec<[u8; 16]> {
    let mut random = Rng::new(seed);
    let mut key = || {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random.next_u64().to_be_bytes());
        bytes[8..].copy_from_slice(&random.next_u64().to_be_bytes());
        bytes
    };
    (0..count).map(|_| key()).collect()
}

/// Nanoseconds per insert with `writers` threads, per hit and per miss.
fn measure(map: &dyn Map, keys: &[[u8; 16]], absent: &[[u8; 16]], writers: usize) -> [f64; 3] {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                for (seq, key) in (1u64..).zip(keys).skip(writer).step_by(writers) {
                    map.insert(key, seq << 8 | 1);
                }
            });
        }
    });
    let insert = started.elapsed();
    let started = Instant::now();
    let found = keys.iter().rev().filter(|key| map.contains(*key)).count();
    let hit = started.elapsed();
    assert_eq!(found, keys.len());
    let started = Instant::now();
    let found = absent.iter().filter(|key| map.contains(*key)).count();
    let miss = started.elapsed();
    assert_eq!(found, 0);
    [insert, hit, miss].map(|took| took.as_nanos() as f64 / keys.len() as f64)
}

fn memtables() {
    let (present, absent) = (keys(1), keys(2));
    for writers in [1, 2] {
        let mut rounds: [Vec<[f64; 3]>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let memtable = Memtable::default();
            rounds[0].push(measure(&memtable, &present, &absent, writers));
            let skiplist = RwLock::new(Skiplist::new());
            rounds[1].push(measure(&skiplist, &present, &absent, writers));
            rounds[2].push(measure(&SkipMap::new(), &present, &absent, writers));
        }
        let names = ["B+tree over heads", "arena skiplist, one lock", "crossbeam skiplist"];
        for (name, rounds) in names.iter().zip(&rounds) {
            let at = |i: usize| median(rounds.iter().map(|round| round[i]).collect());
            let (insert, hit, miss) = (at(0), at(1), at(2));
            println!(
                "{writers} writer(s), {name}: \
                 insert {insert:.0} ns, hit {hit:.0} ns, miss {miss:.0} ns"
            );
        }
    }
}

fn log_file(file: &dyn StorageFile) -> f64 {
    let record = [9u8; 140];
    let started = Instant::now();
    for i in 0..LOG_RECORDS {
        let written = file.write_at(i * record.len() as u64, &record);
        written.expect("the disk has room for 32 MiB");
    }
    started.elapsed().as_nanos() as f64 / LOG_RECORDS as f64
}

fn logs() {
    let place = std::env::temp_dir().join(format!("runstone-limits-{}", std::process::id()));
    let storage = PosixStorage::open(&place, Access::CreateIfMissing).expect("temporary directory");
    let (mut mapped, mut written) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let file = storage.create_mapped("mapped", Category::Wal, LOG_BYTES).expect("room");
        file.prepare(0, LOG_BYTES).expect("mapped");
        mapped.push(log_file(&*file));
        drop(file);
        storage.remove("mapped").expect("just made");
        let file: Arc<dyn StorageFile> = storage.create("written", Category::Wal).expect("room");
        file.set_len(LOG_BYTES).expect("room");
        written.push(log_file(&*file));
        storage.remove("written").expect("just made");
    }
    println!(
        "log record of 140 B: mapped {:.0} ns, write {:.0} ns",
        median(mapped),
        median(written)
    );
    std::fs::remove_dir_all(place).expect("own directory");
}

/// The parts that can be measured, by name.
const PARTS: [(&str, fn()); 3] =
    [("memtables", memtables), ("logs", logs), ("writers", writers::compare)];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_part = |name: &str| PARTS.iter().any(|(part, _)| *part == name);
    if let Some(unknown) = wanted.iter().find(|name| !is_part(name)) {
        let parts = PARTS.map(|(part, _)| part).join(", ");
        eprintln!("limits: no part is called {unknown}; the parts are {parts}");
        std::process::exit(2);
    }
    for (part, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|name| name == part) {
            measure();
        }
    }
}
