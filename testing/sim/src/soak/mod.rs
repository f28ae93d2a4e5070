//! Random work in a process that is killed, for as long as one likes. The work is puts of small and
//! large values (some of which expire), deletes of keys and ranges, counters, loads, a compaction
//! filter, transactions of several threads, checkpoints, held snapshots and collection. At any
//! moment `kill -9` ends the process, and the store is reopened.
//!
//! 1. Each operation follows from the seed and from its number, so that both processes know it. It
//!    is one batch or transaction, which also writes its number.
//! 2. The child (`child`) applies the operations and reports its progress over a pipe. It also
//!    checks its reads against a model of its own, snapshots included.
//! 3. The parent (`parent`) kills it, opens what is left, and compares it with the state after as
//!    many operations as the store reports. These must include all acknowledged operations, and
//!    nothing else may be in the store.
//! 4. Now and then the parent compacts and collects everything: the space of the value file must
//!    then be within its bound.
//!
//! The seed decides the operations but not the moment when the child dies, so a failure should be
//! turned into a stepped test. No power is lost; that is `crash`. To run with few open files, use
//! `ulimit -n 128` before the command.

mod beside;
mod child;
mod parent;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runstone::policy::Policy;
use runstone::unstable;
use runstone::{
    Background, Error, GcPointers, Keyspace, KeyspaceOptions, Options, ReadOptions, Snapshot,
    Store, Value, ValueOptions, ValuePlacement,
};

use beside::{Beside, Sweeper};
pub use child::run as run_child;
pub use parent::{Totals, run};

use crate::random::Random;
use crate::workload;
use runstone::Thousandths;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The store.
    pub directory: PathBuf,
    /// The seed of operations and of times.
    pub seed: u64,
    /// Where values are placed, as an index of [`PLACEMENTS`]; `None` changes it at each opening.
    pub placement: Option<usize>,
    /// The compaction policy; `None` changes the policy and all options of the tree at each
    /// opening.
    pub policy: Option<&'static str>,
    /// Distinct keys.
    pub keys: u64,
    /// Keyspaces that the keys are spread over.
    pub keyspaces: u64,
    /// Some values are up to this long, in bytes.
    pub large_bytes: u64,
}

/// The placements of values, by name.
pub const PLACEMENTS: [(&str, ValuePlacement, GcPointers); 4] = [
    ("hash-grouped", ValuePlacement::HashGrouped, GcPointers::Stable),
    ("inline", ValuePlacement::Inline, GcPointers::Stable),
    ("vlog", ValuePlacement::Vlog, GcPointers::Stable),
    ("written-back", ValuePlacement::HashGrouped, GcPointers::Writeback),
];

const SEPARATE_AT: u32 = 200;
const GROUPS: u32 = 8;
const SLOT_BYTES: u64 = 64 << 10;
const RESERVE_PERMILLE: u64 = 300;
const VLOG_CHUNK_BYTES: u64 = 256 << 10;
/// What children count since they began, in the order of their lines and of [`Totals`].
const TOLD: [&str; 9] = [
    "snapshots",
    "collections",
    "transfers",
    "conflicts",
    "checkpoints",
    "loads",
    "expired",
    "removed by a filter",
    "operands folded",
];
/// Header and key of a record in a value file.
const RECORD_BYTES: u64 = 18 + 7;
/// Bytes of a tag in the footer.
const TAG_FOOTER_BYTES: u64 = 12;
/// The key whose value is the number of the last operation.
const COUNT_KEY: &str = "count";
/// One write in this many is a large one.
const WRITES_PER_LARGE: u64 = 2_000;
/// A value begins with the number of its operation and with its key.
const LEAST_VALUE_BYTES: usize = 16;

/// An open store.
#[derive(Debug)]
struct Opened {
    store: Store,
    /// The keyspaces of the model.
    keyspaces: Vec<Keyspace>,
    beside: Beside,
}

/// The expected state of a key: the number of the last write, and the length of its value.
type Model = BTreeMap<u64, (u64, usize)>;

