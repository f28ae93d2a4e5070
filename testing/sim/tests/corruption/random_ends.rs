//! Random stores whose manifest or log is damaged at its end, after each kind of edit: bytes zeroed
//! or overwritten from some place on, one bit flipped, a file cut. `ends.rs` tests the same cases
//! by hand, and says what manifest and log record about each other.

use runstone::Store;
use runstone::storage::Storage;
use runstone_fault_storage::SimStorage;
use runstone_sim::oracle::{Change, Oracle, Write};
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::read_keyspaces;

use super::ends::{EDITS, Edit, edit, open, open_apart, put};
use super::synced::{last_of, used};

/// More bytes than a seal has. A seal is the empty record that follows each edit.
const SEAL_BYTES: usize = 10;

/// A store after random writes, flushes and edits.
struct Life {
    disk: SimStorage,
    store: Store,
    /// The puts and the keyspaces, but not the loaded entries.
    oracle: Oracle,
    /// The number of puts. No key occurs twice.
    puts: usize,
}

impl Life {
    fn begin(random: &mut Random, seed: u64) -> Life {
        let disk = SimStorage::new(seed);
        let store = if random.one_in(2) { open_apart(&disk) } else { open(&disk) };
        let store = store.expect("opens");
        store.open_keyspace("other", None).expect("makes");
        let mut life = Life { disk, store, oracle: Oracle::default(), puts: 0 };
        life.made("default");
        life.made("other");
        for step in 0..random.below(60) {
            life.write(random);
            match random.below(20) {
                0 => {
                    life.store.flush().expect("flushes");
                    life.oracle.synced();
                }
                1 => edit(&life.store, Edit::Load),
                2 => {
                    let name = format!("made {step}");
                    life.store.open_keyspace(&name, None).expect("makes");
                    life.made(&name);
                }
                _ => {}
            }
        }
        life
    }

    fn write(&mut self, random: &mut Random) {
        let name = if random.one_in(3) { "other" } else { "default" };
        let is_synced = random.one_in(4);
        self.put(name, is_synced);
        if is_synced {
            self.oracle.synced();
        }
    }

    /// Makes a put. The caller reports its sync to the oracle if no damage may undo the put.
    fn put(&mut self, name: &'static str, is_synced: bool) {
        let key = format!("k{:03}", self.puts);
        self.puts += 1;
        put(&self.store, name, &key, is_synced);
        let (keyspace, change) = (self.oracle.named()[name], Change::Put(vec![7; 100]));
        self.oracle.attempt(&[Write { keyspace, key: key.into_bytes(), change }]);
        self.oracle.acknowledge();
    }

    fn made(&mut self, name: &str) {
        self.oracle.attempt_keyspace(name);
        self.oracle.acknowledge_keyspaces();
    }

    fn edit(&mut self, kind: Edit) {
        edit(&self.store, kind);
        match kind {
            Edit::Make => self.made("made"),
            Edit::Drop => {
                self.oracle.attempt_drop("other");
                self.oracle.acknowledge_keyspaces();
            }
            Edit::Load | Edit::Ingest | Edit::Change => {}
        }
    }

    /// Checks that a store shows an edit and a prefix of the writes: all of them, or, if the last
    /// ones may be lost, at least the durable ones. Returns the length of the prefix.
    fn check(&self, store: &Store, kind: Edit, loses_end: bool, place: &str) -> usize {
        match kind {
            Edit::Load | Edit::Ingest => {
                let loaded = store.default_keyspace().get("loaded").expect("reads");
                assert_eq!(loaded.as_deref(), Some(&b"1"[..]), "{place}");
            }
            Edit::Change => {
                let other = store.keyspace("other").expect("is there");
                assert_eq!(other.options().ttl_seconds, 1 << 30, "{place}");
            }
            Edit::Make | Edit::Drop => {}
        }
        let mut found = read_keyspaces(store).expect("reads");
        found.get_mut("default").expect("is there").remove(&b"loaded"[..]);
        let mut oracle = self.oracle.clone();
        oracle.crash(loses_end);
        let survived = oracle.judge_keyspaces(&found);
        survived.unwrap_or_else(|what| panic!("{place}: {what}")).batches
    }
}

