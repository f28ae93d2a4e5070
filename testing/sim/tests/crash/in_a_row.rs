//! Lives of a store through many crashes and faults, including recoveries. Batches and transactions
//! span keyspaces that come and go, sorted entries are loaded into them, checkpoints are opened and
//! written to, crash remains are opened read-only, and handles and snapshots outlive their
//! keyspace. Log segments are small, so that batches get segments of their own and most segments
//! are used again. A third of the stores have no log most of the time.

use std::path::PathBuf;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{
    Background, Batch, Durability, Error, GcPointers, Keyspace, KeyspaceOptions, Options, Snapshot,
    Store, TransactionOptions, ValuePlacement, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::clock::WorkloadClock;
use runstone_sim::oracle::{Change, Content, Found, Oracle, Write};
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::{read_keyspace, read_keyspaces};
use runstone_sim::{add, changes};

const NAMES: [&str; 5] = ["default", "a", "b", "c", "d"];
const GENERATIONS: usize = 8;

/// A store and all objects of it that the test holds.
struct Life {
    seed: u64,
    random: Random,
    storage: SimStorage,
    store: Option<Store>,
    oracle: Oracle,
    /// Copies that nothing has written to.
    copies: Vec<(PathBuf, Found)>,
    /// Handles of dropped keyspaces.
    gone: Vec<Keyspace>,
    snapshots: Vec<(Snapshot, Vec<(Keyspace, Content)>)>,
    /// Whether a sync failed and the machine has kept its power since. Then the kernel may mistake
    /// lost bytes for written ones.
    sync_failed: bool,
    /// Whether the store has no log most of the time.
    is_logless: bool,
    /// Whether the store has a log now.
    has_log: bool,
    /// Whether the store or copy that was opened last was opened with a log.
    opened_with_log: bool,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut oracle = Oracle::default();
        oracle.attempt_keyspace("default");
        Life {
            seed,
            random: Random::new(seed ^ 0x11f3),
            storage: SimStorage::new(seed),
            store: None,
            oracle,
            copies: Vec::new(),
            gone: Vec::new(),
            snapshots: Vec::new(),
            sync_failed: false,
            is_logless: Random::new(seed ^ 0x0ff1).one_in(3),
            has_log: true,
            opened_with_log: true,
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open between steps")
    }

    fn options(&mut self) -> Options {
        let draw = self.random.draw();
        let mut options = changes::options(self.seed, draw, Background::Manual);
        options.wal_mode = if self.random.one_in(2) { WalMode::Mapped } else { WalMode::Write };
        options.seed = Some(draw);
        if self.is_logless {
            // Collections that write pointers need a log.
            let keyspace = options.keyspace.as_mut().expect("set");
            if keyspace.values.placement == ValuePlacement::Vlog {
                keyspace.values.placement = ValuePlacement::HashGrouped;
            }
            keyspace.values.gc_pointers = GcPointers::Stable;
            if !draw.is_multiple_of(4) {
                options.wal_mode = WalMode::Off;
            }
        }
        options
    }

    /// Opens the store itself.
    fn open_own(&mut self) -> Result<(), Error> {
        let storage = self.storage.clone();
        self.store = Some(self.open(&storage, false)?);
        self.has_log = self.opened_with_log;
        Ok(())
    }

    fn keyspace_options(&mut self) -> KeyspaceOptions {
        self.options().keyspace.expect("set")
    }

    fn open(&mut self, storage: &SimStorage, read_only: bool) -> Result<Store, Error> {
        let mut options = self.options().read_only(read_only);
        self.opened_with_log = options.wal_mode != WalMode::Off;
        if self.random.one_in(3) {
            // Without options of the keyspace, its stored options apply.
            options.keyspace = None;
        }
        Store::open_on(Arc::new(storage.clone()), options)
    }

    fn pick(&mut self) -> (String, usize) {
        let at = self.random.below(self.oracle.named().len() as u64) as usize;
        let (name, id) = self.oracle.named().iter().nth(at).expect("below the length");
        (name.clone(), *id)
    }

    /// The value that a key has while nothing has gone wrong.
    fn value(&self, keyspace: usize, key: &[u8]) -> Option<&[u8]> {
        self.oracle.state().get(&(keyspace, key.to_vec())).map(Vec::as_slice)
    }

    /// Does one step of any kind. An error is the store's; a disagreement panics.
    fn step(&mut self) -> Result<(), Error> {
        match self.random.below(100) {
            0..44 => self.write()?,
            44..47 => self.update()?,
            47..50 => self.load()?,
            50..55 => self.make()?,
            55..59 => self.drop_one()?,
            59..62 => {
                self.store().flush()?;
                self.oracle.synced();
            }
            62..74 => drop(self.store().run_one_job()?),
            74..76 => {
                self.store().compact()?;
                self.oracle.synced();
            }
            76..78 => self.store().collect_values()?,
            78..81 => {
                self.store().sync()?;
                self.oracle.synced();
            }
            81..84 => self.copy()?,
            84..86 => self.reopen()?,
            86..92 => self.look_at_what_is_held()?,
            92..95 => self.hold()?,
            95..97 => {
                let (name, _) = self.pick();
                let options = self.keyspace_options();
                self.store().open_keyspace(&name, Some(options))?;
            }
            _ => assert_eq!(read_keyspaces(self.store())?, self.oracle.shown()),
        }
        Ok(())
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key{:02}", self.random.below(40)).into_bytes()
    }

    fn change(&mut self, keyspace: &Keyspace, key: &[u8]) -> Change {
        if self.random.one_in(10) {
            return Change::PutPassing(vec![7; self.random.below(300) as usize]);
        }
        if self.random.one_in(5) {
            return Change::Delete;
        }
        if self.random.one_in(6) && !keyspace.options().merge_operator.is_empty() {
            return Change::Merge(self.random.draw().to_string().into_bytes());
        }
        if self.random.one_in(20) {
            return Change::DeleteRange(Some(self.key().max(key.to_vec())));
        }
        let len = match self.random.below(40) {
            0 => 20_000 + self.random.below(80_000),
            1..8 => self.random.below(6_000),
            _ => self.random.below(100),
        };
        let value: Vec<u8> = (0..len).map(|i| (self.random.draw() >> (i % 40)) as u8).collect();
        match self.random.one_in(5) {
            true => Change::PutLasting(value),
            false => Change::Put(value),
        }
    }

    /// Writes a batch, or the same writes in a transaction of either mode.
    fn write(&mut self) -> Result<(), Error> {
        let count = if self.random.one_in(2) { 1 } else { 1 + self.random.below(8) };
        let (mut batch, mut writes) = (Batch::new(), Vec::new());
        let mut transaction = match self.random.below(8) {
            0 | 1 => Some(self.store().begin(TransactionOptions::serializable())?),
            2 | 3 => Some(self.store().begin(TransactionOptions::pessimistic())?),
            _ => None,
        };
        for _ in 0..count {
            let (name, id) = self.pick();
            let keyspace = self.store().keyspace(&name)?;
            let key = self.key();
            let mut change = self.change(&keyspace, &key);
            match &mut transaction {
                Some(transaction) => {
                    if writes.is_empty() && transaction.id().is_some() {
                        let found = transaction.get_for_update(&keyspace, &key)?;
                        assert_eq!(found.as_deref(), self.value(id, &key));
                    }
                    change = match change.without_operand() {
                        // A pessimistic transaction locks keys, not ranges.
                        Change::DeleteRange(_) if transaction.id().is_some() => Change::Delete,
                        change => change,
                    };
                    add!(transaction, &keyspace, key, &change)?;
                }
                None => add!(batch, &keyspace, key, &change)?,
            }
            writes.push(Write { keyspace: id, key, change });
        }
        let writes_any = writes.iter().any(|write| !write.change.is_nothing(&write.key));
        let sync = self.random.one_in(6) && writes_any && self.has_log;
        self.oracle.attempt(&writes);
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let options = WriteOptions::default().durability(durability);
        let outcome = match transaction {
            Some(transaction) => transaction.commit(options),
            None => self.store().write(&batch, options),
        };
        WorkloadClock::tick();
        outcome?;
        self.oracle.acknowledge();
        if sync {
            self.oracle.synced();
        }
        Ok(())
    }

    /// Changes a key depending on its value.
    fn update(&mut self) -> Result<(), Error> {
        let (name, id) = self.pick();
        let (keyspace, key) = (self.store().keyspace(&name)?, self.key());
        let new = (!self.random.one_in(4)).then(|| vec![1; self.random.below(3000) as usize]);
        let old = self.value(id, &key).map(<[u8]>::to_vec);
        let change = new.clone().map_or(Change::Delete, Change::Put);
        self.oracle.attempt(&[Write { keyspace: id, key: key.clone(), change }]);
        let update = |found: Option<&[u8]>| {
            assert_eq!(found, old.as_deref(), "what the update is made of");
            new.clone()
        };
        assert_eq!(keyspace.fetch_update(&key, update)?.as_deref(), old.as_deref());
        self.oracle.acknowledge();
        Ok(())
    }

    /// Loads sorted entries, which are then durable together with all earlier writes. Keyspaces
    /// whose collections write pointers back refuse a load over existing keys.
    fn load(&mut self) -> Result<(), Error> {
        let (name, id) = self.pick();
        let keyspace = self.store().keyspace(&name)?;
        let entries: Content =
            (0..20).map(|_| (self.key(), vec![1; self.random.below(300) as usize])).collect();
        let put = |(key, value): (&Vec<u8>, &Vec<u8>)| Write {
            keyspace: id,
            key: key.clone(),
            change: Change::Put(value.clone()),
        };
        self.oracle.attempt(&entries.iter().map(put).collect::<Vec<_>>());
        match keyspace.bulk_load(entries) {
            Ok(_) => self.oracle.acknowledge(),
            Err(refused @ Error::InvalidArgument { .. }) => {
                assert!(refused.to_string().contains("writes pointers back"), "{refused}");
                self.oracle.withdraw();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.oracle.synced();
        Ok(())
    }

    fn make(&mut self) -> Result<(), Error> {
        let name = NAMES[self.random.below(NAMES.len() as u64) as usize];
        if self.oracle.named().contains_key(name) {
            return Ok(());
        }
        let options = self.keyspace_options();
        self.oracle.attempt_keyspace(name);
        self.store().open_keyspace(name, Some(options))?;
        self.oracle.acknowledge_keyspaces();
        Ok(())
    }

    fn drop_one(&mut self) -> Result<(), Error> {
        let (name, _) = self.pick();
        if name == "default" {
            return Ok(());
        }
        let handle = self.store().keyspace(&name)?;
        self.oracle.attempt_drop(&name);
        self.store().drop_keyspace(&name)?;
        self.oracle.acknowledge_keyspaces();
        // On a store that a fault has stopped, the put fails for that reason.
        handle.put("key", "value").expect_err("it is gone");
        self.gone.push(handle);
        Ok(())
    }

    fn hold(&mut self) -> Result<(), Error> {
        let now = self.oracle.shown();
        let handle = |(name, content)| Ok((self.store().keyspace(name)?, content));
        let handles = now.iter().map(|(name, content)| handle((name, content.clone())));
        let handles = handles.collect::<Result<_, Error>>()?;
        let snapshot = self.store().snapshot();
        self.snapshots.push((snapshot, handles));
        Ok(())
    }

    fn look_at_what_is_held(&mut self) -> Result<(), Error> {
        for handle in self.gone.drain(..) {
            let refused = read_keyspace(&handle, None).expect_err("it is gone");
            assert!(matches!(refused, Error::UnknownKeyspace { .. }), "{refused}");
        }
        if !self.snapshots.is_empty() {
            let (snapshot, handles) = self.snapshots.remove(0);
            for (handle, held) in handles {
                assert_eq!(read_keyspace(&handle, Some(&snapshot))?, held, "P5, {}", handle.name());
            }
        }
        Ok(())
    }

    /// Makes a copy, which has the content of the store. It accepts writes, and neither store sees
    /// the other's writes.
    fn copy(&mut self) -> Result<(), Error> {
        let path = PathBuf::from(format!("copy{}", self.random.draw()));
        self.store().checkpoint(&path)?;
        let now = self.oracle.shown();
        let storage = self.storage.open_sibling(&path).expect("is there");
        if self.random.one_in(2) {
            self.copies.push((path, now));
            return Ok(());
        }
        let copy = self.open(&storage, false)?;
        assert_eq!(read_keyspaces(&copy)?, now, "a copy");
        let mut expected = now;
        for _ in 0..self.random.below(20) {
            let (name, _) = self.pick();
            let key = self.key();
            let value = vec![1; self.random.below(3000) as usize];
            copy.keyspace(&name)?.put(&key, &value)?;
            expected.get_mut(&name).expect("has the same").insert(key, value);
        }
        if self.random.one_in(2) {
            copy.compact()?;
        }
        copy.close()?;
        let copy = self.open(&storage, true)?;
        assert_eq!(read_keyspaces(&copy)?, expected, "a copy that was written to");
        assert!(copy.verify()?.is_clean());
        Ok(())
    }

    fn forget_handles(&mut self) {
        self.gone.clear();
        self.snapshots.clear();
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.forget_handles();
        if let Some(store) = self.store.take() {
            store.close()?;
        }
        self.oracle.synced();
        self.open_own()?;
        assert_eq!(read_keyspaces(self.store())?, self.oracle.shown(), "after an orderly end");
        Ok(())
    }

    fn arm(&mut self) {
        const KINDS: [FaultKind; 8] = [
            FaultKind::Crash,
            FaultKind::Crash,
            FaultKind::Crash,
            FaultKind::Crash,
            FaultKind::Eio,
            FaultKind::NoSpace,
            FaultKind::FailedSync,
            FaultKind::ShortWrite,
        ];
        // Small bounds place the fault in the recovery.
        let within = [20, 100, 400, 1000][self.random.below(4) as usize];
        let at_op = self.storage.ops() + self.random.below(within);
        let kind = match KINDS[self.random.below(KINDS.len() as u64) as usize] {
            // On a full disk the log keeps bytes that no later sync writes.
            FaultKind::NoSpace if self.sync_failed => FaultKind::Crash,
            kind => kind,
        };
        let sticky = kind == FaultKind::Crash;
        self.storage.inject(Fault { at_op, kind, sticky, category: None });
    }

    /// Opens the remains and continues until something fails, or until nothing has failed for long
    /// enough.
    fn generation(&mut self, read_only: Option<Found>) -> Result<(), Error> {
        let storage = self.storage.clone();
        let fired = storage.fired().len();
        self.open_own()?;
        // The only thing that may fail in a successful open is removing a file. The next open
        // removes it.
        let all_removed = storage.fired().len() == fired;
        let found = read_keyspaces(self.store())?;
        let survived = self.oracle.judge_keyspaces(&found).unwrap_or_else(|what| panic!("{what}"));
        assert!(read_only.is_none_or(|seen| seen == found), "a read-only open saw the same");
        self.oracle.settle(survived);
        assert!(self.store().verify()?.is_clean());
        let files = storage.list()?;
        let manifests = files.iter().filter(|file| file.name.ends_with(".manifest")).count();
        assert!(manifests == 1 || !all_removed, "P10: {manifests} manifests");
        for _ in 0..20 + self.random.below(100) {
            self.step()?;
        }
        Ok(())
    }

    /// The machine loses power, the process dies, or the program closes the store.
    fn end(&mut self) {
        let fails_syncs =
            |fault: &Fault| matches!(fault.kind, FaultKind::FailedSync | FaultKind::Eio);
        self.sync_failed |= self.storage.fired().iter().any(fails_syncs);
        self.storage.clear_faults();
        let store = self.store.take();
        let power_lost = match self.random.below(5) {
            0 => {
                drop(store);
                self.forget_handles();
                self.storage = self.storage.process_crash();
                false
            }
            1..3 => {
                self.storage = self.storage.process_crash();
                self.forget_handles();
                false
            }
            _ => {
                self.storage = self.storage.power_cut(self.random.draw()).0;
                self.forget_handles();
                self.sync_failed = false;
                true
            }
        };
        // Without a log, the crash of a process loses as much as a power loss.
        self.oracle.crash(power_lost || !self.has_log);
    }

    /// Returns what a read-only open of the remains shows. Checks that it changes nothing, and that
    /// copies are unchanged.
    fn look(&mut self) -> Option<Found> {
        let storage = self.storage.clone();
        for (path, expected) in self.copies.clone() {
            let place = storage.open_sibling(&path).expect("copies are durable");
            let copy = self.open(&place, true).expect("a copy opens");
            assert_eq!(read_keyspaces(&copy).expect("reads"), expected, "a copy after a crash");
        }
        if self.random.one_in(2) {
            return None;
        }
        let before = (storage.ops(), storage.list().expect("lists"));
        let store = match self.open(&storage, true) {
            Ok(store) => store,
            // The crash happened before the first manifest.
            Err(Error::NotAStore { .. }) if self.oracle.named().is_empty() => return None,
            Err(error) => panic!("P8, read-only: {error}"),
        };
        let found = read_keyspaces(&store).expect("reads");
        self.oracle.judge_keyspaces(&found).unwrap_or_else(|what| panic!("read-only: {what}"));
        drop(store);
        assert_eq!((storage.ops(), storage.list().expect("lists")), before, "nothing changed");
        Some(found)
    }
}

fn live(seed: u64) {
    let mut life = Life::new(seed);
    for _ in 0..GENERATIONS {
        let seen = life.look();
        if !life.random.one_in(8) {
            life.arm();
        }
        if let Err(error) = life.generation(seen) {
            assert!(!life.storage.fired().is_empty(), "without a fault: {error}");
        }
        life.end();
    }
    let seen = life.look();
    life.generation(seen).expect("no fault is armed");
}

#[test]
fn a_store_outlives_crashes_in_a_row() {
    for_seeds(45, live);
}
