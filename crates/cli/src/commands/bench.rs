//! `bench`: db_bench's benchmarks under its names and flags, with its output line. The workloads
//! are in the crate `runstone-workloads`; here are the store, the flags and the progress.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction::Set;
use clap::ValueEnum;
use clap::builder::BoolishValueParser;
use indicatif::ProgressBar;
use runstone::{Compression, DEFAULT_KEYSPACE, KeyspaceOptions, Options, Store};
use runstone_kv::KvStore;
use runstone_workloads::{BenchReport, BenchSpec, Progress, WORKLOADS, runner};
use serde_json::json;

use crate::arguments::{MakeArguments, parse_size};
use crate::failure::{Exit, Failure, Result};
use crate::opened::Opened;
use crate::opening::{self, Location};
use crate::option_docs::summary;
use crate::output::{Output, bar_style, columns, size};
use crate::scratch::Scratch;
use runstone::Tenths;

/// Run benchmarks of db_bench and YCSB; without names, list them
///
/// The flags of db_bench work as it spells them: --benchmarks=fillrandom,readrandom --db=DIR
/// --use_existing_db=1 --num=1000000 --value_size=100 --compression_type=lz4 --seek_nexts=10.
#[derive(clap::Args)]
pub struct Args {
    /// Names, separated by commas.
    #[arg(value_delimiter = ',')]
    names: Vec<String>,
    /// The same names, as db_bench takes them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "names")]
    benchmarks: Vec<String>,
    /// Where the store is made and kept; without it, a directory for temporary files.
    #[arg(long, alias = "db", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Work on a store that holds data already.
    #[arg(long, aliases = ["use_existing", "use_existing_db"],
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = BoolishValueParser::new(), action = Set)]
    use_existing: bool,
    /// Number of keys; a filling benchmark writes this many.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Operations of a reading benchmark; without it, as many as --num.
    #[arg(long)]
    reads: Option<u64>,
    /// Threads that share the operations.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    #[arg(long, alias = "value_size", value_name = "SIZE", default_value = "100",
          value_parser = parse_size)]
    value_size: u64,
    #[arg(long, alias = "key_size", value_name = "SIZE", default_value = "16",
          value_parser = parse_size)]
    key_size: u64,
    /// Writes per atomic batch, and keys per multi-get.
    #[arg(long, alias = "batch_size", default_value_t = 1)]
    batch_size: u64,
    /// Entries read after a seek.
    #[arg(long, aliases = ["scan_length", "seek_nexts"], default_value_t = 100)]
    scan_length: u64,
    /// Sync every write.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = BoolishValueParser::new(), action = Set)]
    sync: bool,
    #[arg(long, default_value_t = 301)]
    seed: u64,
    /// End random benchmarks after this many seconds, not after a count.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Print latency histograms.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = BoolishValueParser::new(), action = Set)]
    histogram: bool,
    #[arg(long, alias = "bloom_bits", help = summary("filter_bits_per_key"))]
    bloom_bits: Option<u32>,
    /// Memory beside the write buffers: blocks, index, filters.
    #[arg(long, alias = "cache_size", value_name = "SIZE",
          value_parser = parse_size, conflicts_with = "memory_budget")]
    cache_size: Option<u64>,
    #[arg(long, alias = "write_buffer_size", value_name = "SIZE", value_parser = parse_size,
          help = summary("write_buffer_bytes"))]
    write_buffer_size: Option<u64>,
    /// Compression of all levels.
    #[arg(long, alias = "compression_type", value_enum)]
    compression: Option<Codec>,
    #[arg(long, alias = "compaction_slices", value_name = "W",
          help = summary("compaction_slices") + ". [default: idle cores]")]
    compaction_slices: Option<usize>,
    #[command(flatten)]
    make: MakeArguments,
}

