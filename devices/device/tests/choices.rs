//! Every pair of choices is tried: a small store with both is written, compacted, reopened and
//! verified, or the pair is refused. The result is the page docs/design/choices.md, which this test
//! compares; `REWRITE=1` rewrites it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, CompactionInstall, Durability, Error, GcPointers, KeyspaceOptions, Options, Store,
    SubCompactions, ValuePlacement, WalMode,
};
use runstone_device::DeviceUrl;
use runstone_kv::{Direction, Error as KvError, KvStore, Result};
use runstone_policy::filters::FilterAllocation;
use runstone_policy::partition::{PARTITIONERS, Partitioner};
use runstone_policy::registry::POLICIES;

/// The place of the store.
#[derive(Clone, Debug)]
enum Place {
    Memory,
    Files,
    BlockSsd,
    /// A variant of the firmware.
    KvSsd(&'static str),
}

/// A configuration under test: the options of a keyspace, and the same options in the URL of a
/// device.
#[derive(Clone, Debug)]
struct Trial {
    place: Place,
    keyspace: KeyspaceOptions,
    wal_mode: WalMode,
    /// Used only by a device.
    geometry: &'static str,
    query: String,
}

impl Trial {
    fn new() -> Trial {
        let mut keyspace = KeyspaceOptions::default();
        keyspace.write_buffer_bytes = 64 << 10;
        keyspace.block_bytes = 1024;
        let shape = unstable::numbers_mut(&mut keyspace);
        shape.table_bytes = 8 << 10;
        shape.split_bytes = 4 << 10;
        shape.base_bytes = 32 << 10;
        shape.l0_trigger = 2;
        shape.size_ratio = 4;
        keyspace.values.separate_at = 300;
        (keyspace.values.groups, keyspace.values.slot_bytes) = (4, 4096);
        keyspace.values.vlog_chunk_bytes = 8192;
        Trial {
            place: Place::Memory,
            keyspace,
            wal_mode: WalMode::Mapped,
            geometry: "blocks=128&page=4096&block_pages=32",
            query: "&memtable=8&l1=16".to_string(),
        }
    }

    /// Sets a choice for a device as well.
    fn asks(&mut self, name: &str, value: &str) {
        let _ = write!(self.query, "&{name}={value}");
    }
}

type Set = Box<dyn Fn(&mut Trial)>;

/// One of the things that a user chooses.
struct Axis {
    name: &'static str,
    choices: Vec<(String, Set)>,
}

fn axis(name: &'static str, choices: Vec<(&str, Set)>) -> Axis {
    let choices = choices.into_iter().map(|(name, set)| (name.to_string(), set)).collect();
    Axis { name, choices }
}

/// A choice that is the default, which no URL needs to name.
fn default(set: impl Fn(&mut KeyspaceOptions) + 'static) -> Set {
    Box::new(move |trial| set(&mut trial.keyspace))
}

fn asked(
    name: &'static str,
    value: &'static str,
    set: impl Fn(&mut KeyspaceOptions) + 'static,
) -> Set {
    Box::new(move |trial| {
        set(&mut trial.keyspace);
        trial.asks(name, value);
    })
}

fn logged(value: &'static str, wal_mode: WalMode) -> Set {
    Box::new(move |trial| {
        trial.wal_mode = wal_mode;
        if wal_mode != WalMode::Mapped {
            trial.asks("wal_mode", value);
        }
    })
}

fn placed(place: Place) -> Set {
    Box::new(move |trial| trial.place = place.clone())
}

fn policies_and_partitioners() -> [Axis; 2] {
    let policy = |name: &'static str| {
        let set = move |keyspace: &mut KeyspaceOptions| keyspace.policy = name.into();
        (name, asked("compaction", name, set))
    };
    let partitioner = |one: &Partitioner| {
        let (name, one) = (one.rule().name(), *one);
        let set =
            move |keyspace: &mut KeyspaceOptions| unstable::numbers_mut(keyspace).partitioner = one;
        (name, asked("cuts", name, set))
    };
    [
        axis("compaction policy", POLICIES.iter().map(|one| policy(one.name())).collect()),
        axis("partitioner", PARTITIONERS.iter().map(partitioner).collect()),
    ]
}

