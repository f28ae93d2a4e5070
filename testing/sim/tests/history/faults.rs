//! A mirror whose source or target fails at one of its first reads or writes in a round: further
//! rounds end with a mirror that equals its source.

use std::sync::Arc;
use std::time::Duration;

use runstone::storage::Storage;
use runstone::{Background, Error, Options, Store, ValuePlacement};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::random::for_seeds;
use runstone_sim::workload::{options, placed};

use super::attacks::{contents, differ, load, mirror};

const ROUNDS: u64 = 5;
/// How often a round is tried, or the mirror is opened again.
const MOST_TRIES: usize = 6;
const KINDS: [FaultKind; 4] =
    [FaultKind::Eio, FaultKind::ShortWrite, FaultKind::NoSpace, FaultKind::FailedSync];

/// Puts, operands, range deletes; now and then a load, a keyspace, a flush.
fn write(store: &Store, round: u64) {
    let keyspace = store.default_keyspace();
    for i in 0..12u64 {
        keyspace.put(format!("key{i:02}"), format!("{round}-{i}")).expect("no faults");
        let operand = (round * 100 + i).to_le_bytes();
        keyspace.merge(format!("sum{i:02}"), operand).expect("no faults");
        if i % 4 == 3 {
            let range = format!("key{:02}", i - 1)..format!("key{i:02}");
            keyspace.delete_range(range).expect("no faults");
        }
    }
    if round % 3 == 1 {
        let entries = (0..20).map(|i| (format!("load{i:02}"), Some(vec![round as u8; 90])));
        load(store, "default", &entries.collect::<Vec<_>>());
    }
    match round {
        2 => {
            let other = store.open_keyspace("other", None).expect("no faults");
            other.put("a", "b").expect("no faults");
        }
        3 => store.drop_keyspace("other").expect("no faults"),
        _ => {}
    }
    if round.is_multiple_of(2) {
        store.flush().expect("no faults");
    }
    store.sync().expect("no faults");
}

/// Makes the `at`th operation from now on fail.
fn inject(storage: &SimStorage, is_read: bool, at: u64) {
    let (at_op, kind) = match is_read {
        true => (storage.reads() + at, FaultKind::EioOnRead),
        false => (storage.ops() + at / 3, KINDS[(at % 4) as usize]),
    };
    storage.inject(Fault { at_op, kind, sticky: false, category: None });
}

/// Runs rounds until nothing is left. A store that does not continue after an error is opened
/// again.
fn drain(own: &mut Option<runstone::Mirror>, open: impl Fn() -> Result<runstone::Mirror, Error>) {
    let mut last = None;
    for _ in 0..MOST_TRIES {
        let Some(mirror) = own else {
            match open() {
                Ok(opened) => *own = Some(opened),
                Err(error) => last = Some(error),
            }
            continue;
        };
        match mirror.advance(Duration::ZERO) {
            Ok(round) if round.is_drained => return,
            Ok(_) => {}
            Err(error) => {
                last = Some(error);
                drop(own.take());
            }
        }
    }
    panic!("the mirror does not reach the end: {last:?}");
}

fn check(seed: u64, options: &Options, of_target: bool, is_read: bool, at: u64) -> bool {
    let (source, target) = (SimStorage::new(seed), SimStorage::new(seed + 1));
    let shared: Arc<dyn Storage> = Arc::new(source.clone());
    let store = Store::open_on(shared, options.clone()).expect("no faults");
    write(&store, 0);
    let open = || mirror(&source, &target, options);
    let mut own = Some(open().expect("no faults"));
    let mut has_fired = false;
    for round in 1..ROUNDS {
        write(&store, round);
        inject(if of_target { &target } else { &source }, is_read, at);
        drain(&mut own, open);
        has_fired |= !source.fired().is_empty() || !target.fired().is_empty();
        source.clear_faults();
        target.clear_faults();
        let mirrored = contents(own.as_ref().expect("it is open").store());
        let written = contents(&store);
        let place = || format!("seed {seed}, target {of_target}, read {is_read}, at {at}, {round}");
        assert!(mirrored == written, "{}: {}", place(), differ(&mirrored, Some(&written)));
    }
    has_fired
}

#[test]
fn a_mirror_goes_on_after_any_fault() {
    for_seeds(2, |seed| {
        let placed = placed(options(seed, Background::Manual), ValuePlacement::Inline);
        let mut options = placed.keep_log_bytes(1 << 30);
        let keyspace = options.keyspace.as_mut().expect("it has one");
        keyspace.merge_operator = "add-u64".into();
        keyspace.compaction_filter = String::new();
        // A round reads nothing from its target, whose writes are in memtables.
        for (of_target, is_read) in [(false, true), (false, false), (true, false)] {
            let fired = (0..40).filter(|at| check(seed, &options, of_target, is_read, *at)).count();
            let what = format!("seed {seed}, target {of_target}, read {is_read}");
            assert!(fired > 0, "{what}: no fault fired");
        }
    });
}
