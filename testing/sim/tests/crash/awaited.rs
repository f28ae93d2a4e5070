//! Commits are awaited, and the machine stops or a sync fails at any of their I/O operations.
//! Writes that were reported as durable are there, the surviving writes form a prefix of all
//! writes, and no commit stays unanswered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use runstone::seeded::Bug;
use runstone::{
    Background, Batch, Commit, Error, KeyspaceOptions, Options, Store, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::found::holds_and_finds;
use runstone_sim::random::Random;

const WRITES: u32 = 120;

fn open(storage: &SimStorage, seed: u64) -> Result<Store, Error> {
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 10);
    let options = Options::default()
        .background(Background::Manual)
        .wal_mode(if seed.is_multiple_of(2) { WalMode::Mapped } else { WalMode::Write })
        .wal_segment_bytes(64 << 10)
        .memory_budget_bytes(8 << 20)
        .flush_at_close(!seed.is_multiple_of(3))
        .seed(seed)
        .keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options)
}

/// What the store reported to a program.
#[derive(Default)]
struct Told {
    /// One more than the last write that was made, visible or not.
    attempted: u32,
    /// One more than the last write that was reported as durable.
    durable: u32,
    /// Whether a commit ended with an error.
    failed: bool,
}

impl Told {
    fn take(&mut self, (write, outcome): (u32, Result<(), Error>)) {
        match outcome {
            Ok(()) => self.durable = self.durable.max(write + 1),
            Err(_) => self.failed = true,
        }
    }
}

fn poll(commit: &mut Commit) -> Poll<Result<(), Error>> {
    Pin::new(commit).poll(&mut Context::from_waker(Waker::noop()))
}

/// Writes of every kind, most of them awaited, with jobs and syncs in between, and a close. Ends at
/// the first error.
fn write(store: Store, random: &mut Random, told: &mut Told) -> Result<(), Error> {
    let mut waiting: Vec<(u32, Commit)> = Vec::new();
    let keyspace = store.default_keyspace().clone();
    for write in 0..WRITES {
        let (key, bytes) = (write.to_be_bytes(), 10 + random.below(800) as usize);
        told.attempted = write + 1;
        match random.below(12) {
            0 => keyspace.put(key, vec![1; bytes])?,
            1 => {
                keyspace.put_with(key, vec![1; bytes], WriteOptions::sync())?;
                told.take((write, Ok(())));
            }
            2 => {
                let mut batch = Batch::new();
                batch.put(
                    &keyspace,
                    key,
                    vec![1; if random.one_in(4) { 90_000 } else { bytes }],
                )?;
                waiting.push((write, store.write_later(&batch, WriteOptions::sync())?));
            }
            _ => waiting.push((write, keyspace.put_later(key, vec![1; bytes])?)),
        }
        match random.below(16) {
            0 => store.sync()?,
            1 if !waiting.is_empty() => {
                let (write, commit) =
                    waiting.swap_remove(random.below(waiting.len() as u64) as usize);
                told.take((write, commit.wait()));
            }
            2 => drop(waiting.pop()),
            3..6 => while store.run_one_job()? {},
            _ => {}
        }
        waiting.retain_mut(|(write, commit)| match poll(commit) {
            Poll::Ready(outcome) => {
                told.take((*write, outcome));
                false
            }
            Poll::Pending => true,
        });
        if told.failed {
            break;
        }
    }
    drop(keyspace);
    let closed = store.close();
    for (write, mut commit) in waiting {
        let Poll::Ready(outcome) = poll(&mut commit) else {
            panic!("write {write} is not answered by the close")
        };
        told.take((write, outcome));
    }
    closed
}

fn run(storage: &SimStorage, seed: u64) -> (Told, Result<(), Error>) {
    let mut told = Told::default();
    let outcome =
        open(storage, seed).and_then(|store| write(store, &mut Random::new(seed), &mut told));
    (told, outcome)
}

/// Checks that the surviving writes are the first ones, and include all that were reported as
/// durable.
fn judge(left: &SimStorage, seed: u64, told: &Told, place: &str) {
    let store = open(left, seed).unwrap_or_else(|error| panic!("{place}: {error}"));
    let is_there = |write: u32| store.get(write.to_be_bytes()).expect("reads").is_some();
    let there = (0..WRITES).take_while(|write| is_there(*write)).count() as u32;
    assert!((there..WRITES).all(|write| !is_there(write)), "{place}: a gap after {there}");
    let (durable, attempted) = (told.durable, told.attempted);
    assert!(durable <= there && there <= attempted, "{place}: {durable} <= {there} <= {attempted}");
}

fn strike_everywhere(kind: FaultKind, seeds: std::ops::Range<u64>) {
    let (mut struck, mut durable) = (0, 0);
    for seed in seeds {
        let storage = SimStorage::new(seed);
        let (told, outcome) = run(&storage, seed);
        outcome.expect("no faults");
        assert!(!told.failed && told.durable > 0);
        for at in 0..storage.ops() {
            let storage = SimStorage::new(seed);
            storage.inject(Fault {
                at_op: at,
                kind,
                sticky: kind == FaultKind::Crash,
                category: None,
            });
            let (told, outcome) = run(&storage, seed);
            struck += u32::from(outcome.is_err() || told.failed);
            durable += told.durable;
            storage.clear_faults();
            let place = format!("{kind:?} at operation {at}, seed {seed}");
            judge(&storage.power_cut(at).0, seed, &told, &place);
            judge(&storage.power_cut(at * 31 + 7).0, seed, &told, &place);
        }
    }
    assert!(struck > 0 && durable > 0);
}

#[test]
fn an_awaited_commit_that_was_ready_survives_power_loss() {
    holds_and_finds(Bug::AwaitedBeforeSync, || strike_everywhere(FaultKind::Crash, 1..7));
}

#[test]
fn a_failed_sync_leaves_no_commit_unanswered() {
    strike_everywhere(FaultKind::FailedSync, 7..11);
}
