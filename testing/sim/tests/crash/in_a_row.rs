//! Lives of a store through many crashes and faults, recoveries included. Batches and transactions
//! span keyspaces that come and go, sorted entries are loaded into them, checkpoints are opened and
//! written to, crash remains are opened read-only, and handles and snapshots outlive their
//! keyspace. Log segments are small, so that batches get segments of their own and most segments
//! are used again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{
    Background, Batch, Durability, Error, Keyspace, KeyspaceOptions, Options, ReadOptions,
    Snapshot, Store, TransactionOptions, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::clock::WorkloadClock;
use runstone_sim::oracle::Change;
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::{add, changes};

const NAMES: [&str; 5] = ["default", "a", "b", "c", "d"];
const GENERATIONS: usize = 8;

/// The content of a keyspace.
type Content = BTreeMap<Vec<u8>, Vec<u8>>;
/// The contents of a store, by keyspace name.
type Found = BTreeMap<String, Content>;
/// The id of each keyspace by name. A keyspace that is made again gets a new id.
type Named = BTreeMap<String, u64>;

/// The keyspace, the key, and what happens to it.
type Write = (u64, Vec<u8>, Change);

/// The model: what the store must hold.
#[derive(Default)]
struct World {
    named: Named,
    /// The names if the current operation, which makes or drops a keyspace, has taken effect.
    maybe: Option<Named>,
    base: BTreeMap<u64, Content>,
    /// Batches since `base`; the last one may be unacknowledged.
    batches: Vec<Vec<Write>>,
    acknowledged: usize,
    durable: usize,
    next: u64,
    /// Whether power was lost since the content was last checked.
    power_lost: bool,
}

fn apply(state: &mut BTreeMap<u64, Content>, batch: &[Write]) {
    for (keyspace, key, value) in batch {
        let content = state.entry(*keyspace).or_default();
        match value {
            Change::Put(value) | Change::PutLasting(value) => {
                _ = content.insert(key.clone(), value.clone());
            }
            Change::Merge(operand) => {
                let old = content.remove(key).map(|old| [&old[..], b","].concat());
                content.insert(key.clone(), [&old.unwrap_or_default()[..], operand].concat());
            }
            Change::Delete | Change::PutPassing(_) => _ = content.remove(key),
            Change::DeleteRange(end) => content
                .retain(|found, _| found < key || end.as_ref().is_some_and(|end| found >= end)),
        }
    }
}

impl World {
    fn state(&self, count: usize) -> BTreeMap<u64, Content> {
        let mut state = self.base.clone();
        self.batches[..count].iter().for_each(|batch| apply(&mut state, batch));
        state
    }

    fn found(named: &Named, state: &BTreeMap<u64, Content>) -> Found {
        let content = |id: &u64| state.get(id).cloned().unwrap_or_default();
        named.iter().map(|(name, id)| (name.clone(), content(id))).collect()
    }

    /// The content while nothing has gone wrong.
    fn now(&self) -> Found {
        World::found(&self.named, &self.state(self.acknowledged))
    }

    /// The value of a key while nothing has gone wrong.
    fn value(&self, id: u64, key: &[u8]) -> Option<Vec<u8>> {
        self.state(self.acknowledged).get(&id).and_then(|content| content.get(key).cloned())
    }

    fn synced(&mut self) {
        self.durable = self.acknowledged;
    }

    /// Finds the history that explains the content. Making and dropping keyspaces is durable. Of
    /// the batches a prefix survives, and it contains every batch that was promised.
    fn explain(&self, found: &Found) -> Option<(Named, BTreeMap<u64, Content>)> {
        let least = if self.power_lost { self.durable } else { self.acknowledged };
        for named in std::iter::once(&self.named).chain(&self.maybe) {
            for count in least..=self.batches.len() {
                let state = self.state(count);
                if World::found(named, &state) == *found {
                    return Some((named.clone(), state));
                }
            }
        }
        None
    }

    /// Takes what was found as the state from now on.
    fn settle(&mut self, (named, state): (Named, BTreeMap<u64, Content>)) {
        let next = self.next;
        *self = World { named, base: state, next, ..World::default() };
    }
}

/// A store and everything the test holds of it.
struct Life {
    seed: u64,
    random: Random,
    storage: SimStorage,
    store: Option<Store>,
    world: World,
    /// Copies that nothing has written to.
    copies: Vec<(PathBuf, Found)>,
    /// Handles of dropped keyspaces.
    gone: Vec<Keyspace>,
    snapshots: Vec<(Snapshot, Vec<(Keyspace, Content)>)>,
    /// A sync failed and the machine has kept its power since, so the kernel may take lost bytes
    /// for written.
    sync_failed: bool,
}

