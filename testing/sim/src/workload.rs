//! Random operations on a store with two keyspaces, and the options they run under.
//!
//! Keys come from a small set, so that overwrites, deletes of present keys and new puts of deleted
//! keys are frequent.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::policy::Policy;
use runstone::policy::custom;
use runstone::unstable;
use runstone::{
    Background, Batch, CompactionFilter, CompactionInstall, Compression, Durability, Error,
    FilterDecision, GcPointers, Keyspace, KeyspaceOptions, Options, ReadOptions, Snapshot, Store,
    SubCompactions, TransactionOptions, ValueOptions, ValuePlacement, WalMode, WriteOptions,
};
use runstone_policy::filters::FilterAllocation;
use runstone_policy::partition::Partitioner;

use crate::clock::WorkloadClock;
use crate::oracle::{Change, Content, Found, OPERATOR, Oracle, State, Write, assert_same};
use crate::random::Random;

/// Adds a change of a key to a batch or to a transaction, which have the same calls.
#[macro_export]
macro_rules! add {
    ($to:expr, $keyspace:expr, $key:expr, $change:expr) => {{
        use $crate::clock::{LASTING, PASSING};
        use $crate::oracle::Change::*;
        let (keyspace, key) = ($keyspace, &$key[..]);
        match $change {
            Put(value) => $to.put(keyspace, key, value),
            PutLasting(value) => $to.put_with_ttl(keyspace, key, value, LASTING),
            PutPassing(value) => $to.put_with_ttl(keyspace, key, value, PASSING),
            Delete => $to.delete(keyspace, key),
            Merge(operand) => $to.merge(keyspace, key, operand),
            DeleteRange(Some(end)) => $to.delete_range(keyspace, key..&end[..]),
            DeleteRange(None) => $to.delete_range(keyspace, key..),
        }
    }};
}

/// Names of the keyspaces that workloads use.
pub const KEYSPACES: [&str; 2] = ["default", "other"];

/// One operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Writes applied atomically; `sync` requests durability.
    Write {
        /// The writes, in order.
        writes: Vec<Write>,
        /// Whether the acknowledgement promises durability.
        sync: bool,
    },
    /// Compares one key with the oracle.
    Get(Write),
    /// Compares everything with the oracle, in both directions.
    Scan,
    /// Takes a snapshot that later `CheckSnapshot`s compare.
    Snapshot,
    /// Compares the oldest held snapshot with what it must show, and drops it.
    CheckSnapshot,
    /// Makes everything durable.
    Sync,
    /// Writes memtables to tables.
    Flush,
    /// Compacts everything to one run.
    Compact,
    /// Collects the known garbage of value files.
    Collect,
    /// Runs a background job.
    RunOneJob,
    /// Closes and opens again.
    Reopen,
}

/// Generates the workload of a seed.
pub fn generate(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut operations: Vec<_> = (0..count).map(|_| operation(&mut random)).collect();
    // Drawn from a separate stream, so that the rest of a seed stays the same.
    let mut expiry = Random::new(seed ^ 0x0e79_14e5);
    for operation in &mut operations {
        let Operation::Write { writes, .. } = operation else { continue };
        writes.iter_mut().for_each(|write| make_expiring(&mut write.change, &mut expiry));
    }
    operations
}

/// Some puts become puts that expire, and some deletes become puts that have expired.
fn make_expiring(change: &mut Change, random: &mut Random) {
    match change {
        Change::Put(value) if random.one_in(5) => {
            *change = Change::PutLasting(std::mem::take(value));
        }
        Change::Delete if random.one_in(3) => {
            *change = Change::PutPassing(vec![7; random.below(200) as usize]);
        }
        _ => {}
    }
}

/// The workload of a seed where every eighth write has a value too large for a log segment.
pub fn generate_large(seed: u64, count: usize) -> Vec<Operation> {
    let mut operations = generate(seed, count);
    let mut random = Random::new(seed ^ 0x1a59e);
    for operation in &mut operations {
        if let Operation::Write { writes, .. } = operation
            && random.one_in(8)
            && let Change::Put(value) = &mut writes[0].change
        {
            let byte = value.first().copied().unwrap_or_default();
            value.resize(70_000 + random.below(100_000) as usize, byte);
        }
    }
    operations
}

/// The same operations with puts in the place of operands, which not every placement supports.
pub fn without_operands(mut operations: Vec<Operation>) -> Vec<Operation> {
    for operation in &mut operations {
        let Operation::Write { writes, .. } = operation else { continue };
        for write in writes {
            write.change = write.change.clone().without_operand();
        }
    }
    operations
}

