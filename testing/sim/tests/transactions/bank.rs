//! A bank of eight threads. Whatever they transfer, the total stays the same, for every reader at
//! every moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;

use runstone::storage::MemoryStorage;
use runstone::{Background, Error, Keyspace, ReadOptions, Store, TransactionOptions, WriteOptions};
use runstone_sim::random::Random;

use crate::options;

const ACCOUNTS: u64 = 20;
const THREADS: u64 = 8;
const TRANSFERS: u64 = 400;
const TOTAL: u64 = ACCOUNTS * 100;

fn account(number: u64) -> Vec<u8> {
    format!("account/{number:02}").into_bytes()
}

fn balance(value: Option<&[u8]>) -> u64 {
    let text = std::str::from_utf8(value.expect("the account exists")).expect("text");
    text.parse().expect("a number")
}

struct Bank {
    store: Store,
    keyspace: Keyspace,
    is_over: AtomicBool,
    retries: AtomicU64,
}

impl Bank {
    fn new() -> Bank {
        let mut options = options().background(Background::Threads(2));
        let keyspace = options.keyspace.get_or_insert_default();
        // Small, so that memtables are replaced and flushed between checks.
        keyspace.write_buffer_bytes = 64 << 10;
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let keyspace = store.default_keyspace().clone();
        (0..ACCOUNTS).for_each(|number| keyspace.put(account(number), "100").expect("puts"));
        Bank { store, keyspace, is_over: AtomicBool::new(false), retries: AtomicU64::new(0) }
    }

    /// Moves some money between two accounts, or fails because of another transaction.
    fn transfer(&self, random: &mut Random, options: TransactionOptions) -> Result<(), Error> {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let mut transaction = self.store.begin(options)?;
        let locks = transaction.id().is_some();
        let mut read = |number: u64| {
            let value = match locks {
                true => transaction.get_for_update(&self.keyspace, account(number))?,
                false => transaction.get(&self.keyspace, account(number))?,
            };
            Ok::<u64, Error>(balance(value.as_deref()))
        };
        let (has, gets) = (read(from)?, read(to)?);
        let amount = random.below(10).min(has);
        if from == to || amount == 0 {
            return Ok(());
        }
        // Long enough for several memtables.
        let log = vec![b'.'; random.below(200) as usize];
        transaction.put(&self.keyspace, account(from), (has - amount).to_string())?;
        transaction.put(&self.keyspace, account(to), (gets + amount).to_string())?;
        transaction.put(&self.keyspace, format!("log/{}", random.draw()), log)?;
        transaction.commit(WriteOptions::default())
    }

    fn work(&self, seed: u64, options: TransactionOptions) {
        let mut random = Random::new(seed);
        for _ in 0..TRANSFERS {
            loop {
                match self.transfer(&mut random, options) {
                    Ok(()) => break,
                    Err(
                        Error::Conflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. },
                    ) => _ = self.retries.fetch_add(1, Relaxed),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn total(&self) -> u64 {
        let transaction = self.store.begin(TransactionOptions::default()).expect("begins");
        let options = ReadOptions::default().with_prefix(b"account/");
        let scan = transaction.scan(&self.keyspace, options).expect("scans");
        scan.map(|item| balance(Some(&item.expect("reads").1))).sum()
    }

    fn run(&self, options: impl Fn(u64) -> TransactionOptions + Sync) {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let options = options(seed);
                    scope.spawn(move || self.work(seed, options))
                })
                .collect();
            let reader = scope.spawn(|| {
                while !self.is_over.load(Relaxed) {
                    assert_eq!(self.total(), TOTAL);
                }
            });
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            self.is_over.store(true, Relaxed);
            reader.join().expect("the total stayed");
            outcomes.into_iter().for_each(|outcome| outcome.expect("a worker"));
        });
        assert_eq!(self.total(), TOTAL);
        let logged = self.keyspace.prefix(b"log/").expect("scans").count() as u64;
        assert!(logged > THREADS * TRANSFERS / 2, "{logged} transfers moved something");
    }
}

#[test]
fn optimistic_with_retries() {
    Bank::new().run(|_| TransactionOptions::default());
}

#[test]
fn serializable_with_retries() {
    Bank::new().run(|_| TransactionOptions::serializable());
}

#[test]
fn pessimistic() {
    Bank::new().run(|_| TransactionOptions::pessimistic());
}

/// Commits that take no locks respect the locks of others.
#[test]
fn both_at_once() {
    Bank::new().run(|seed| match seed % 2 {
        0 => TransactionOptions::default(),
        _ => TransactionOptions::pessimistic(),
    });
}