/// A write.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Stores a value of this length.
    Put(usize),
    /// Stores a value of this length that expires long after the run.
    PutLasting(usize),
    /// Stores a value that has expired when the next operation begins.
    PutPassing,
    Delete,
    /// Deletes the keys of the keyspace from this one on, up to another.
    DeleteRange(u64),
}

/// The time to live of entries that should stay.
const LASTING: Duration = Duration::from_secs(1 << 33);
/// The time to live of entries that should expire.
const PASSING: Duration = Duration::from_millis(1);
/// Keys of the longest range that is deleted.
const MOST_RANGE_KEYS: u64 = 40;

impl Soak {
    /// The options of the n-th opening.
    fn options(&self, opening: u64) -> Options {
        let mut random = Random::new(self.seed ^ opening);
        let drawn = random.below(PLACEMENTS.len() as u64) as usize;
        let (_, placement, gc_pointers) = PLACEMENTS[self.placement.unwrap_or(drawn)];
        let values = ValueOptions::default()
            .placement(placement)
            .separate_at(SEPARATE_AT)
            .groups(GROUPS)
            .slot_bytes(SLOT_BYTES as u32)
            .reserve(Thousandths::of_parts(RESERVE_PERMILLE as u32))
            .vlog_chunk_bytes(VLOG_CHUNK_BYTES)
            .early(Random::new(self.seed ^ opening ^ 0xea21).one_in(2))
            .cold_stream(random.one_in(2))
            .gc_pointers(gc_pointers);
        let mut options = match self.policy {
            Some(policy) => tree_of(policy),
            None => {
                // Drawn from a separate stream, so that the placements of a seed stay the same.
                let seed = Random::new(self.seed ^ opening ^ 0x7ee5).draw();
                workload::options(seed, Background::Threads(2))
                    .compaction_slices(1 + random.below(4) as usize)
                    .clock(Options::default().clock)
            }
        };
        options.memory_budget_bytes = 16 << 20;
        options.wal_segment_bytes = 512 << 10;
        options.max_wal_bytes = Options::default().max_wal_bytes;
        options.compaction_filters.push(Arc::new(Sweeper));
        if let Some(keyspace) = &mut options.keyspace {
            keyspace.write_buffer_bytes = 512 << 10;
            keyspace.values = values;
            workload::set_programs(keyspace, false, !keyspace.compaction_filter.is_empty());
        }
        options
    }

    /// Opens the store, and its keyspaces, which it may have to make.
    fn open(&self, opening: u64) -> Result<Opened, Error> {
        let options = self.options(opening);
        let of_each = options.keyspace.clone();
        let store = Store::open(&self.directory, options)?;
        let beside = Beside::open(&store, of_each.clone().unwrap_or_default())?;
        let mut keyspaces = vec![store.default_keyspace().clone()];
        for i in 1..self.keyspaces {
            keyspaces.push(store.open_keyspace(&format!("keyspace{i:03}"), of_each.clone())?);
        }
        Ok(Opened { store, keyspaces, beside })
    }

    /// The writes of an operation.
    fn operation(&self, number: u64) -> Vec<(u64, Change)> {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9e6c_63d0_876a_3f35));
        let count = if random.one_in(8) { 1 + random.below(6) } else { 1 };
        let change = |random: &mut Random| {
            // The smaller of two numbers, so that some keys are written often.
            let key = random.below(self.keys).min(random.below(self.keys));
            let more = match random.below(100) {
                0 => return (key, Change::PutPassing),
                1 => return (key, Change::DeleteRange(key + 1 + random.below(MOST_RANGE_KEYS))),
                2..12 => return (key, Change::Delete),
                12..35 => random.below(100),
                35..36 => random.below(150_000),
                _ => SEPARATE_AT.into(),
            };
            if self.large_bytes > 0 && random.one_in(WRITES_PER_LARGE) {
                let more = random.below(self.large_bytes) as usize;
                return (key, Change::Put(LEAST_VALUE_BYTES + more));
            }
            let spread = if more == u64::from(SEPARATE_AT) { random.below(3_000) } else { 0 };
            let len = LEAST_VALUE_BYTES + (more + spread) as usize;
            (key, if random.one_in(6) { Change::PutLasting(len) } else { Change::Put(len) })
        };
        (0..count).map(|_| change(&mut random)).collect()
    }

    /// The state after the operations `from` to `to`.
    fn replay(&self, model: &mut Model, from: u64, to: u64) {
        for number in from..=to {
            self.apply(model, number, &self.operation(number));
        }
    }

    fn apply(&self, model: &mut Model, number: u64, changes: &[(u64, Change)]) {
        for (key, change) in changes {
            match change {
                Change::Put(len) | Change::PutLasting(len) => {
                    model.insert(*key, (number, *len));
                }
                Change::PutPassing | Change::Delete => _ = model.remove(key),
                Change::DeleteRange(to) => {
                    let range = (*key..*to).step_by(self.keyspaces as usize);
                    range.for_each(|key| _ = model.remove(&key));
                }
            }
        }
    }
}

