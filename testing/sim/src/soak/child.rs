//! The process that is killed: one thread writes, reads back, holds values and takes snapshots, one
//! checks the snapshots after a while, two move amounts between accounts, one collects and makes
//! checkpoints.
//!
//! It prints lines: `at N` (operations up to N are acknowledged), and `told`, with the numbers of
//! [`TOLD`]. It ends by itself only if something is wrong, and reports what is wrong on its
//! standard error.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use runstone::{
    Batch, Error, Keyspace, Options, Snapshot, Store, Transaction, TransactionOptions, Value,
    WriteOptions,
};

use super::beside::Beside;
use super::{
    COUNT_KEY, Change, LASTING, Model, Opened, PASSING, Soak, TOLD, count_in, difference, key_of,
    keyspace_of, model_in, number_in, text, value_of,
};
use crate::random::Random;

/// Operations between two lines of output.
const OPERATIONS_PER_LINE: u64 = 64;
/// One operation in this many takes a snapshot.
const OPERATIONS_PER_SNAPSHOT: u64 = 3_000;
/// This many values are held, and checked again before they are dropped.
const HELD: usize = 200;
/// One operation in this many is a transaction, the others are batches.
const OPERATIONS_PER_TRANSACTION: u64 = 5;

/// A value that is held, and the expected value.
type Held = (Option<Value>, Option<Vec<u8>>);

/// Works on the store until the process is killed. Returns only if something is wrong, with the
/// reason.
pub fn run(soak: &Soak, opening: u64) -> String {
    let opened = match soak.open(opening) {
        Ok(opened) => opened,
        Err(error) => return format!("open: {error}"),
    };
    let done = Done::default();
    let (sender, receiver) = sync_channel(2);
    let mut random = Random::new(soak.seed ^ (opening << 20));
    let mut other = Random::new(random.draw());
    let mut pause = Random::new(random.draw());
    let (opened, done) = (&opened, &done);
    std::thread::scope(|scope| {
        scope.spawn(move || end_on(check_snapshots(opened, receiver, done, &mut other)));
        scope.spawn(move || end_on(maintain(soak, &opened.store, done, &mut pause)));
        for thread in 0..2 {
            scope.spawn(move || end_on(transfer(opened, thread, done)));
        }
        end_on(write(soak, opened, &sender, done, &mut random));
    });
    "the writer ended".to_string()
}

/// What the threads have done.
#[derive(Debug, Default)]
struct Done {
    snapshots: AtomicU64,
    transfers: AtomicU64,
    conflicts: AtomicU64,
    checkpoints: AtomicU64,
}

impl Done {
    /// In the order of [`TOLD`].
    fn told(&self, store: &Store) -> [u64; TOLD.len()] {
        let counters = store.metrics().counters;
        [
            self.snapshots.load(Relaxed),
            counters.value_collections,
            self.transfers.load(Relaxed),
            self.conflicts.load(Relaxed),
            self.checkpoints.load(Relaxed),
            counters.bulk_loads,
            counters.entries_expired,
            counters.entries_removed_by_filters,
            counters.operands_folded,
        ]
    }
}

/// Ends the process when a thread finds something wrong, because the others would continue.
fn end_on(outcome: Result<(), String>) {
    if let Err(what) = outcome {
        eprintln!("{what}");
        std::process::exit(3);
    }
}

fn write(
    soak: &Soak,
    opened: &Opened,
    sender: &SyncSender<(Snapshot, Model)>,
    done: &Done,
    random: &mut Random,
) -> Result<(), String> {
    let Opened { store, keyspaces, beside } = opened;
    let mut model = model_in(keyspaces, None)?;
    let mut held: VecDeque<Held> = VecDeque::new();
    let first = count_in(store).map_err(text)? + 1;
    let mut out = std::io::stdout().lock();
    for number in first.. {
        beside.load_before(number, &soak.directory)?;
        let changes = soak.operation(number);
        apply(opened, number, &changes).map_err(|error| format!("operation {number}: {error}"))?;
        soak.apply(&mut model, number, &changes);
        if changes.iter().any(|(_, change)| matches!(change, Change::PutPassing)) {
            std::thread::sleep(2 * PASSING);
        }
        if number % OPERATIONS_PER_LINE == 0 {
            writeln!(out, "at {number}").map_err(text)?;
        }
        if number % (64 * OPERATIONS_PER_LINE) == 0 {
            let told = done.told(store).map(|count| count.to_string());
            writeln!(out, "told {}", told.join(" ")).map_err(text)?;
        }
        if random.one_in(2) {
            held.push_back(check_one(keyspaces, &model, random.below(soak.keys))?);
        }
        if held.len() > HELD
            && let Some((found, expected)) = held.pop_front()
            && found.as_deref() != expected.as_deref()
        {
            return Err("a value that was held changed".to_string());
        }
        if random.one_in(OPERATIONS_PER_SNAPSHOT) {
            // A full channel means that enough snapshots are held.
            let _ = sender.try_send((store.snapshot(), model.clone()));
        }
        if random.one_in(20_000) {
            store.flush().map_err(|error| format!("flush: {error}"))?;
        }
        if random.one_in(60_000) {
            store.compact().map_err(|error| format!("compact: {error}"))?;
        }
    }
    Ok(())
}

