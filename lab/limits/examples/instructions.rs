//! One step of a store, many times, for `lab/limits/instructions.sh`, which counts the instructions
//! of the function `measured` and of what it calls. Jobs are run by hand and files lie in memory,
//! so that two runs do the same. Nothing is timed.

use std::hint::black_box;
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Background, KeyspaceOptions, Options, ReadOptions, Store};

/// Keys in the store before the step.
const KEYS: u64 = 40_000;
/// Runs that are compacted.
const RUNS: u64 = 4;
const VALUE: [u8; 100] = [7; 100];

fn main() {
    let step = std::env::args().nth(1).unwrap_or_default();
    let store = match step.as_str() {
        "put" => filled(1, false),
        "hit" | "miss" | "scan" => filled(1, true),
        "compaction" => filled(RUNS, false),
        _ => {
            eprintln!("usage: instructions put|hit|miss|scan|compaction");
            std::process::exit(2);
        }
    };
    // Once before: buffers of the thread exist, and blocks are in memory.
    let count = match step.as_str() {
        "compaction" => run(&step, &store, 0),
        _ => {
            run(&step, &store, 1);
            run(&step, &store, 0)
        }
    };
    println!("{count}");
}

/// The step as it is measured, in the last turn.
fn run(step: &str, store: &Store, turns_left: u64) -> u64 {
    let work: fn(&Store, u64) -> u64 = match step {
        "put" => put,
        "hit" => hit,
        "miss" => miss,
        "scan" => scan,
        _ => compact,
    };
    if turns_left == 0 { measured(work, store) } else { work(store, turns_left) }
}

/// Its name is what callgrind looks for.
#[inline(never)]
fn measured(work: fn(&Store, u64) -> u64, store: &Store) -> u64 {
    black_box(work(store, black_box(0)))
}

/// A number far from its neighbours', so that keys come in a random order.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key
}

/// A store with this many runs of keys, compacted or not.
fn filled(runs: u64, is_compacted: bool) -> Store {
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 20);
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    for run in 0..runs {
        for number in 0..KEYS / runs {
            store.put(key(number * runs + run), VALUE).expect("puts");
        }
        if is_compacted || runs > 1 {
            store.flush().expect("flushes");
        }
    }
    if is_compacted {
        store.compact().expect("compacts");
    }
    store
}

fn put(store: &Store, turn: u64) -> u64 {
    let count = KEYS / 2;
    let from = KEYS + turn * count;
    (from..from + count).for_each(|number| store.put(key(number), VALUE).expect("puts"));
    count
}

fn hit(store: &Store, _turn: u64) -> u64 {
    for number in 0..KEYS {
        assert!(store.get(key(number)).expect("reads").is_some(), "it was put");
    }
    KEYS
}

fn miss(store: &Store, _turn: u64) -> u64 {
    for number in KEYS..2 * KEYS {
        assert!(store.get(key(number)).expect("reads").is_none(), "it was never put");
    }
    KEYS
}

fn scan(store: &Store, _turn: u64) -> u64 {
    let count = KEYS / 40;
    for number in 0..count {
        let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
        cursor.seek(key(number)).expect("seeks");
        for _ in 0..100 {
            if !cursor.valid() {
                break;
            }
            black_box((cursor.key(), cursor.value()));
            cursor.next().expect("steps");
        }
    }
    count
}

/// The count is that of the entries.
fn compact(store: &Store, _turn: u64) -> u64 {
    store.compact().expect("compacts");
    KEYS
}
