//! HashKV: hash-grouped values beside a value log and beside values in the tree (Chan et al.), on
//! the engine. The specification's scaled run divided by eight: 131,072 pairs of 24 + 992 bytes,
//! 16 groups (not 128) with main segments of 8 MiB and slots of 128 KiB, 200 KiB of write cache: a
//! flush has as many records for a group, and a group as many slots.
//!
//! A run loads all pairs in random order (P0), then updates as many three times (P1 to P3), chosen
//! by YCSB's scrambled zipfian curve. What is compared is P3: by then every design pays its
//! collection. Files are in memory and jobs run between operations, so that bytes are functions of
//! the options; a throughput is operations per second of processor time, merging and collecting
//! included.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone::policy::options::PolicyOptions;
use runstone::storage::MemoryStorage;
use runstone::{
    Background, KeyspaceOptions, Options, Result, Store, ValueOptions, ValuePlacement, WalMode,
    WhenFull,
};

use super::engine::plain_options;
use super::{Context, PaperReport};
use crate::generators::rng::mix64;
use crate::generators::{Rng, ScrambledZipfian, ValueGenerator};

/// The specification's sizes are divided by this.
const DIVISOR: u64 = 8;
const RECORDS: u64 = (1 << 20) / DIVISOR;
const VALUE_BYTES: usize = 992;
const KEY_BYTES: usize = 24;
/// 1.6 MiB of write cache.
const CACHE_BYTES: u64 = (1600 << 10) / DIVISOR;
const GROUPS: u32 = 128 / DIVISOR as u32;
/// Main segment of a group.
const MAIN_BYTES: u64 = 8 << 20;
/// Log segment.
const SLOT_BYTES: u32 = 128 << 10;
const OPERATIONS_PER_LOOK: u64 = 16;

/// Measures all claims.
pub fn run(context: &Context<'_>) -> Result<PaperReport> {
    let mut report = PaperReport::new("hashkv", context.scale);
    report.notes.push(
        "updates follow YCSB's scrambled zipfian curve; throughput is per second of processor \
         time on files in memory"
            .into(),
    );
    overall(context, &mut report)?;
    Ok(report)
}

/// One design.
#[derive(Clone)]
struct Design {
    keyspace: KeyspaceOptions,
    memory_bytes: u64,
}

/// What a phase did.
#[derive(Clone, Debug)]
struct Phase {
    operations: u64,
    took: Duration,
    wal_bytes: u64,
    table_bytes: u64,
    value_bytes: u64,
    user_bytes: u64,
}

impl Phase {
    fn per_second(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }

    fn written_bytes(&self) -> u64 {
        self.wal_bytes + self.table_bytes + self.value_bytes
    }

    fn amplification(&self) -> f64 {
        self.written_bytes() as f64 / self.user_bytes as f64
    }

    fn bytes_text(&self) -> String {
        let part = |bytes: u64| bytes as f64 / self.user_bytes as f64;
        format!(
            "{:.2} (log {:.2}, tables {:.2}, values {:.2})",
            self.amplification(),
            part(self.wal_bytes),
            part(self.table_bytes),
            part(self.value_bytes)
        )
    }
}

/// A store with its load.
struct Bench {
    store: Store,
    rng: Rng,
    values: ValueGenerator,
    value_bytes: usize,
    records: u64,
    seen: ([u64; 3], Instant),
    operations: u64,
    user_bytes: u64,
}

