//! Options at the limits of their types, for stores and keyspaces. Each is refused with a reason,
//! or the store works with it and finds its entries when it is opened again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, CompactionInstall, Error, GcPointers, KeyspaceOptions, Options, Store,
    ValuePlacement, WalMode, WhenFull,
};
use runstone::{Tenths, Thousandths};
use runstone_policy::filters::FilterAllocation;
use runstone_policy::options::Numbers;
use runstone_policy::partition::Partitioner;
use runstone_policy::registry::POLICIES;
use runstone_sim::random::{Random, seeds};
use runstone_sim::workload::with_own_partitioner;
use rustix::process::{Resource, Rlimit, setrlimit};

fn pick<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A number around a power of two or the end of a type.
fn edge(random: &mut Random) -> u64 {
    let power = match random.below(3) {
        0 => 1 << random.below(64),
        1 => pick(random, &[0, 1, 10, 100, 400, 1000, 1024, 100_000]),
        _ => pick(random, &[u64::MAX, i64::MAX as u64, u64::from(u32::MAX), i32::MAX as u64]),
    };
    match random.below(3) {
        0 => power,
        1 => power.wrapping_add(1),
        _ => power.wrapping_sub(1),
    }
}

fn small_edge(random: &mut Random) -> u32 {
    u32::try_from(edge(random)).unwrap_or(u32::MAX)
}

/// Sets one number of the compaction policy.
fn bend_shape(shape: &mut Numbers, random: &mut Random) {
    match random.below(19) {
        0 => shape.size_ratio = small_edge(random),
        1 => shape.l0_trigger = small_edge(random),
        2 => shape.l0_share_percent = small_edge(random),
        3 => shape.base_bytes = edge(random),
        4 => shape.table_bytes = edge(random),
        5 => shape.c = Thousandths::of_parts(small_edge(random)),
        6 => shape.max_runs = small_edge(random),
        7 => shape.last_level_runs = small_edge(random),
        8 => shape.split_bytes = edge(random),
        9 => shape.access_limit = small_edge(random),
        10 => shape.access_bytes = edge(random),
        11 => shape.stack_runs = small_edge(random),
        12 => shape.universal_trigger = small_edge(random),
        13 => shape.universal_amp_percent = small_edge(random),
        14 => shape.universal_ratio_percent = small_edge(random),
        15 => shape.max_space_percent = small_edge(random),
        16 => shape.seek_bytes = edge(random),
        17 => shape.least_seeks = small_edge(random),
        _ => {
            shape.universal_min_width = small_edge(random);
            shape.universal_max_width = small_edge(random);
        }
    }
}

/// Sets one number of a keyspace.
fn bend_keyspace(keyspace: &mut KeyspaceOptions, random: &mut Random) {
    match random.below(30) {
        0 => keyspace.write_buffer_bytes = edge(random),
        1 => keyspace.max_immutable_memtables = small_edge(random),
        2 => keyspace.block_bytes = small_edge(random),
        3 => keyspace.restart_interval = small_edge(random),
        4 => keyspace.filter_bits_per_key = Tenths::of_parts(small_edge(random)),
        5 => keyspace.l0_slowdown_runs = small_edge(random),
        6 => keyspace.l0_stop_runs = small_edge(random),
        7 => keyspace.debt_slowdown_bytes = edge(random),
        8 => keyspace.values.separate_at = small_edge(random),
        9 => keyspace.values.groups = small_edge(random),
        10 => keyspace.values.slot_bytes = small_edge(random),
        11 => keyspace.values.capacity_bytes = edge(random),
        12 => keyspace.values.reserve = Thousandths::of_parts(small_edge(random)),
        13 => keyspace.values.vlog_chunk_bytes = edge(random),
        14 => keyspace.values.scan_ahead_bytes = edge(random),
        _ => bend_shape(unstable::numbers_mut(keyspace), random),
    }
}

fn keyspace_options(random: &mut Random) -> KeyspaceOptions {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.policy = pick(random, POLICIES).name().to_string();
    keyspace.write_buffer_bytes = 64 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.base_bytes = 64 << 10;
    shape.table_bytes = 16 << 10;
    shape.split_bytes = 8 << 10;
    shape.l0_trigger = 2;
    shape.seek_compaction = random.one_in(2);
    keyspace.block_bytes = 1024;
    keyspace.hash_index = random.one_in(2);
    unstable::numbers_mut(&mut keyspace).partitioner = pick(
        random,
        &[
            Partitioner::None,
            Partitioner::Size,
            Partitioner::Prefix,
            Partitioner::LocalRange,
            Partitioner::GlobalRange,
            Partitioner::GroupedGlobalRange,
        ],
    );
    with_own_partitioner(&mut keyspace);
    let allocations =
        [FilterAllocation::None, FilterAllocation::Uniform, FilterAllocation::Optimal];
    keyspace.filter_allocation = pick(random, &allocations);
    keyspace.compaction_install =
        pick(random, &[CompactionInstall::Atomic, CompactionInstall::Incremental]);
    keyspace.partition_flushes = random.one_in(3);
    let values = &mut keyspace.values;
    let placements = [ValuePlacement::Inline, ValuePlacement::Vlog, ValuePlacement::HashGrouped];
    values.placement = pick(random, &placements);
    values.gc_pointers = pick(random, &[GcPointers::Stable, GcPointers::Writeback]);
    // A stall lasts as long as its option says; that is not a bug.
    values.when_full = pick(random, &[WhenFull::Grow, WhenFull::Error]);
    (values.separate_at, values.groups, values.slot_bytes) = (300, 4, 4096);
    values.vlog_chunk_bytes = 8192;
    (0..1 + random.below(3)).for_each(|_| bend_keyspace(&mut keyspace, random));
    keyspace
}

