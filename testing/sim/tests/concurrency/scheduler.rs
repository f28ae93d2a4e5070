//! Many threads use the scheduler: writes, flushes, compactions, collections, copies, changes of
//! options, keyspaces that come and go, and finally a close beside a caller's compactions. Jobs run
//! in threads and by hand. The work of each thread follows from the seed, but its timing does not.
//! A watchdog ends the process when nothing has moved for long.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runstone::storage::MemoryStorage;
use runstone::{Background, Batch, Durability, Error, Keyspace, Store, WriteOptions};
use runstone_sim::changes;
use runstone_sim::random::{Random, for_seeds, number};

/// The last two keyspaces are dropped and made again.
const NAMES: [&str; 4] = ["default", "other", "one", "two"];
const LASTING: u64 = 2;
const THREADS: u64 = 4;
/// Longer than anything that a thread does.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each thread is doing, and how often that changed.
#[derive(Default)]
struct Watched {
    doing: Mutex<BTreeMap<u64, String>>,
    moves: AtomicU64,
    is_over: AtomicBool,
}

impl Watched {
    fn note(&self, thread: u64, what: String) {
        self.doing.lock().expect("sound").insert(thread, what);
        self.moves.fetch_add(1, Relaxed);
    }

    /// Ends the process when nothing moves.
    fn watch(&self, place: &str) {
        let (mut moves, mut since) = (0, Instant::now());
        while !self.is_over.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.moves.load(Relaxed);
            if now != moves {
                (moves, since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                let doing = self.doing.lock().expect("sound");
                tell(format_args!("{place}: nothing moves: {doing:#?}"));
                show_threads();
                std::process::abort();
            }
        }
    }
}

/// Ends the watch, however a life ends.
struct Over<'a>(&'a Watched);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

/// Prints past the output capture of the test harness, because an abort would lose the captured
/// output.
fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Shows where the kernel has each thread: whether it waits, and for what.
fn show_threads() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, state) = (read("comm"), read("wchan"));
        let (id, call) = (task.file_name(), read("syscall"));
        tell(format_args!("{id:?}: {} {state} {}", name.trim(), call.trim()));
    }
}

/// The state of one thread. It has its own keys, so it knows their values.
struct Worker<'a> {
    seed: u64,
    number: u64,
    random: Random,
    store: Arc<Store>,
    watched: &'a Watched,
    /// The content of its own keys, in the keyspaces that stay.
    content: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
}

impl Worker<'_> {
    fn keyspace(&mut self, count: u64) -> (u64, Result<Keyspace, Error>) {
        let at = self.random.below(count);
        (at, self.store.keyspace(NAMES[at as usize]))
    }

    fn key(&mut self) -> Vec<u8> {
        let key = self.random.below(120);
        format!("{key:03}/{}", self.number).into_bytes()
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut batch = Batch::new();
        let mut written = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let (at, keyspace) = self.keyspace(NAMES.len() as u64);
            let (keyspace, key) = (keyspace?, self.key());
            if self.random.one_in(6) {
                batch.delete(&keyspace, &key)?;
                written.push((at, key, None));
            } else {
                let len = [5, 80, 700, 3000][self.random.below(4) as usize];
                let value = vec![self.random.draw() as u8; len];
                batch.put(&keyspace, &key, &value)?;
                written.push((at, key, Some(value)));
            }
        }
        let is_synced = self.random.one_in(10);
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        self.store.write(&batch, WriteOptions::default().durability(durability))?;
        for (at, key, value) in written.into_iter().filter(|(at, ..)| *at < LASTING) {
            match value {
                Some(value) => drop(self.content.insert((at, key), value)),
                None => drop(self.content.remove(&(at, key))),
            }
        }
        Ok(())
    }

    fn get(&mut self) -> Result<(), Error> {
        let (at, keyspace) = self.keyspace(LASTING);
        let key = self.key();
        let found = keyspace?.get(&key)?;
        let expected = self.content.get(&(at, key));
        assert_eq!(found.as_deref(), expected.map(|value| &value[..]), "a key of its own");
        Ok(())
    }

    fn look_back(&mut self) -> Result<(), Error> {
        let snapshot = self.store.snapshot();
        let (at, keyspace) = self.keyspace(LASTING);
        let (keyspace, key) = (keyspace?, self.key());
        self.write()?;
        if let Some(value) = keyspace.get_at(&key, &snapshot)? {
            assert!(!value.is_empty(), "{at}: nobody writes nothing");
        }
        Ok(())
    }

    fn change(&mut self) -> Result<(), Error> {
        let draw = self.random.draw();
        let options = changes::options(self.seed, draw, Background::Manual).keyspace;
        let (at, _) = self.keyspace(NAMES.len() as u64);
        let is_gone = at >= LASTING && self.random.one_in(2);
        match is_gone {
            true => self.store.drop_keyspace(NAMES[at as usize]),
            false => self.store.open_keyspace(NAMES[at as usize], options).map(drop),
        }
    }

    fn act(&mut self, draw: u64) -> Result<(), Error> {
        match draw {
            0..60 => self.write(),
            60..75 => self.get(),
            75..78 => self.look_back(),
            78..82 => self.change(),
            82..86 => self.store.flush(),
            86..88 => self.store.wait_idle(),
            88..91 => self.store.collect_values(),
            91..93 => {
                let (_, keyspace) = self.keyspace(NAMES.len() as u64);
                keyspace?.compact()
            }
            93 => {
                let (number, draw) = (self.number, self.random.draw());
                self.store.checkpoint(format!("/copy-{number}-{draw}"))
            }
            94 => {
                self.store.metrics();
                Ok(())
            }
            95 => self.store.sync(),
            _ => self.store.run_one_job().map(drop),
        }
    }

    fn work(mut self, steps: u64) -> BTreeMap<(u64, Vec<u8>), Vec<u8>> {
        for step in 0..steps {
            let draw = self.random.below(100);
            self.watched.note(self.number, format!("step {step}: {draw}"));
            match self.act(draw) {
                // Another thread has dropped the keyspace.
                Ok(()) | Err(Error::UnknownKeyspace { .. }) => {}
                Err(error) => panic!("seed {}, step {step}: {draw}: {error:?}", self.seed),
            }
        }
        self.content
    }
}