impl Bench {
    fn new(design: &Design, records: u64, value_bytes: usize) -> Result<Bench> {
        let options = Options {
            background: Background::Manual,
            seed: Some(1),
            wal_mode: WalMode::Write,
            wal_segment_bytes: 64 << 10,
            max_wal_bytes: 16 << 20,
            memory_budget_bytes: design.memory_bytes,
            keyspace: Some(design.keyspace.clone()),
            ..Options::default()
        };
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options)?;
        let mut rng = Rng::new(1);
        let values = ValueGenerator::new(&mut rng, 1.0, value_bytes);
        let seen = ([0; 3], Instant::now());
        let (operations, user_bytes) = (0, 0);
        Ok(Bench { store, rng, values, value_bytes, records, seen, operations, user_bytes })
    }

    fn put(&mut self, record: u64) -> Result<()> {
        self.store.put(key(record), self.values.next(self.value_bytes))?;
        self.operations += 1;
        self.user_bytes += (KEY_BYTES + self.value_bytes) as u64;
        if self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            while self.store.run_one_job()? {}
        }
        Ok(())
    }

    /// P0.
    fn load(&mut self) -> Result<Phase> {
        for record in 0..self.records {
            self.put(record)?;
        }
        Ok(self.phase())
    }

    /// P1 to P3.
    fn update(&mut self, updates: u64) -> Result<Phase> {
        let zipfian = ScrambledZipfian::new(self.records);
        for _ in 0..updates {
            let record = zipfian.next(&mut self.rng);
            self.put(record)?;
        }
        Ok(self.phase())
    }

    /// What was done since the last phase ended.
    fn phase(&mut self) -> Phase {
        let metrics = self.store.metrics();
        let written = |name: &str| {
            metrics.io.iter().find(|io| io.category == name).map_or(0, |io| io.written_bytes)
        };
        let bytes = [written("wal"), written("table"), written("value")];
        let now = Instant::now();
        let (before, since) = std::mem::replace(&mut self.seen, (bytes, now));
        Phase {
            operations: std::mem::take(&mut self.operations),
            took: now - since,
            wal_bytes: bytes[0] - before[0],
            table_bytes: bytes[1] - before[1],
            value_bytes: bytes[2] - before[2],
            user_bytes: std::mem::take(&mut self.user_bytes),
        }
    }
}

/// A number as a key: eight mixed bytes, then zeros.
fn key(record: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mix64(record).to_be_bytes());
    key
}

fn tree_options() -> KeyspaceOptions {
    KeyspaceOptions {
        write_buffer_bytes: CACHE_BYTES,
        shape: PolicyOptions {
            l0_trigger: 4,
            base_bytes: (10 << 20) / DIVISOR,
            table_bytes: (2 << 20) / DIVISOR,
            ..PolicyOptions::default()
        },
        filter_bits_per_key_x10: 100,
        ..plain_options("fragmented-leveling")
    }
}

fn inline() -> Design {
    Design { keyspace: tree_options(), memory_bytes: 16 << 20 }
}

fn separated(placement: ValuePlacement, data_bytes: u64) -> Design {
    let values = ValueOptions {
        placement,
        separate_at: 1,
        groups: GROUPS,
        slot_bytes: SLOT_BYTES,
        capacity_bytes: data_bytes.max(u64::from(GROUPS) * MAIN_BYTES),
        reserve_permille: 300,
        when_full: WhenFull::Grow,
        vlog_chunk_bytes: CACHE_BYTES,
        ..ValueOptions::default()
    };
    Design { keyspace: KeyspaceOptions { values, ..tree_options() }, memory_bytes: 16 << 20 }
}

/// As the paper's LevelDB ran: no filters, hardly any cache.
fn without_filters(mut design: Design) -> Design {
    design.keyspace.filter_bits_per_key_x10 = 0;
    design.memory_bytes = 1 << 20;
    design
}

/// Experiment 1.
fn overall(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let records = context.scaled(RECORDS);
    let data = records * (KEY_BYTES + VALUE_BYTES + 18) as u64;
    let designs = [
        ("inline, leveled", inline()),
        ("vLog (A)", without_filters(separated(ValuePlacement::Vlog, data))),
        ("vLog (B)", separated(ValuePlacement::Vlog, data)),
        ("HashKV", separated(ValuePlacement::HashGrouped, data)),
    ];
    for (name, design) in designs {
        context.say(&format!("experiment 1: {name}"));
        let mut bench = Bench::new(&design, records, VALUE_BYTES)?;
        let load = bench.load()?;
        let mut phases = vec![load];
        for _ in 0..3 {
            phases.push(bench.update(records)?);
        }
        let Some(last) = phases.last() else { continue };
        let here = format!("{:.0} per second, {}", last.per_second(), last.bytes_text());
        let claim = format!("updates and bytes per user byte of P3: {name} (experiment 1)");
        report.show(&claim, "not comparable", here, "see the ratios");
    }
    Ok(())
}