fn store_options(random: &mut Random) -> Options {
    let mut options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .wal_mode(pick(random, &[WalMode::Mapped, WalMode::Write]))
        .keyspace(keyspace_options(random))
        .seed(random.draw());
    for _ in 0..random.below(3) {
        match random.below(6) {
            0 => options.memory_budget_bytes = edge(random),
            1 => options.wal_segment_bytes = edge(random),
            2 => options.max_wal_bytes = edge(random),
            3 => options.max_delayed_bytes_per_second = edge(random),
            4 => options.compaction_slices = Some(edge(random) as usize),
            _ => options.background = Background::Threads(edge(random) as usize),
        }
    }
    options
}

/// A refusal says what is wrong, and what to do.
fn check_refusal(error: &Error) {
    let is_typed = matches!(error, Error::InvalidArgument { .. } | Error::NoSpace { .. });
    assert!(is_typed && error.to_string().len() > 20 && !error.hint().is_empty(), "{error:?}");
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn write_some(store: &Store, random: &mut Random, content: &mut Content) -> Result<(), Error> {
    for _ in 0..300 {
        let key = format!("key{:04}", random.below(500)).into_bytes();
        match random.one_in(8) {
            true => {
                store.delete(&key)?;
                content.remove(&key);
            }
            false => {
                let value = vec![random.draw() as u8; random.below(1500) as usize];
                store.put(&key, &value)?;
                content.insert(key, value);
            }
        }
        if random.one_in(50) {
            store.flush()?;
        }
        if random.one_in(20) {
            store.run_one_job()?;
        }
    }
    Ok(())
}

fn check_content(store: &Store, content: &Content) {
    let entries = store.default_keyspace().iter().expect("opens");
    let entries = entries.map(|entry| entry.expect("reads"));
    let found: Content = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(found == *content, "{} entries, {} expected", found.len(), content.len());
    for (key, value) in content.iter().step_by(7) {
        let found = store.get(key).expect("reads");
        assert_eq!(found.as_deref(), Some(&value[..]));
    }
}

/// Two openings with these options; an error is a refusal.
fn live(options: &Options, random: &mut Random) -> Result<(), Error> {
    let storage = MemoryStorage::new();
    let mut content = Content::new();
    let given = options.keyspace.clone().expect("set");
    for turn in 0..2 {
        let keyspace = if turn == 0 { options.keyspace.clone() } else { None };
        let options = options.clone().keyspace(keyspace);
        let store = Store::open_on(Arc::new(storage.clone()), options)?;
        assert_eq!(*store.default_keyspace().options(), given, "options come back");
        check_content(&store, &content);
        write_some(&store, random, &mut content)?;
        store.metrics();
        unstable::level_targets(store.default_keyspace());
        store.default_keyspace().value_usage();
        check_content(&store, &content);
        if turn == 1 {
            store.compact()?;
            check_content(&store, &content);
        }
        store.close()?;
    }
    Ok(())
}

/// Once, numbers without an upper limit overflowed, took all memory, or were stored as no limit at
/// all.
#[test]
fn extreme_options_work_or_are_refused() {
    // An absurdly large allocation ends the test.
    let limit = Some(16 << 30);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).expect("may be lowered");
    let (mut refused, mut failed) = (0, Vec::new());
    for seed in seeds(400) {
        let mut random = Random::new(seed);
        let options = store_options(&mut random);
        let keyspace = options.keyspace.as_ref().expect("set");
        let outcome = catch_unwind(AssertUnwindSafe(|| live(&options, &mut random)));
        match &outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                check_refusal(error);
                refused += 1;
            }
            Err(_) => {
                let Options { wal_segment_bytes, max_wal_bytes, compaction_slices, .. } = options;
                println!(
                    "segments {wal_segment_bytes}, log {max_wal_bytes}, {compaction_slices:?}"
                );
                println!("seed {seed}: {options:?}");
                failed.push(seed);
            }
        }
        // The options mean the same after they were written as text.
        if keyspace.check().is_ok() {
            let again = KeyspaceOptions::from_toml(&keyspace.to_toml()).expect("parses");
            assert_eq!(again, *keyspace, "seed {seed}");
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    let count = seeds(400).count();
    assert!(refused < count, "{refused} of {count}");
}