fn operation(random: &mut Random) -> Operation {
    match random.below(100) {
        0..55 => {
            let count = if random.one_in(4) { 1 + random.below(8) } else { 1 };
            let writes = (0..count).map(|_| write(random)).collect();
            Operation::Write { writes, sync: random.one_in(6) }
        }
        55..67 => Operation::Get(write(random)),
        67..70 => Operation::Scan,
        70..74 => Operation::Snapshot,
        74..77 => Operation::CheckSnapshot,
        77..79 => Operation::Sync,
        79..85 => Operation::Flush,
        85..86 => Operation::Compact,
        86..87 => Operation::Collect,
        87..98 => Operation::RunOneJob,
        _ => Operation::Reopen,
    }
}

fn write(random: &mut Random) -> Write {
    let keyspace = usize::from(random.one_in(3));
    let key = match random.below(20) {
        0 => Vec::new(),
        1 => vec![0xff; random.below(9) as usize],
        _ => format!("key{:03}", random.below(60)).into_bytes(),
    };
    if random.one_in(25) {
        return range_delete(random, keyspace, key);
    }
    if random.one_in(6) {
        let operand = (0..random.below(9)).map(|_| random.draw() as u8).collect();
        return Write { keyspace, key, change: Change::Merge(operand) };
    }
    let value = (!random.one_in(4)).then(|| {
        let len = match random.below(10) {
            0 => 0,
            1 => 2_000 + random.below(6_000),
            _ => random.below(120),
        };
        (0..len).map(|i| (random.draw() >> (i % 40)) as u8).collect()
    });
    Write { keyspace, key, change: value.map_or(Change::Delete, Change::Put) }
}

/// Deletes some keys from `key` on. Most ranges are short, so that many keys are left.
fn range_delete(random: &mut Random, keyspace: usize, key: Vec<u8>) -> Write {
    let number = |key: &[u8]| std::str::from_utf8(key.get(3..)?).ok()?.parse::<u64>().ok();
    let end = match (number(&key), random.below(8)) {
        (_, 0) => None,
        (Some(number), _) => Some(format!("key{:03}", number + random.below(12)).into_bytes()),
        (None, _) => Some([&key[..], &[0x80]].concat()),
    };
    Write { keyspace, key, change: Change::DeleteRange(end) }
}

/// Options under which small workloads flush, compact and recycle log segments. They differ by
/// seed, and so does the policy.
pub fn options(seed: u64, background: Background) -> Options {
    let policies = runstone_policy::registry::POLICIES;
    let policy = policies[Random::new(seed).below(policies.len() as u64) as usize];
    options_for(policy.name(), seed, background)
}

/// A compaction filter that replaces values with equal ones.
#[derive(Debug)]
struct Rewriting;

/// The name of this filter.
const REWRITING: &str = "rewriting";

impl CompactionFilter for Rewriting {
    fn name(&self) -> &str {
        REWRITING
    }

    fn decide(&self, _level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        match key.last().is_some_and(|byte| byte % 2 == 0) {
            true => FilterDecision::Change(value.to_vec()),
            false => FilterDecision::Keep,
        }
    }
}

/// Sets the merge operator and the compaction filter, if the placement of values supports them.
pub fn set_programs(keyspace: &mut KeyspaceOptions, merges: bool, filters: bool) {
    let values = &keyspace.values;
    let may = values.placement != ValuePlacement::Vlog && !values.writes_back();
    let name = |wanted: bool, name: &str| if wanted && may { name } else { "" }.to_string();
    keyspace.merge_operator = name(merges, OPERATOR);
    keyspace.compaction_filter = name(filters, REWRITING);
}

/// Leaves the choice of a partitioner to a policy that has one of its own.
pub fn with_own_partitioner(keyspace: &mut KeyspaceOptions) {
    if custom::policy_of(keyspace).is_ok_and(|policy| policy.own_partitioner().is_some()) {
        unstable::numbers_mut(keyspace).partitioner = Partitioner::Size;
    }
}

