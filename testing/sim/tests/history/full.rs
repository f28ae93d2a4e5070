//! Readers of the history beside a store whose disk is full now and then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use runstone::storage::Category;
use runstone::{
    Archiver, Background, Batch, Error, Event, EventListener, KeyspaceOptions, Mirror, Moment,
    Options, Store, ValuePlacement, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::random::{Random, seeds};
use runstone_sim::workload::{early, options, placed};

use super::attacks::{archiver, contents, differ, load_fallible, mirror, restored};
use super::open;

const NAMES: [&str; 3] = ["default", "ann", "bob"];

/// What happened.
#[derive(Debug, Default)]
struct Figures {
    /// Calls that failed.
    refused: u64,
    /// Leases that the writer revoked.
    revoked: u64,
}

struct Full {
    seed: u64,
    options: Options,
    random: Random,
    source: SimStorage,
    store: Store,
    disk: SimStorage,
    target: SimStorage,
    mirror: Option<Mirror>,
    archiver: Option<Archiver>,
    copies: u64,
    is_full: bool,
    figures: Figures,
}

impl Full {
    fn new(seed: u64, options: Options) -> Full {
        let source = SimStorage::new(seed);
        let store = open(&source, &options).expect("no faults");
        Full {
            seed,
            options,
            random: Random::new(seed ^ 0xf011),
            source,
            store,
            disk: SimStorage::new(seed + 1),
            target: SimStorage::new(seed + 2),
            mirror: None,
            archiver: None,
            copies: 0,
            is_full: false,
            figures: Figures::default(),
        }
    }

    fn write(&mut self) -> runstone::Result<()> {
        let name = NAMES[self.random.below(3) as usize];
        let Ok(keyspace) = self.store.keyspace(name) else { return Ok(()) };
        let key = format!("key{:03}", self.random.below(60));
        match self.random.below(8) {
            0..2 => keyspace.delete(key),
            2 => keyspace.delete_range(key.clone()..format!("{key}5")),
            3 => {
                let mut batch = Batch::new();
                let bytes = if self.random.one_in(3) { 9000 } else { 100 };
                for i in 0..40 {
                    batch.put(
                        &keyspace,
                        format!("key{i:03}"),
                        vec![self.random.draw() as u8 | 1; bytes],
                    )?;
                }
                self.store.write(&batch, WriteOptions::default())
            }
            4 => {
                let mut batch = Batch::new();
                (0..9).try_for_each(|i| batch.delete(&keyspace, format!("key{:03}", i * 7)))?;
                self.store.write(&batch, WriteOptions::default())
            }
            _ => keyspace
                .put(key, vec![self.random.draw() as u8 | 1; self.random.below(900) as usize]),
        }
    }

    fn keyspace_options(&mut self) -> KeyspaceOptions {
        let mut options = self.options.keyspace.clone().unwrap_or_default();
        options.block_bytes = 512 << self.random.below(3);
        options
    }

    fn step(&mut self) {
        let name = NAMES[1 + self.random.below(2) as usize];
        let outcome = match self.random.below(100) {
            0..50 => self.write(),
            50..58 => self.store.drop_keyspace(name),
            58..70 => {
                let options = self.keyspace_options();
                self.store.open_keyspace(name, Some(options)).map(drop)
            }
            70..74 => {
                let name = NAMES[self.random.below(3) as usize];
                let mut entries = Vec::new();
                for i in 0..60 {
                    if self.random.one_in(2) {
                        entries.push((
                            format!("key{i:03}"),
                            Some(vec![i + 1; self.random.below(900) as usize]),
                        ));
                    }
                }
                match entries.is_empty() || self.store.keyspace(name).is_err() {
                    true => Ok(()),
                    false => load_fallible(&self.store, name, &entries),
                }
            }
            74..77 => self.store.flush(),
            77..79 => self.store.compact(),
            79..85 => self.store.run_one_job().map(drop),
            85..87 => {
                self.reopen();
                Ok(())
            }
            87..89 => {
                self.crash();
                Ok(())
            }
            89..96 => {
                self.toggle();
                Ok(())
            }
            _ => self.store.sync(),
        };
        if let Err(error) = outcome {
            self.figures.refused += 1;
            let known =
                matches!(error, Error::InvalidArgument { .. } | Error::UnknownKeyspace { .. });
            assert!(self.is_full || known, "seed {}: {error}", self.seed);
        }
    }

    fn toggle(&mut self) {
        if self.is_full {
            self.relieve();
            return;
        }
        self.is_full = true;
        let categories = [
            Some(Category::Wal),
            Some(Category::Wal),
            None,
            Some(Category::Manifest),
            Some(Category::Other),
        ];
        let category = categories[self.random.below(5) as usize];
        let at_op = self.source.ops() + self.random.below(6);
        let sticky = !self.random.one_in(4);
        self.source.inject(Fault { at_op, kind: FaultKind::NoSpace, sticky, category });
    }

    fn relieve(&mut self) {
        self.source.clear_faults();
        self.is_full = false;
        // The store notices the space by itself.
        for _ in 0..20 {
            if self.store.put("room", "").is_ok() {
                return;
            }
            let _ = self.store.run_one_job();
        }
        // The store has stopped: a sync failed.
        self.crash();
    }

    fn reopen(&mut self) {
        let closed = self.store.clone().close();
        if closed.is_err() {
            assert!(self.is_full, "seed {}: {closed:?}", self.seed);
            self.source.clear_faults();
            self.is_full = false;
            return self.crash();
        }
        match open(&self.source, &self.options) {
            Ok(store) => self.store = store,
            Err(error) => {
                assert!(self.is_full, "seed {}: {error}", self.seed);
                self.is_full = false;
                self.source.clear_faults();
                self.crash();
            }
        }
    }

    fn crash(&mut self) {
        let (mirror, archiver) = (self.mirror.is_some(), self.archiver.is_some());
        (self.mirror, self.archiver) = (None, None);
        self.source = match self.random.one_in(2) {
            true => self.source.power_cut(self.random.draw()).0,
            false => self.source.process_crash(),
        };
        self.is_full = false;
        self.store = open(&self.source, &self.options).expect("it recovers");
        self.store.put("opened", "").expect("no faults");
        if mirror {
            self.open_mirror();
        }
        if archiver {
            self.archiver = Some(archiver_of(&self.disk, &self.source));
        }
    }

    fn open_mirror(&mut self) {
        self.mirror = match mirror(&self.source, &self.target, &self.options) {
            Err(Error::HistoryGone { .. }) => {
                self.new_target();
                Some(mirror(&self.source, &self.target, &self.options).expect("it begins"))
            }
            opened => Some(opened.expect("it goes on")),
        };
    }

    fn new_target(&mut self) {
        self.copies += 1;
        self.target = SimStorage::new(self.copies);
    }

    fn look(&mut self, step: usize) {
        let place = format!("seed {}, step {step}", self.seed);
        if self.is_full && self.random.one_in(2) {
            return;
        }
        if self.random.one_in(4)
            && let Some(mirror) = &mut self.mirror
        {
            match mirror.advance(Duration::ZERO) {
                Err(Error::HistoryGone { .. }) => {
                    self.mirror = None;
                    self.new_target();
                }
                Err(Error::LeaseRevoked { .. }) => {
                    self.figures.revoked += 1;
                    self.mirror = None;
                }
                Err(error) if self.is_full => {
                    let text = error.to_string();
                    assert!(
                        text.contains("space") || text.contains("failed before"),
                        "{place}: {error:?}"
                    );
                    // The mirror may continue, unless its store has stopped.
                    if text.contains("failed before") || self.random.one_in(2) {
                        self.mirror = None;
                    }
                }
                advanced => {
                    advanced.unwrap_or_else(|error| panic!("{place}: {error}"));
                    if !self.is_full {
                        let (found, state) = (contents(mirror.store()), contents(&self.store));
                        assert!(
                            found == state,
                            "{place}: the mirror: {}",
                            differ(&found, Some(&state))
                        );
                    }
                }
            }
        }
        if self.random.one_in(5)
            && let Some(archiver) = &mut self.archiver
        {
            match archiver.advance(Duration::ZERO) {
                Err(error) => {
                    assert!(
                        self.is_full || matches!(error, Error::LeaseRevoked { .. }),
                        "{place}: {error}"
                    );
                    self.archiver = None;
                }
                Ok(_) if !self.is_full && self.random.one_in(6) => {
                    let found = restored(&self.disk, Moment::End, &self.options);
                    let found = found.unwrap_or_else(|error| panic!("{place}: {error}"));
                    let state = contents(&self.store);
                    assert!(found == state, "{place}: restored: {}", differ(&found, Some(&state)));
                }
                Ok(_) => {}
            }
        }
        if !self.is_full {
            if self.mirror.is_none() && self.random.one_in(6) {
                self.open_mirror();
            }
            if self.archiver.is_none() && self.random.one_in(6) {
                self.archiver = Some(archiver_of(&self.disk, &self.source));
            }
        }
    }
}

fn archiver_of(disk: &SimStorage, source: &SimStorage) -> Archiver {
    archiver(disk, source).expect("it can be archived")
}

/// The remains of a failed write may look whole to a reader if the write ends with zeros, so no
/// value ends with zeros.
#[test]
fn readers_beside_a_full_disk_miss_nothing() {
    let mut told = Figures::default();
    for seed in seeds(12) {
        for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
            let options = placed(options(seed, Background::Manual), placement);
            let options = if seed % 5 == 4 { early(options) } else { options };
            let mode = [WalMode::Mapped, WalMode::Write][seed as usize % 2];
            let options = options.keep_log_bytes((seed % 3) << 29).wal_mode(mode);
            let mut full = Full::new(seed, options);
            for step in 0..400 {
                full.step();
                full.look(step);
            }
            told.refused += full.figures.refused;
            told.revoked += full.figures.revoked;
        }
    }
    assert!(told.refused > 100 && told.revoked > 10, "{told:?}");
}