/// Names of the codecs on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Codec {
    None,
    Lz4,
    Zstd,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        // clap accepts only one of the two.
        let names = [&self.names[..], &self.benchmarks].concat();
        if names.is_empty() {
            return list(output);
        }
        if self.use_existing && self.store.is_none() {
            return Err(Failure::usage("--use-existing needs a store", "name it with --store"));
        }
        let spec = self.spec()?;
        for name in &names {
            runner::find(name)?;
        }
        let scratch = match self.store {
            Some(_) => None,
            None => Some(Scratch::make("bench")?),
        };
        let path = match &scratch {
            Some(scratch) => scratch.path().join("store"),
            None => self.store.clone().unwrap_or_default(),
        };
        let location = Location::of(&path)?;
        let report = match self.device(&location)? {
            Some(device) => {
                let report = run_all(&names, &spec, device.kv(), output)?;
                device.close()?;
                report
            }
            None => {
                let store = self.open(&location)?;
                if !output.is_json {
                    output.line(self.header(&store))?;
                    output.flush()?;
                }
                let report = run_all(&names, &spec, &store, output)?;
                store.close()?;
                report
            }
        };
        self.finish(&spec, &report, &location, output)?;
        Ok(Exit::Ok)
    }

    /// Prints the text that follows the lines of the benchmarks.
    fn finish(
        &self,
        spec: &BenchSpec,
        report: &BenchReport,
        location: &Location,
        output: &Output,
    ) -> Result<()> {
        let flash = location.flash(report.metrics.user_bytes_written);
        if !output.is_json {
            output.text(&format!("{}\n", report.metrics.line()))?;
            let text = flash.map_or(String::new(), |flash| flash.text);
            return output.text(&text);
        }
        let mut json = json!({
            "engine": report.engine,
            "num": spec.num,
            "threads": spec.threads,
            "key_bytes": spec.key_bytes,
            "value_bytes": spec.value_bytes,
            "sync": spec.sync,
            "seed": spec.seed,
            "benchmarks": report.benchmarks,
            "metrics": report.metrics,
        });
        if let Some(flash) = flash {
            json["flash"] = flash.json;
        }
        output.json(&json)
    }

    /// The device, if the URL names one that is a store; the URL then contains its options.
    fn device(&self, location: &Location) -> Result<Option<Box<dyn Opened>>> {
        let has_engine_options = self.make.has_engine_options()
            || self.bloom_bits.is_some()
            || self.cache_size.is_some()
            || self.write_buffer_size.is_some()
            || self.compression.is_some()
            || self.compaction_slices.is_some();
        let device = location.device_to_make(DEFAULT_KEYSPACE, has_engine_options)?;
        if let Some(device) = &device
            && !self.use_existing
            && device.holds_data()?
        {
            let hint = "pass --use-existing to work on it, or name a new image";
            return Err(Failure::usage("the device holds data", hint));
        }
        Ok(device)
    }

    fn spec(&self) -> Result<BenchSpec> {
        let spec = BenchSpec {
            num: self.num,
            reads: self.reads,
            threads: self.threads,
            value_bytes: self.value_size as usize,
            key_bytes: self.key_size as usize,
            batch_size: self.batch_size,
            sync: self.sync,
            seed: self.seed,
            duration: self.duration.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            histogram: self.histogram,
            scan_length: self.scan_length,
            ..BenchSpec::default()
        };
        spec.check()?;
        Ok(spec)
    }

    /// The keyspace's options: the preset or file that the user named, else the stored options,
    /// changed by the flags.
    fn options(&self, location: &Location) -> Result<KeyspaceOptions> {
        let mut options = match opening::given_options(&self.make)? {
            Some(given) => given,
            None if self.use_existing => {
                let store = location.look()?;
                KeyspaceOptions::clone(&store.default_keyspace().options())
            }
            None => KeyspaceOptions::default(),
        };
        if let Some(policy) = &self.make.policy {
            options.policy.clone_from(policy);
        }
        if let Some(bits) = self.bloom_bits {
            options.filter_bits_per_key = Tenths::of_parts(bits.saturating_mul(10));
        }
        if let Some(bytes) = self.write_buffer_size {
            options.write_buffer_bytes = bytes;
        }
        if let Some(codec) = self.compression {
            options.compression = vec![match codec {
                Codec::None => Compression::None,
                Codec::Lz4 => Compression::Lz4,
                Codec::Zstd => Compression::Zstd,
            }];
        }
        options.check()?;
        Ok(options)
    }

    fn open(&self, location: &Location) -> Result<Store> {
        if !self.use_existing && location.holds_data()? {
            let hint = "pass --use-existing to work on it, or name a new store";
            return Err(Failure::usage("the store holds data", hint));
        }
        let keyspace = self.options(location)?;
        let mut options = Options::default()
            .create_if_missing(!self.use_existing)
            .compaction_slices(self.compaction_slices);
        let buffers = keyspace
            .write_buffer_bytes
            .saturating_mul(u64::from(keyspace.max_immutable_memtables) + 1);
        let default = options.memory_budget_bytes.max(buffers.saturating_mul(2));
        options.memory_budget_bytes = match (self.make.memory_budget, self.cache_size) {
            (Some(budget), _) => budget,
            (None, Some(cache)) => cache.saturating_add(buffers),
            (None, None) => default,
        };
        options.keyspace = Some(keyspace);
        location.open(options)
    }

    fn header(&self, store: &Store) -> String {
        let options = store.default_keyspace().options();
        format!(
            "Keys:       {} bytes each\nValues:     {} bytes each\nEntries:    {}\n\
             Policy:     {}\nMemory:     {}, write buffer {}\n\
             ------------------------------------------------",
            self.key_size,
            self.value_size,
            self.num,
            options.policy,
            size(store.metrics().memory.budget_bytes),
            size(options.write_buffer_bytes),
        )
    }
}