/// The same options with a given policy.
pub fn options_for(policy: &str, seed: u64, background: Background) -> Options {
    let mut random = Random::new(seed ^ 0x0b71_0a50);
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    keyspace.write_buffer_bytes = 64 << 10;
    keyspace.block_bytes = [256, 1024, 4096][random.below(3) as usize];
    keyspace.restart_interval = [1, 4, 16][random.below(3) as usize];
    keyspace.hash_index = random.one_in(2);
    keyspace.filter_bits_per_key = [0.0, 5.0, 10.0][random.below(3) as usize].into();
    let allocations =
        [FilterAllocation::Uniform, FilterAllocation::Optimal, FilterAllocation::None];
    keyspace.filter_allocation = allocations[random.below(3) as usize];
    let codecs = [Compression::None, Compression::Lz4, Compression::Zstd];
    keyspace.compression = vec![codecs[random.below(3) as usize]];
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.size_ratio = 2 + random.below(4) as u32;
    shape.l0_trigger = 1 + random.below(4) as u32;
    shape.base_bytes = 8 << 10 << random.below(3);
    shape.table_bytes = 4 << 10 << random.below(3);
    shape.split_bytes = 4 << 10 << random.below(2);
    shape.access_limit = 1 + random.below(20) as u32;
    // Drawn from a separate stream, so that the other options of a seed stay the same.
    let mut stack = Random::new(seed ^ 0x57ac_0b1c);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.stack_runs = 1 + stack.below(6) as u32;
    shape.universal_trigger = 1 + stack.below(5) as u32;
    let partitioners = runstone_policy::partition::PARTITIONERS;
    unstable::numbers_mut(&mut keyspace).partitioner =
        partitioners[stack.below(partitioners.len() as u64) as usize];
    with_own_partitioner(&mut keyspace);
    let mut space = Random::new(seed ^ 0x5bac_eb0d);
    if space.one_in(3) {
        unstable::numbers_mut(&mut keyspace).max_space_percent = 110 + space.below(100) as u32;
    }
    let mut seeks = Random::new(seed ^ 0x5ee4_1a6e);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.seek_compaction = seeks.one_in(2);
    shape.least_seeks = 1 + seeks.below(20) as u32;
    keyspace.values = value_options(seed);
    if stack.one_in(2) {
        keyspace.compaction_install = CompactionInstall::Incremental;
    }
    if stack.one_in(4) {
        keyspace.sub_compactions = SubCompactions::Components;
    }
    set_programs(&mut keyspace, true, Random::new(seed ^ 0x00f1_17e4).one_in(4));
    keyspace.partition_flushes = Random::new(seed ^ 0x0f1a_5c75).one_in(3);
    Options::default()
        .memory_budget_bytes(2 << 20)
        .background(background)
        .wal_segment_bytes(64 << 10)
        .max_wal_bytes(512 << 10)
        .wal_mode(if random.one_in(2) { WalMode::Mapped } else { WalMode::Write })
        .seed(seed)
        .clock(Arc::new(WorkloadClock))
        .compaction_filters(vec![Arc::new(Rewriting)])
        .keyspace(keyspace)
}

/// Value options. For half of the seeds, small workloads separate and collect values.
fn value_options(seed: u64) -> ValueOptions {
    let mut random = Random::new(seed ^ 0x7a1_0e5);
    let placements = [
        ValuePlacement::HashGrouped,
        ValuePlacement::Inline,
        ValuePlacement::Vlog,
        ValuePlacement::Inline,
    ];
    // Drawn from a separate stream, so that the other options of a seed stay the same.
    let writes_back = Random::new(seed ^ 0xbac4).one_in(3);
    let gc_pointers = if writes_back { GcPointers::Writeback } else { GcPointers::Stable };
    ValueOptions::default()
        .placement(placements[random.below(4) as usize])
        .separate_at([1, 60, 1000][random.below(3) as usize])
        .groups(1 + random.below(3) as u32)
        .slot_bytes(4096 << random.below(2))
        .reserve([0.05, 0.3][random.below(2) as usize])
        .vlog_chunk_bytes(8192)
        .early(Random::new(seed ^ 0xea21).below(3) > 0)
        .cold_stream(Random::new(seed ^ 0xc01d).one_in(2))
        .gc_pointers(gc_pointers)
}

/// The same options without a log, with this placement.
pub fn logless(options: Options, placement: ValuePlacement) -> Options {
    placed(options, placement).wal_mode(WalMode::Off)
}

/// The same options under each way to store values separated from the tree. What must hold under
/// one of them is tested under all.
pub fn separated(options: &Options) -> [Options; 6] {
    [
        placed(options.clone(), ValuePlacement::HashGrouped),
        placed(options.clone(), ValuePlacement::Vlog),
        early(options.clone()),
        cooled(options.clone()),
        written_back(options.clone()),
        cooled_back(options.clone()),
    ]
}

/// The same options with a log of values that are written before their writes are logged.
pub fn early(options: Options) -> Options {
    let mut options = placed(options, ValuePlacement::Vlog);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values.early = true;
    }
    options
}