/// Collects what a store reports.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<(u64, u64)>>);

impl EventListener for Heard {
    fn on_event(&self, event: &Event) {
        if let Event::KeptLogGivenUp { segments, bytes } = event {
            self.0.lock().expect("no panic").push((*segments, *bytes));
        }
    }
}

/// Once, the kept log was removed for a full disk without a report.
#[test]
fn a_kept_log_that_a_full_disk_takes_is_told() {
    let (heard, source) = (Arc::new(Heard::default()), SimStorage::new(1));
    let options = Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
    let options = options.wal_segment_bytes(64 << 10).listener(heard.clone());
    let store = open(&source, &options).expect("no faults");
    (0..100u8).for_each(|key| store.put([key], vec![7; 2000]).expect("no faults"));
    store.flush().expect("no faults");
    let kept = store.metrics().kept_log_bytes;
    assert!(kept > 0);
    store.put("key", "value").expect("no faults");
    let (at_op, kind) = (source.ops(), FaultKind::NoSpace);
    source.inject(Fault { at_op, kind, sticky: true, category: Some(Category::Table) });
    store.flush().expect_err("there is no room for a table");
    // The next job makes room first.
    let _ = store.run_one_job();
    let metrics = store.metrics();
    assert_eq!((metrics.kept_log_bytes, metrics.counters.kept_log_bytes_given_up), (0, kept));
    let told = heard.0.lock().expect("no panic").clone();
    assert!(told.len() == 1 && told[0].0 > 1 && told[0].1 == kept, "{told:?}");
    source.clear_faults();
    store.flush().expect("there is room again");
}