/// Damages a file from some byte on, or only at that byte. Returns a description of the damage.
fn damage(random: &mut Random, disk: &SimStorage, name: &str, at: usize) -> &'static str {
    let mut bytes = disk.read_all(name).expect("is there");
    let end = used(disk, name);
    let what = match random.below(4) {
        0 => {
            bytes[at..end].fill(0);
            "zeros"
        }
        1 => {
            random.fill(&mut bytes[at..end]);
            "garbage"
        }
        2 => {
            bytes.truncate(at);
            "a cut"
        }
        _ => {
            bytes[at] ^= 1 << random.below(8);
            "a flip"
        }
    };
    disk.overwrite(name, &bytes).expect("is there");
    what
}

/// The last edit is damaged, and synced writes follow it. Such a store is refused at each attempt.
/// If only the seal is damaged, the store may also open with everything.
#[test]
fn the_log_tells_of_any_lost_edit() {
    for_seeds(40, |seed| {
        let mut random = Random::new(seed);
        let mut life = Life::begin(&mut random, seed);
        let manifest = last_of(&life.disk, ".manifest");
        let before = used(&life.disk, &manifest);
        let kind = EDITS[random.below(5) as usize];
        life.edit(kind);
        let after = used(&life.disk, &manifest);
        (0..=random.below(5)).for_each(|_| life.put("default", true));
        let (sound, left) = (life.disk.process_crash(), life.disk.process_crash());
        let at = before + random.below((after - before) as u64) as usize;
        let what = damage(&mut random, &left, &manifest, at);
        let place = format!("{kind:?}, {what} at {at} of {before}..{after}");
        let edit_of = |disk: &SimStorage| {
            let bytes = disk.read_all(&manifest).expect("is there");
            bytes.get(before..after - SEAL_BYTES).map(<[u8]>::to_vec)
        };
        let is_damaged = edit_of(&sound) != edit_of(&left);
        for attempt in ["at once", "and again"] {
            match open(&left) {
                Err(refused) => assert!(refused.is_corruption(), "{place}, {attempt}: {refused}"),
                Ok(store) => {
                    assert!(!is_damaged, "{place}, {attempt}: the edit is missing");
                    life.check(&store, kind, false, &place);
                }
            }
        }
        life.check(&open(&sound).expect("opens"), kind, false, "without the damage");
    });
}

/// A segment of the log is damaged, and the manifest is not. An edit says how much of the log was
/// durable before it: either that much is found, or the store is refused. The last of the later
/// writes may be lost, but there is no hole.
#[test]
fn an_edit_tells_of_any_lost_end_of_the_log() {
    for_seeds(40, |seed| {
        let mut random = Random::new(seed);
        let mut life = Life::begin(&mut random, seed);
        let kind = EDITS[random.below(5) as usize];
        life.edit(kind);
        (0..random.below(8)).for_each(|_| {
            life.put("default", random.one_in(4));
        });
        let (sound, left) = (life.disk.process_crash(), life.disk.process_crash());
        let names = left.list().expect("lists").into_iter().map(|file| file.name);
        let logs: Vec<String> =
            names.filter(|name| name.ends_with(".wal") && used(&left, name) > 0).collect();
        let log = &logs[random.below(logs.len() as u64) as usize];
        let end = used(&left, log);
        let at = match random.below(3) {
            0 => random.below(end as u64),
            _ => (end as u64).saturating_sub(1 + random.below(600)),
        };
        let what = damage(&mut random, &left, log, at as usize);
        let place = format!("{kind:?}, {what} at {at} of {end} in {log}");
        match open(&left) {
            Err(refused) => assert!(refused.is_corruption(), "{place}: {refused}"),
            Ok(store) => {
                let count = life.check(&store, kind, true, &place);
                store.close().expect("closes");
                let store = open(&left).expect("opens again");
                assert_eq!(life.check(&store, kind, true, &place), count, "{place}");
            }
        }
        let store = open(&sound).expect("opens");
        life.check(&store, kind, false, "without the damage");
    });
}
