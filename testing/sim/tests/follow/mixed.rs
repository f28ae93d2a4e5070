//! Keyspaces that come and go, loads, placements that change, and stores that leave their log,
//! beside followers.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{
    Background, Backups, Follower, GcPointers, KeyspaceOptions, Options, Store, TransactionOptions,
    ValueOptions, ValuePlacement, WalMode, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::random::Random;

type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

const NAMES: [&str; 4] = ["default", "a", "b", "c"];

fn keyspace_options(random: &mut Random) -> KeyspaceOptions {
    let placements = [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
    let back = random.one_in(3);
    let values = ValueOptions::default()
        .placement(placements[random.below(3) as usize])
        .separate_at([100, 1000][random.below(2) as usize])
        .groups(1 + random.below(3) as u32)
        .slot_bytes(4096)
        .vlog_chunk_bytes(8192)
        .early(random.one_in(2))
        .cold_stream(random.one_in(2))
        .gc_pointers(if back { GcPointers::Writeback } else { GcPointers::Stable });
    let mut options = KeyspaceOptions::default().values(values);
    options.write_buffer_bytes = 64 << 10;
    options
}

fn options(seed: u64, random: &mut Random) -> Options {
    Options::default()
        .memory_budget_bytes(2 << 20)
        .background(Background::Manual)
        .wal_segment_bytes(64 << 10)
        .max_wal_bytes(512 << 10)
        .flush_at_close(random.one_in(2))
        .wal_mode(if random.one_in(2) { WalMode::Mapped } else { WalMode::Write })
        .seed(seed)
        .keyspace(keyspace_options(random))
}

fn read(store: &Store, place: &str) -> Model {
    let mut all = Model::new();
    for name in store.keyspaces() {
        let keyspace = store.keyspace(&name).expect("it is there");
        let mut own = BTreeMap::new();
        for one in keyspace.iter().unwrap_or_else(|e| panic!("{place}: {name}: {e}")) {
            let (key, value) = one.unwrap_or_else(|e| panic!("{place}: {name}: {e}"));
            let got = keyspace.get(&key).unwrap_or_else(|e| panic!("{place}: {name}: {e}"));
            assert_eq!(got.as_deref(), Some(&value[..]), "{place}");
            own.insert(key.to_vec(), value.to_vec());
        }
        all.insert(name, own);
    }
    all
}

fn same(found: &Model, expected: &Model, place: &str) {
    let names = |model: &Model| model.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{place}");
    for (name, own) in expected {
        let found = &found[name];
        let differs = |key: &&Vec<u8>| found.get(*key) != own.get(*key);
        let wrong: Vec<_> = own
            .keys()
            .chain(found.keys())
            .filter(differs)
            .map(|k| String::from_utf8_lossy(k))
            .collect();
        assert!(wrong.is_empty(), "{place}: {name}: {wrong:?}");
    }
}

struct Test {
    random: Random,
    options: Options,
    storage: SimStorage,
    store: Option<Store>,
    model: Model,
    seed: u64,
    step: usize,
}

impl Test {
    fn key(&mut self) -> Vec<u8> {
        format!("key{:03}", self.random.below(80)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.below(6) {
            0 => 2000 + self.random.below(5000),
            1 => 150,
            _ => self.random.below(80),
        };
        vec![self.random.draw() as u8; len as usize]
    }

    fn open(&mut self) {
        let opened = Store::open_on(Arc::new(self.storage.clone()), self.options.clone());
        let place = format!("seed {}, step {}: open", self.seed, self.step);
        let store = opened.unwrap_or_else(|error| panic!("{place}: {error}"));
        same(&read(&store, &place), &self.model, &place);
        self.store = Some(store);
        // The keyspace keeps its options, which may change from now on.
        self.options.keyspace = None;
    }

    fn write(&mut self, store: &Store) {
        let names: Vec<String> = self.model.keys().cloned().collect();
        let name = names[self.random.below(names.len() as u64) as usize].clone();
        let keyspace = store.keyspace(&name).expect("it is there");
        let (key, value) = (self.key(), self.value());
        let end = self.key();
        let own = self.model.get_mut(&name).expect("it is there");
        match self.random.below(12) {
            0 => {
                keyspace.delete(&key).expect("deletes");
                own.remove(&key);
            }
            1 if key < end => {
                keyspace.delete_range(&key[..]..&end[..]).expect("deletes");
                own.retain(|one, _| *one < key || *one >= end);
            }
            2 => {
                let mut one = store.begin(TransactionOptions::default()).expect("begins");
                one.put(&keyspace, &key, &value).expect("puts");
                one.put(&keyspace, &end, &value).expect("puts");
                one.commit(WriteOptions::default()).expect("commits");
                own.insert(key, value.clone());
                own.insert(end, value);
            }
            3 => {
                let entries: Vec<_> = (0..60u32)
                    .map(|n| {
                        (format!("load{:02}-{n:03}", self.step % 7).into_bytes(), value.clone())
                    })
                    .collect();
                if keyspace.bulk_load(entries.clone()).is_ok() {
                    own.extend(entries);
                }
            }
            4 => {
                let entries = (0..60u32).map(|n| match n {
                    59 => Err(runstone::Error::Closed),
                    n => Ok((format!("load{n:03}").into_bytes(), value.clone())),
                });
                keyspace.try_bulk_load(entries).expect_err("it fails");
            }
            _ => {
                keyspace.put(&key, &value).expect("puts");
                own.insert(key, value);
            }
        }
    }

    fn change(&mut self, store: &Store) {
        let name = NAMES[self.random.below(4) as usize];
        match self.random.below(3) {
            0 if name != "default" && self.model.contains_key(name) => {
                store.drop_keyspace(name).expect("it drops");
                self.model.remove(name);
            }
            _ => {
                let options = keyspace_options(&mut self.random);
                if store.open_keyspace(name, Some(options)).is_ok() {
                    self.model.entry(name.to_string()).or_default();
                }
            }
        }
    }

    fn apply(&mut self) {
        let store = self.store.take().expect("open");
        let op = self.random.below(100);
        match op {
            0..65 => self.write(&store),
            65..75 => store.flush().expect("flushes"),
            75..77 => store.compact().expect("compacts"),
            77..79 => store.collect_values().expect("collects"),
            79..93 => drop(store.run_one_job().expect("runs")),
            93..97 => self.change(&store),
            _ => {
                if self.random.one_in(3) {
                    drop(store);
                } else {
                    store.close().expect("closes");
                }
                self.options.flush_at_close = self.random.one_in(2);
                return self.open();
            }
        }
        self.store = Some(store);
    }
}

fn check(seed: u64, backs_up: bool) {
    let mut random = Random::new(seed ^ 0x3153d);
    let options = options(seed, &mut random);
    let model = Model::from([("default".to_string(), BTreeMap::new())]);
    let storage = SimStorage::new(seed);
    let mut test = Test { random, options, storage, store: None, model, seed, step: 0 };
    test.open();
    let follow = |test: &Test| -> Follower {
        Store::follow_on(Arc::new(test.storage.clone()), test.options.clone()).expect("follows")
    };
    let mut follower = follow(&test);
    let mut views: Vec<(Store, Model, usize)> = Vec::new();
    let backups = Backups::open_on(Arc::new(SimStorage::new(seed + 1))).expect("opens");
    for step in 0..500 {
        test.step = step;
        test.apply();
        let place = format!("seed {seed}, step {step}");
        if test.random.one_in(3) {
            follower.refresh().unwrap_or_else(|error| panic!("{place}: {error}"));
            if test.random.one_in(2) {
                same(&read(&follower.store(), &place), &test.model, &place);
            }
            if test.random.one_in(3) {
                views.push((follower.store(), test.model.clone(), step));
            }
        }
        if test.random.one_in(50) {
            follower = follow(&test);
        }
        if views.len() > 5 || (!views.is_empty() && test.random.one_in(20)) {
            let at = test.random.below(views.len() as u64) as usize;
            let (view, model, of) = views.remove(at);
            let place = format!("{place}: an old view of {of}");
            same(&read(&view, &place), &model, &place);
        }
        if backs_up && test.random.one_in(30) {
            let made = backups.create_on(Arc::new(test.storage.clone()));
            let made = made.unwrap_or_else(|error| {
                let files = test.storage.list().expect("lists");
                let files: Vec<_> = files
                    .iter()
                    .map(|f| f.name.clone())
                    .filter(|n| !n.ends_with("table"))
                    .collect();
                panic!("{place}: {error}: {files:?}")
            });
            let target = SimStorage::new(3);
            let at: Arc<dyn Storage> = Arc::new(target.clone());
            backups.restore_on(made.number, &at).unwrap_or_else(|e| panic!("{place}: {e}"));
            let opened = Store::open_on(at, test.options.clone());
            let opened = opened.unwrap_or_else(|e| panic!("{place}: restored: {e}"));
            same(&read(&opened, &place), &test.model, &format!("{place}: restored"));
            let path = format!("copy{step}");
            follower.checkpoint(std::path::Path::new(&path)).expect("a checkpoint");
            let copy = test.storage.open_sibling(std::path::Path::new(&path)).expect("there");
            let opened = Store::open_on(Arc::new(copy), test.options.clone());
            let opened = opened.unwrap_or_else(|e| panic!("{place}: copy: {e}"));
            same(&read(&opened, &place), &test.model, &format!("{place}: a copy"));
        }
    }
}

fn seeds() -> u64 {
    std::env::var("RUNSTONE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

#[test]
fn mixed_histories_are_followed() {
    (0..seeds()).for_each(|seed| check(2000 + seed, false));
}

#[test]
fn mixed_histories_are_backed_up() {
    (0..seeds()).for_each(|seed| check(3000 + seed, true));
}
