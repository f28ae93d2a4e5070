//! Stores in directories that are copied, moved and laid over each other at random, while backups,
//! a mirror, an archive and a reader of changes cross between them. Whatever is not refused must
//! show the content of the store at hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runstone::{
    Background, Backups, Change, Changes, ChangesFrom, Compression, Error, Kind, Mirror, Moment,
    Options, Position, Result, Store, ValuePlacement,
};
use runstone_sim::random::{Random, seeds};
use runstone_sim::workload::{options, placed};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

const STEPS: usize = 80;
const STORES: u64 = 3;

fn contents(store: &Store) -> Content {
    let entries = store.default_keyspace().iter().expect("no faults");
    let own = entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    own.collect::<Result<_>>().expect("no faults")
}

struct Crossed {
    random: Random,
    directory: tempfile::TempDir,
    options: Options,
    /// The content of each store.
    stores: BTreeMap<u64, Content>,
    backups: u64,
    mirror: u64,
    archive: u64,
    reader: Option<(Position, Content)>,
}

impl Crossed {
    fn new(seed: u64) -> Crossed {
        let mut random = Random::new(seed ^ 0xc505);
        let placements =
            [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
        let placement = placements[random.below(3) as usize];
        let mut options = placed(options(seed, Background::Manual), placement);
        options = options.keep_log_bytes(random.below(2) << 20);
        options.seed = None;
        let keyspace = options.keyspace.get_or_insert_default();
        keyspace.compression = vec![Compression::None];
        keyspace.values.separate_at = 60;
        let directory = tempfile::tempdir().expect("a directory");
        let (stores, reader) = (BTreeMap::from([(0, Content::new())]), None);
        let (backups, mirror, archive) = (0, 0, 0);
        let crossed =
            Crossed { random, directory, options, stores, backups, mirror, archive, reader };
        crossed.open(&crossed.place("store", 0)).close().expect("no faults");
        crossed
    }

    fn place(&self, what: &str, number: u64) -> PathBuf {
        self.directory.path().join(format!("{what}{number}"))
    }

    fn open(&self, path: &Path) -> Store {
        Store::open(path, self.options.clone()).expect("opens")
    }

    /// Writes to a store, and closes it. Returns its content.
    fn write(&mut self, path: &Path, mut content: Content) -> Content {
        self.options.flush_at_close = self.random.one_in(2);
        let store = self.open(path);
        assert!(contents(&store) == content, "{}", path.display());
        for _ in 0..self.random.below(20) {
            let key = format!("key{:02}", self.random.below(30)).into_bytes();
            let bytes = [10, 100, 3000, 4100][self.random.below(4) as usize];
            let mut value = vec![0; bytes];
            value[self.random.below(bytes as u64) as usize] = self.random.draw() as u8;
            store.put(&key, &value).expect("no faults");
            content.insert(key, value);
            match self.random.below(20) {
                0 => store.flush().expect("no faults"),
                1 => store.collect_values().expect("no faults"),
                2 => drop(store.run_one_job().expect("no faults")),
                _ => {}
            }
        }
        if self.random.one_in(4) {
            // Copies the store as a killed process leaves it.
            self.copy(path, STORES - 1, false);
            self.stores.insert(STORES - 1, content.clone());
        }
        store.close().expect("no faults");
        content
    }

    /// Copies a store: into a new directory, or as `rsync --delete` does, which leaves the lock
    /// file alone.
    fn copy(&self, from: &Path, to: u64, leaves_lock: bool) {
        let to = self.place("store", to);
        if from == to {
            return;
        }
        if !leaves_lock {
            let _ = fs::remove_dir_all(&to);
        }
        fs::create_dir_all(&to).expect("a directory");
        for file in fs::read_dir(&to).expect("a directory") {
            let file = file.expect("listed");
            if file.file_name() != "LOCK" {
                fs::remove_file(file.path()).expect("removed");
            }
        }
        for file in fs::read_dir(from).expect("a directory") {
            let file = file.expect("listed");
            fs::copy(file.path(), to.join(file.file_name())).expect("copied");
        }
    }

    fn back_up(&mut self, path: &Path, content: &Content) {
        let backups = Backups::open(self.place("backups", self.backups)).expect("its own");
        match backups.create(path) {
            Ok(made) => {
                let to = tempfile::tempdir().expect("a directory");
                backups.restore(made.number, to.path()).expect("restores");
                assert!(contents(&self.open(to.path())) == *content, "{}", path.display());
            }
            Err(error) => {
                assert!(error.to_string().contains("earlier backups"), "{error}");
                self.backups += 1;
            }
        }
    }

    fn mirror(&mut self, path: &Path, content: &Content) {
        let target = self.place("mirror", self.mirror);
        let mirror = Mirror::open(path, target, self.options.clone());
        match mirror.and_then(|mut mirror| mirror.advance(Duration::ZERO).map(|_| mirror)) {
            Ok(mirror) => assert!(contents(mirror.store()) == *content, "{}", path.display()),
            Err(error) => {
                assert!(is_other(&error), "{error}");
                self.mirror += 1;
            }
        }
    }

    fn archive(&mut self, path: &Path, content: &Content) {
        let backups = Backups::open(self.place("archive", self.archive)).expect("its own");
        match backups.archive(path).and_then(|mut archiver| archiver.advance(Duration::ZERO)) {
            Ok(_) => {
                let to = tempfile::tempdir().expect("a directory");
                backups.restore_to(Moment::End, to.path()).expect("restores");
                assert!(contents(&self.open(to.path())) == *content, "{}", path.display());
            }
            Err(error) => {
                let is_full = error.to_string().contains("earlier backups");
                assert!(is_full || is_other(&error), "{error}");
                self.archive += 1;
            }
        }
    }

    fn read(&mut self, path: &Path, content: &Content) {
        let (position, mut known) = match self.reader.take() {
            Some(known) => known,
            None => {
                let now = Changes::open(path, ChangesFrom::Now).expect("begins").position();
                (now, content.clone())
            }
        };
        match Changes::open(path, ChangesFrom::After(position)) {
            Ok(changes) => {
                let position = read_all(changes, &mut known);
                assert!(known == *content, "{}", path.display());
                self.reader = Some((position, known));
            }
            Err(error) => assert!(is_other(&error), "{error}"),
        }
    }

    fn step(&mut self) {
        let at = self.random.below(self.stores.len() as u64) as usize;
        let (number, content) = self.stores.iter().nth(at).expect("one");
        let (number, content) = (*number, content.clone());
        let path = self.place("store", number);
        match self.random.below(12) {
            0..5 => {
                let content = self.write(&path, content);
                self.stores.insert(number, content);
            }
            5 | 6 => {
                let to = self.random.below(STORES);
                let leaves_lock = self.random.one_in(2);
                self.copy(&path, to, leaves_lock);
                self.stores.insert(to, content);
            }
            7 => {
                let to = self.random.below(STORES);
                if to != number {
                    let _ = fs::remove_dir_all(self.place("store", to));
                    fs::rename(&path, self.place("store", to)).expect("on one file system");
                    self.stores.remove(&number);
                    self.stores.insert(to, content);
                }
            }
            8 => self.back_up(&path, &content),
            9 => self.mirror(&path, &content),
            10 => self.archive(&path, &content),
            _ => self.read(&path, &content),
        }
    }
}

/// Whether the error says that a reader cannot continue with this store.
fn is_other(error: &Error) -> bool {
    matches!(error, Error::HistoryForked { .. } | Error::HistoryGone { .. })
        || error.to_string().contains("past the end of the log")
}

fn read_all(mut changes: Changes, known: &mut Content) -> Position {
    while let Some(changed) = changes.next().expect("no faults") {
        let Change::Writes(batch) = changed.change else { continue };
        for operation in batch.operations() {
            assert_eq!(operation.kind, Kind::Put);
            known.insert(operation.key.to_vec(), operation.plain_value().to_vec());
        }
    }
    changes.position()
}

#[test]
fn what_crosses_between_copies_is_refused_or_right() {
    for seed in seeds(4) {
        let mut crossed = Crossed::new(seed);
        (0..STEPS).for_each(|_| crossed.step());
    }
}