/// The same options with hash groups and a cold stream.
pub fn cooled(options: Options) -> Options {
    let mut options = placed(options, ValuePlacement::HashGrouped);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values.cold_stream = true;
    }
    options
}

/// The same options with another placement. Hash groups get stable pointers, and a log gets no
/// merge operator.
pub fn placed(mut options: Options, placement: ValuePlacement) -> Options {
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values.placement = placement;
        keyspace.values.gc_pointers = GcPointers::Stable;
        set_programs(keyspace, true, !keyspace.compaction_filter.is_empty());
    }
    options
}

/// The same options with hash groups whose pointers are written back.
pub fn written_back(options: Options) -> Options {
    let mut options = placed(options, ValuePlacement::HashGrouped);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values.cold_stream = false;
        keyspace.values.gc_pointers = GcPointers::Writeback;
        set_programs(keyspace, false, false);
    }
    options
}

/// The same options as [`written_back`], with a cold stream.
pub fn cooled_back(options: Options) -> Options {
    let mut options = written_back(options);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values.cold_stream = true;
    }
    options
}

/// A store under test, with its oracle.
#[derive(Debug)]
pub struct Run {
    /// The open store; `None` while it is being reopened.
    pub store: Option<Store>,
    /// What must be true.
    pub oracle: Oracle,
    snapshots: Vec<(Snapshot, State)>,
    has_log: bool,
}

impl Run {
    /// Starts on an open store whose content is the oracle's state.
    pub fn new(store: Store, oracle: Oracle) -> Run {
        Run { store: Some(store), oracle, snapshots: Vec::new(), has_log: true }
    }

    /// The same run, for a store with these options. Without a log, a write that requests a sync is
    /// followed by a separate sync.
    pub fn with(self, options: &Options) -> Run {
        Run { has_log: options.wal_mode != WalMode::Off, ..self }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open between operations")
    }