/// Writes all changes of an operation, or none.
fn apply(opened: &Opened, number: u64, changes: &[(u64, Change)]) -> Result<(), Error> {
    if number.is_multiple_of(OPERATIONS_PER_TRANSACTION) {
        let mut transaction = opened.store.begin(TransactionOptions::default())?;
        add_to_transaction(&mut transaction, opened, number, changes)?;
        return transaction.commit(WriteOptions::default());
    }
    let mut batch = Batch::new();
    add_to_batch(&mut batch, opened, number, changes)?;
    opened.store.write(&batch, WriteOptions::default())
}

/// Batches and transactions have the same methods, but no trait in common.
macro_rules! adds_to {
    ($name:ident, $Writes:ty) => {
        fn $name(
            writes: &mut $Writes,
            opened: &Opened,
            number: u64,
            changes: &[(u64, Change)],
        ) -> Result<(), Error> {
            for (key, change) in changes {
                let (name, keyspace) = (key_of(*key), keyspace_of(&opened.keyspaces, *key));
                let value = |len: usize| value_of(number, *key, len);
                match *change {
                    Change::Put(len) => writes.put(keyspace, name, value(len)),
                    Change::PutLasting(len) => {
                        writes.put_with_ttl(keyspace, name, value(len), LASTING)
                    }
                    Change::PutPassing => writes.put_with_ttl(keyspace, name, "passing", PASSING),
                    Change::Delete => writes.delete(keyspace, name),
                    Change::DeleteRange(to) => writes.delete_range(keyspace, name..key_of(to)),
                }?;
            }
            let (counters, counter) = opened.beside.counter(number);
            match opened.beside.is_reset_by(number) {
                true => writes.delete(counters, counter)?,
                false => writes.merge(counters, counter, 1u64.to_le_bytes())?,
            }
            let (swept, key, value) = opened.beside.swept(number);
            writes.put(swept, key, value)?;
            writes.put(&opened.keyspaces[0], COUNT_KEY, number.to_le_bytes())
        }
    };
}
adds_to!(add_to_batch, Batch);
adds_to!(add_to_transaction, Transaction);

fn check_one(keyspaces: &[Keyspace], model: &Model, key: u64) -> Result<Held, String> {
    let found = keyspace_of(keyspaces, key).get(key_of(key));
    let found = found.map_err(|error| format!("get: {error}"))?;
    let expected = model.get(&key).map(|(number, len)| value_of(*number, key, *len));
    match found.as_deref() == expected.as_deref() {
        true => Ok((found, expected)),
        false => Err(format!("get of key {key} shows other than {:?}", model.get(&key))),
    }
}

/// Snapshots are held for up to two seconds while values are collected, then compared.
fn check_snapshots(
    Opened { store, keyspaces, beside }: &Opened,
    receiver: Receiver<(Snapshot, Model)>,
    done: &Done,
    random: &mut Random,
) -> Result<(), String> {
    for (snapshot, model) in receiver {
        std::thread::sleep(Duration::from_millis(random.below(2_000)));
        let found = model_in(keyspaces, Some(&snapshot))?;
        if let Some(what) = difference(&model, &found) {
            return Err(format!("a snapshot changed: {what}"));
        }
        let count = store.default_keyspace().get_at(COUNT_KEY, &snapshot).map_err(text)?;
        beside.check(number_in(count), Some(&snapshot), false)?;
        Beside::check_accounts(store, &snapshot)?;
        done.snapshots.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Moves amounts between the accounts, in competition with the other thread that does so.
fn transfer(opened: &Opened, thread: u64, done: &Done) -> Result<(), String> {
    for turn in thread.. {
        let counted = match opened.beside.transfer(&opened.store, turn)? {
            true => &done.transfers,
            false => &done.conflicts,
        };
        counted.fetch_add(1, Relaxed);
        // The writer of the model should get most of the time.
        std::thread::sleep(Duration::from_micros(300));
    }
    Ok(())
}

/// Collects values, and now and then makes a checkpoint and checks it.
fn maintain(soak: &Soak, store: &Store, done: &Done, random: &mut Random) -> Result<(), String> {
    let path = soak.directory.with_extension("checkpoint");
    loop {
        std::thread::sleep(Duration::from_millis(random.below(400)));
        store.collect_values().map_err(|error| format!("collect: {error}"))?;
        if random.one_in(4) {
            // A killed process may have left one there.
            let _ = std::fs::remove_dir_all(&path);
            store.checkpoint(&path).map_err(|error| format!("checkpoint: {error}"))?;
            let options = Options::default().read_only(true);
            let copy = Store::open(&path, options).map_err(|error| format!("copy: {error}"))?;
            Beside::check_accounts(&copy, &copy.snapshot())?;
            drop(copy);
            let _ = std::fs::remove_dir_all(&path);
            done.checkpoints.fetch_add(1, Relaxed);
        }
    }
}
