//! The process that is killed: one thread writes, reads back, holds values and takes snapshots, one
//! checks those after a while, one collects.
//!
//! Lines that it prints: `at N` (operations up to N are acknowledged), `collections N` and
//! `snapshots N` (how many it has seen since it began). It ends by itself only if something is
//! wrong, with the reason on its standard error.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use runstone::{
    Batch, Error, Keyspace, Snapshot, Store, Transaction, TransactionOptions, Value, WriteOptions,
};

use super::{
    COUNT_KEY, Change, LASTING, Model, Opened, PASSING, Soak, count_in, difference, key_of,
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

/// A value that is held, and what it must be.
type Held = (Option<Value>, Option<Vec<u8>>);

/// Works on the store until the process is killed. Returns only if something is wrong, with the
/// reason.
pub fn run(soak: &Soak, opening: u64) -> String {
    let opened = match soak.open(opening) {
        Ok(opened) => opened,
        Err(error) => return format!("open: {error}"),
    };
    let checked = AtomicU64::new(0);
    let (sender, receiver) = sync_channel(2);
    let mut random = Random::new(soak.seed ^ (opening << 20));
    let mut other = Random::new(random.draw());
    let mut pause = Random::new(random.draw());
    let (opened, checked) = (&opened, &checked);
    std::thread::scope(|scope| {
        scope.spawn(move || end_on(check_snapshots(opened, receiver, checked, &mut other)));
        scope.spawn(move || end_on(collect(&opened.store, &mut pause)));
        end_on(write(soak, opened, &sender, checked, &mut random));
    });
    "the writer ended".to_string()
}

/// Ends the process when a thread finds something wrong, because the others would go on.
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
    checked: &AtomicU64,
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
            let collections = store.metrics().counters.value_collections;
            writeln!(out, "collections {collections}").map_err(text)?;
            writeln!(out, "snapshots {}", checked.load(Relaxed)).map_err(text)?;
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

/// Writes what an operation does, all or none.
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
    checked: &AtomicU64,
    random: &mut Random,
) -> Result<(), String> {
    for (snapshot, model) in receiver {
        std::thread::sleep(Duration::from_millis(random.below(2_000)));
        let found = model_in(keyspaces, Some(&snapshot))?;
        if let Some(what) = difference(&model, &found) {
            return Err(format!("a snapshot changed: {what}"));
        }
        let count = store.default_keyspace().get_at(COUNT_KEY, &snapshot).map_err(text)?;
        beside.check(number_in(count), Some(&snapshot))?;
        checked.fetch_add(1, Relaxed);
    }
    Ok(())
}

fn collect(store: &Store, random: &mut Random) -> Result<(), String> {
    loop {
        std::thread::sleep(Duration::from_millis(random.below(400)));
        store.collect_values().map_err(|error| format!("collect: {error}"))?;
    }
}