fn values() -> Axis {
    let hashed = |keyspace: &mut KeyspaceOptions| {
        keyspace.values.placement = ValuePlacement::HashGrouped;
    };
    let choices = vec![
        ("inline", default(|keyspace| keyspace.values.placement = ValuePlacement::Inline)),
        (
            "vlog",
            asked("values", "log&values_from=300", |keyspace| {
                keyspace.values.placement = ValuePlacement::Vlog;
            }),
        ),
        ("hash-grouped", asked("values", "groups&values_from=300", hashed)),
        (
            "hash-grouped, cold stream",
            asked("values", "cold-stream", move |keyspace| {
                hashed(keyspace);
                keyspace.values.cold_stream = true;
            }),
        ),
        (
            "hash-grouped, pointers written back",
            asked("values", "writeback", move |keyspace| {
                hashed(keyspace);
                keyspace.values.gc_pointers = GcPointers::Writeback;
            }),
        ),
        (
            "hash-grouped, cold stream, pointers written back",
            asked("values", "writeback", move |keyspace| {
                hashed(keyspace);
                keyspace.values.cold_stream = true;
                keyspace.values.gc_pointers = GcPointers::Writeback;
            }),
        ),
    ];
    axis("values", choices)
}

fn axes() -> Vec<Axis> {
    let [policies, partitioners] = policies_and_partitioners();
    let filters =
        |allocation| move |keyspace: &mut KeyspaceOptions| keyspace.filter_allocation = allocation;
    let places = [
        ("memory", Place::Memory),
        ("files", Place::Files),
        ("blockssd:", Place::BlockSsd),
        ("kvssd: nlsm", Place::KvSsd("nlsm")),
        ("kvssd: rlsm-", Place::KvSsd("rlsm-")),
        ("kvssd: rlsm", Place::KvSsd("rlsm")),
        ("kvssd: dlsm", Place::KvSsd("dlsm")),
        ("kvssd: llsm", Place::KvSsd("llsm")),
    ];
    vec![
        policies,
        partitioners,
        values(),
        axis(
            "filters",
            vec![
                ("none", default(filters(FilterAllocation::None))),
                ("uniform", asked("filters", "uniform", filters(FilterAllocation::Uniform))),
                ("optimal", asked("filters", "optimal", filters(FilterAllocation::Optimal))),
            ],
        ),
        axis(
            "flushes and compactions",
            vec![
                ("installed at once", default(|_| {})),
                (
                    "installed part by part",
                    asked("compaction_install", "incremental", |keyspace| {
                        keyspace.compaction_install = CompactionInstall::Incremental;
                    }),
                ),
                (
                    "parts by whole tables",
                    asked("sub_compactions", "components", |keyspace| {
                        keyspace.sub_compactions = SubCompactions::Components;
                    }),
                ),
                (
                    "cut flushes",
                    asked("partition_flushes", "true", |keyspace| {
                        keyspace.partition_flushes = true;
                    }),
                ),
            ],
        ),
        axis(
            "log",
            vec![
                ("mapped", logged("mapped", WalMode::Mapped)),
                ("written", logged("write", WalMode::Write)),
                ("none", logged("off", WalMode::Off)),
            ],
        ),
        axis("place", places.into_iter().map(|(name, place)| (name, placed(place))).collect()),
    ]
}

/// Opens the configuration under test, or opens it again.
fn open(trial: &Trial, path: &Path, memory: &Arc<MemoryStorage>) -> Result<Box<dyn KvStore>> {
    let options = Options::default()
        .background(Background::Manual)
        .seed(1)
        .wal_mode(trial.wal_mode)
        .keyspace(trial.keyspace.clone());
    let device = |scheme: &str, query: &str| {
        let url = format!("{scheme}:{}?{query}", path.join("nand").display());
        DeviceUrl::parse(&url).expect("a device")
    };
    let geometry = trial.geometry;
    Ok(match trial.place {
        Place::Memory => Box::new(Store::open_on(memory.clone(), options)?),
        Place::Files => Box::new(Store::open(path.join("store"), options)?),
        Place::BlockSsd => {
            let storage = device("blockssd", geometry)?.open_block(true)?;
            Box::new(Store::open_on(Arc::new(storage), options)?)
        }
        Place::KvSsd(variant) => {
            let query = format!("policy={variant}&{geometry}{}", trial.query);
            Box::new(device("kvssd", &query)?.open_kvssd(true)?)
        }
    })
}

