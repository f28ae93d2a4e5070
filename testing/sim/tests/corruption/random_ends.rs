//! Random lives with the end of their manifest or of their log damaged, behind each kind of edit:
//! bytes zeroed or overwritten from somewhere on, one bit flipped, a file cut. `ends.rs` has the
//! same by hand, and says what each of the two tells of the other.

use runstone::Store;
use runstone::storage::Storage;
use runstone_fault_storage::SimStorage;
use runstone_sim::random::{Random, for_seeds};

use super::ends::{EDITS, Edit, edit, open, open_apart, put};
use super::synced::{last_of, used};

/// More bytes than a seal takes: the record without changes behind each edit.
const SEAL_BYTES: usize = 10;

/// A store behind random writes, flushes and edits.
struct Life {
    disk: SimStorage,
    store: Store,
    /// The keyspace and key of each write, in their order. No key comes twice.
    written: Vec<(&'static str, String)>,
    /// How many of the writes were durable when this was last sure.
    durable: usize,
}

impl Life {
    fn begin(random: &mut Random, seed: u64) -> Life {
        let disk = SimStorage::new(seed);
        let store = if random.one_in(2) { open_apart(&disk) } else { open(&disk) };
        let store = store.expect("opens");
        store.open_keyspace("other", None).expect("makes");
        let mut life = Life { disk, store, written: Vec::new(), durable: 0 };
        for step in 0..random.below(60) {
            life.write(random);
            match random.below(20) {
                0 => {
                    life.store.flush().expect("flushes");
                    life.durable = life.written.len();
                }
                1 => edit(&life.store, Edit::Load),
                2 => {
                    let name = format!("made {step}");
                    life.store.open_keyspace(&name, None).expect("makes");
                }
                _ => {}
            }
        }
        life
    }

    fn write(&mut self, random: &mut Random) {
        let name = if random.one_in(3) { "other" } else { "default" };
        self.put(name, random.one_in(4));
    }

    fn put(&mut self, name: &'static str, is_synced: bool) {
        let key = format!("k{:03}", self.written.len());
        put(&self.store, name, &key, is_synced);
        self.written.push((name, key));
        if is_synced {
            self.durable = self.written.len();
        }
    }

    /// Checks that a store shows an edit, and the first so many of the writes, at least `least`.
    fn check(&self, store: &Store, kind: Edit, least: usize, place: &str) -> usize {
        let default = store.default_keyspace();
        let has_load = || default.get("loaded").expect("reads").as_deref() == Some(&b"1"[..]);
        let other = store.keyspace("other");
        match kind {
            Edit::Load | Edit::Ingest => assert!(has_load(), "{place}"),
            Edit::Make => assert!(store.keyspace("made").is_ok(), "{place}"),
            Edit::Drop => assert!(other.is_err(), "{place}"),
            Edit::Change => {
                let ttl_seconds = other.as_ref().expect("is there").options().ttl_seconds;
                assert_eq!(ttl_seconds, 1 << 30, "{place}");
            }
        }
        let is_dropped = |name: &str| matches!(kind, Edit::Drop) && name == "other";
        let is_shown = |(name, key): &(&str, String)| {
            let keyspace = store.keyspace(name).expect("is there");
            keyspace.get(key).expect("reads").as_deref() == Some(&[7; 100][..])
        };
        let told = self.written.iter().enumerate().filter(|(_, (name, _))| !is_dropped(name));
        let told: Vec<_> = told.map(|(at, write)| (at, is_shown(write))).collect();
        let count = told.iter().filter(|(_, is_shown)| *is_shown).count();
        let is_prefix = told[..count].iter().all(|(_, is_shown)| *is_shown);
        assert!(is_prefix, "{place}: a hole in {told:?}");
        let lost = told.get(count).map(|(at, _)| *at);
        assert!(lost.is_none_or(|at| at >= least), "{place}: lost {lost:?}, {least} were durable");
        count
    }
}

/// Damages a file from a byte on, or at it; returns what it did.
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

/// The last edit is damaged, and synced writes are behind it. Such a store is refused at each
/// attempt. If only the seal is damaged, all may be there as well.
#[test]
fn the_log_tells_of_any_lost_edit() {
    for_seeds(40, |seed| {
        let mut random = Random::new(seed);
        let mut life = Life::begin(&mut random, seed);
        let manifest = last_of(&life.disk, ".manifest");
        let before = used(&life.disk, &manifest);
        let kind = EDITS[random.below(5) as usize];
        edit(&life.store, kind);
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
                    life.check(&store, kind, life.durable, &place);
                }
            }
        }
        life.check(&open(&sound).expect("opens"), kind, life.durable, "without the damage");
    });
}

/// A segment of the log is damaged, and the manifest is not. An edit says how much of the log was
/// durable before it: so much is there, or the store is refused. Behind that the writes may lose
/// their end, and have no hole.
#[test]
fn an_edit_tells_of_any_lost_end_of_the_log() {
    for_seeds(40, |seed| {
        let mut random = Random::new(seed);
        let mut life = Life::begin(&mut random, seed);
        let kind = EDITS[random.below(5) as usize];
        let least = life.durable;
        edit(&life.store, kind);
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
                let count = life.check(&store, kind, least, &place);
                store.close().expect("closes");
                let store = open(&left).expect("opens again");
                assert_eq!(life.check(&store, kind, least, &place), count, "{place}");
            }
        }
        let store = open(&sound).expect("opens");
        life.check(&store, kind, life.written.len(), "without the damage");
    });
}