    /// Whether a snapshot is held that is still to be compared.
    pub(crate) fn holds_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// Applies one operation. An error is the store's; a disagreement with the oracle panics.
    pub fn apply(
        &mut self,
        operation: &Operation,
        reopen: impl FnOnce() -> Result<Store, Error>,
    ) -> Result<(), Error> {
        match operation {
            Operation::Write { writes, sync } => self.write(writes, *sync)?,
            Operation::Get(probe) => {
                let keyspace = keyspaces(self.store())?.swap_remove(probe.keyspace);
                let found = keyspace.get(&probe.key)?;
                let expected = self.oracle.state().get(&(probe.keyspace, probe.key.clone()));
                let found = found.as_deref();
                assert_eq!(found, expected.map(|value| &value[..]), "get {:?}", probe.key);
            }
            Operation::Scan => {
                assert_same(&read_all(self.store(), None)?, self.oracle.state(), "a scan");
            }
            Operation::Snapshot => {
                let state = self.oracle.state().clone();
                self.snapshots.push((self.store().snapshot(), state));
            }
            Operation::CheckSnapshot => {
                if !self.snapshots.is_empty() {
                    let (snapshot, state) = self.snapshots.remove(0);
                    assert_same(&read_all(self.store(), Some(&snapshot))?, &state, "P5");
                }
            }
            Operation::Sync => {
                self.store().sync()?;
                self.oracle.synced();
            }
            Operation::Flush => {
                self.store().flush()?;
                self.oracle.synced();
            }
            Operation::Compact => {
                self.store().compact()?;
                self.oracle.synced();
            }
            Operation::Collect => self.store().collect_values()?,
            Operation::RunOneJob => {
                self.store().run_one_job()?;
            }
            Operation::Reopen => {
                self.snapshots.clear();
                if let Some(store) = self.store.take() {
                    store.close()?;
                }
                self.oracle.synced();
                self.store = Some(reopen()?);
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: &[Write], sync: bool) -> Result<(), Error> {
        let keyspaces = keyspaces(self.store())?;
        let mut writes = writes.to_vec();
        let mut batch = Batch::new();
        for Write { keyspace, key, change } in &mut writes {
            let keyspace = &keyspaces[*keyspace];
            if keyspace.options().merge_operator.is_empty() {
                // Not every placement supports operands.
                *change = change.clone().without_operand();
            }
            add!(batch, keyspace, key, change)?;
        }
        self.attempt(&writes, sync, |store, options| store.write(&batch, options))
    }

    /// Commits writes by a transaction, with puts in the place of operands. The transaction logs
    /// only the last write of each key, in another order, with the same outcome.
    pub fn commit(
        &mut self,
        writes: &[Write],
        sync: bool,
        mode: TransactionOptions,
    ) -> Result<(), Error> {
        let keyspaces = keyspaces(self.store())?;
        let mut writes = writes.to_vec();
        let mut transaction = self.store().begin(mode)?;
        for Write { keyspace, key, change } in &mut writes {
            *change = change.clone().without_operand();
            add!(transaction, &keyspaces[*keyspace], key, change)?;
        }
        let writes_any = writes.iter().any(|write| !write.change.is_nothing(&write.key));
        self.attempt(&writes, sync && writes_any, |_, options| transaction.commit(options))
    }

    /// Loads sorted entries into a keyspace, all at once; `None` deletes. Value files that write
    /// pointers back refuse a load over existing keys.
    pub fn load(
        &mut self,
        keyspace: usize,
        entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        load: impl FnOnce(&Keyspace) -> Result<u64, Error>,
    ) -> Result<(), Error> {
        let write = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| Write {
            keyspace,
            key: key.clone(),
            change: value.clone().map_or(Change::Delete, Change::Put),
        };
        let handle = keyspaces(self.store())?.swap_remove(keyspace);
        self.oracle.attempt(&entries.iter().map(write).collect::<Vec<_>>());
        match load(&handle) {
            Ok(count) => assert_eq!(count, entries.len() as u64),
            Err(refused @ Error::InvalidArgument { .. }) => {
                let told = refused.to_string();
                assert!(told.contains("writes pointers back"), "nothing else is refused: {told}");
                self.oracle.withdraw();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.oracle.acknowledge();
        if !entries.is_empty() {
            self.oracle.synced();
        }
        Ok(())
    }

    fn attempt(
        &mut self,
        writes: &[Write],
        sync: bool,
        write: impl FnOnce(&Store, WriteOptions) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.oracle.attempt(writes);
        let durability = if sync && self.has_log { Durability::Sync } else { Durability::Buffered };
        let outcome = write(self.store(), WriteOptions::default().durability(durability));
        WorkloadClock::tick();
        outcome?;
        self.oracle.acknowledge();
        if sync && !self.has_log {
            self.store().sync()?;
        }
        if sync {
            self.oracle.synced();
        }
        Ok(())
    }
}

/// Handles of the workload's keyspaces, which are made if absent.
pub fn keyspaces(store: &Store) -> Result<Vec<Keyspace>, Error> {
    let options = store.default_keyspace().options();
    KEYSPACES
        .iter()
        .map(|name| match store.keyspace(name) {
            Ok(keyspace) => Ok(keyspace),
            Err(_) => store.open_keyspace(name, Some((*options).clone())),
        })
        .collect()
}

/// Everything in the workload's keyspaces of a store.
pub fn read_all(store: &Store, snapshot: Option<&Snapshot>) -> Result<State, Error> {
    let mut state = BTreeMap::new();
    for (i, name) in KEYSPACES.iter().enumerate() {
        // A crash may happen before a keyspace is made. The keyspace counts as empty.
        let Ok(keyspace) = store.keyspace(name) else { continue };
        let content = read_keyspace(&keyspace, snapshot)?;
        state.extend(content.into_iter().map(|(key, value)| ((i, key), value)));
    }
    Ok(state)
}

/// Everything in a store, whatever keyspaces it has.
pub fn read_keyspaces(store: &Store) -> Result<Found, Error> {
    let read = |name: String| Ok((name.clone(), read_keyspace(&store.keyspace(&name)?, None)?));
    store.keyspaces().into_iter().map(read).collect()
}

/// Everything in a keyspace, read forward and backward and by key.
pub fn read_keyspace(keyspace: &Keyspace, snapshot: Option<&Snapshot>) -> Result<Content, Error> {
    let options = match snapshot {
        Some(snapshot) => ReadOptions::default().at(snapshot),
        None => ReadOptions::default(),
    };
    let mut forward = Vec::new();
    let mut cursor = keyspace.cursor(options)?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        forward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next()?;
    }
    let mut backward = Vec::new();
    cursor.seek_to_last()?;
    while cursor.valid() {
        backward.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.prev()?;
    }
    backward.reverse();
    assert_eq!(forward, backward, "both directions show the same");
    for (key, value) in &forward {
        let found = match snapshot {
            Some(snapshot) => keyspace.get_at(key, snapshot)?,
            None => keyspace.get(key)?,
        };
        assert_eq!(found.as_deref(), Some(&value[..]), "get and scan agree on {key:?}");
    }
    Ok(forward.into_iter().collect())
}