/// Compacts until the store is closed.
fn compact_for_ever(keyspace: &Keyspace, watched: &Watched) -> Error {
    loop {
        if let Err(error) = keyspace.put("again", [7; 900]).and_then(|()| keyspace.compact()) {
            return error;
        }
        watched.note(THREADS, "compacted".to_string());
    }
}

fn live(seed: u64, background: Background, steps: u64) {
    let storage = MemoryStorage::new();
    let options = changes::options(seed, seed, background);
    let open = || Store::open_on(Arc::new(storage.clone()), options.clone());
    let store = Arc::new(open().unwrap_or_else(|error| panic!("seed {seed}: {error}")));
    NAMES.iter().for_each(|name| drop(store.open_keyspace(name, None).expect("new")));
    let watched = Watched::default();
    let content = std::thread::scope(|scope| {
        let _over = Over(&watched);
        scope.spawn(|| watched.watch(&format!("seed {seed}, {background:?}")));
        let (beside, watched_ref) = (Arc::clone(&store), &watched);
        let workers = (0..THREADS).map(move |number| Worker {
            seed,
            number,
            random: Random::new(seed.wrapping_mul(31) ^ number),
            store: Arc::clone(&beside),
            watched: watched_ref,
            content: BTreeMap::new(),
        });
        let threads: Vec<_> = workers.map(|one| scope.spawn(move || one.work(steps))).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let is_failed = ended.iter().any(Result::is_err);
        let handle = store.default_keyspace().clone();
        let compacting = scope.spawn(move || compact_for_ever(&handle, watched_ref));
        std::thread::sleep(Duration::from_millis(seed % 8));
        watched.note(THREADS + 1, "closes".to_string());
        let closed = Arc::into_inner(store).expect("the others are over").close();
        let refused = compacting.join();
        assert!(!is_failed, "seed {seed}, {background:?}: a thread failed");
        closed.unwrap_or_else(|error| panic!("seed {seed}: close: {error}"));
        assert!(matches!(refused, Ok(Error::Closed)), "seed {seed}: {refused:?}");
        let content = ended.into_iter().flat_map(|ended| ended.expect("looked at above"));
        content.collect::<BTreeMap<_, _>>()
    });
    let store = open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    store.default_keyspace().delete("again").expect("deletes");
    for at in 0..LASTING {
        let keyspace = store.keyspace(NAMES[at as usize]).expect("is there");
        let entries = keyspace.iter().expect("opens").map(|entry| entry.expect("reads"));
        let found: Vec<_> = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        let expected = content.iter().filter(|((own, _), _)| *own == at);
        let expected: Vec<_> = expected.map(|((_, k), value)| (k.clone(), value.clone())).collect();
        assert!(found == expected, "seed {seed}, {background:?}: {}", NAMES[at as usize]);
    }
    assert!(store.verify().expect("verifies").is_clean(), "seed {seed}, {background:?}");
}

#[test]
fn nobody_waits_for_ever_and_nothing_is_lost() {
    let steps = number("RUNSTONE_STEPS", 300);
    for_seeds(6, |seed| {
        let threads = [1, 2, 3].map(Background::Threads).into_iter();
        threads.chain([Background::Manual]).for_each(|kind| live(seed, kind, steps));
    });
}