/// Runs one benchmark after another, and prints each result as soon as it is known. Live bytes are
/// counted once, at the end.
fn run_all(
    names: &[String],
    spec: &BenchSpec,
    store: &dyn KvStore,
    output: &Output,
) -> Result<BenchReport> {
    let bars = Bars { bar: output.count_bar("", None) };
    let mut whole: Option<BenchReport> = None;
    for (i, name) in names.iter().enumerate() {
        let spec = BenchSpec { measure_space: i + 1 == names.len(), ..spec.clone() };
        let report = runner::run(store, &[name], &spec, &bars)?;
        if !output.is_json {
            for benchmark in &report.benchmarks {
                output.text(&benchmark.to_text())?;
            }
            output.flush()?;
        }
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => {
                whole.benchmarks.extend(report.benchmarks);
                whole.metrics = report.metrics;
            }
        }
    }
    whole.ok_or_else(|| Failure::usage("no benchmark is named", "`runstone bench` lists them"))
}

/// Draws the progress of a benchmark.
struct Bars {
    bar: ProgressBar,
}

impl Progress for Bars {
    fn start(&self, name: &str, total: u64) {
        self.bar.set_length(total);
        self.bar.set_style(bar_style(total > 0, |count| count.to_string()));
        self.bar.set_message(name.to_string());
        self.bar.reset();
    }

    fn advance(&self, operations: u64) {
        self.bar.inc(operations);
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn list(output: &Output) -> Result<Exit> {
    if output.is_json {
        let all = WORKLOADS.iter().map(|w| json!({ "name": w.name, "doc": w.doc }));
        output.json(&json!({ "workloads": all.collect::<Vec<_>>() }))?;
        return Ok(Exit::Ok);
    }
    let row = |w: &runstone_workloads::Workload| vec![w.name.to_string(), w.doc.to_string()];
    let mut rows: Vec<Vec<String>> = WORKLOADS.iter().map(row).collect();
    rows.push(vec![runner::YCSB_ALL.into(), "all of them, one after the other".into()]);
    output.bytes(columns(&["benchmark", "what it does"], &rows).as_bytes())?;
    Ok(Exit::Ok)
}