/// Writes, overwrites, deletes and compacts. Compares the store with what was written, opens it
/// again and compares again.
fn run(trial: &Trial) -> Result<()> {
    let directory = tempfile::tempdir().expect("writable");
    let memory = Arc::new(MemoryStorage::new());
    let store = open(trial, directory.path(), &memory)?;
    let mut model = BTreeMap::new();
    for round in 0..4_u8 {
        for i in 0..250_u32 {
            let key = mixed(u64::from(i) % 200).to_be_bytes();
            if (i + u32::from(round)) % 7 == 0 {
                store.delete(&key, Durability::Buffered)?;
                model.remove(key.as_slice());
            } else {
                let value = vec![round; if i % 3 == 0 { 500 } else { 40 }];
                store.put(&key, &value, Durability::Buffered)?;
                model.insert(key.to_vec(), value);
            }
        }
        store.flush()?;
        store.wait_idle()?;
        compare(&*store, &model)?;
    }
    store.compact()?;
    compare(&*store, &model)?;
    drop(store);
    compare(&*open(trial, directory.path(), &memory)?, &model)
}

/// Combinations of choices of all axes, by their names.
const COMBINATIONS: [[&str; 7]; 12] = [
    ["fragmented-leveling", "size", "inline", "uniform", "installed at once", "mapped", "files"],
    ["leveling", "local-range", "vlog", "optimal", "installed part by part", "written", "memory"],
    ["tiering", "global-range", "hash-grouped", "none", "cut flushes", "none", "blockssd:"],
    [
        "lazy-leveling",
        "grouped-global-range",
        "hash-grouped, cold stream",
        "uniform",
        "parts by whole tables",
        "mapped",
        "files",
    ],
    [
        "fluid",
        "none",
        "hash-grouped, pointers written back",
        "optimal",
        "installed at once",
        "written",
        "memory",
    ],
    [
        "garnering",
        "global-range",
        "hash-grouped",
        "optimal",
        "installed part by part",
        "none",
        "files",
    ],
    ["adaptive-tiering", "prefix", "vlog", "uniform", "cut flushes", "mapped", "blockssd:"],
    ["guards", "global-range", "inline", "optimal", "installed part by part", "written", "memory"],
    [
        "universal",
        "local-range",
        "hash-grouped, cold stream",
        "none",
        "cut flushes",
        "none",
        "memory",
    ],
    [
        "binomial",
        "prefix",
        "hash-grouped, cold stream, pointers written back",
        "optimal",
        "parts by whole tables",
        "mapped",
        "blockssd:",
    ],
    [
        "garnering",
        "global-range",
        "hash-grouped",
        "optimal",
        "installed at once",
        "mapped",
        "kvssd: rlsm",
    ],
    ["tiering", "size", "vlog", "uniform", "installed at once", "mapped", "kvssd: nlsm"],
];

/// Maps different numbers to different numbers, spread over all of u64.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Tests half of the combinations, each with 200,000 records. Two tests share the combinations, so
/// they use two cores.
fn large_stores(half: usize) {
    for names in COMBINATIONS.iter().skip(half).step_by(2) {
        let mut trial = Trial::new();
        for (axis, name) in axes().iter().zip(names) {
            let choice = axis.choices.iter().find(|(one, _)| one == name);
            choice.unwrap_or_else(|| panic!("{} has no {name}", axis.name)).1(&mut trial);
        }
        enlarge(&mut trial);
        hold_much(&trial).unwrap_or_else(|error| panic!("{names:?}: {error}"));
    }
}

fn enlarge(trial: &mut Trial) {
    trial.keyspace.write_buffer_bytes = 1 << 20;
    trial.keyspace.block_bytes = 4 << 10;
    let shape = unstable::numbers_mut(&mut trial.keyspace);
    (shape.table_bytes, shape.split_bytes, shape.base_bytes) = (512 << 10, 256 << 10, 2 << 20);
    let values = &mut trial.keyspace.values;
    (values.separate_at, values.slot_bytes, values.vlog_chunk_bytes) = (100, 64 << 10, 256 << 10);
    trial.geometry = "blocks=2048&page=4096&block_pages=32";
    trial.query = trial.query.replace("&memtable=8&l1=16", "&memtable=256&l1=512");
}

/// Writes 200,000 records, updates and deletes some, compacts, and compares with a map before and
/// after the store is opened again.
fn hold_much(trial: &Trial) -> Result<()> {
    const RECORDS: u64 = 200_000;
    let directory = tempfile::tempdir().expect("writable");
    let memory = Arc::new(MemoryStorage::new());
    let store = open(trial, directory.path(), &memory)?;
    let mut model = BTreeMap::new();
    for i in 0..RECORDS * 8 / 5 {
        // Every number once, then random ones: three for every five records.
        let number = if i < RECORDS { i } else { (mixed(i) >> 20) % RECORDS };
        let key = mixed(number).to_be_bytes();
        if i >= RECORDS && i.is_multiple_of(6) {
            store.delete(&key, Durability::Buffered)?;
            model.remove(key.as_slice());
        } else {
            let value = vec![i as u8; if i.is_multiple_of(4) { 150 } else { 40 }];
            store.put(&key, &value, Durability::Buffered)?;
            model.insert(key.to_vec(), value);
        }
        if i.is_multiple_of(1000) {
            store.wait_idle()?;
        }
    }
    store.compact()?;
    compare(&*store, &model)?;
    drop(store);
    compare(&*open(trial, directory.path(), &memory)?, &model)
}