/// A small tree of this policy, with the policy's other options at their defaults.
fn tree_of(policy: &str) -> Options {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 128 << 10;
    shape.base_bytes = 512 << 10;
    Options::default().background(Background::Threads(2)).keyspace(keyspace)
}

fn key_of(key: u64) -> String {
    format!("k{key:06}")
}

fn value_of(number: u64, key: u64, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 8);
    value.extend_from_slice(&number.to_le_bytes());
    value.extend_from_slice(&key.to_le_bytes());
    let mut random = Random::new(number ^ (key << 40));
    while value.len() < len {
        value.extend_from_slice(&random.draw().to_le_bytes());
    }
    value.truncate(len);
    value
}

/// Number of the last operation that the store contains.
fn count_in(store: &Store) -> Result<u64, Error> {
    Ok(number_in(store.get(COUNT_KEY)?))
}

fn number_in(value: Option<Value>) -> u64 {
    value.and_then(|bytes| bytes[..].try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The keyspace of a key.
fn keyspace_of(keyspaces: &[Keyspace], key: u64) -> &Keyspace {
    &keyspaces[(key % keyspaces.len() as u64) as usize]
}

/// The content of the store according to the values themselves; a damaged value is an error.
fn model_in(keyspaces: &[Keyspace], snapshot: Option<&Snapshot>) -> Result<Model, String> {
    let mut model = Model::new();
    for keyspace in keyspaces {
        add_keyspace(&mut model, keyspace, snapshot)?;
    }
    Ok(model)
}

fn add_keyspace(
    model: &mut Model,
    keyspace: &Keyspace,
    snapshot: Option<&Snapshot>,
) -> Result<(), String> {
    let read = ReadOptions::default().with_prefix(b"k");
    let read = snapshot.map_or(read.clone(), |snapshot| read.at(snapshot));
    let mut cursor = keyspace.cursor(read).map_err(text)?;
    cursor.seek_to_first().map_err(text)?;
    while cursor.valid() {
        let value = cursor.value();
        let numbers = value.get(..8).zip(value.get(8..16));
        let numbers = numbers.and_then(|(a, b)| Some((a.try_into().ok()?, b.try_into().ok()?)));
        let (number, key) = numbers
            .map_or((0, 0), |(number, key)| (u64::from_le_bytes(number), u64::from_le_bytes(key)));
        let is_whole = cursor.key() == key_of(key).as_bytes()
            && value == &value_of(number, key, value.len())[..];
        if !is_whole {
            return Err(format!(
                "{} has a value that was never written",
                text(cursor.key().escape_ascii())
            ));
        }
        model.insert(key, (number, value.len()));
        cursor.next().map_err(text)?;
    }
    Ok(())
}

/// The first difference, for a report.
fn difference(expected: &Model, found: &Model) -> Option<String> {
    let lost = expected.iter().find(|(key, value)| found.get(key) != Some(value));
    if let Some((key, value)) = lost {
        return Some(format!("key {key}: expected {value:?}, found {:?}", found.get(key)));
    }
    let extra = found.iter().find(|(key, _)| !expected.contains_key(key));
    extra.map(|(key, value)| format!("key {key}: expected nothing, found {value:?}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