fn content(keyspace: &Keyspace, snapshot: Option<&Snapshot>) -> Result<Content, Error> {
    let options = snapshot.map_or_else(ReadOptions::default, |at| ReadOptions::default().at(at));
    let mut cursor = keyspace.cursor(options)?;
    let mut content = Content::new();
    cursor.seek_to_first()?;
    while cursor.valid() {
        content.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next()?;
    }
    Ok(content)
}

fn read(store: &Store) -> Result<Found, Error> {
    let mut found = Found::new();
    for name in store.keyspaces() {
        let keyspace = store.keyspace(&name)?;
        found.insert(name, content(&keyspace, None)?);
    }
    Ok(found)
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut world = World { next: 1, ..World::default() };
        world.maybe = Some(Named::from([("default".to_string(), 0)]));
        Life {
            seed,
            random: Random::new(seed ^ 0x11f3),
            storage: SimStorage::new(seed),
            store: None,
            world,
            copies: Vec::new(),
            gone: Vec::new(),
            snapshots: Vec::new(),
            sync_failed: false,
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
        options
    }

    fn keyspace_options(&mut self) -> KeyspaceOptions {
        self.options().keyspace.expect("set")
    }

    fn open(&mut self, storage: &SimStorage, read_only: bool) -> Result<Store, Error> {
        let mut options = self.options().read_only(read_only);
        if self.random.one_in(3) {
            // Without these, the stored options of the keyspace apply.
            options.keyspace = None;
        }
        Store::open_on(Arc::new(storage.clone()), options)
    }

    fn pick(&mut self) -> (String, u64) {
        let at = self.random.below(self.world.named.len() as u64) as usize;
        let (name, id) = self.world.named.iter().nth(at).expect("below the length");
        (name.clone(), *id)
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
                self.world.synced();
            }
            62..74 => drop(self.store().run_one_job()?),
            74..76 => {
                self.store().compact()?;
                self.world.synced();
            }
            76..78 => self.store().collect_values()?,
            78..81 => {
                self.store().sync()?;
                self.world.synced();
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
            _ => assert_eq!(read(self.store())?, self.world.now()),
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

    /// Writes a batch, or the same by a transaction of either mode.
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
                        assert_eq!(found.as_deref(), self.world.value(id, &key).as_deref());
                    }
                    change = match change.without_operand() {
                        // It locks keys, not ranges.
                        Change::DeleteRange(_) if transaction.id().is_some() => Change::Delete,
                        change => change,
                    };
                    add!(transaction, &keyspace, key, &change)?;
                }
                None => add!(batch, &keyspace, key, &change)?,
            }
            writes.push((id, key, change));
        }
        let writes_any = writes.iter().any(|(_, key, change)| !change.is_nothing(key));
        let sync = self.random.one_in(6) && writes_any;
        self.world.batches.push(writes);
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let options = WriteOptions::default().durability(durability);
        let outcome = match transaction {
            Some(transaction) => transaction.commit(options),
            None => self.store().write(&batch, options),
        };
        WorkloadClock::tick();
        outcome?;
        self.world.acknowledged += 1;
        if sync {
            self.world.synced();
        }
        Ok(())
    }

    /// Changes a key by the value that it has.
    fn update(&mut self) -> Result<(), Error> {
        let (name, id) = self.pick();
        let (keyspace, key) = (self.store().keyspace(&name)?, self.key());
        let new = (!self.random.one_in(4)).then(|| vec![1; self.random.below(3000) as usize]);
        let old = self.world.value(id, &key);
        let change = new.clone().map_or(Change::Delete, Change::Put);
        self.world.batches.push(vec![(id, key.clone(), change)]);
        let update = |found: Option<&[u8]>| {
            assert_eq!(found, old.as_deref(), "what the update is made of");
            new.clone()
        };
        assert_eq!(keyspace.fetch_update(&key, update)?.as_deref(), old.as_deref());
        self.world.acknowledged += 1;
        Ok(())
    }

    /// Loads sorted entries, which are durable then with all that came before. Value files that
    /// write pointers back refuse a load over keys that are there.
    fn load(&mut self) -> Result<(), Error> {
        let (name, id) = self.pick();
        let keyspace = self.store().keyspace(&name)?;
        let entries: Content =
            (0..20).map(|_| (self.key(), vec![1; self.random.below(300) as usize])).collect();
        let put =
            |(key, value): (&Vec<u8>, &Vec<u8>)| (id, key.clone(), Change::Put(value.clone()));
        self.world.batches.push(entries.iter().map(put).collect());
        match keyspace.bulk_load(entries) {
            Ok(_) => self.world.acknowledged += 1,
            Err(refused @ Error::InvalidArgument { .. }) => {
                assert!(refused.to_string().contains("writes pointers back"), "{refused}");
                self.world.batches.pop();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.world.synced();
        Ok(())
    }

    fn make(&mut self) -> Result<(), Error> {
        let name = NAMES[self.random.below(NAMES.len() as u64) as usize];
        if self.world.named.contains_key(name) {
            return Ok(());
        }
        let options = self.keyspace_options();
        let mut named = self.world.named.clone();
        named.insert(name.to_string(), self.world.next);
        self.world.next += 1;
        self.world.maybe = Some(named);
        self.store().open_keyspace(name, Some(options))?;
        self.world.named = self.world.maybe.take().expect("set");
        Ok(())
    }

    fn drop_one(&mut self) -> Result<(), Error> {
        let (name, _) = self.pick();
        if name == "default" {
            return Ok(());
        }
        let handle = self.store().keyspace(&name)?;
        let mut named = self.world.named.clone();
        named.remove(&name);
        self.world.maybe = Some(named);
        self.store().drop_keyspace(&name)?;
        self.world.named = self.world.maybe.take().expect("set");
        // On a store that a fault has stopped, this is the error.
        handle.put("key", "value").expect_err("it is gone");
        self.gone.push(handle);
        Ok(())
    }

    fn hold(&mut self) -> Result<(), Error> {
        let now = self.world.now();
        let handle = |(name, content)| Ok((self.store().keyspace(name)?, content));
        let handles = now.iter().map(|(name, content)| handle((name, content.clone())));
        let handles = handles.collect::<Result<_, Error>>()?;
        let snapshot = self.store().snapshot();
        self.snapshots.push((snapshot, handles));
        Ok(())
    }

    fn look_at_what_is_held(&mut self) -> Result<(), Error> {
        for handle in self.gone.drain(..) {
            let refused = content(&handle, None).expect_err("it is gone");
            assert!(matches!(refused, Error::UnknownKeyspace { .. }), "{refused}");
        }
        if !self.snapshots.is_empty() {
            let (snapshot, handles) = self.snapshots.remove(0);
            for (handle, held) in handles {
                assert_eq!(content(&handle, Some(&snapshot))?, held, "P5, {}", handle.name());
            }
        }
        Ok(())
    }

    /// A copy holds what the store held. It takes writes, and neither store sees the other's.
    fn copy(&mut self) -> Result<(), Error> {
        let path = PathBuf::from(format!("copy{}", self.random.draw()));
        self.store().checkpoint(&path)?;
        self.world.synced();
        let now = self.world.now();
        let storage = self.storage.open_sibling(&path).expect("is there");
        if self.random.one_in(2) {
            self.copies.push((path, now));
            return Ok(());
        }
        let copy = self.open(&storage, false)?;
        assert_eq!(read(&copy)?, now, "a copy");
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
        assert_eq!(read(&copy)?, expected, "a copy that was written to");
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
        self.world.synced();
        let storage = self.storage.clone();
        self.store = Some(self.open(&storage, false)?);
        assert_eq!(read(self.store())?, self.world.now(), "after an orderly end");
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

    /// Opens what is left and goes on until something fails, or until nothing has for long enough.
    fn generation(&mut self, read_only: Option<Found>) -> Result<(), Error> {
        let storage = self.storage.clone();
        let fired = storage.fired().len();
        self.store = Some(self.open(&storage, false)?);
        // An open that succeeds may only fail to remove a file. The next open removes that file.
        let all_removed = storage.fired().len() == fired;
        let found = read(self.store())?;
        let explained = self.world.explain(&found).expect("what was found is no prefix");
        assert!(read_only.is_none_or(|seen| seen == found), "a read-only open saw the same");
        self.world.settle(explained);
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
        match self.random.below(5) {
            0 => {
                drop(store);
                self.forget_handles();
                self.storage = self.storage.process_crash();
            }
            1..3 => {
                self.storage = self.storage.process_crash();
                self.forget_handles();
            }
            _ => {
                self.storage = self.storage.power_cut(self.random.draw()).0;
                self.forget_handles();
                self.world.power_lost = true;
                self.sync_failed = false;
            }
        }
    }

    /// Returns what a read-only open of the remains shows. It changes nothing, and copies are
    /// unchanged.
    fn look(&mut self) -> Option<Found> {
        let storage = self.storage.clone();
        for (path, expected) in self.copies.clone() {
            let place = storage.open_sibling(&path).expect("copies are durable");
            let copy = self.open(&place, true).expect("a copy opens");
            assert_eq!(read(&copy).expect("reads"), expected, "a copy after a crash");
        }
        if self.random.one_in(2) {
            return None;
        }
        let before = (storage.ops(), storage.list().expect("lists"));
        let store = match self.open(&storage, true) {
            Ok(store) => store,
            // The crash came before the first manifest.
            Err(Error::NotAStore { .. }) if self.world.named.is_empty() => return None,
            Err(error) => panic!("P8, read-only: {error}"),
        };
        let found = read(&store).expect("reads");
        assert!(self.world.explain(&found).is_some(), "read-only: no prefix");
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
    for_seeds(60, live);
}