#[test]
fn large_stores_with_any_choices_hold_what_a_map_holds() {
    large_stores(0);
}

#[test]
fn so_do_the_others() {
    large_stores(1);
}

fn compare(store: &dyn KvStore, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<()> {
    let mut found = BTreeMap::new();
    store.scan(None, Direction::Forward, &mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        true
    })?;
    assert!(found == *model, "{} entries, not {}", found.len(), model.len());
    for (key, value) in model {
        assert_eq!(store.get(key)?.as_deref(), Some(value.as_slice()));
    }
    Ok(())
}

/// Tries a pair. Returns `None` if it works, else the reason why it is refused.
fn attempt(first: &Set, second: &Set) -> Option<String> {
    let mut trial = Trial::new();
    first(&mut trial);
    second(&mut trial);
    match run(&trial) {
        Ok(()) => None,
        Err(KvError::Store(error @ Error::InvalidArgument { .. })) => Some(error.to_string()),
        Err(error) => panic!("{trial:?}: neither works nor is refused: {error}"),
    }
}

/// The results of all pairs of two axes: a table, or one line if all of them work.
fn describe(page: &mut String, first: &Axis, second: &Axis, reasons: &mut Vec<String>) {
    let rows: Vec<(&str, Vec<Option<String>>)> = first
        .choices
        .iter()
        .map(|(name, set)| {
            let cells = second.choices.iter().map(|(_, other)| attempt(set, other)).collect();
            (name.as_str(), cells)
        })
        .collect();
    let _ = writeln!(page, "\n## {} and {}\n", first.name, second.name);
    if rows.iter().all(|(_, cells)| cells.iter().all(Option::is_none)) {
        let count = first.choices.len() * second.choices.len();
        let _ = writeln!(page, "All {count} pairs work.");
        return;
    }
    let heads: Vec<&str> = second.choices.iter().map(|(name, _)| name.as_str()).collect();
    let _ = writeln!(page, "| | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for (name, cells) in rows {
        let text = cells.into_iter().map(|cell| match cell {
            None => "works".to_string(),
            Some(reason) => {
                let known = reasons.iter().position(|one| *one == reason);
                let at = known.unwrap_or_else(|| {
                    reasons.push(reason);
                    reasons.len() - 1
                });
                format!("refused ({})", at + 1)
            }
        });
        let _ = writeln!(page, "| {name} | {} |", text.collect::<Vec<_>>().join(" | "));
    }
}

/// Appends an item of a list, wrapped at 100 columns.
fn item(page: &mut String, mark: &str, text: &str) {
    let mut line = mark.to_string();
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > 100 {
            let _ = writeln!(page, "{line}");
            line = " ".repeat(mark.len());
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(page, "{line}");
}

#[test]
fn every_pair_of_choices_works_or_is_refused_with_a_reason() {
    let axes = axes();
    let mut page = "# Which choices go together\n\nEach pair is tried by a test \
        (`devices/device/tests/choices.rs`), which writes this page: a small\nstore with both is \
        written, compacted, opened again and compared, everything else at its\ndefault. A device \
        is asked in its URL.\n\n"
        .to_string();
    for axis in &axes {
        let names: Vec<&str> = axis.choices.iter().map(|(name, _)| name.as_str()).collect();
        item(&mut page, "*", &format!("{}: {}", axis.name, names.join("; ")));
    }
    let mut reasons = Vec::new();
    for (at, first) in axes.iter().enumerate() {
        for second in &axes[at + 1..] {
            describe(&mut page, first, second, &mut reasons);
        }
    }
    page.push_str("\n## Reasons\n\n");
    for (at, reason) in reasons.iter().enumerate() {
        item(&mut page, &format!("{}.", at + 1), reason);
    }
    assert_eq!(reasons.iter().collect::<BTreeSet<_>>().len(), reasons.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/choices.md");
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, &page).expect("writable");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == page, "docs/design/choices.md is not what the pairs do; REWRITE=1 writes it");
}
